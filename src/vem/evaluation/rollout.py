"""One evaluation episode: an actor in an environment → returns, success, and values against what followed.

The value-estimation error compares V(s_t) with the discounted return that followed, in V's own units:
    G_t = Σ_{i<T−t} γⁱ·r_{t+i} + γ^{T−t}·V(s_T) if the time limit cut the episode, no last term if the task ended it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from vem.errors import DataError, SimulatorError
from vem.policy import Policy

if TYPE_CHECKING:
    import gymnasium


LONGEST_PATH = 200
"""Points of a kept path at most."""
DEFAULT_DISCOUNT = 0.99


class Actor(Protocol):
    """Anything that chooses actions: a ``Policy``, or an object of the user's."""

    def act(self, observations: np.ndarray, /) -> np.ndarray:
        """The action for one observation: numbers and codes in the order of the action space's columns."""
        ...


ActorFactory = Callable[["gymnasium.Env", np.random.Generator], Actor]
"""Makes the actor of one episode from the environment and the episode's own random numbers."""

Environment = str | Callable[[], "gymnasium.Env"]
"""A task's name, a Gymnasium id, or a function that makes an environment."""


def run_episode(
    env: gymnasium.Env,
    actor: Actor | ActorFactory,
    seed: int,
    *,
    is_stochastic: bool = False,
    keeps_path: bool = False,
) -> dict[str, Any]:
    """Run one episode and return the fields of its EpisodeRecord; all randomness comes from ``seed``.

    In mazes ``keeps_path`` keeps its x and y.
    """
    from vem.data.spaces import to_space

    act = _acting(env, actor, np.random.default_rng([seed, 1]), is_stochastic)
    observation, info = env.reset(seed=seed)
    observations, rewards = [flat_observation(observation)], []
    success = info.get("success")
    terminated = truncated = False
    while not (terminated or truncated):
        action = to_space(env.action_space, np.asarray(act(observations[-1])).ravel())
        observation, reward, terminated, truncated, info = env.step(action)
        observations.append(flat_observation(observation))
        rewards.append(float(reward))
        if "success" in info:
            success = bool(success) or bool(info["success"])
    if not np.isfinite(rewards).all():
        raise SimulatorError(f"the environment gave a reward that is not finite at step {_first_broken(rewards)}")
    settings = actor.info.get("settings", {}) if isinstance(actor, Policy) else {}
    discount = settings.get("discount", DEFAULT_DISCOUNT)
    facts = {
        "episode_return": float(np.sum(rewards)),
        "discounted_return": float(discounted_returns(np.array(rewards), discount)[0]),
        "length": len(rewards),
        "success": None if success is None else bool(success),
        "terminated": bool(terminated),
        "truncated": bool(truncated) and not terminated,
    }
    if isinstance(actor, Policy) and actor.has_value:
        values = np.asarray(actor.value(np.array(observations)), np.float64)
        scaled = settings.get("reward_scale", 1.0) * np.array(rewards) + settings.get("reward_shift", 0.0)
        targets = discounted_returns(scaled, discount, 0.0 if terminated else values[-1])
        facts |= {
            "value_start": float(values[0]),
            "target_start": float(targets[0]),
            "value_mean": float(values[:-1].mean()),
            "target_mean": float(targets.mean()),
        }
    if keeps_path and is_maze(env):
        facts["path"] = thinned_path(np.array(observations)[:, :2])
    return facts


def _acting(
    env: gymnasium.Env, actor: Actor | ActorFactory, generator: np.random.Generator, is_stochastic: bool
) -> Callable[[np.ndarray], np.ndarray]:
    if isinstance(actor, Policy):
        return (lambda observation: actor.act(observation, generator)) if is_stochastic else actor.act
    if hasattr(actor, "act"):
        return actor.act  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
    return actor(env, generator).act  # pyright: ignore[reportCallIssue]


def discounted_returns(rewards: np.ndarray, discount: float, tail: float = 0.0) -> np.ndarray:
    """G_t = r_t + γ·G_{t+1} with G_T = ``tail``, for every t < T."""
    returns = np.empty(len(rewards))
    for t in range(len(rewards) - 1, -1, -1):
        tail = returns[t] = rewards[t] + discount * tail
    return returns


def thinned_path(positions: np.ndarray) -> list[list[float]]:
    """At most ``LONGEST_PATH`` of the positions, first and last among them, to three digits after the point."""
    kept = np.unique(np.linspace(0, len(positions) - 1, min(len(positions), LONGEST_PATH)).round().astype(int))
    return np.asarray(positions[kept], np.float64).round(3).tolist()


def flat_observation(observation: Any) -> np.ndarray:
    """The observation as one vector; dicts in the order of their sorted keys, as the data is read."""
    if isinstance(observation, dict | tuple):
        entries = [value for _, value in sorted(observation.items())] if isinstance(observation, dict) else observation
        return np.concatenate([flat_observation(entry) for entry in entries])
    return np.asarray(observation).ravel()


def make_environment(environment: Environment) -> gymnasium.Env:
    """The environment of a name or of a function."""
    import gymnasium

    # Every worker would repeat the same notice; the caller has seen what matters as an error.
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    if callable(environment):
        return environment()
    from vem import envs

    return envs.make(environment, disable_env_checker=True)


class SpaceSizes(NamedTuple):
    """What a policy must fit."""

    observation_size: int
    action_size: int
    name: str
    """Of the environment."""
    choices: tuple[int, ...] = ()
    """Number of choices of each action column, 0 for numbers; empty: numbers only."""

    def misfit(self, policy: Policy) -> str | None:
        """What is wrong if the policy does not fit; one that knows fewer choices does."""
        sizes, own = (policy.observation_size, policy.action_size), self[:2]
        if sizes != own:
            return (
                f"takes observations of {sizes[0]} numbers and gives actions of {sizes[1]}; {self.name} has {own[0]} "
                f"and {own[1]}"
            )
        given, taken = (choices or (0,) * own[1] for choices in (policy.action_choices, self.choices))
        for index, (count, most) in enumerate(zip(given, taken, strict=True)):
            if bool(count) != bool(most) or count > most:
                what = [f"one of {number} choices" if number else "a number" for number in (count, most)]
                return f"gives {what[0]} in action column {index}; {self.name} takes {what[1]}"
        return None


def space_sizes(env: gymnasium.Env) -> SpaceSizes:
    """What a policy must fit to act in the environment."""
    from gymnasium.spaces.utils import flatdim

    from vem.data.actions import choices_of
    from vem.data.spaces import space_columns

    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    try:
        columns = space_columns(env.action_space)
    except DataError as error:
        raise SimulatorError(f"no policy can act in {name}: {error}") from None
    return SpaceSizes(flatdim(env.observation_space), len(columns), name, choices_of(columns))


def is_maze(env: gymnasium.Env) -> bool:
    """Whether observations begin with a position in a maze: vem's own mazes and gymnasium-robotics'."""
    return hasattr(env.unwrapped, "layout") or hasattr(env.unwrapped, "maze")


def waypoint_actor(env: gymnasium.Env, generator: np.random.Generator) -> Actor:
    """The behavior behind the built-in PointMaze data, to be evaluated beside the policies: an ActorFactory."""
    from vem.data.mazes import behavior_in

    if not hasattr(env.unwrapped, "layout"):
        raise SimulatorError("the waypoint controller walks vem's PointMazes only")
    return behavior_in(env.unwrapped, generator)


def _first_broken(rewards: list[float]) -> int:
    return int(np.flatnonzero(~np.isfinite(rewards))[0])
