"""The mapping: which column of a table is what, and by which rules it is read. A dict, keywords, TOML or JSON."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vem.data.actions import MOST_CHOICES
from vem.data.encoding import KINDS, MISSING_RULES, label_text
from vem.data.files import refuse_pipe, user_path
from vem.errors import DataError, SettingsError, printable

# The mapping as a file; vem writes TOML, with comments that explain it.


def read_mapping(path: Path) -> Any:
    """What a mapping file holds."""
    form = "JSON" if path.suffix.lower() == ".json" else "TOML"
    try:
        refuse_pipe(path)
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if form == "JSON" else tomllib.loads(text)
    except OSError as error:
        raise DataError(f"{path}: the mapping cannot be read ({error.strerror}); check the path.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: the mapping is no {form} ({error}); vem data map FILE --out map.toml writes one."
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


ACTION_KINDS = ("box", "discrete")
ROLES = ("observation", "action", "reward", "episode", "time", "terminal", "truncated")
SINGLE_ROLES = ROLES[2:]
DUPLICATES = ("refuse", "first")
KEEP = "keep"


@dataclass(frozen=True)
class ColumnRule:
    """What is said about one column; None: what the data and the mapping's own rules say."""

    kind: str | None = None
    """An observation: ``number``, ``boolean`` or ``categorical``; an action: ``box`` or ``discrete``."""
    labels: tuple[str, ...] = ()
    """The values of a categorical or discrete column, in the order of their codes."""
    low: float | None = None
    high: float | None = None
    """Bounds of a box action."""
    missing: str | None = None
    sentinels: tuple[float, ...] | None = None


@dataclass(frozen=True)
class TableMap:
    """Which column of a table is what."""

    observation: tuple[str, ...] = ()
    action: tuple[str, ...] = ()
    reward: str | None = None
    episode: str | None = None
    """Rows with the same value belong together."""
    time: str | None = None
    """The order of the rows: timestamps, or numbers."""
    terminal: str | None = None
    """The step ended the task."""
    truncated: str | None = None
    """Only the trajectory ended after this step."""
    missing: str = "refuse"
    """Missing observations: ``refuse``, ``forward-fill`` within the episode, or ``indicator``: the column's mean and
    one more number that is 1."""
    sentinels: tuple[float, ...] | None = None
    """Numbers that mean a missing value in every column; None: usual ones are looked for and refused."""
    gap: float | str | None = None
    """The longest step in time, in seconds for timestamps; longer ones end the trajectory. ``keep``: none does. None:
    steps far longer than the usual one are refused."""
    duplicates: str = "refuse"
    """Two rows of one episode and time: ``refuse``, or keep the ``first``."""
    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    """What is said about single columns."""

    def rule(self, name: str) -> ColumnRule:
        """What is said about a column."""
        return self.columns.get(name, ColumnRule())

    @property
    def roles(self) -> dict[str, str]:
        """Column → its role."""
        single = {column: role for role in SINGLE_ROLES if (column := getattr(self, role)) is not None}
        return {**dict.fromkeys(self.observation, "observation"), **single, **dict.fromkeys(self.action, "action")}

    def to_json(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON and TOML can hold it."""
        return _given(self, TableMap) | ({"columns": _rules(self.columns)} if self.columns else {})

    def check(self) -> None:
        """SettingsError if the mapping contradicts itself or says too little."""
        if not self.observation or not self.action or self.reward is None:
            lacking = "observation" if not self.observation else "action" if not self.action else "reward"
            raise SettingsError(
                f"the mapping names no {lacking} column; observation, action and reward are needed. "
                "vem data map FILE proposes a mapping."
            )
        named = [*self.observation, *self.action, self.reward, self.terminal, self.truncated]
        twice = [name for name in named if name is not None and named.count(name) > 1]
        if twice:
            roles = [role for role in ROLES if twice[0] in _listed(getattr(self, role))]
            what = " and ".join(roles) if len(roles) > 1 else f"{roles[0]} twice"
            raise SettingsError(
                f"column '{twice[0]}' is mapped as {what}; an action, a reward or an end that is also observed would "
                "tell the policy its answer. Give each column one role."
            )
        keys = {"episode": self.episode, "time": self.time}
        for key, column in keys.items():
            also = [
                role for role in ROLES if role not in ("observation", key) and column in _listed(getattr(self, role))
            ]
            if column is not None and also:
                raise SettingsError(
                    f"column '{column}' is mapped as {key} and {also[0]}; only an observation may also be {key}."
                )
        if self.gap is not None and self.time is None:
            raise SettingsError("the mapping has a gap and no time column to measure it in; map time, or drop gap.")
        if self.duplicates != "refuse" and None in keys.values():
            raise SettingsError(
                f'duplicates = "{self.duplicates}" needs an episode and a time column, which together name a step; map '
                "both, or drop it."
            )
        for name, rule in self.columns.items():
            self._check_rule(name, rule)

    def _check_rule(self, name: str, rule: ColumnRule) -> None:
        role = self.roles.get(name)
        if role is None:
            raise SettingsError(
                f"[columns.{name}]: the column has no role in the mapping; give it one, or drop the entry."
            )
        kinds = {"observation": KINDS, "action": ACTION_KINDS}.get(role, ())
        if rule.kind is not None and rule.kind not in kinds:
            wanted = f"one of {', '.join(kinds)}" if kinds else "no kind"
            raise SettingsError(f"[columns.{name}]: kind is {rule.kind!r}, and {role} columns have {wanted}.")
        if (rule.low is not None or rule.high is not None) and (role != "action" or rule.kind == "discrete"):
            raise SettingsError(f"[columns.{name}]: low and high are for box actions; drop them.")
        if rule.labels and rule.kind in ("number", "boolean", "box"):
            raise SettingsError(
                f"[columns.{name}]: labels are for categorical and discrete columns, not {rule.kind} ones."
            )
        if role == "action" and len(rule.labels) > MOST_CHOICES:
            raise SettingsError(
                f"[columns.{name}]: {len(rule.labels)} labels; an action column has at most {MOST_CHOICES} choices."
            )
        allowed = {"observation": MISSING_RULES, "action": ("refuse", "forward-fill")}.get(role, ("refuse",))
        if rule.missing is not None and rule.missing not in allowed:
            raise SettingsError(
                f"[columns.{name}]: missing is {rule.missing!r}; for {role} columns it is {' or '.join(allowed)}."
            )

    def check_columns(self, names: Sequence[str]) -> None:
        """DataError if the table lacks a column that is named."""
        for name, role in self.roles.items():
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean '{close[0]}'? " if close else ""
                raise DataError(
                    f"column '{name}', mapped as {role}, is not in the table; {hint}It holds "
                    f"{', '.join(names[:20])}{', …' if len(names) > 20 else ''}."
                )


def make_map(given: TableMap | Mapping[str, Any] | str | Path | None = None, **roles: Any) -> TableMap:
    """The mapping that a TableMap, a dict, or a TOML or JSON file gives, with ``roles`` on top; not yet checked."""
    if isinstance(given, str | Path):
        given = read_mapping(user_path(given))
    if isinstance(given, TableMap):
        given = given.to_json()
    if not isinstance(given, Mapping | None):
        raise SettingsError(f"the mapping is {given!r}; give a dict, a TOML or JSON file, or vem.data.TableMap.")
    entries = {**(given or {}), **{name: value for name, value in roles.items() if value is not None}}
    known = {entry.name: entry for entry in dataclasses.fields(TableMap)}
    converted: dict[str, Any] = {}
    for key, value in entries.items():
        if key not in known:
            raise SettingsError(f"the mapping has no entry '{key}'; entries are {', '.join(known)}.")
        converted[key] = _columns(value) if key == "columns" else _entry(key, value, key)
    return TableMap(**converted)


def _columns(value: Any) -> dict[str, ColumnRule]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"columns is {value!r}; give an entry for each column, such as [columns.mode].")
    known = [entry.name for entry in dataclasses.fields(ColumnRule)]
    rules = {}
    for name, rule in value.items():
        entries = _given(rule, ColumnRule) if isinstance(rule, ColumnRule) else rule
        if not isinstance(entries, Mapping):
            raise SettingsError(f'[columns.{name}] is {rule!r}; give entries such as kind = "categorical".')
        wrong = [key for key in entries if key not in known]
        if wrong:
            raise SettingsError(f"[columns.{name}] has no entry '{wrong[0]}'; entries are {', '.join(known)}.")
        rules[str(name)] = ColumnRule(
            **{key: _entry(key, entry, f"columns.{name}.{key}") for key, entry in entries.items()}
        )
    return rules


def _entry(key: str, value: Any, where: str) -> Any:
    """One value of the mapping, converted; SettingsError if it is of the wrong kind."""
    if value is None:
        return None
    if key in ("observation", "action", "labels"):
        return _names(value, where, plain=key != "labels")
    if key == "sentinels":
        values = value if isinstance(value, list | tuple) else [value]
        if not all(_is_number(entry) for entry in values):
            raise SettingsError(f"{where} is {value!r}; give numbers, such as [-999].")
        return tuple(map(float, values))
    if key == "gap" and value != KEEP and not (_is_number(value) and value > 0):
        raise SettingsError(f'{where} is {value!r}; give a time above 0 (seconds for timestamps), or "{KEEP}".')
    if key in ("low", "high") and not _is_number(value):
        raise SettingsError(f"{where} is {value!r}; give a number.")
    choices = {"missing": MISSING_RULES, "duplicates": DUPLICATES}.get(key)
    if choices and value not in choices:
        raise SettingsError(f"{where} is {value!r}; choose one of {', '.join(choices)}.")
    if key in (*SINGLE_ROLES, "kind") and not isinstance(value, str):
        raise SettingsError(f"{where} is {value!r}; give one name.")
    return float(value) if key in ("low", "high") else value


def _names(value: Any, where: str, plain: bool) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or (plain and not all(isinstance(entry, str) for entry in values)):
        raise SettingsError(f"{where} is {value!r}; give a list of names.")
    names = tuple(entry if plain else label_text(entry) for entry in values)
    if len(set(names)) != len(names):
        raise SettingsError(f"{where} names '{next(n for n in names if names.count(n) > 1)}' twice; name each once.")
    return names


def _given(value: Any, kind: type) -> dict[str, Any]:
    """The fields that differ from their defaults, tuples as lists."""
    found = {}
    for entry in dataclasses.fields(kind):
        held = getattr(value, entry.name)
        if entry.name != "columns" and held != entry.default:
            found[entry.name] = list(held) if isinstance(held, tuple) else held
    return found


def _rules(columns: Mapping[str, ColumnRule]) -> dict[str, Any]:
    return {name: _given(rule, ColumnRule) for name, rule in columns.items()}


def _listed(value: Any) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
