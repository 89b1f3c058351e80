"""``vem train``: a dataset in, a run directory with policies out."""

from __future__ import annotations

import argparse
import dataclasses
import json
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vem.cli.runs import add_evaluate_every

if TYPE_CHECKING:
    from vem.training.run import Run


# Flags that say how data is read, shared by the verbs that load some.


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
        help="what ends an episode: every terminal (default); a trajectory's first terminal; only the trajectory's end",
    )
    reading.add_argument(
        "--time-limit",
        choices=("bootstrap", "end"),
        help="after a time limit: bootstrap from the final observation (default), or end there as the paper does",
    )
    reading.add_argument(
        "--teleports", choices=("split", "keep"), help="jumps within a trajectory: split there, or keep"
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
        "truncated": "column of flags: only the trajectory ended",
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


EXAMPLES = """examples:
  vem train                                          the built-in maze: records, trains, evaluates, reports
  vem train logs/antmaze-umaze.hdf5 --seeds 3        a D4RL file; three seeds in one program
  vem train hopper-medium --data-dir ~/data --preset paper
  vem train log.parquet --map map.toml               a table; vem data map log.parquet proposes the mapping
  vem train logs.npz --task hopper-medium            a file that does not say which benchmark task it is
  vem train door-human --expectile 0.1,0.3,0.5,0.7,0.9 --seeds 3    a sweep, still one program
  vem train --resume runs/antmaze-umaze-vem          go on where a run was stopped, bit for bit
  vem train --resume runs/logs-vem moved/logs.npz    the same, with data that was moved
"""


def register(verbs: Any, arguments: Sequence[str]) -> None:
    """Add the verb; its method flags depend on ``--algorithm``, looked up in ``arguments``."""
    parser = verbs.add_parser(
        "train",
        help="train policies on a dataset",
        description="Train policies on recorded trajectories. Everything is written to a run directory.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "dataset",
        nargs="?",
        metavar="DATASET",
        help="a file (.hdf5, .npz, .parquet, .csv, …), a benchmark name, minari:ID",
    )
    add("--algorithm", metavar="NAME", help="the method (default: vem)")
    add("--preset", metavar="NAME", help="default, or for vem: paper, authors")
    add("--steps", type=int, metavar="N", help="steps in all, for each policy (default: 100000)")
    add("--seeds", metavar="N", help="how many seeds (default: 1)")
    add("--seed", metavar="A[,B,…]", help="which seeds, in place of --seeds")
    add("--minutes", type=float, metavar="X", help="minutes of one core for all seeds together, in place of --steps")
    add("--config", metavar="FILE", help="a TOML or JSON file, or a run's config.json, that says all of this")
    add("--import", dest="imports", action="append", metavar="NAME", help="a file or module that registers a method")
    add("--restart-schedule", action="store_true", help="with --resume and --steps: learning rates begin anew")
    add("--out", metavar="DIR", help="run directory (default: runs/DATASET-ALGORITHM, numbered)")
    add("--resume", metavar="RUN", help="continue the run in this directory; with --steps N to N steps in all")
    add_evaluate_every(
        parser, "evaluate 20 episodes after every N steps, or share X of them, 100 at the end, and draw the curve"
    )
    add(
        "--checkpoint-seconds", type=float, default=60.0, metavar="S", help="how often the state is saved (default: 60)"
    )
    add("--log", metavar="NAME,…", help="training curves elsewhere too: tensorboard, wandb")
    add("--no-cache", action="store_true", help="compile anew, and keep no compiled program for later runs")
    add("--json", action="store_true", help="print the result as JSON, and no progress")
    add_reading_options(parser)
    add_settings(parser, chosen_algorithm(arguments))
    parser.set_defaults(run=run)


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where the data is, how it is read and how much of it is held."""
    parser.add_argument("--data-dir", metavar="DIR", help="where benchmark names are looked up first")
    parser.add_argument(
        "--pool-rows",
        type=int,
        metavar="N",
        help="rows held at a time, the others staying on disk (default: all, or 1048576 of shards that do not fit)",
    )
    parser.add_argument(
        "--hold-out",
        type=float,
        metavar="X",
        help="share of the trajectories that training never sees, for vem estimate and vem select (default: 0)",
    )
    add_reading(parser)


def run(options: argparse.Namespace) -> int:
    """Train or resume, showing progress."""
    from vem import api
    from vem.algorithms.base import convert, import_methods
    from vem.errors import SettingsError

    empty = [name for name in ("dataset", "resume", "out") if getattr(options, name) == ""]
    if empty:
        raise SettingsError(f"{empty[0]} is empty; give a name, or leave it out")
    watching: dict[str, Any] = {
        "evaluate_every": options.evaluate_every,
        "callbacks": _named_logs(options.log),
        "progress": not options.json,
        "checkpoint_seconds": options.checkpoint_seconds,
        "keep_programs": not options.no_cache,
    }
    import_methods(options.imports or ())
    if options.resume is not None:
        _refuse(options, "a resumed run keeps its settings")
        from vem.cli import quickstart

        if quickstart.is_example(options.resume):
            return quickstart.resume(options)
        result = api.resume(
            options.resume,
            options.dataset,
            steps=options.steps,
            restart_schedule=options.restart_schedule,
            data_dir=options.data_dir,
            **watching,
        )
    elif options.dataset is None and options.config is None:
        from vem.cli import quickstart

        for name in ("pool_rows", "hold_out", "log"):
            if getattr(options, name) is not None:
                flag = "--" + name.replace("_", "-")
                raise SettingsError(f"{flag} is for a DATASET of yours; give one, or leave the flag out")

        return quickstart.run(options)
    else:
        result = api.train(
            options.dataset,
            options.algorithm,
            config=options.config,
            imports=options.imports or (),
            preset=options.preset,
            seeds=None if options.seeds is None else convert(options.seeds, int, "seeds"),
            seed=None if options.seed is None else parse_seeds(options.seed),
            steps=options.steps,
            minutes=options.minutes,
            settings=given_settings(options),
            rules=given_rules(options),
            data_dir=options.data_dir,
            pool_rows=options.pool_rows,
            hold_out=options.hold_out,
            out=options.out,
            **watching,
        )
    _print_result(result, options.json)
    return 0


def _named_logs(text: str | None) -> Sequence[Any]:
    """The callbacks that ``--log`` names."""
    if text is None:
        return ()
    from vem.training.callbacks import named

    return named(text)


def _refuse(options: argparse.Namespace, why: str) -> None:
    """SettingsError that names the flags which a resumed run cannot change."""
    from vem.errors import SettingsError

    fixed = ["out", "seeds", "seed", "minutes", "config", "algorithm", "preset", "pool_rows", "hold_out", *FLAGS]
    given = [name for name in fixed if getattr(options, name) is not None] + list(given_settings(options))
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in sorted(given))
        raise SettingsError(f"{why}; leave out {flags}, or start a new run")


def given_texts(options: argparse.Namespace) -> dict[str, str]:
    """The settings of the method that were given, as they were written."""
    return {
        name.removeprefix("set_"): text
        for name, text in vars(options).items()
        if name.startswith("set_") and text is not None
    }


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of the method that were given, as text; a sweep as a list."""
    from vem.algorithms.base import find_method, sweepable

    texts = given_texts(options)
    if not texts:
        return {}
    names = sweepable(find_method(options.algorithm or "vem").config)
    return {name: text.split(",") if name in names and "," in text else text for name, text in texts.items()}


def parse_seeds(text: str) -> list[int]:
    """The seeds that ``--seed 7,9`` names."""
    from vem.algorithms.base import convert

    return [convert(part, int, "seed") for part in text.split(",")]


def _print_result(run: Run, as_json: bool) -> None:
    if as_json:
        paths = [str(path) for path in run.policy_paths]
        trials = [{"name": m.name, "policy": path} for m, path in zip(run.config.trials, paths, strict=True)]
        warnings = [dataclasses.asdict(warning) for warning in run.warnings]
        print(json.dumps({"run": str(run.directory), "trials": trials, "warnings": warnings}))
        return
    count = len(run.policy_paths)
    print(f"done: {count} {'policy' if count == 1 else 'policies'} in {run.directory / 'policies'}")
    columns = run.policy.columns
    if (best := run.best) is not None and len(run.points) > 1:
        what = "mean return" if best.kind == "return" else "held-out estimate"
        print(f"best:    after {best.steps:,} steps ({what} {best.value:.4g}): {best.paths[0].parent}")
    given = f"{{{', '.join(f'{name!r}: …' for name in columns[:3])}{', …' if len(columns) > 3 else ''}}}"
    argument = (given if columns else "observation") + (", np.random.default_rng()" if run.policy.is_drawn else "")
    print(f"use it:  policy = vem.load_policy('{run.policy_paths[0]}'); policy.act({argument})")


def chosen_algorithm(arguments: Sequence[str]) -> str:
    """The method that ``--algorithm`` names: its settings are flags, so it is needed before they are parsed.

    What ``--import`` names is imported for the same reason, once the method is not one of vem's.
    """
    from vem.algorithms.base import METHODS, import_installed_methods, import_methods

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--algorithm", default="vem")
    parser.add_argument("--import", dest="imports", action="append", default=[])
    try:
        options, _ = parser.parse_known_args([text for text in arguments if text not in ("-h", "--help")])
    except argparse.ArgumentError:
        return "vem"  # the whole parser says what is wrong
    if options.algorithm not in METHODS:
        import_methods(options.imports)
        import_installed_methods()
    return options.algorithm


def add_settings(parser: argparse.ArgumentParser, algorithm: str, can_sweep_all: bool = False) -> None:
    """Add a flag for each setting of the method; checked later, by the same code as settings from Python."""
    from vem.algorithms.base import METHODS

    if algorithm not in METHODS:
        return
    method = METHODS[algorithm]
    group = parser.add_argument_group(f"settings of {algorithm}, {method.summary}")
    hints = typing.get_type_hints(method.config)
    for field in dataclasses.fields(method.config):
        default = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
        choices = [
            str(a) for a in typing.get_args(hints[field.name]) if a is not type(None) and not isinstance(a, type)
        ]
        is_list = typing.get_origin(hints[field.name]) is tuple
        separator = "slashes" if is_list else "commas"
        several = f"; several with {separator}" if can_sweep_all or field.metadata["sweep"] else ""
        group.add_argument(
            "--" + field.name.replace("_", "-"),
            dest=f"set_{field.name}",
            metavar="|".join(choices) if choices and not is_list else "X",
            help=f"{field.metadata['meaning']} (default: {str(default).lower()}{several})".replace("%", "%%").strip(),
        )
