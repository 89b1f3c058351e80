"""Evaluation of a run: episodes in the data's environment → records, scores and statistics in the run directory.

RUN/evaluations.jsonl   one line an episode; the newest evaluation of each member at each number of steps
RUN/evaluation.json     the summary of the newest evaluation
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vem.errors import RunError
from vem.evaluation.environments import References, RunTarget, find_target
from vem.evaluation.rollout import EpisodeRecord, discounted_returns, thinned_path
from vem.evaluation.statistics import over_seeds
from vem.evaluation.workers import Evaluator
from vem.policy import Policy, load_policy
from vem.storage import write_file, write_json
from vem.tasks import task_of

if TYPE_CHECKING:
    from vem.data import Dataset

SUMMARY_VERSION = 1
NUM_PATHS = 20
"""Episodes of each member that keep their path in mazes."""


def evaluate_run(
    directory: str | Path,
    num_episodes: int = 100,
    seed: int = 0,
    num_workers: int | None = None,
    environment: str | None = None,
    is_stochastic: bool = False,
    show: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Evaluate the policies of a finished run, write the records and the summary, and return the summary.

    ``show`` is called with the episodes done and to do.
    """
    target = find_target(directory, environment)
    paths = [target.directory / "policies" / f"{name}.safetensors" for name in target.members]
    missing = [path.stem for path in paths if not path.exists()]
    if missing:
        raise RunError(
            f"{directory} has no policy of {', '.join(missing)}: the run has not finished; go on with "
            f"vem train --resume {directory}, then evaluate it"
        )
    policies = [load_policy(path) for path in paths]
    with Evaluator(target.environment, num_workers) as evaluator:
        return evaluate_run_at(
            target,
            policies,
            target.steps,
            evaluator,
            num_episodes,
            seed,
            is_stochastic=is_stochastic,
            num_paths=NUM_PATHS,
            show=show,
        )


def evaluate_run_at(
    target: RunTarget,
    policies: Sequence[Policy],
    steps: int,
    evaluator: Evaluator,
    num_episodes: int = 20,
    seed: int = 0,
    *,
    is_stochastic: bool = False,
    num_paths: int = 0,
    show: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Evaluate ``policies``, in the members' order, as they are after ``steps``; one point of a training curve.

    Writes the records and the summary into the run directory and returns the summary.
    """
    actors = dict(zip(target.members, policies, strict=True))
    total = num_episodes * len(actors)
    records: list[EpisodeRecord] = []
    for record in evaluator.episodes(actors, num_episodes, seed, is_stochastic=is_stochastic, num_paths=num_paths):
        records.append(dataclasses.replace(record, steps=steps))
        show(len(records), total)
    order = {name: index for index, name in enumerate(actors)}
    records.sort(key=lambda record: (order[record.member], record.episode))
    _keep_records(target.directory / "evaluations.jsonl", records)
    references = target.references
    summary = {
        "version": SUMMARY_VERSION,
        "steps": steps,
        "environment": target.environment_name,
        "references": references._asdict() if references else None,
        "num_episodes": num_episodes,
        "seed": seed,
        "actions": "sampled" if is_stochastic else "mean",
        **summarize(records, target.members, references),
    }
    write_json(target.directory / "evaluation.json", summary)
    return summary


def summarize(
    records: Sequence[EpisodeRecord], members: Mapping[str, Mapping[str, float]], references: References | None
) -> dict[str, Any]:
    """Means of every member's episodes, and statistics over the seeds of each combination of swept settings.

    Failed episodes are counted and left out of the means. A quantity that no episode has is None.
    """
    values = {
        name: {quantity: _values(records, name, of) for quantity, of in _quantities(references).items()}
        for name in members
    }
    rows = {}
    for name, quantities in values.items():
        errors = [record.error for record in records if record.member == name and record.error]
        rows[name] = {quantity: float(v.mean()) if v.size else None for quantity, v in quantities.items()}
        rows[name] |= {"num_failed": len(errors), "first_error": errors[0] if errors else None}
    combinations: dict[str, list[str]] = {}
    for name, swept in members.items():
        combinations.setdefault(json.dumps(swept), []).append(name)
    groups = []
    for text, names in combinations.items():
        group: dict[str, Any] = {"settings": json.loads(text), "members": names}
        for quantity in _quantities(references):
            found = [values[name][quantity] for name in names if values[name][quantity].size]
            group[quantity] = over_seeds(found)._asdict() if found else None
        groups.append(group)
    return {"members": rows, "groups": groups}


def _quantities(references: References | None) -> dict[str, Callable[[EpisodeRecord], float | None]]:
    def score(record: EpisodeRecord) -> float | None:
        if references is None or record.episode_return is None:
            return None
        return 100 * (record.episode_return - references.minimum) / (references.maximum - references.minimum)

    def difference(first: float | None, second: float | None) -> float | None:
        return None if first is None or second is None else first - second

    return {
        "return": lambda record: record.episode_return,
        "score": score,
        "success": lambda record: record.success,
        "length": lambda record: record.length,
        "discounted_return": lambda record: record.discounted_return,
        "value_start": lambda record: record.value_start,
        "value_error_start": lambda record: difference(record.value_start, record.target_start),
        "value_error": lambda record: difference(record.value_mean, record.target_mean),
    }


def _values(records: Sequence[EpisodeRecord], member: str, of: Callable[[EpisodeRecord], float | None]) -> np.ndarray:
    found = (of(record) for record in records if record.member == member and record.error is None)
    return np.array([value for value in found if value is not None], np.float64)


def read_records(directory: str | Path) -> list[EpisodeRecord]:
    """All records of a run, empty before its first evaluation."""
    path = Path(directory) / "evaluations.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [EpisodeRecord(**json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}); remove it and evaluate again") from None


def _keep_records(path: Path, records: Sequence[EpisodeRecord]) -> None:
    """Add ``records`` to the file; they replace older ones of the same members and steps."""
    replaced = {(record.member, record.steps) for record in records}
    kept = [record for record in read_records(path.parent) if (record.member, record.steps) not in replaced]
    lines = (json.dumps(dataclasses.asdict(record), allow_nan=False) + "\n" for record in (*kept, *records))
    write_file(path, "".join(lines).encode())


def behavior_records(dataset: Dataset, discount: float = 0.99, num_paths: int = 0) -> list[EpisodeRecord]:
    """The recorded episodes themselves as records of the member ``behavior``.

    Their starts are the recording's, not the evaluation's. Success is known where only success is rewarded (a task
    whose references are 0 and 1): an episode succeeds when it has a positive return.
    """
    task = task_of(dataset.info)
    rewards_success = task is not None and (task.minimum, task.maximum) == (0.0, 1.0)
    is_maze = task is not None and "maze" in task.name
    records = []
    for episode, (start, end) in enumerate(zip(dataset.episode_starts, dataset.episode_ends, strict=True)):
        rewards = dataset.rewards[start:end].astype(np.float64)
        terminated = bool(dataset.terminal[end - 1])
        records.append(
            EpisodeRecord(
                "behavior",
                episode,
                seed=0,
                episode_return=float(rewards.sum()),
                discounted_return=float(discounted_returns(rewards, discount)[0]),
                length=int(end - start),
                success=bool(rewards.sum() > 0) if rewards_success else None,
                terminated=terminated,
                truncated=not terminated,
                path=thinned_path(dataset.observations[start : end + 1, :2])
                if is_maze and episode < num_paths
                else None,
            )
        )
    return records
