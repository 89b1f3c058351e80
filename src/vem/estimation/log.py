"""The log as estimates see it: over how many steps returns are compared, and what its trajectories earned in them.

A value is E[Σ_{t<H} γᵗ·r_t] from the start of a trajectory. Trajectories that a time limit cut after H steps have this
sum in the log, so that policy and log are compared over the same steps and nothing is guessed about what came after.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from vem.data.actions import choices_of
from vem.data.dataset import Dataset, trajectories_of
from vem.errors import DataError
from vem.evaluation.rollout import SpaceSizes
from vem.policy import Policy
from vem.training.rows import discounted_returns

NEGLIGIBLE = 1e-3
"""A horizon is long enough where γᴴ is below this."""
MOST_CUT = 0.1
"""Share of the trajectories that may be cut before the horizon; they tell nothing about the log's return."""


class Log(NamedTuple):
    """A dataset with the horizon of an estimate."""

    dataset: Dataset
    discount: float
    horizon: int
    """H: steps over which returns are compared."""
    episode: np.ndarray
    """Number of the trajectory of each row."""
    remaining: np.ndarray
    """Steps left until the horizon in each row, 1 … H; after H steps of an episode the count begins anew."""
    mass: np.ndarray
    """(1 − γʰ)/(1 − γᴴ) of the steps h left in each row."""
    returns: np.ndarray
    """Σ γⁱ·r_{t+i} of each row, up to the horizon."""
    is_known: np.ndarray
    """Whether that sum is whole in each row: neither cut nor a final observation."""
    starts: np.ndarray
    """First row of each trajectory whose return is whole."""
    lengths: np.ndarray
    """Steps of each of those, up to the horizon."""

    @property
    def start_returns(self) -> np.ndarray:
        """The discounted return of each trajectory whose return is whole."""
        return self.returns[self.starts].astype(np.float64)


def find_horizon(dataset: Dataset, discount: float) -> int:
    """H: the steps after which all but a tenth of the trajectories have either ended or not yet been cut.

    At most as many as leave γᴴ = 0.001.
    """
    longest = 1 if discount == 0 else math.ceil(math.log(NEGLIGIBLE) / math.log(discount))
    first = _first_episodes(dataset)
    ends = dataset.episode_ends[first]
    cut = np.sort(dataset.episode_lengths[first][~dataset.terminal[ends - 1]])
    num_spared = int(MOST_CUT * len(first))
    return int(min(longest, cut[num_spared])) if len(cut) > num_spared else longest


def read_log(dataset: Dataset, discount: float, horizon: int) -> Log:
    """The log of a dataset, or of a part of one, whose horizon is known."""
    starts, lengths = dataset.episode_starts, dataset.episode_lengths
    place = np.arange(dataset.num_rows) - np.repeat(starts, lengths + 1)
    remaining = horizon - place % horizon
    steps = dataset.valid & (remaining > 1) & ~dataset.terminal
    returns = discounted_returns(dataset.rewards, dataset.valid, discount, np.where(steps, discount, 0.0))
    # What is left of an episode after its last whole piece of H steps was cut, unless the task ended it.
    whole = np.where(dataset.terminal[dataset.episode_ends - 1], lengths, lengths // horizon * horizon)
    is_known = dataset.valid & (place < np.repeat(whole, lengths + 1))
    trajectory = trajectories_of(dataset)
    first = _first_episodes(dataset)
    chosen = first[is_known[starts[first]]]
    return Log(
        dataset,
        discount,
        horizon,
        np.repeat(trajectory, lengths + 1),
        remaining,
        ((1 - discount**remaining) / (1 - discount**horizon)).astype(np.float32),
        returns,
        is_known,
        starts[chosen],
        np.minimum(lengths[chosen], horizon),
    )


def require_starts(log: Log, what: str) -> None:
    """DataError if no trajectory of the log has a whole return."""
    if not len(log.starts):
        raise DataError(
            f"{what} has no trajectory that lasts {log.horizon} steps or ends before; give more trajectories, or a "
            "smaller --discount"
        )


def _first_episodes(dataset: Dataset) -> np.ndarray:
    """The first episode of each trajectory: later ones begin where no policy is started."""
    return np.flatnonzero(np.diff(trajectories_of(dataset), prepend=-1))


# What a policy does in the rows of a log, in the units of the networks.


BLOCK_ROWS = 8192


def check_fit(policy: Policy, dataset: Dataset, name: str = "the policy") -> None:
    """DataError unless the policy observes and acts as the data do."""
    sizes = SpaceSizes(
        dataset.observation_size, dataset.action_size, f"the data {dataset.info.name}", _choices(dataset)
    )
    if problem := sizes.misfit(policy):
        raise DataError(f"{name} {problem}: give trajectories of its task, read as its own were (--discrete-columns)")


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
