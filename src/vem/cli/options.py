"""The options that verbs share: how data is read, what is trained, and the settings of the method as flags."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from vem.errors import SettingsError

COMMON_SETTINGS = ("expectile", "discount", "policy", "policy_hidden", "policy_lr")
"""Settings that the first help text shows; ``--help settings`` shows all."""


class Parser(argparse.ArgumentParser):
    """The options of a verb, with help by topic; a mistake is one line that says what may have been meant."""

    def __init__(self, prog: str, summary: str) -> None:
        super().__init__(
            prog=prog,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28),
            add_help=False,
            allow_abbrev=False,
        )
        self.topics: dict[str, list[Any]] = {}
        """Word after --help → groups of options that it shows."""
        self.why_not: Callable[[str], str | None] = lambda flag: None
        """What to say of an unknown flag, if anything is known about it."""
        self.add_argument("-h", "--help", nargs="?", metavar="TOPIC", action=_Help, help="show this text and end")

    def topic(self, name: str, title: str, description: str | None = None) -> Any:
        """A group of options that ``--help NAME`` shows, and ``--help`` does not."""
        group = self.add_argument_group(title, description)
        self.topics.setdefault(name, []).append(group)
        return group

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The options; what is not known ends the program."""
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            flag = next((text for text in unknown if text.startswith("-")), None)
            self.error(self._unknown(flag.split("=")[0]) if flag else f"there is one word too many: {unknown[0]!r}")
        return options

    def _unknown(self, flag: str) -> str:
        if (why := self.why_not(flag)) is not None:
            return why
        known = [text for action in self._actions for text in action.option_strings]
        close = difflib.get_close_matches(flag, known, n=2)
        return f"there is no option {flag}" + (f"; did you mean {' or '.join(close)}?" if close else "")

    def error(self, message: str) -> typing.NoReturn:
        """Print the mistake on one line and end the program."""
        self.exit(2, f"error: {message} (more: {self.prog} --help)\n")

    def format_usage(self) -> str:
        """The usage, short."""
        words = [self.prog]
        for action in self._get_positional_actions():
            name = str(action.metavar or action.dest)
            words.append({"?": f"[{name}]", "+": f"{name} …", "*": f"[{name} …]"}.get(str(action.nargs), name))
        return f"usage: {' '.join(words)} [options]\n"

    def format_help(self, topic: str | None = None) -> str:
        """The help text about a topic, or about what is not in one."""
        elsewhere = [group for groups in self.topics.values() for group in groups]
        shown = self.topics.get(topic or "") or [group for group in self._action_groups if group not in elsewhere]
        formatter = self._get_formatter()
        formatter.add_text(None if topic in self.topics else self.description)
        for group in shown:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        if topic not in self.topics:
            formatter.add_text(self.epilog)
        more = f"\nmore options: {self.prog} --help {'|'.join(self.topics)}\n" if self.topics else ""
        return f"{self.format_usage()}\n{formatter.format_help()}{more}"


class _Help(argparse.Action):
    """``--help``, or ``--help TOPIC``."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        print(parser.format_help(values), end="")
        parser.exit()


# How the data is read.


RULES = ("task", "split", "time_limit", "teleports", "discrete")
LISTS = ("observation", "action")
ROLES = {
    "reward": "reward column",
    "episode": "column that tells episodes apart",
    "time": "column that orders the rows",
    "terminal": "column of flags: the step ended the task",
    "truncated": "column of flags: only the trajectory ended",
}
TABLE_RULES = ("missing", "gap", "duplicates")
BOUNDS = ("action_low", "action_high")
READING = (*RULES, *BOUNDS, "map", *LISTS, *ROLES, *TABLE_RULES)
"""Everything that says how the data is read, by its name among the options."""


def add_reading(parser: Parser) -> None:
    """Add the flags that say where data is and how it is read: those of all sources, and those of tables."""
    reading = parser.topic("data", "reading the data (docs/data.md)")
    add = reading.add_argument
    add("--data-dir", metavar="DIR", help="where benchmark names are looked up first")
    add("--task", metavar="NAME", help="the benchmark task of the data (default: what the file or its name says)")
    add(
        "--split",
        choices=("terminals", "first-success", "time-limits"),
        metavar="terminals|first-success|time-limits",
        help="what ends an episode: every terminal (default); a trajectory's first terminal; only the trajectory's end",
    )
    add(
        "--time-limit",
        choices=("bootstrap", "end"),
        metavar="bootstrap|end",
        help="after a time limit: bootstrap from the final observation (default), or end there as the paper does",
    )
    add(
        "--teleports",
        choices=("split", "keep"),
        metavar="split|keep",
        help="jumps within a trajectory: split there, or keep",
    )
    add(
        "--discrete",
        action=argparse.BooleanOptionalAction,
        help="actions are discrete, or continuous (default: discrete if they are stored as integers)",
    )
    add(
        "--discrete-columns",
        dest="discrete",
        type=_columns,
        metavar="N,N,…",
        help="the discrete action columns, from 0; the others are continuous",
    )
    add("--action-low", metavar="X,…", help="lower action bounds: one number, or one for each action")
    add("--action-high", metavar="X,…", help="upper action bounds (default: the task's, or the data's)")
    add_table_roles(parser)


def _columns(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of column numbers, such as 0,2") from None


def add_table_roles(parser: Parser) -> None:
    """Add the flags that say which column of a table is what."""
    add = parser.topic("tables", "tables: which column is what (docs/own-logs.md)").add_argument
    add("--map", metavar="FILE.toml", help="the mapping, as vem data map writes it")
    for name in LISTS:
        add(f"--{name}", metavar="NAME,…", help=f"{name} columns")
    for name, meaning in ROLES.items():
        add(f"--{name}", metavar="NAME", help=meaning)
    ways = ("refuse", "forward-fill", "indicator")
    add("--missing", choices=ways, metavar="|".join(ways), help="missing observations (default: refuse)")
    add("--gap", metavar="X", help="longest step in time, in seconds for timestamps; or keep")
    ways = ("refuse", "first")
    add("--duplicates", choices=ways, metavar="|".join(ways), help="two rows of one step (default: refuse)")


def given_rules(options: argparse.Namespace) -> dict[str, Any]:
    """The reading rules that were given, as ``vem.load`` takes them."""
    rules = {name: value for name in RULES if (value := getattr(options, name)) is not None}
    if any(getattr(options, name) is not None for name in BOUNDS):
        rules["action_bounds"] = [_numbers(getattr(options, name), name) for name in BOUNDS]
    mapping = {} if options.map is None else {"mapping": options.map}
    return {**rules, **mapping, **given_roles(options)}


def given_roles(options: argparse.Namespace) -> dict[str, Any]:
    """The entries of a mapping that were given as flags."""
    names = (*LISTS, *ROLES, *TABLE_RULES)
    roles: dict[str, Any] = {name: text for name in names if (text := getattr(options, name)) is not None}
    for name in LISTS:
        if name in roles:
            roles[name] = [part.strip() for part in roles[name].split(",")]
    if "gap" in roles:
        roles["gap"] = _number_or_word(roles["gap"])
    return roles


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # the mapping's check says what is expected


def _numbers(text: str | None, name: str) -> list[float] | float | None:
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingsError(f"{flag_of(name)} is {text!r}; give a number, or one for each action with commas") from None
    return numbers if len(numbers) > 1 else numbers[0]


# What is trained: the same words for train, compare and sweep.


WORDS = ("preset", "steps", "minutes", "hold_out", "pool_rows", "data_dir", "evaluate_every", "config")


def add_request(parser: Parser, seeds: int = 1, steps: str = "N") -> None:
    """Add the flags that say what is trained on which part of the data, and how it is watched."""
    add = parser.add_argument
    add("--preset", metavar="NAME", help="named settings: default; of vem also paper, authors")
    if steps == "N":
        add("--steps", type=int, metavar="N", help="steps of each policy (default: 100000)")
    else:
        add("--steps", metavar=steps, help="steps of each policy, by method (default: 100000)")
    add("--minutes", type=float, metavar="X", help="instead of steps: minutes of one core, all seeds")
    add("--seeds", metavar="N", help=f"how many seeds (default: {seeds})")
    add("--seed", metavar="N,…", help="which seeds, in place of how many")
    add(
        "--hold-out",
        type=float,
        metavar="X",
        help="share of the trajectories kept for vem estimate and select",
    )
    add(
        "--evaluate-every",
        type=_period,
        metavar="N|X",
        help="evaluate after every N steps, or that share (0.2)",
    )
    add("--config", metavar="FILE", help="do what a TOML or JSON file or a run's config.json says")
    add("--import", dest="imports", action="append", metavar="NAME", help="a file or module that registers methods")

    watching = parser.topic("settings", "what changes no result")
    watching.add_argument(
        "--checkpoint-seconds", type=float, default=60.0, metavar="X", help="how often the state is saved (default: 60)"
    )
    add_reading(parser)
    parser.topics["data"][0].add_argument(
        "--pool-rows",
        type=int,
        metavar="N",
        help="rows in the buffer, the others staying on disk (default: all, or 1048576 of shards that do not fit)",
    )


def _period(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def given_words(options: argparse.Namespace) -> dict[str, Any]:
    """What was asked for, as ``vem.train`` takes it, but the data, the method and its settings."""
    words = {name: value for name in WORDS if (value := getattr(options, name)) is not None}
    if options.seeds is not None:
        words["seeds"] = _whole(options.seeds, "--seeds", f"give how many; which ones: --seed {options.seeds}")
    if options.seed is not None:
        words["seed"] = [_whole(part, "--seed", "give whole numbers with commas") for part in options.seed.split(",")]
    if options.imports:
        words["imports"] = tuple(options.imports)
    return {**words, **given_rules(options)}


def _whole(text: str, flag: str, advice: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SettingsError(f"{flag} is {text!r}; {advice}") from None


def flag_of(name: str) -> str:
    """The flag of an option."""
    return "--" + {"imports": "import"}.get(name, name).replace("_", "-")


# The settings of a method.


def chosen_method(arguments: Sequence[str]) -> tuple[str, str]:
    """The method and the preset that are named: its settings are flags, so they are needed before those are parsed."""
    from vem.algorithms.base import import_methods
    from vem.training.request import make_request

    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in ("--algorithm", "--preset", "--config"):
        first.add_argument(flag)
    first.add_argument("--import", dest="imports", action="append", default=[])
    try:
        named, _ = first.parse_known_args(arguments)
    except argparse.ArgumentError:  # said when all is parsed
        return "vem", "default"
    import_methods(named.imports)
    algorithm, preset = named.algorithm, named.preset
    if named.config is not None and algorithm is None:
        stored = make_request("-", config=named.config)
        algorithm, preset = stored.algorithm, preset or stored.preset
    return algorithm or "vem", preset or "default"


def add_settings(parser: Parser, algorithm: str, preset: str, can_sweep_all: bool = False) -> None:
    """Add a flag for each setting of the method; checked later, by the same code as settings from Python."""
    from vem.algorithms.base import find_method, find_preset, type_hints, unknown_setting

    method = find_method(algorithm)
    values = find_preset(algorithm, preset).settings
    source = "default" if preset == "default" else f"preset {preset}"
    title = f"settings of {algorithm}, {method.summary}"
    first = parser.add_argument_group(
        f"settings of {algorithm} that people change (all: --help settings; iql's: --algorithm iql --help settings)"
    )
    rest = parser.topic("settings", title)
    parser.topics["settings"].sort(key=lambda group: group is not rest)
    hints = type_hints(method.config)
    for field in dataclasses.fields(method.config):
        value = values.get(field.name, field.default)
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()
        is_list = typing.get_origin(hints[field.name]) is tuple
        several = "; several with " + ("slashes" if is_list else "commas")
        several = several if can_sweep_all or field.metadata["sweep"] else ""
        meaning = field.metadata["meaning"]
        start = meaning[0] if meaning.startswith("Adam") else meaning[0].lower()
        group = first if field.name in COMMON_SETTINGS else rest
        action = group.add_argument(
            flag_of(field.name),
            dest=f"set_{field.name}",
            metavar=_metavar(hints[field.name]),
            help=f"{start}{meaning[1:]} ({source}: {shown}{several})".replace("%", "%%"),
        )
        if group is first:
            rest._group_actions.append(action)

    def why_not(flag: str) -> str | None:
        name = flag.lstrip("-").replace("-", "_")
        sentence = unknown_setting(algorithm, name)
        return sentence if "leave it out" in sentence else None

    parser.why_not = why_not


def _metavar(hint: Any) -> str:
    """What a setting's flag takes, for its help: N, X, a list of them, or words to choose from."""
    kinds = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    names = []
    for kind in kinds:
        if typing.get_origin(kind) is typing.Literal:
            names += map(str, typing.get_args(kind))
        elif typing.get_origin(kind) is tuple:
            names.append(f"{_metavar(typing.get_args(kind)[0])},…")
        elif kind is not types.NoneType:
            names.append({bool: "true|false", int: "N", float: "X"}.get(kind, "TEXT"))
    return "|".join(names)


def given_texts(options: argparse.Namespace) -> dict[str, str]:
    """The settings of the method that were given, as they were written."""
    return {
        name.removeprefix("set_"): text
        for name, text in vars(options).items()
        if name.startswith("set_") and text is not None
    }


def given_settings(options: argparse.Namespace, algorithm: str) -> dict[str, Any]:
    """The settings of the method that were given, as text; a sweep as a list."""
    from vem.algorithms.base import find_method, sweepable

    names = sweepable(find_method(algorithm).config)
    texts = given_texts(options)
    return {name: text.split(",") if name in names and "," in text else text for name, text in texts.items()}
