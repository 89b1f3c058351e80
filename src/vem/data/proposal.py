"""A mapping proposed for a table from the names, types and values of its columns, with the reason for each."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vem.data.columns import FEW_VALUES, MOST_LABELS, ColumnFacts, kind_of, look, natural_kind
from vem.data.mapping import SINGLE_ROLES, ColumnRule, TableMap
from vem.data.tables import Table, propose_gap
from vem.errors import DataError, printable

NAMES: dict[str, tuple[str, ...]] = {
    "reward": ("reward", "rewards", "rew", "r"),
    "terminal": ("terminal", "terminals", "terminated", "termination", "done", "is_terminal"),
    "truncated": ("truncated", "truncation", "timeout", "timeouts", "is_truncated"),
    "episode": (
        *("episode", "episode_id", "episode_index", "ep", "trajectory", "trajectory_id", "traj_id", "rollout"),
        *("session", "session_id", "run_id", "batch_id", "day", "date"),
    ),
    "time": (
        *("time", "timestamp", "datetime", "date_time", "ts", "t", "step", "timestep", "time_step", "step_index"),
        "frame_index",
    ),
}
"""Role → the names that mean it."""
ACTION = re.compile(r"(^|_)(action|actions|act|a\d+)(_|\d|$)")
ACTUATOR = re.compile(r"(^|_)(setpoint|command|cmd|control|valve|throttle|dose|pump|damper|actuator|u\d*)(_|\d|$)")
"""Words for what a controller sets: a good guess, and no more."""
INDEX = re.compile(r"(unnamed: ?\d+|__index_level_\d+__|index|row|row_id|row_number|)$", re.I)


class Proposal(NamedTuple):
    """A mapping and why."""

    mapping: TableMap
    reasons: dict[str, str]
    """Column → its role, or that it is left out, and the reason."""
    remarks: dict[str, list[str]]
    """Comments for entries of the mapping (``gap``, ``columns.NAME``)."""
    unclear: str | None = None
    """What the columns do not say and a person must, if anything."""

    def explanation(self) -> list[str]:
        """One line for each column: its role and the reason; then what is left to say."""
        width = max(len(printable(name)) for name in self.reasons)
        lines = [f"{printable(name).ljust(width)}  {printable(reason)}" for name, reason in self.reasons.items()]
        return [*lines, printable(f"to decide: {self.unclear}")] if self.unclear else lines

    def heading(self, table: Table) -> list[str]:
        """What stands at the top of the mapping file."""
        return [f"Which column of {Path(table.source).name} is what, as proposed by vem data map.", *self.explanation()]


def propose(table: Table, given: TableMap | None = None, *, roles_only: bool = False) -> Proposal:
    """A mapping for the table; what ``given`` says stands. ``roles_only`` leaves rules for values to the defaults."""
    given = given or TableMap()
    given.check_columns(table.names)
    facts: dict[str, ColumnFacts] = {}
    for name in table.names:
        if kind_of(table.types[name]) in _READABLE:
            sentinels = given.rule(name).sentinels or given.sentinels or ()
            _, facts[name] = look(table.read([name])[name], natural_kind(table.types[name]), sentinels)
    if not facts or not next(iter(facts.values())).num_rows:
        raise DataError("the table has no rows; record at least two steps.")
    taken, reasons = dict(given.roles), {name: f"{role}: as given" for name, role in given.roles.items()}
    single = {role: getattr(given, role) for role in SINGLE_ROLES}
    for role, words in NAMES.items():
        if single[role] is None and (found := _named(table.names, words, taken)):
            single[role], taken[found] = found, role
            reasons[found] = f"{role}: its name says so"
    if single["time"] is None:
        clocks = [name for name in table.names if kind_of(table.types[name]) == "time" and name not in taken]
        if clocks:
            single["time"], taken[clocks[0]] = clocks[0], "time"
            reasons[clocks[0]] = f"time: it holds {table.types[clocks[0]]}"
    action = given.action or _actions(table.names, taken, reasons)
    taken |= dict.fromkeys(action, "action")
    observation = given.observation or tuple(_observations(table, facts, taken, reasons))
    for name in table.names:
        reasons.setdefault(name, "left out: the mapping names the observations")
    mapping = dataclasses.replace(given, observation=observation, action=action, **single)
    mapping, remarks = (mapping, {}) if roles_only else _with_rules(mapping, facts, table)
    return Proposal(mapping, {name: reasons[name] for name in table.names}, remarks, _unclear(mapping, reasons))


_READABLE = ("number", "boolean", "text", "empty")


def _named(names: Sequence[str], words: Sequence[str], taken: Mapping[str, str]) -> str | None:
    plain = {re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_"): name for name in reversed(names) if name not in taken}
    return next((plain[word] for word in words if word in plain), None)


def _actions(names: Sequence[str], taken: Mapping[str, str], reasons: dict[str, str]) -> tuple[str, ...]:
    free = [name for name in names if name not in taken and not name.lower().startswith("next_")]
    for pattern, reason in (
        (ACTION, "its name says so"),
        (ACTUATOR, "its name sounds like what a controller sets; check"),
    ):
        found = tuple(name for name in free if pattern.search(name.lower()))
        if found:
            reasons |= dict.fromkeys(found, f"action: {reason}")
            return found
    return ()


def _observations(
    table: Table, facts: Mapping[str, ColumnFacts], taken: Mapping[str, str], reasons: dict[str, str]
) -> list[str]:
    chosen: list[str] = []
    seen = {facts[name].digest: name for name in taken if name in facts and taken[name] not in ("time", "episode")}
    for name in table.names:
        if name in taken:
            continue
        why = _left_out(name, facts.get(name), table, seen)
        if why:
            reasons[name] = f"left out: {why}"
            continue
        fact = facts[name]
        seen[fact.digest] = name
        chosen.append(name)
        what = "numbers" if fact.kind == "number" else f"{len(fact.labels or ())} categories"
        reasons[name] = f"observation: {what}"
    return chosen


def _left_out(name: str, fact: ColumnFacts | None, table: Table, seen: Mapping[bytes, str]) -> str | None:
    if fact is None:
        return f"{table.types[name]} is neither numbers nor categories"
    if fact.num_present == 0:
        return "it has no values"
    if name.lower().startswith("next_"):
        return "the next row holds the next observation"
    if INDEX.match(name) and fact.kind == "number" and fact.is_whole:
        return "it numbers the rows"
    if fact.kind == "text" and fact.labels is None:
        return f"text with more than {MOST_LABELS} values"
    if fact.is_constant and not fact.missing.count:
        return "it never changes"
    if fact.digest in seen:
        return f"it equals '{seen[fact.digest]}' in every row"
    return None


def _with_rules(
    mapping: TableMap, facts: Mapping[str, ColumnFacts], table: Table
) -> tuple[TableMap, dict[str, list[str]]]:
    """The mapping with sentinels, kinds and a gap where the values ask for them, and what there is to say."""
    rules, remarks = dict(mapping.columns), dict[str, list[str]]()
    for name in (*mapping.observation, *mapping.action):
        fact, rule = facts.get(name), rules.get(name, ColumnRule())
        if fact is None:
            continue
        said: list[str] = []
        if mapping.sentinels is None and rule.sentinels is None and fact.kind == "number" and fact.sentinels:
            rule = dataclasses.replace(rule, sentinels=tuple(fact.sentinels))
            said += [
                f"{value:g} in {spots.count} rows, far outside [{fact.low:g}, {fact.high:g}]: read as missing"
                for value, spots in fact.sentinels.items()
            ]
        num_missing = fact.missing.count + sum(
            fact.sentinels[v].count for v in rule.sentinels or () if v in fact.sentinels
        )
        if num_missing and rule.missing is None and mapping.missing == "refuse" and name in mapping.observation:
            rule = dataclasses.replace(rule, missing="indicator")
            said.append(
                f'{num_missing} of {fact.num_rows} values are missing: "indicator" (the mean, and a number that says '
                'so), "forward-fill" (the last value in the episode), or "refuse"'
            )
        if name in mapping.action and rule.kind is None:
            rule, text = _action_kind(rule, fact, table)
            said += text
        if rule != ColumnRule():
            rules[name] = rule
        if said:
            remarks[f"columns.{name}"] = said
    mapping = dataclasses.replace(mapping, columns=rules)
    if mapping.time is not None and mapping.gap is None and (found := _gap(mapping, table)) is not None:
        limit, count = found
        mapping = dataclasses.replace(mapping, gap=float(f"{limit:.6g}"))
        remarks["gap"] = [f'{count} steps in time are longer, or backwards: trajectories end there (or "keep" them)']
    return mapping, remarks


def _action_kind(rule: ColumnRule, fact: ColumnFacts, table: Table) -> tuple[ColumnRule, list[str]]:
    if kind_of(table.types[fact.name]) == "number":
        few = fact.is_whole and fact.labels is not None and len(fact.labels) <= FEW_VALUES
        said = (
            [f'only {len(fact.labels or ())} whole numbers: an amount ("box") or a choice ("discrete")?'] if few else []
        )
        said.append(
            f"in the data [{fact.low:g}, {fact.high:g}], which bounds the policy; set low = and high = for others"
        )
        return dataclasses.replace(rule, kind="box"), said
    return dataclasses.replace(rule, kind="discrete", labels=rule.labels or fact.labels or ()), []


def _gap(mapping: TableMap, table: Table) -> tuple[float, int] | None:
    columns = table.read([name for name in (mapping.time, mapping.episode) if name is not None])
    try:
        time, _ = columns[str(mapping.time)].times()
        return propose_gap(time, columns[mapping.episode].episodes()[0] if mapping.episode else None)
    except DataError:  # said when the table is read by this mapping
        return None


def _unclear(mapping: TableMap, reasons: Mapping[str, str]) -> str | None:
    if mapping.reward is None:
        return "no column is called reward; name the reward column"
    if not mapping.action:
        return "no column is called action; name the columns that the controller sets"
    if not mapping.observation:
        return "no column is left for the observation"
    guessed = [name for name in mapping.action if "check" in reasons.get(name, "")]
    return f"'{guessed[0]}' is an action by its name only; say so" if guessed else None
