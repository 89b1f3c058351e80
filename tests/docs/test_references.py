"""What the documents name exists: files, tests, modules; and the pages of the site are those in docs/."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import vem

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_tests_exist(document):
    text = document.read_text(encoding="utf-8")
    files = re.findall(r"`((?:tests|benchmarks|examples|docs)/[\w/.-]+)`", text)
    files += [f"src/{name}" for name in re.findall(r"`(vem/[\w/]+\.py)`", text)]
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in TESTS] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_modules_and_functions_exist(document):
    names = re.findall(r"`(vem(?:\.\w+)+)(?:\(.*?\))?`", document.read_text(encoding="utf-8"))
    names = [name for name in dict.fromkeys(names) if name != "vem.methods"]  # the group of entry points
    assert [name for name in names if not exists(name)] == []


def exists(name):
    """Whether a dotted name leads to a module or to what one holds."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            place = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(place, part):
                return False
            place = getattr(place, part)
        return True
    return False


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document):
    links = re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_reference_has_every_public_name_once():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = [name for names in re.findall(r"<!-- reference: (.*?) -->", text) for name in names.split()]
    assert sorted(named) == sorted(vem.__all__)


def test_every_page_is_in_the_navigation():
    """Or in a comment there, until it is written."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f": {page}\n" not in navigation] == []
