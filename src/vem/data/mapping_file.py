"""The mapping as a TOML file, with comments that explain it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vem.errors import DataError


def read_toml(path: Path) -> dict[str, Any]:
    """The entries of a mapping file."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise DataError(f"{path}: the mapping cannot be read ({error.strerror}); check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
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
    lines = [f"# {text}" for text in heading] + ([""] if heading else [])
    stored = dict(entries)
    columns = stored.pop("columns", {})
    for key in dict.fromkeys([*stored, *(key for key in remarks if not key.startswith("columns."))]):
        lines += [f"# {text}" for text in remarks.get(key, ())]
        if key in stored:
            lines.append(f"{key} = {_toml_value(stored[key])}")
        lines.append("")
    for name in dict.fromkeys(
        [*columns, *(key.removeprefix("columns.") for key in remarks if key.startswith("columns."))]
    ):
        lines += [f"# {text}" for text in remarks.get(f"columns.{name}", ())]
        if name in columns:
            lines.append(f"[columns.{_toml_key(name)}]")
            lines += [f"{key} = {_toml_value(value)}" for key, value in columns[name].items()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _toml_key(name: str) -> str:
    return name if name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name) else _toml_value(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    # JSON's strings and numbers are TOML's, once the escapes above the basic plane are left as they are.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)
