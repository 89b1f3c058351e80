"""A run: settings and a dataset in, a run directory with metrics, checkpoints and policies out.

RUN/config.json     everything the run depends on, with fingerprints of the data and the packages
RUN/metrics.jsonl   training metrics
RUN/checkpoints/    the newest two states; a resumed run ends with the same bits as one never stopped
RUN/policies/       one file for each member (seed and swept setting)
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import time
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vem import storage
from vem.algorithms import find_method, presets
from vem.algorithms.base import Algorithm, Rows, put_rows, spec_of
from vem.algorithms.config import build, convert, sweepable
from vem.data import Dataset, load
from vem.data.transforms import repeat_terminals
from vem.errors import RunError, SettingsError
from vem.policy import Policy, load_policy, make_policy
from vem.runs import checkpoints
from vem.runs.loop import LONGEST_CHUNK, Member, Progress, Snapshot, start, train
from vem.tasks import find_task

CONFIG_VERSION = 2
OLD_NAMES = {
    "num_updates": "steps",
    "policy_rate_decay": "policy_lr_schedule",
    "value_rate": "value_lr",
    "policy_rate": "policy_lr",
    "policy_decay": "policy_weight_decay",
    "value_decay": "value_weight_decay",
    "decay": "td_lambda",
    "updates_per_refresh": "steps_per_refresh",
    "value_updates": "value_share",
    "envelope_updates": "envelope_share",
    "cloning_updates": "cloning_steps",
    "normalise_observations": "normalize_observations",
    "normalise_rewards": "normalize_rewards",
}
"""Names in a config.json of version 1 → names since version 2."""
SECONDS_PER_CHECKPOINT = 60.0
NUM_METRIC_LINES = 1000
ROW_SETTINGS = (
    "normalize_observations",
    "normalize_rewards",
    "reward_scale",
    "reward_shift",
    "return_span",
    "discount",
)
"""Settings of a method that change the rows it sees."""


@dataclass(frozen=True)
class Config:
    """All that decides the result of a run."""

    dataset: str
    """What ``vem.load`` takes, or the name of a dataset made in Python."""
    algorithm: str = "vem"
    preset: str = "default"
    settings: dict[str, Any] = field(default_factory=dict)
    """Complete settings of the method."""
    sweep: dict[str, list[float]] = field(default_factory=dict)
    """Settings that take several values; every combination is trained, for every seed."""
    seeds: tuple[int, ...] = (0,)
    steps: int = 100_000
    rules: dict[str, Any] = field(default_factory=dict)
    """How the data was read."""
    data_dir: str | None = None

    @property
    def members(self) -> list[Member]:
        """One for each policy that the run trains."""
        combinations = [dict(zip(self.sweep, values, strict=True)) for values in product(*self.sweep.values())]
        return [Member(seed, swept) for swept in combinations for seed in self.seeds]


def make_config(
    dataset: str,
    algorithm: str = "vem",
    preset: str = "default",
    settings: dict[str, Any] | None = None,
    seeds: int | Sequence[int] = 1,
    steps: int = 100_000,
    rules: dict[str, Any] | None = None,
    data_dir: str | None = None,
) -> Config:
    """A complete, checked Config; a sweepable setting may be given as a list of values."""
    method = find_method(algorithm)
    chosen = presets.find_preset(algorithm, preset, find_task(Path(dataset).name))
    given = {**chosen.settings, **(settings or {})}
    hints = typing.get_type_hints(method.config)
    sweep: dict[str, list[float]] = {}
    for name in sweepable(method.config):
        if isinstance(given.get(name), list | tuple):
            values = [convert(value, hints[name], name) for value in given[name]]
            if len(set(values)) != len(values) or None in values:
                raise SettingsError(f"--{name.replace('_', '-')} lists {values}; give different numbers")
            if len(values) > 1:
                sweep[name] = values
            given[name] = values[0]
            for value in values:
                build(method.config, {**given, name: value})
    complete = build(method.config, given)
    seeds = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0 or max(seeds) >= 2**31:
        raise SettingsError(f"seeds are {seeds}; give at least one, all different, 0 or more")
    if steps < 1:
        raise SettingsError(f"--steps is {steps}; it must be 1 or more")
    return Config(
        dataset=dataset,
        algorithm=algorithm,
        preset=preset,
        settings=dataclasses.asdict(complete),
        sweep=sweep,
        seeds=seeds,
        steps=steps,
        rules={**chosen.rules, **(rules or {})},
        data_dir=data_dir,
    )


def load_data(config: Config) -> Dataset:
    """The dataset of a config, read by its rules."""
    rules = dict(config.rules)
    repeat = rules.pop("repeat_terminals", False)
    dataset = load(config.dataset, data_dir=config.data_dir, **rules)
    return repeat_terminals(dataset) if repeat else dataset


class Run:
    """A run directory and what trains in it; iterate ``progress()`` to train."""

    def __init__(self, directory: Path, config: Config, dataset: Dataset, snapshot: Snapshot | None) -> None:
        self.directory = directory
        self.config = config
        self.dataset = dataset
        self.messages: list[str] = []
        """What resuming found worth saying."""
        self.seconds_per_checkpoint = SECONDS_PER_CHECKPOINT
        method = find_method(config.algorithm)
        self.settings = build(method.config, config.settings)
        spec = spec_of(dataset)
        self.algorithm: Algorithm = method.make(self.settings, spec, config.steps)
        self._resumed = snapshot

    @property
    def policy_paths(self) -> list[Path]:
        """Where the policies of the members are, or will be, in the members' order."""
        return [self.directory / "policies" / f"{member.name}.safetensors" for member in self.config.members]

    @property
    def is_finished(self) -> bool:
        """Whether every member's policy is written."""
        return all(path.exists() for path in self.policy_paths)

    @property
    def policies(self) -> list[Policy]:
        """The trained policies in the members' order."""
        return [load_policy(path) for path in self.policy_paths]

    @property
    def policy(self) -> Policy:
        """The first member's policy."""
        return load_policy(self.policy_paths[0])

    @cached_property
    def rows(self) -> Rows:
        """The data on the device, in the units of the method."""
        settings = dataclasses.asdict(self.settings)
        return put_rows(self.dataset, **{name: settings[name] for name in ROW_SETTINGS if name in settings})

    def initial(self) -> Snapshot:
        """The state before the first update."""
        swept = {
            name: value
            for name in sweepable(type(self.settings))
            if (value := getattr(self.settings, name)) is not None
        }
        return start(self.algorithm, self.config.members, swept)

    def progress(self) -> Iterator[Progress]:
        """Train, yielding after each chunk; writes metrics and checkpoints on the way and policies at the end."""
        if self.is_finished:
            return
        rows = self.rows
        snapshot = self._resumed or self.initial()
        largest = 5 * (
            1 + float(np.abs(np.asarray(rows.rewards)).max()) / (1 - self.config.settings.get("discount", 0.99))
        )
        started, saved = time.monotonic(), time.monotonic()
        progress = None
        with (
            storage.locked(self.directory),
            (self.directory / "metrics.jsonl").open("a", encoding="utf-8") as metrics,
        ):
            for progress in train(self.algorithm, rows, self.config.members, snapshot, largest):
                if _is_metric_line(progress, self.config.steps):
                    metrics.write(json.dumps(self._metric_line(progress, time.monotonic() - started)) + "\n")
                    metrics.flush()
                yield progress
                finished_stage = progress.snapshot.done == progress.stage.num_steps
                if finished_stage or time.monotonic() - saved > self.seconds_per_checkpoint:
                    self.checkpoint(progress)
                    saved = time.monotonic()
        state = (progress.snapshot if progress else snapshot).state
        for policy, path in zip(self.export(state), self.policy_paths, strict=True):
            policy.save(path)

    def train(self) -> Run:
        """Train to the end and return the run."""
        for _ in self.progress():
            pass
        return self

    def checkpoint(self, progress: Progress) -> None:
        """Write the state after ``progress``, so that the run can go on from it."""
        snapshot = progress.snapshot
        header = {"stage": snapshot.stage, "done": snapshot.done}
        tree = {"state": snapshot.state, "memory": snapshot.memory}
        checkpoints.save_checkpoint(self.directory / "checkpoints", progress.steps, tree, header)

    def _metric_line(self, progress: Progress, seconds: float) -> dict[str, Any]:
        members = {
            member.name: {name: float(values[i]) for name, values in progress.metrics.items()}
            for i, member in enumerate(self.config.members)
        }
        return {
            "steps": progress.steps,
            "stage": progress.stage.name,
            "seconds": round(seconds, 3),
            "members": members,
        }

    def export(self, state: Any) -> list[Policy]:
        """The policies in a state of training, in the members' order."""
        exported = jax.device_get(jax.vmap(self.algorithm.export)(state))
        rows = self.rows
        normalizer = (np.asarray(rows.observation_mean), np.asarray(rows.observation_deviation))
        info = self.dataset.info
        bounds = (np.asarray(info.action_low), np.asarray(info.action_high))
        policies = []
        for index, member in enumerate(self.config.members):
            facts = {
                "algorithm": self.config.algorithm,
                "preset": self.config.preset,
                "settings": {**self.config.settings, **member.swept},
                "seed": member.seed,
                "member": member.name,
                "steps": self.config.steps,
                "dataset": info.name,
                "environment": info.environment,
                "packages": _packages(),
            }
            parameters = jax.tree.map(lambda leaf, index=index: leaf[index], exported)
            parameters["value_unit"] = np.asarray(rows.value_unit)
            policies.append(make_policy(self.algorithm.policy_kind, parameters, bounds, normalizer, facts))
        return policies


def create_run(directory: str | Path, config: Config, dataset: Dataset) -> Run:
    """A new run in an empty or absent directory."""
    directory = Path(directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RunError(
            f"{directory} exists and is not empty; choose another --out, or go on with vem train --resume {directory}"
        )
    full, notes = build(find_method(config.algorithm).config, config.settings).complete(spec_of(dataset))
    run = Run(directory, dataclasses.replace(config, settings=dataclasses.asdict(full)), dataset, None)
    run.messages += notes
    config = run.config
    facts = {
        "version": CONFIG_VERSION,
        "config": {**dataclasses.asdict(config), "seeds": list(config.seeds)},
        "data": {
            **dataclasses.asdict(dataset.info),
            "sha256": dataset.fingerprint(),
            "num_rows": dataset.num_rows,
        },
        "packages": _packages(),
    }
    storage.write_json(directory / "config.json", facts)
    return run


def read_config(directory: str | Path) -> tuple[Config, dict[str, Any]]:
    """The Config of a run directory and all of its config.json."""
    path = Path(directory) / "config.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(
            f"{directory} is not a run directory: it has no config.json; start one with vem train --out"
        ) from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); start the run again in another directory") from None
    if not isinstance(facts, dict) or facts.get("version") not in (1, CONFIG_VERSION):
        raise RunError(f"{path} has no config of version {CONFIG_VERSION}; it was written by another vem")
    try:
        stored = facts["config"]
        if facts["version"] == 1:
            stored = _renamed(stored) | {"settings": _renamed(stored["settings"])}
        config = Config(**{**stored, "seeds": tuple(stored["seeds"])})
        settings = build(find_method(config.algorithm).config, config.settings)
    except (KeyError, TypeError, SettingsError) as error:
        raise RunError(f"{path} does not describe a run ({error}); it was edited or written by another vem") from None
    return dataclasses.replace(config, settings=dataclasses.asdict(settings)), facts


def _renamed(stored: dict[str, Any]) -> dict[str, Any]:
    """Names and words of version 1 as they are called now."""
    words = {"standardised": "standardized"}
    return {
        OLD_NAMES.get(name, name): words.get(value, value) if isinstance(value, str) else value
        for name, value in stored.items()
    }


def resume_run(directory: str | Path, dataset: Dataset | None = None) -> Run:
    """The run in a directory, ready to go on from its newest readable checkpoint.

    The dataset is read again unless given, and must be the same to the bit.
    """
    directory = Path(directory)
    config, facts = read_config(directory)
    if dataset is None:
        if facts["data"]["source"] == "arrays":
            raise RunError(
                f"{directory} was trained on arrays from Python; resume it there with vem.resume(directory, dataset)"
            )
        dataset = load_data(config)
    if dataset.fingerprint() != facts["data"]["sha256"]:
        raise RunError(
            f"the dataset {config.dataset} is not the one {directory} was started with (its rows differ); "
            "restore the old file, or start a new run"
        )
    run = Run(directory, config, dataset, None)
    if facts["packages"] != _packages():
        run.messages.append(f"the run was started with {facts['packages']}, now {_packages()}: bits may differ")
    if run.is_finished:
        return run
    found = checkpoints.load_newest(directory / "checkpoints", run.messages.append)
    steps = 0
    if found is not None:
        tensors, header = found
        steps = header["steps"]
        run._resumed = _restore(run, tensors, header, directory)
    _cut_metrics(directory / "metrics.jsonl", steps)
    run.messages.append(f"resuming at update {steps:,} of {config.steps:,}")
    return run


def _restore(run: Run, tensors: dict[str, np.ndarray], header: dict[str, Any], directory: Path) -> Snapshot:
    """The snapshot of a checkpoint, checked against the shapes that this run has."""
    stage = run.algorithm.stages[header["stage"]]
    num_members = len(run.config.members)
    state = jax.eval_shape(lambda: run.initial().state)
    memory = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((num_members, *leaf.shape), leaf.dtype), jax.eval_shape(stage.empty)
    )
    tree = storage.unflatten({"state": state, "memory": memory}, tensors, str(directory / "checkpoints"))
    tree = jax.tree.map(jnp.asarray, tree)
    return Snapshot(header["stage"], header["done"], tree["state"], tree["memory"])


def _cut_metrics(path: Path, steps: int) -> None:
    """Drop the metric lines after the checkpoint: they will be written again."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["steps"] > steps:
                break
        except (ValueError, KeyError, TypeError):
            break
        kept.append(line + "\n")
    storage.write_file(path, "".join(kept).encode())


def _is_metric_line(progress: Progress, num_steps: int) -> bool:
    """Whether this chunk is logged: all of them, or about ``NUM_METRIC_LINES`` in a long run."""
    period = progress.stage.steps_per_refresh or num_steps
    step = max(1, num_steps // NUM_METRIC_LINES)
    chunk = min(period, LONGEST_CHUNK)
    return progress.steps // step != (progress.steps - chunk) // step or progress.steps == progress.num_steps


def _packages() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("vem", "jax", "jaxlib", "numpy", "optax")}
