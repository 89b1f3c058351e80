"""The mapping as a TOML file, with comments that explain it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vem.data.files import refuse_pipe
from vem.errors import DataError, printable


def read_toml(path: Path) -> dict[str, Any]:
    """The entries of a mapping file."""
    try:
        refuse_pipe(path)
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise DataError(f"{path}: the mapping cannot be read ({error.strerror}); check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"{path}: the mapping is no TOML ({error}); vem data map FILE --out {path.name} writes one."
        ) from None


def to_toml(
    entries: Mapping[str, Any], remarks: Mapping[str, Sequence[str]] | None = None, heading: Sequence[str] = ()
) -> str:
    """The entries of a mapping (``TableMap.to_json``) as a TOML file.

    ``remarks`` are comments above an entry or, as ``columns.NAME``, above what is said about a column.
    """
    remarks = remarks or {}
    lines = _comments(heading) + ([""] if heading else [])
    stored = dict(entries)
    columns = stored.pop("columns", {})
    for key in dict.fromkeys([*stored, *(key for key in remarks if not key.startswith("columns."))]):
        lines += _comments(remarks.get(key, ()))
        if key in stored:
            lines.append(f"{key} = {_toml_value(stored[key])}")
        lines.append("")
    for name in dict.fromkeys(
        [*columns, *(key.removeprefix("columns.") for key in remarks if key.startswith("columns."))]
    ):
        lines += _comments(remarks.get(f"columns.{name}", ()))
        if name in columns:
            lines.append(f"[columns.{_toml_key(name)}]")
            lines += [f"{key} = {_toml_value(value)}" for key, value in columns[name].items()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _comments(texts: Sequence[str]) -> list[str]:
    """Each text as one comment: a name with a line break in it must not begin an entry."""
    return [f"# {printable(text)}" for text in texts]


def _toml_key(name: str) -> str:
    return name if name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name) else _toml_value(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if not isinstance(value, str):
        return repr(value)
    # JSON's strings are TOML's, once what a terminal would obey is escaped and the rest left as it is.
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
