"""What the site needs beyond the pages: files outside docs/, and the Python reference from the docstrings.

Pages link to files of the repository by relative paths, as GitHub shows them. On the site CONTRIBUTING.md and
CHANGELOG.md are pages; Python files and notebooks that a page links to become pages that show them.
"""

from __future__ import annotations

import dataclasses
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
"""Files outside docs/ → their pages."""
SHOWN = (".py", ".ipynb")
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
REFERENCE = re.compile(r"^<!-- reference: (.*?) -->$", re.M)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of files outside docs/."""
    for source, page in PAGES.items():
        if files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    texts = [Path(str(file.abs_src_path)) for file in files.documentation_pages() if file.abs_src_path]
    for target in sorted({target for path in texts for target in _shown_files(path)}):
        content = f"# `{target}`\n\n{_content(ROOT / target)}\n"
        files.append(File.generated(config, _shown(target), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of docs/ to their pages, and put the docstrings in their places."""
    place = posixpath.dirname(page.file.src_uri)
    source = {page: path for path, page in PAGES.items()}.get(page.file.src_uri)
    is_outside = page.file.abs_src_path is None and source is not None

    def led(match: re.Match[str]) -> str:
        base = "" if is_outside else posixpath.join("docs", place)
        target = posixpath.normpath(posixpath.join(base, match[2]))
        if target.startswith("docs/"):
            new = target.removeprefix("docs/")
        else:
            new = PAGES.get(target) or (_shown(target) if target.endswith(SHOWN) else None)
        if new is None:
            return match[0]
        return match[1] + posixpath.relpath(new, place or ".") + (match[3] or "") + match[4]

    markdown = markdown.replace("```python excerpt", "```python")
    return REFERENCE.sub(lambda match: _reference(match[1].split()), LINK.sub(led, markdown))


def _shown(target: str) -> str:
    return f"source/{posixpath.splitext(target)[0]}.md"


def _content(path: Path) -> str:
    """A Python file as a block of code, a notebook as its texts and blocks."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return f"```python\n{text}```"
    cells = [(cell["cell_type"], "".join(cell["source"]).rstrip()) for cell in json.loads(text)["cells"]]
    return "\n\n".join(f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells)


def _shown_files(page: Path) -> list[str]:
    """The Python files and notebooks of the repository that a page links to."""
    found = []
    for match in LINK.finditer(page.read_text(encoding="utf-8")):
        path = (page.parent / match[2]).resolve()
        if path.suffix in SHOWN and path.is_file() and path.is_relative_to(ROOT):
            found.append(path.relative_to(ROOT).as_posix())
    return found


def _reference(names: list[str]) -> str:
    """The docstrings of public names of ``vem``, and the settings of those that are configurations."""
    import vem
    from vem.algorithms.base import Configuration

    parts = []
    for name in names:
        value = getattr(vem, name)
        is_settings = isinstance(value, type) and issubclass(value, Configuration)
        options = {"heading": f"vem.{name}", "toc_label": f"vem.{name}"}
        if is_settings:
            options |= {"trials": "false", "show_signature": "false", "separate_signature": "false"}
        lines = [f"::: {_path(value)}", "    options:", *(f"      {key}: {text}" for key, text in options.items())]
        parts.append("\n".join(lines) + (f"\n\n{_settings(value)}" if is_settings else ""))
    return "\n\n".join(parts)


def _path(value: Any) -> str:
    """Where a public name is defined; a package that can be called stands for the function of its name."""
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return {"vem.compare": "vem.comparison.compare.compare", "vem.report": "vem.reports.report.write_report"}[
        value.__name__
    ]


def _settings(configuration: type) -> str:
    """The settings of a method as a table."""
    from vem.algorithms.base import LIMITS

    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for field in dataclasses.fields(configuration):
        limit = field.metadata.get("limit", "any")
        bound = "" if limit == "any" else f"; {LIMITS[limit][0]}"
        sweep = "; can be swept" if field.metadata.get("sweep") else ""
        meaning = field.metadata.get("meaning", "").replace("|", "\\|")
        rows.append(f"| `{field.name}` | `{field.default!r}` | {meaning}{bound}{sweep} |")
    return "\n".join(rows)
