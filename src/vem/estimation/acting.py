"""What a policy does in the rows of a log, in the units of the networks."""

from __future__ import annotations

import numpy as np

from vem.data import Dataset
from vem.data.action_columns import choices_of
from vem.errors import DataError
from vem.policy import Policy

BLOCK_ROWS = 8192


def check_fit(policy: Policy, dataset: Dataset, name: str = "the policy") -> None:
    """DataError unless the policy observes and acts as the data do."""
    takes, given = (policy.observation_size, policy.action_size), (dataset.observation_size, dataset.action_size)
    if takes != given:
        raise DataError(
            f"the data {dataset.info.name} has observations of {given[0]} numbers and actions of {given[1]}; {name} "
            f"takes {takes[0]} and {takes[1]}: give recordings of the same task"
        )
    own, others = (choices or (0,) * given[1] for choices in (policy.action_choices, _choices(dataset)))
    for index, (count, most) in enumerate(zip(own, others, strict=True)):
        if bool(count) != bool(most) or count > most:
            what = [f"one of {number} choices" if number else "a number" for number in (count, most)]
            raise DataError(
                f"{name} gives {what[0]} in action column {index}; the data {dataset.info.name} has {what[1]}: read it "
                "as the policy's data was (--discrete, --discrete-columns)"
            )


def scale_actions(actions: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Actions in the data's units → numbers where the bounds are ±1; codes of choices as they are."""
    low, high = (np.asarray(bound, np.float32) for bound in (dataset.info.action_low, dataset.info.action_high))
    scaled = (actions - (low + high) / 2) / np.maximum((high - low) / 2, 1e-6)
    choices = _choices(dataset)
    return np.where(np.asarray(choices) > 0, actions, scaled).astype(np.float32) if choices else scaled


def policy_actions(policy: Policy, dataset: Dataset, key: int | None = None) -> np.ndarray:
    """The policy's action in every row, final observations included: the mean or the likeliest, or sampled by a key."""
    generator = None if key is None else np.random.default_rng(key)
    blocks = [
        np.asarray(policy.act(dataset.observations[at : at + BLOCK_ROWS], generator)).reshape(-1, policy.action_size)
        for at in range(0, dataset.num_rows, BLOCK_ROWS)
    ]
    return scale_actions(np.concatenate(blocks).astype(np.float32), dataset)


def _choices(dataset: Dataset) -> tuple[int, ...]:
    return choices_of(dataset.info.action_columns)
