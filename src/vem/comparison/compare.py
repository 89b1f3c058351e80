"""Several methods, or several settings of one, on several datasets: what is left to do is done and put side by side."""

from __future__ import annotations

import dataclasses
import math
import sys
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TextIO

from vem.algorithms.base import (
    METHODS,
    build,
    convert,
    find_method,
    import_methods,
    split_label,
    type_hints,
    unknown_setting,
)
from vem.comparison.cluster import find_ray, run_on_ray
from vem.comparison.job import HELD_OUT, Job
from vem.comparison.launch import View, run_here, run_jobs, showing
from vem.comparison.remote import Remote, copy_place, is_address
from vem.comparison.results import Comparison, read_comparison
from vem.data.load import BUILT_IN, READERS, dataset_files, matches
from vem.data.shards import SUFFIX as SHARDS
from vem.data.tables import SUFFIXES as TABLE_SUFFIXES
from vem.errors import RunError, SettingsError, Stopped, VemError
from vem.estimation.estimate import DEFAULT_DISCOUNT
from vem.tasks import find_task
from vem.training.request import DEFAULT_STEPS, Request, make_request, read_words

SAME_COMMAND = "the same command goes on from here"
ENGINES = ("local", "ray")
NUM_SEEDS = 3
WORDS = ("preset", "seeds", "seed", "steps", "minutes", "hold_out", "pool_rows", "data_dir", "evaluate_every")
"""What None does not ask for."""
MOST_JOBS = 10_000
SUFFIXES = (*READERS, *TABLE_SUFFIXES, SHARDS)
LONGEST_LABEL = 200
"""Letters of a label, which is a directory's name."""


def compare(
    data: Any = None,
    algorithms: str | Sequence[str] = ("vem", "bc", "iql"),
    *,
    out: str | Path = "runs/compare",
    preset: str | None = None,
    seeds: int | Sequence[int] | None = None,
    seed: int | Sequence[int] | None = None,
    steps: int | Mapping[str, int] | None = None,
    minutes: float | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    hold_out: float | None = None,
    pool_rows: int | None = None,
    data_dir: str | Path | None = None,
    evaluate_every: float | None = None,
    imports: Sequence[str] = (),
    config: str | Path | None = None,
    episodes: int = 100,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool | TextIO = True,
    **settings_and_rules: Any,
) -> Comparison:
    """Train and evaluate every method on every dataset, each in the run directory ``out/DATASET/ALGORITHM``.

    Runs that are finished are not run again, and unfinished ones go on from their newest checkpoint, so the same call
    goes on after a stop or a failure. A run that fails does not stop the others; ``Comparison.failures`` says why.

    ``data`` is one or several of what ``vem.train`` takes, and the other words mean what they mean there; ``seeds`` are
    3 by default. ``steps`` is one number or one for each method by name. A setting as a keyword is for all methods that
    have it; ``settings`` are given by method. A method may be named with its preset, as in ``vem-paper``; of the
    others, those that lack ``preset`` take their default.

    Data without an environment gives estimates instead of scores (``vem.estimate``), on the ``hold_out`` share of
    its trajectories: a fifth, if none is given.
    ``episodes`` is the number of evaluation episodes of each policy. ``jobs`` runs go on at a time, each in a process
    of its own; data made from arrays is trained on in this process alone, with ``jobs=1``. ``engine="ray"`` puts them
    on the Ray cluster at ``address`` (None: that of RAY_ADDRESS, or of this machine); ``out`` is then a folder that
    all nodes see, or an fsspec address. ``progress`` shows what happens on the standard output, or another stream.
    """
    how = Execution(episodes, jobs, checkpoint_seconds, engine, address, progress)
    words = {
        "preset": preset,
        "seeds": seeds,
        "seed": seed,
        "minutes": minutes,
        "steps": steps,
        "hold_out": hold_out,
        "pool_rows": pool_rows,
        "data_dir": data_dir,
        "evaluate_every": evaluate_every,
        "imports": imports,
    }
    asked = asked_for(config, data, words | settings_and_rules)
    labels = algorithms.split(",") if isinstance(algorithms, str) else list(algorithms)
    made = lay_out(out, asked, method_words(labels, asked, settings or {}, settings_and_rules))
    return read_comparison(run_all(made, out, how))


def sweep(
    data: Any = None,
    values: Mapping[str, Sequence[Any]] | None = None,
    algorithm: str | None = None,
    *,
    out: str | Path = "runs/sweep",
    config: str | Path | None = None,
    episodes: int = 100,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool | TextIO = True,
    **words: Any,
) -> Comparison:
    """Train and evaluate every combination of ``values`` (setting → its values), in ``out/DATASET/NAME=VALUE,…``.

    Any setting of the method can be swept. ``words`` are those of ``vem.train``, the same for all runs: ``seeds`` (3 by
    default), ``steps``, ``preset``, settings, reading rules …; the rest is as in ``compare``.
    """
    how = Execution(episodes, jobs, checkpoint_seconds, engine, address, progress)
    asked = asked_for(config, data, words)
    asked["algorithm"] = algorithm or asked.get("algorithm", "vem")
    made = lay_out(out, asked, swept_words(values or {}, asked), values or ())
    return read_comparison(run_all(made, out, how), "dataset")


# Which runs are wanted: datasets × methods, or datasets × combinations of settings.


def asked_for(config: str | Path | None, data: Any, words: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked for in words and, where they say nothing, in a file; ``data`` as a list."""
    words = {name: word for name, word in words.items() if word is not None or name not in WORDS}
    import_methods(words.get("imports", ()))
    stored = {} if config is None else read_words(config)
    nested = [stored.pop(name, {}) for name in ("settings", "rules", "sweep")]
    for name, other in (("seed", "seeds"), ("seeds", "seed"), ("steps", "minutes"), ("minutes", "steps")):
        if name in words:
            stored.pop(other, None)
    if not {"seed", "seeds"} & {*stored, *words}:
        stored["seeds"] = NUM_SEEDS
    if not stored.get("hold_out"):  # a run's file says 0, which nobody asked for
        stored.pop("hold_out", None)
    data = stored.get("data") if data is None else data
    several = list(data) if isinstance(data, list | tuple) else [data]
    return {**stored, **nested[0], **nested[1], **nested[2], **words, "data": several}


def method_words(
    labels: Sequence[str],
    asked: Mapping[str, Any],
    settings: Mapping[str, Mapping[str, Any]],
    settings_given: Collection[str] = (),
) -> dict[str, dict[str, Any]]:
    """Label → what is asked for of each method: the settings that it has, its preset, its steps.

    One of the methods must have each of ``settings_given``; those of a file may be of others.
    """
    _check_unique(labels, "algorithm")
    named = {label: split_label(label) for label in labels}
    preset, steps = asked.get("preset", "default"), asked.get("steps")
    if preset != "default" and not any(preset in find_method(name).presets for name, _ in named.values()):
        raise SettingsError(f"none of {', '.join(labels)} has a preset {preset!r}")
    for label in (*settings, *(steps if isinstance(steps, Mapping) else ())):
        split_label(label)  # a misspelled name would set nothing
    known = {name: {entry.name for entry in dataclasses.fields(find_method(name).config)} for name, _ in named.values()}
    settable = {entry.name for method in METHODS.values() for entry in dataclasses.fields(method.config)}
    for word in settings_given:
        if word in settable and not any(word in names for names in known.values()):
            raise SettingsError(unknown_setting(next(iter(known)), word))
    own = {}
    for label, (name, own_preset) in named.items():
        own[label] = {
            **{word: value for word, value in asked.items() if word in known[name] or word not in settable},
            "algorithm": name,
            "settings": dict(settings.get(label, {})),
            "preset": own_preset or (preset if preset in find_method(name).presets else "default"),
            "steps": steps.get(label, DEFAULT_STEPS) if isinstance(steps, Mapping) else steps,
        }
    return own


def swept_words(values: Mapping[str, Sequence[Any]], asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Label → what is asked for of each combination of ``values``, by setting."""
    swept = {name: _distinct(asked["algorithm"], name, several) for name, several in values.items()}
    if not any(len(several) > 1 for several in swept.values()):
        raise SettingsError("nothing is swept; give at least one setting several values, such as --discount 0.99,0.997")
    if both := [name for name in swept if name in asked or name in asked.get("settings", {})]:
        raise SettingsError(f"--{both[0].replace('_', '-')} is given both as a setting and as values to sweep")
    own = {}
    for combination in product(*swept.values()):
        chosen = dict(zip(swept, combination, strict=True))
        label = ",".join(f"{name.replace('_', '-')}={label_text(value)}" for name, value in chosen.items())
        if len(label) > LONGEST_LABEL:
            raise SettingsError(f"{label[:60]}… is too long for a directory's name; sweep fewer settings at once")
        own[label] = {**asked, **chosen}
    return own


def lay_out(
    out: str | Path, asked: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]], swept: Collection[str] = ()
) -> list[Job]:
    """A checked job for every dataset and label, in ``out/DATASET/LABEL``; no data is read, and nothing is written.

    ``own`` is what is asked for by label, and ``swept`` are the settings that differ.
    """
    count = len(own) * len(asked["data"])
    if count > MOST_JOBS:
        raise SettingsError(f"{count:,} runs are asked for; do at most {MOST_JOBS:,} at once")
    hold_out = HELD_OUT if asked.get("hold_out") is None else 0.0
    jobs: list[Job] = []
    for data in asked["data"]:
        requests = {label: make_request(**{**words, "data": data}) for label, words in own.items()}
        name = dataset_name(next(iter(requests.values())))
        if any(name == job.dataset for job in jobs):
            raise SettingsError(f"the dataset {name} is given twice, and its runs would have one directory")
        # Settings that cannot be are found before any work.
        known = {label: request.for_task(find_task(name)).settings for label, request in requests.items()}
        discount = max(settings.get("discount") or DEFAULT_DISCOUNT for settings in known.values())
        for label, request in requests.items():
            directory, values = Path(out) / name / label, {setting: own[label][setting] for setting in swept}
            jobs.append(Job(request, name, label, directory, values, hold_out=hold_out, discount=discount))
    return jobs


def dataset_name(request: Request) -> str:
    """The name of a dataset's directory: a file's stem, or a name with its slashes replaced."""
    text = request.data if request.dataset is None else request.dataset.info.name
    if text.startswith("minari:"):
        return text.removeprefix("minari:").replace("/", "-")
    name = Path(text).name
    suffix = next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)]


def split_values(algorithm: str, name: str, text: str) -> list[str]:
    """The values in the text of a flag: between commas, or between slashes if the setting is a list itself."""
    is_list = typing.get_origin(type_hints(find_method(algorithm).config)[name]) is tuple
    return text.split("/" if is_list else ",")


def label_text(value: Any) -> str:
    """A value as a directory's name has it, e.g. ``0.3``, ``256x256`` or ``none``."""
    if isinstance(value, tuple | list):
        return "x".join(map(label_text, value))
    text = f"{value:.10g}" if isinstance(value, float) else str(value).lower()
    return "".join(letter if letter.isalnum() or letter in "-.+" else "-" for letter in text)


def _distinct(algorithm: str, name: str, values: Sequence[Any]) -> list[Any]:
    """The values of a setting, converted to its type and different from each other."""
    config = find_method(algorithm).config
    hint = type_hints(config).get(name)
    if hint is None:
        build(config, {name: None})  # says which settings there are
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise SettingsError(f"--{name.replace('_', '-')} is {values!r}; give a list of values to sweep")
    converted = [convert(value, hint, name) for value in values]
    if not converted or len({label_text(value) for value in converted}) != len(converted):
        raise SettingsError(f"--{name.replace('_', '-')} lists {converted}; give different values")
    return converted


def _check_unique(names: Sequence[str], what: str) -> None:
    if not names or "" in names:
        raise SettingsError(f"give at least one {what}, by name")
    if repeated := {name for name in names if list(names).count(name) > 1}:
        raise SettingsError(f"the {what} {', '.join(sorted(repeated))} is given twice; each is one run")


# How they are run: in this process, in processes on this machine, or on a Ray cluster.


@dataclass(frozen=True)
class Execution:
    """How jobs are run; it changes no result."""

    episodes: int = 100
    jobs: int = 1
    checkpoint_seconds: float = 60.0
    engine: str = "local"
    address: str | None = None
    """Of the Ray cluster."""
    progress: bool | TextIO = True

    def __post_init__(self) -> None:
        for name in ("jobs", "episodes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SettingsError(f"--{name} is {value}; it must be a whole number, 1 or more")
        if not (math.isfinite(self.checkpoint_seconds) and self.checkpoint_seconds >= 0):
            raise SettingsError(f"--checkpoint-seconds is {self.checkpoint_seconds}; it must be 0 or more")
        if self.engine not in ENGINES:
            raise SettingsError(f"--engine is {self.engine!r}; choose from {', '.join(ENGINES)}")
        if self.engine == "ray" and self.jobs != 1:
            raise SettingsError("--jobs is for this machine; a Ray cluster does as many runs as it has cores")
        if self.engine != "ray" and self.address is not None:
            raise SettingsError(f"--address {self.address} is that of a Ray cluster; add --engine ray")

    def start(self, jobs: Sequence[Job], view: View) -> bool:
        """Do the jobs, each to its end or its failure, and return whether a signal stopped them (after saving)."""
        if self.engine == "ray":
            return run_on_ray(jobs, view, self.address)
        return run_jobs(jobs, view, self.jobs) if self.jobs > 1 else run_in_turn(jobs, view)

    def check(self, jobs: Sequence[Job]) -> None:
        """An error for jobs that cannot be run in this way."""
        datasets = {job.dataset: job.request.dataset for job in jobs}
        arrays = [name for name, data in datasets.items() if data is not None and data.info.source == "arrays"]
        if arrays and (self.engine == "ray" or self.jobs > 1):
            raise SettingsError(
                f"the dataset {', '.join(sorted(arrays))} was made from arrays, which other processes cannot read: "
                "give jobs=1, or save it to a file"
            )
        if self.engine == "ray":
            find_ray()


def run_all(jobs: Sequence[Job], out: str | Path, how: Execution) -> list[Job]:
    """Do what is left of the jobs and return them, with their records in their directories.

    If ``out`` is an address, the directories returned are copies. Raises Stopped if a signal stopped it, after saving.
    """
    how.check(jobs)
    remote = Remote(str(out)) if is_address(out) else None
    facts = {"episodes": how.episodes, "checkpoint_seconds": how.checkpoint_seconds}
    jobs = [dataclasses.replace(job, **facts, remote=str(out) if remote else None) for job in jobs]
    if remote is not None:
        place = copy_place(str(out))
        jobs = [job.at(place / job.dataset / job.label) for job in jobs]
        for job in jobs:
            remote.pull_records(job)
    left = check_jobs(jobs)
    if left:
        remote.check() if remote else _check_place(Path(out))
    stream = sys.stdout if how.progress is True else how.progress or None
    view = View(stream, len(left), remote)
    view.say(f"{len(left)} of {len(jobs)} runs in {out} are left to do")
    try:
        with showing(view):
            is_stopped = bool(left) and how.start(left, view)
    except KeyboardInterrupt:
        is_stopped = True
    if is_stopped:
        raise Stopped(f"stopped and saved; {SAME_COMMAND}")
    return list(jobs)


def run_in_turn(jobs: Sequence[Job], view: View) -> bool:
    """Do the jobs in this process, one after another; a signal raises KeyboardInterrupt (after saving)."""
    for job in jobs:
        try:
            run_here(job, view.stream)
            view.refresh(job)
        except VemError as error:  # of the place where the run is: it must not cost the runs that come after it
            job.record_failure(str(error))
            view.say(f"{job.name}: failed: {error}")
    return False


def check_jobs(jobs: Sequence[Job]) -> list[Job]:
    """The jobs that are left to do; an error, before any work, for what cannot be started or gone on with."""
    states = [(job, job.state()) for job in jobs]
    for job in {job.dataset: job for job, state in states if state in ("absent", "unfinished")}.values():
        if not _is_at_hand(job.request):
            job.request.load()  # says what was looked for, and where
    return [job for job, state in states if state != "done"]


def _is_at_hand(request: Request) -> bool:
    """Whether the data can be expected to load; cheap, so False is not a verdict."""
    if request.dataset is not None or request.data in BUILT_IN or Path(request.data).is_file():
        return True
    return any(matches(request.data, path) for path in dataset_files(request.data_dir))


def _check_place(directory: Path) -> None:
    """RunError if nothing can be written below a directory."""
    probe = directory / ".probe"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RunError(f"cannot write to {directory} ({error.strerror}); choose another --out") from None
