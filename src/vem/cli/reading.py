"""Flags that say how data is read, shared by the verbs that load some."""

from __future__ import annotations

import argparse
from typing import Any

RULES = ("split", "time_limit", "teleports", "task", "discrete")
LISTS = ("observation", "action")
NAMES = ("reward", "episode", "time", "terminal", "truncated")
TABLE_RULES = ("missing", "gap", "duplicates")
TABLE = ("map", *LISTS, *NAMES, *TABLE_RULES)
BOUNDS = ("action_low", "action_high")
FLAGS = (*RULES, *BOUNDS, *TABLE)
"""Everything that says how the data is read, by its name among the options."""


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all sources and those of tables."""
    reading = parser.add_argument_group("reading the data (see docs/data.md)")
    reading.add_argument(
        "--task", metavar="TASK", help="the benchmark task of the data (default: what the file or its name says)"
    )
    reading.add_argument(
        "--split",
        choices=("terminals", "first-success", "time-limits"),
        help="what ends an episode: every terminal (default); a recording's first terminal; only the recording's end",
    )
    reading.add_argument(
        "--time-limit",
        choices=("bootstrap", "end"),
        help="after a time limit: bootstrap from the final observation (default), or end there as the paper does",
    )
    reading.add_argument(
        "--teleports", choices=("split", "keep"), help="jumps within a recording: split there, or keep"
    )
    add_discrete(reading)
    bound = "X[,Y,…]"
    reading.add_argument("--action-low", metavar=bound, help="lower action bounds: one number, or one for each action")
    reading.add_argument(
        "--action-high", metavar=bound, help="upper action bounds (default: the task's, or the data's)"
    )
    add_table_roles(parser)


def add_discrete(parser: Any) -> None:
    """Add the flags that say which action columns hold choices."""
    parser.add_argument(
        "--discrete",
        action=argparse.BooleanOptionalAction,
        help="actions are choices, or are numbers (default: choices if they are stored as integers)",
    )
    parser.add_argument(
        "--discrete-columns",
        dest="discrete",
        type=_columns,
        metavar="I,J,…",
        help="the action columns that hold choices, from 0; the others are numbers",
    )


def _columns(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of column numbers, such as 0,2") from None


def add_table_roles(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say which column of a table is what."""
    table = parser.add_argument_group("tables: which column is what (see docs/tables.md)")
    table.add_argument("--map", metavar="FILE.toml", help="the mapping, as vem data map writes it")
    for name in LISTS:
        table.add_argument(f"--{name}", metavar="A,B,…", help=f"{name} columns")
    meanings = {
        "reward": "reward column",
        "episode": "column that tells episodes apart",
        "time": "column that orders the rows",
        "terminal": "column of flags: the step ended the task",
        "truncated": "column of flags: only the recording ended",
    }
    for name, meaning in meanings.items():
        table.add_argument(f"--{name}", metavar="COLUMN", help=meaning)
    table.add_argument(
        "--missing", choices=("refuse", "forward-fill", "indicator"), help="missing observations (default: refuse)"
    )
    table.add_argument("--gap", metavar="X", help="longest step in time, in seconds for timestamps; or keep")
    table.add_argument("--duplicates", choices=("refuse", "first"), help="two rows of one step (default: refuse)")


def given_rules(options: argparse.Namespace) -> dict[str, Any]:
    """The reading rules that were given, as ``vem.load`` takes them."""
    rules = {name: value for name in RULES if (value := getattr(options, name)) is not None}
    if any(getattr(options, name) is not None for name in BOUNDS):
        rules["action_bounds"] = [_numbers(getattr(options, name), name) for name in BOUNDS]
    roles = given_roles(options)
    if options.map is None:
        return {**rules, **roles}
    from vem.data.mapping import make_map

    # The content, not the file: a run can be resumed without it.
    return {**rules, "mapping": make_map(options.map, **roles).to_json()}


def given_roles(options: argparse.Namespace) -> dict[str, Any]:
    """The entries of a mapping that were given as flags."""
    roles: dict[str, Any] = {}
    for name in LISTS:
        if (text := getattr(options, name)) is not None:
            roles[name] = [part.strip() for part in text.split(",")]
    for name in (*NAMES, *TABLE_RULES):
        if (value := getattr(options, name)) is not None:
            roles[name] = value
    if "gap" in roles:
        roles["gap"] = _number_or_word(roles["gap"])
    return roles


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # the mapping's check says what is expected


def _numbers(text: str | None, name: str) -> list[float] | float | None:
    from vem.errors import SettingsError

    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        flag = "--" + name.replace("_", "-")
        raise SettingsError(f"{flag} is {text!r}; give a number, or one for each action with commas") from None
    return numbers if len(numbers) > 1 else numbers[0]
