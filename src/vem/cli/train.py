"""``vem train``: a dataset in, a run directory with policies out."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vem.cli.options import (
    READING,
    Parser,
    add_request,
    add_settings,
    chosen_method,
    flag_of,
    given_settings,
    given_words,
)
from vem.errors import SettingsError

if TYPE_CHECKING:
    from vem.training.run import Run

EXAMPLES = """examples:
  vem train                                          the built-in maze: records, trains, evaluates, reports
  vem train logs/antmaze-umaze.hdf5 --seeds 3        a D4RL file; three seeds in one program
  vem train hopper-medium --data-dir ~/data --preset paper
  vem train log.parquet --map map.toml               a table; vem data map log.parquet proposes the mapping
  vem train logs.npz --task hopper-medium            a file that does not say which benchmark task it is
  vem train door-human --expectile 0.1,0.3,0.5,0.7,0.9 --seeds 3    a sweep, still one program
  vem train --config run.toml                        what a file says, or the config.json of another run
  vem train --resume runs/antmaze-umaze-vem          go on where a run was stopped, bit for bit
  vem train --resume runs/antmaze-umaze-vem --steps 200000    train a finished run further
  vem train --resume runs/logs-vem moved/logs.npz    go on with data that was moved"""


def train(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options; the flags of settings depend on the method that ``arguments`` name."""
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("dataset", nargs="?", metavar="DATASET", help="a file, a benchmark name, minari:ID")
    add("--algorithm", metavar="NAME", help="the method (default: vem)")
    add_request(parser)
    add("--out", metavar="DIR", help="run directory (default: runs/DATASET-ALGORITHM)")
    add("--resume", metavar="RUN", help="go on with a run; with --steps N, to N steps in all")
    add("--restart-schedule", action="store_true", help="with --resume --steps: learning rates begin anew")
    add("--log", metavar="NAME,…", help="curves elsewhere too: tensorboard, wandb")
    add("--json", action="store_true", help="print the result as JSON, and no progress")
    add = parser.topics["settings"][0].add_argument
    add("--no-cache", action="store_true", help="compile anew, and keep no compiled program for later runs")
    algorithm, preset = chosen_method(arguments)
    add_settings(parser, algorithm, preset)
    parser.set_defaults(run=_run, method=algorithm)


def _run(options: argparse.Namespace) -> int:
    """Train or resume, showing progress."""
    from vem import api

    for name in ("dataset", "resume", "out"):
        if getattr(options, name) == "":
            raise SettingsError(f"{name} is empty; give a name, or leave it out")
    if options.resume is None and options.dataset is None and options.config is None:
        from vem.cli.compare import run_example

        return run_example(options)
    watching = {
        "callbacks": _logs(options.log),
        "progress": not options.json,
        "checkpoint_seconds": options.checkpoint_seconds,
        "keep_programs": not options.no_cache,
    }
    if options.resume is not None:
        _refuse(options)
        _refuse_folder(Path(options.resume))
        going_on = {
            name: getattr(options, name) for name in ("steps", "restart_schedule", "data_dir", "evaluate_every")
        }
        result = api.resume(options.resume, options.dataset, **going_on, **watching)
    else:
        if options.dataset is not None and (Path(options.dataset) / "config.json").is_file():
            raise SettingsError(f"{options.dataset} is a run; go on with it: vem train --resume {options.dataset}")
        settings = given_settings(options, options.method)
        words = given_words(options)
        result = api.train(options.dataset, options.algorithm, out=options.out, **words, **watching, settings=settings)
    _print_result(result, options.json)
    return 0


def _refuse_folder(path: Path) -> None:
    """SettingsError if a folder of several runs is named, as the built-in example's is."""
    if not (path / "config.json").exists() and next(path.glob("*/*/config.json"), None):
        raise SettingsError(f"{path} holds several runs; the same command goes on: vem train --out {path}")


def _logs(names: str | None) -> Sequence[Any]:
    """The callbacks that ``--log`` names."""
    if names is None:
        return ()
    from vem.training.callbacks import named

    return named(names)


def _refuse(options: argparse.Namespace) -> None:
    """SettingsError that names the flags which a resumed run cannot change."""
    fixed = ["out", "seeds", "seed", "minutes", "config", "algorithm", "preset", "pool_rows", "hold_out", *READING]
    given = [name for name in fixed if getattr(options, name) is not None] + list(
        given_settings(options, options.method)
    )
    if given:
        flags = ", ".join(map(flag_of, sorted(given)))
        raise SettingsError(f"a resumed run keeps its settings; leave out {flags}, or start a new run")


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
    given = f"{{{', '.join(f'{name!r}: …' for name in columns[:3])}{', …' if len(columns) > 3 else ''}}}"
    argument = (given if columns else "observation") + (", np.random.default_rng()" if run.policy.is_drawn else "")
    print(f"use it:  policy = vem.load_policy('{run.policy_paths[0]}'); policy.act({argument})")
