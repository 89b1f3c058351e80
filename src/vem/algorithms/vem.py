"""Every choice of VEM, and which of them go together.

They span both readings of the method: what the paper describes and what its authors released
(``docs/algorithms/vem.md`` has the table).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem.algorithms.base import Algorithm, Batch, Configuration, Metrics, Rows, Spec, Stage, draw_uniformly, setting
from vem.errors import SettingsError
from vem.losses import (
    WEIGHTS,
    AdvantageScale,
    advantage,
    effective_share,
    expectile_loss,
    expectile_step,
    quantile_loss,
    squared_weight_loss,
    typical_share,
    weighted_likelihood_loss,
)
from vem.losses import fit_scale as fit_scale_advantages
from vem.networks import (
    Head,
    Network,
    Shares,
    apply_network,
    apply_networks,
    cumulate,
    descend,
    draw_rows,
    empty_shares,
    init_network,
    init_networks,
    log_deviation,
    scheduled_lr,
    trained,
)
from vem.plan import (
    Steps,
    crossed_maximum,
    episodic_maximum,
    monte_carlo,
    n_step,
    one_step,
    refresh_values,
    rolling_rows,
    value_rows,
)

JOINING = 0.1
"""Share of steps without a reward ahead in their own trajectory from which on trajectories must be joined."""
RARE = 0.95
"""The same share from which on most states are so far from any reward that γ = 0.99 leaves nothing of it."""
SHORTEST_TRAJECTORY = 8
"""Steps of the typical trajectory below which there is nothing for a guide to point at."""
LONGEST_HORIZON = 25
WEIGHT_DECAY = 0.1
"""Of a regression, whose good rows are few; an executor learns from all rows, and weight decay costs it far mazes."""


@dataclass(frozen=True)
class VEM(Configuration):
    """Every choice of the method; the defaults are ours, ``algorithms.presets`` has the paper's and the authors'."""

    expectile: float = setting(0.3, "τ: above ½ values are optimistic, below ½ conservative", "level", sweep=True)
    discount: float | None = setting(
        None, "Discount γ; none: 0.99, to 0.997 for a guided policy on long trajectories with rare rewards", "discount"
    )
    plan: Literal["episodic", "crossed", "n-step", "one-step", "monte-carlo"] = setting(
        "episodic", "Plan of the memory; crossed: the authors' double selection"
    )
    num_plan_steps: int | None = setting(
        None, "Longest rollout n of the plan; none: to the end of the episode", "positive"
    )
    least_plan_steps: int | None = setting(
        None,
        "Shortest rollout n of the episodic plan; none: a twentieth of the typical episode, at most 10",
        "positive",
    )
    order: Literal["plan-then-expectile", "expectile-then-plan"] = setting(
        "plan-then-expectile",
        "Where τ acts: in the regression (authors), or in the operator before the plan (paper)",
    )
    value_loss: Literal["expectile", "squared-weight", "quantile", "squared"] = setting(
        "expectile", "Loss of the values; squared-weight: the authors'; squared: for expectile-then-plan"
    )
    operator_step: float | None = setting(
        None, "α of the gradient expectile operator; none: 1/(2·max(τ, 1−τ))", "positive"
    )
    num_critics: Literal[1, 2, 4] = setting(2, "Critics; 4: two groups, and the smaller of two is the value of a group")
    initial_values: Literal["zero", "random"] = setting(
        "zero", "Values before training; random: those of fresh networks, which sink slowly"
    )
    schedule: Literal["value-then-policy", "joint"] = setting(
        "value-then-policy", "Train values first and then the policy, or both together"
    )
    value_share: float | None = setting(
        None,
        "Share of the steps that train the values, with value-then-policy; none: ½, if guided ¼",
        "level",
    )
    steps_per_refresh: int = setting(200, "Steps between two refreshes of the memory", "positive")
    refresh: Literal["rolling", "full"] = setting(
        "rolling", "Rows valued at a refresh; rolling: as many as cost the same as the steps between two; full: all"
    )
    target_rate: float = setting(
        0.005, "κ: share by which target networks move toward the trained ones", "positive share"
    )
    target_update: Literal["update", "refresh"] = setting(
        "update", "When target networks move: at each update or at each refresh"
    )
    advantage: Literal["raw", "standardized", "relative"] = setting(
        "relative", "Unit of the advantage; relative: log of the ratio of return and value"
    )
    policy: Literal["auto", "guided", "regression"] = setting(
        "auto",
        "How values become a policy; regression: of good actions; guided: where good trajectories go and how to get "
        "there; auto: guided where trajectories must be joined to reach a reward",
    )
    horizon: int | None = setting(
        None, "Steps k that a guide looks ahead; none: a quarter of the typical trajectory, at most 25", "positive"
    )
    guide_share: float = setting(0.33, "Share of a guided policy's steps that go to the guide", "level")
    guide_hidden: tuple[int, ...] = setting((256, 256), "Hidden layers of the guide", "positive")
    clip_quantile: float | None = setting(
        0.02, "Quantile at which advantages are clipped, on both sides; none: no clipping", "quantile"
    )
    weight: Literal["softmax", "leaky-relu", "exponential"] = setting(
        "softmax", "How an advantage becomes the weight of a row"
    )
    effective_sample: float | None = setting(
        None,
        "Share of rows that dominate the weights; none: chosen from the number of rows",
        "positive share",
        sweep=True,
    )
    temperature: float | None = setting(
        None, "Temperature of the weights; none: found from effective-sample", "positive", sweep=True
    )
    policy_draw: Literal["weights", "uniform"] = setting(
        "weights", "Draw rows for the policy by their weights, or uniformly with weights in the loss (paper, authors)"
    )
    drop_below: float | None = setting(None, "Leave out rows with a raw advantage at or below this; none: keep all")
    least_log_likelihood: float = setting(
        -5.0, "Log-likelihood per action dimension below which rows of negative weight stop counting (leaky-relu)"
    )
    value_hidden: tuple[int, ...] = setting((256, 256), "Hidden layers of a critic", "positive")
    policy_hidden: tuple[int, ...] = setting((256, 256), "Hidden layers of the actor", "positive")
    policy_dropout: float = setting(0.0, "Dropout rate in the actor", "discount")
    log_std_low: float = setting(-3.0, "Smallest log σ of the policy")
    log_std_high: float = setting(1.0, "Largest log σ of the policy")
    value_lr: float = setting(3e-4, "Adam's learning rate for the critics", "positive")
    policy_lr: float = setting(1e-3, "Adam's learning rate for the actor", "positive")
    policy_lr_schedule: Literal["cosine", "none"] = setting(
        "cosine", "cosine: the actor's learning rate falls to 0 at the end; none: it stays"
    )
    policy_weight_decay: float | None = setting(
        None, "Decoupled weight decay of the actor; none: 0.1, if guided 0", "not negative"
    )
    batch_size: int = setting(256, "Rows in an update", "positive")
    normalize_observations: bool = setting(True, "Standardize observations; the policy does it too")
    normalize_rewards: bool = setting(True, "Divide rewards by the largest discounted return recorded")
    reward_scale: float = setting(1.0, "Rewards become scale·r + shift", "positive")
    reward_shift: float = setting(0.0, "Added to each reward after scaling")

    def check(self) -> None:
        """Raise SettingsError for combinations that mean nothing."""
        if self.order == "expectile-then-plan" and self.value_loss != "squared":
            raise SettingsError(
                f"value-loss {self.value_loss} with order expectile-then-plan applies τ twice; use value-loss squared"
            )
        if self.order == "plan-then-expectile" and self.value_loss == "squared":
            raise SettingsError("value-loss squared with order plan-then-expectile ignores τ; use value-loss expectile")
        if self.plan == "crossed" and self.num_critics == 1:
            raise SettingsError("plan crossed needs two groups of critics; use num-critics 2 or 4")
        if self.plan == "n-step" and self.num_plan_steps is None:
            raise SettingsError("plan n-step needs num-plan-steps, for example 10")
        if self.plan in ("one-step", "monte-carlo") and self.num_plan_steps is not None:
            raise SettingsError(f"plan {self.plan} has no num-plan-steps; leave it out")
        if self.plan != "episodic" and self.least_plan_steps not in (None, 1):
            raise SettingsError(f"least-plan-steps belongs to plan episodic; with plan {self.plan} leave it out")
        if (self.num_plan_steps or math.inf) < (self.least_plan_steps or 1):
            raise SettingsError(
                f"least-plan-steps {self.least_plan_steps} is above num-plan-steps {self.num_plan_steps}"
            )
        if self.policy == "guided" and self.schedule == "joint":
            raise SettingsError("policy guided needs the final values; use schedule value-then-policy")
        if self.policy == "guided" and (self.policy_draw == "uniform" or self.weight == "leaky-relu"):
            raise SettingsError("policy guided draws the guide's rows by their weights; use policy-draw weights")
        if self.policy == "regression" and self.horizon is not None:
            raise SettingsError("horizon belongs to policy guided; with policy regression leave it out")
        if self.weight == "leaky-relu" and self.drop_below is not None:
            raise SettingsError("drop-below sets weights to 0 and leaky-relu weights are negative there; leave one out")
        if self.temperature is not None and self.effective_sample is not None:
            raise SettingsError("effective-sample sets the temperature; give one of the two and set the other to none")
        if self.weight == "leaky-relu" and self.temperature is None:
            raise SettingsError("leaky-relu weights need a temperature, the inverse slope below 0; for example 1")
        if self.policy_draw == "weights" and self.schedule == "joint":
            raise SettingsError("policy-draw weights needs the final values; with schedule joint use uniform")
        if self.policy_draw == "weights" and self.weight == "leaky-relu":
            raise SettingsError(
                "leaky-relu weights can be negative, so rows cannot be drawn by them; use policy-draw uniform"
            )

    def complete(self, spec: Spec) -> tuple[VEM, tuple[str, ...]]:
        """The configuration with everything decided that follows from the data, and sentences that say why.

        Weighted regression suits data whose trajectories are rewarded on the way. Where many trajectories end without
        any reward, the way to it must be joined from parts of several, and a guided policy follows such ways better.
        """
        config, notes = self, []
        if config.policy == "auto":
            can_guide = config.schedule != "joint" and config.policy_draw == "weights" and config.weight != "leaky-relu"
            joins = spec.unrewarded >= JOINING and spec.typical_steps >= SHORTEST_TRAJECTORY
            policy: Literal["guided", "regression"] = "guided" if joins and can_guide else "regression"
            share = f"{100 * spec.unrewarded:.0f} %"
            notes.append(f"policy {policy}: {share} of the steps have no reward ahead in their own trajectory")
            config = dataclasses.replace(config, policy=policy)
        is_guided = config.policy == "guided"
        if is_guided and config.horizon is None:
            horizon = max(1, min(LONGEST_HORIZON, spec.typical_steps // 4))
            notes.append(f"horizon {horizon}: the typical trajectory has {spec.typical_steps:,} steps")
            config = dataclasses.replace(config, horizon=horizon)
        if config.value_share is None:
            config = dataclasses.replace(config, value_share=0.25 if is_guided else 0.5)
        if config.policy_weight_decay is None:
            config = dataclasses.replace(config, policy_weight_decay=0.0 if is_guided else WEIGHT_DECAY)
        if config.discount is None:
            is_far = is_guided and spec.unrewarded >= RARE
            discount = round(min(max(1 - 3 / spec.typical_steps, 0.99), 0.997), 4) if is_far else 0.99
            if discount > 0.99:
                notes.append(f"discount {discount:g}: rewards are rare and trajectories long")
            config = dataclasses.replace(config, discount=discount)
        return config, tuple(notes)


# VEM's values: target values of all rows, the plan over them, expectile regression (paper, sections 3.1 and 3.2).


VALUE_LOSSES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "expectile": expectile_loss,
    "squared-weight": squared_weight_loss,
    "quantile": quantile_loss,
    "squared": lambda difference, expectile: difference**2,
}


class VEMState(NamedTuple):
    """The critics, what the way from values to a policy keeps, and the swept settings."""

    critics: Network
    targets: Network
    value_opt_state: Any
    policy: Any
    """Of the chosen way: ``policy.PolicyState`` for the regression."""
    swept: dict[str, jax.Array]


class ValueMemory(NamedTuple):
    """Target values and planned returns of every row, one line a critic group."""

    values: jax.Array
    returns: jax.Array


# ---- networks ----


def value_optimizer(config: VEM) -> optax.GradientTransformation:
    """Adam for the critics."""
    return optax.adam(config.value_lr)


def init_critics(config: VEM, spec: Spec, key: jax.Array) -> Network:
    """The critics before the first step."""
    critics = init_networks(key, (spec.observation_size, *config.value_hidden, 1), config.num_critics)
    if config.initial_values == "zero":
        critics = (*critics[:-1], jax.tree.map(jnp.zeros_like, critics[-1]))
    return critics


def num_groups(config: VEM) -> int:
    """How many values a state has: one for each group of critics."""
    return min(config.num_critics, 2)


def target_values(config: VEM, state: VEMState, rows: Rows, observations: jax.Array) -> jax.Array:
    """V′(s) of each group, the smaller of its two critics if it has two: shape (groups, rows)."""
    v = apply_networks(state.targets, rows.observe(observations))
    return v.reshape(num_groups(config), -1, v.shape[-1]).min(axis=1)


# ---- the memory: V′ of all rows → V̂ → R ----


def expectile_operator(config: VEM, values: jax.Array, steps: Steps, expectile: jax.Array) -> jax.Array:
    """V̂ = V′ + 2α·(τ·[δ]₊ + (1−τ)·[δ]₋), δ = r + γ·V′(s′) − V′(s) (paper, eq. 4); final observations keep V′."""
    step_size = config.operator_step or 1 / (2 * jnp.maximum(expectile, 1 - expectile))
    difference = one_step(values, steps) - values
    return values + expectile_step(difference, expectile, step_size)


def least_steps(config: VEM, spec: Spec) -> int:
    """The shortest rollout of the plan.

    From n = 1 on, a value that is too high keeps itself up: R_t ≥ γ·V(s_{t+1}), so it sinks by a factor γ at a refresh.
    From n on it sinks by γⁿ, and the return of a row tells more of where its trajectory went than of noise in V. The
    price is that trajectories are joined no finer than that, so short trajectories keep n = 1.
    """
    chosen = config.least_plan_steps or min(10, max(1, spec.typical_steps // 20))
    return min(chosen, config.num_plan_steps or chosen)


def find_plan(config: VEM, spec: Spec) -> Callable[[jax.Array, Steps], jax.Array]:
    """The plan with its rollout lengths: (values, steps) → returns."""
    n = config.num_plan_steps
    plans: dict[str, Callable[..., jax.Array]] = {
        "episodic": partial(episodic_maximum, num_steps=n, least_steps=least_steps(config, spec)),
        "crossed": partial(crossed_maximum, num_steps=n),
        "n-step": partial(n_step, num_steps=n or 1),
        "one-step": one_step,
        "monte-carlo": monte_carlo,
    }
    return plans[config.plan]


def plan_returns(config: VEM, spec: Spec, values: jax.Array, rows: Rows, expectile: jax.Array) -> jax.Array:
    """R of every row (paper, eq. 5 and 6): the plan over V̂, or over V′ where τ acts in the regression."""
    assert config.discount is not None, "complete decides it"
    steps = Steps(rows.rewards, config.discount * rows.continues, rows.valid)
    if config.order == "expectile-then-plan":
        values = expectile_operator(config, values, steps, expectile)
    return find_plan(config, spec)(values, steps)


def final_returns(config: VEM, spec: Spec, state: VEMState, rows: Rows) -> jax.Array:
    """R of every row under the target networks as they are, the smallest over the groups: shape (rows,)."""
    values = value_rows(partial(target_values, config, state, rows), rows.observations, num_groups(config))
    return plan_returns(config, spec, values, rows, state.swept["expectile"]).min(0)


def final_values(state: VEMState, rows: Rows) -> jax.Array:
    """V of every row, the mean of the critics: shape (rows,)."""
    value = lambda observations: apply_networks(state.critics, rows.observe(observations)).mean(0, keepdims=True)
    return value_rows(value, rows.observations, 1)[0]


def empty_memory(config: VEM, spec: Spec) -> ValueMemory:
    """The memory before the first refresh."""
    blank = jnp.zeros((num_groups(config), spec.num_rows))
    return ValueMemory(blank, blank)


def num_fresh(config: VEM) -> int | None:
    """Rows valued at a refresh after the first; None: all."""
    # A refreshed row costs one forward pass, an updated row about three.
    return None if config.refresh == "full" else 3 * config.batch_size * config.steps_per_refresh


def refresh_memory(
    config: VEM, spec: Spec, state: VEMState, old: ValueMemory, rows: Rows, index: jax.Array, key: jax.Array
) -> tuple[VEMState, ValueMemory]:
    """Values of all rows at the first refresh, of the next slices of them at later ones, and the plan over all."""
    if config.target_update == "refresh":
        rate = jnp.where(index == 0, 0.0, config.target_rate)
        state = state._replace(targets=optax.incremental_update(state.critics, state.targets, rate))
    value = partial(target_values, config, state, rows)
    fresh, is_zero = num_fresh(config), config.initial_values == "zero"
    values = refresh_values(value, rows.observations, old.values, index, fresh, is_zero_at_first=is_zero)
    return state, ValueMemory(values, plan_returns(config, spec, values, rows, state.swept["expectile"]))


# ---- the update ----


def update_values(
    config: VEM, state: VEMState, returns: jax.Array, batch: Batch
) -> tuple[VEMState, jax.Array, Metrics]:
    """One regression step of the critics toward R: the state, V(s) before the step, the metrics.

    ``returns`` has shape (groups, batch).
    """
    per_critic = jnp.repeat(returns, config.num_critics // num_groups(config), axis=0)
    value_loss = VALUE_LOSSES[config.value_loss]

    def compute_loss(critics: Network) -> tuple[jax.Array, jax.Array]:
        v = apply_networks(critics, batch.observations)
        return value_loss(per_critic - v, state.swept["expectile"]).mean(axis=1).sum(), v

    (loss, v), grads = jax.value_and_grad(compute_loss, has_aux=True)(state.critics)
    critics, opt_state = descend(value_optimizer(config), grads, state.value_opt_state, state.critics)
    targets = state.targets
    if config.target_update == "update":
        targets = optax.incremental_update(critics, targets, config.target_rate)
    metrics = {
        "value_loss": loss,
        "value_mean": v.mean(),
        "value_largest": jnp.abs(v).max(),
        "return_mean": returns.mean(),
    }
    return state._replace(critics=critics, targets=targets, value_opt_state=opt_state), v.mean(0), metrics


def value_stage(config: VEM, spec: Spec, num_steps: int) -> Stage:
    """The stage that learns values alone."""

    def update(state: VEMState, memory: ValueMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        state, _, metrics = update_values(config, state, memory.returns[:, batch.rows], batch)
        return state, metrics

    return Stage(
        name="value",
        num_steps=num_steps,
        steps_per_refresh=config.steps_per_refresh,
        batch_size=config.batch_size,
        empty=partial(empty_memory, config, spec),
        refresh=partial(refresh_memory, config, spec),
        update=update,
        trains_policy=False,
        fresh_rows=rolling_rows(num_fresh(config)),
    )


# From values to a policy: advantages, their weights, regression of the recorded actions (paper, section 3.3).


SCALE_SAMPLE = 16384
"""Rows that the scale of the advantages is fitted to."""


class PolicyState(NamedTuple):
    """The actor, the free parameters of its log σ, and their optimizer."""

    actor: Network
    free_log_std: jax.Array
    opt_state: Any


class PolicyMemory(NamedTuple):
    """The advantage of every row, in the unit of ``scale``, and what rows are drawn by."""

    advantages: jax.Array
    scale: AdvantageScale
    effective_share: jax.Array
    shares: Shares | None
    """None: rows are drawn uniformly."""


class PolicyLearner(NamedTuple):
    """A way from values to a policy; its state is ``VEMState.policy``."""

    init: Callable[[jax.Array], Any]
    stages: tuple[Stage, ...]
    """They follow the value stage."""
    export: Callable[[VEMState], dict[str, Any]]
    kind: str
    """How ``vem.policy`` acts with it."""


# ---- networks ----


def policy_optimizer(config: VEM, num_steps: int) -> optax.GradientTransformation:
    """Adam with decoupled weight decay; the learning rate falls over ``num_steps`` steps if scheduled."""
    assert config.policy_weight_decay is not None, "complete decides it"
    lr = scheduled_lr(config.policy_lr, config.policy_lr_schedule, num_steps)
    return optax.adamw(lr, weight_decay=config.policy_weight_decay)


def init_policy(config: VEM, spec: Spec, num_steps: int, key: jax.Array) -> PolicyState:
    """The actor before the first step."""
    head = spec.head
    actor = init_network(key, (spec.observation_size, *config.policy_hidden, head.num_outputs))
    free_log_std = jnp.zeros(head.num_boxes)
    return PolicyState(actor, free_log_std, policy_optimizer(config, num_steps).init((actor, free_log_std)))


def export_policy(config: VEM, state: VEMState) -> dict[str, Any]:
    """What the policy file holds."""
    log_std = log_deviation(state.policy.free_log_std, config.log_std_low, config.log_std_high)
    return {"actor": state.policy.actor, "log_std": log_std, "critics": state.critics}


# ---- advantages and their weights ----


def sample_rows(rows: Rows) -> jax.Array:
    """Evenly spaced drawable rows, at most ``SCALE_SAMPLE`` of them."""
    count = min(SCALE_SAMPLE, rows.drawable.size)
    return rows.drawable[(jnp.arange(count) * (rows.drawable.size / count)).astype(jnp.int32)]


def fit_scale(
    config: VEM, returns: jax.Array, values: jax.Array, rows: Rows, swept: dict[str, jax.Array]
) -> AdvantageScale:
    """The unit, clipping bounds and temperature of the advantages of a sample of rows."""
    share = swept.get("effective_sample", typical_share(rows.drawable.size))
    temperature = swept.get("temperature")
    return fit_scale_advantages(returns, values, config.advantage, temperature, config.clip_quantile, share)


def empty_scale() -> AdvantageScale:
    """A scale before it is fitted."""
    return AdvantageScale(*[jnp.zeros(()) for _ in AdvantageScale._fields])


def compute_advantages(config: VEM, returns: jax.Array, values: jax.Array, scale: AdvantageScale) -> jax.Array:
    """A = R − V in the chosen unit, clipped; −∞ for rows that are left out."""
    return advantage(returns, values, scale, config.advantage, config.drop_below)


def weigh(config: VEM, adv: jax.Array, scale: AdvantageScale) -> jax.Array:
    """The regression weight f(A) of each row."""
    return WEIGHTS[config.weight](adv, scale.temperature)


def empty_memory_policy(config: VEM, spec: Spec) -> PolicyMemory:
    """The memory before the refresh."""
    shares = empty_shares(spec.num_rows) if config.policy_draw == "weights" else None
    return PolicyMemory(jnp.zeros(spec.num_rows), empty_scale(), jnp.zeros(()), shares)


def refresh_memory_policy(
    config: VEM, spec: Spec, state: VEMState, old: PolicyMemory, rows: Rows, index: jax.Array, key: jax.Array
) -> tuple[VEMState, PolicyMemory]:
    """Advantages and weights of all rows under the final values."""
    returns = final_returns(config, spec, state, rows)
    values = final_values(state, rows)
    sample = sample_rows(rows)
    scale = fit_scale(config, returns[sample], values[sample], rows, state.swept)
    adv = compute_advantages(config, returns, values, scale)
    shares = None
    if config.policy_draw == "weights":
        shares = cumulate(weigh(config, jnp.where(rows.valid, adv, -jnp.inf), scale))
    share = effective_share(jnp.abs(weigh(config, adv[rows.drawable], scale)))
    return state, PolicyMemory(adv, scale, share, shares)


def draw_by_weight(memory: PolicyMemory, rows: Rows, count: int, key: jax.Array) -> jax.Array:
    """Indices of rows, drawn in proportion to their weights."""
    assert memory.shares is not None
    return draw_rows(memory.shares, count, key)


# ---- the update ----


def update_policy(
    config: VEM, head: Head, num_steps: int, state: VEMState, weight: jax.Array, batch: Batch, key: jax.Array
) -> tuple[VEMState, Metrics]:
    """One step on −mean(w·log π(a|s))."""
    policy: PolicyState = state.policy
    least = config.least_log_likelihood * batch.actions.shape[-1]

    def compute_loss(parameters: tuple[Network, jax.Array]) -> tuple[jax.Array, jax.Array]:
        actor, free = parameters
        outputs = apply_network(actor, batch.observations, key, config.policy_dropout)
        log_std = log_deviation(free, config.log_std_low, config.log_std_high)
        likelihood = head.log_likelihood(outputs, log_std, batch.actions)
        return weighted_likelihood_loss(weight, likelihood, least), likelihood.mean()

    parameters = (policy.actor, policy.free_log_std)
    (loss, likelihood), grads = jax.value_and_grad(compute_loss, has_aux=True)(parameters)
    optimizer = policy_optimizer(config, num_steps)
    (actor, free), opt_state = descend(optimizer, grads, policy.opt_state, parameters)
    metrics = {
        "policy_loss": loss,
        "log_likelihood": likelihood,
        "effective_share": effective_share(jnp.abs(weight)),
    }
    return state._replace(policy=PolicyState(actor, free, opt_state)), metrics


def policy_stage(config: VEM, spec: Spec, num_steps: int) -> Stage:
    """The stage that learns the policy from final values."""
    head = spec.head

    def update(state: VEMState, memory: PolicyMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        if memory.shares is None:
            weight = weigh(config, memory.advantages[batch.rows], memory.scale)
            state, metrics = update_policy(config, head, num_steps, state, weight, batch, key)
        else:
            state, metrics = update_policy(config, head, num_steps, state, jnp.ones(batch.rows.shape), batch, key)
            metrics["effective_share"] = memory.effective_share
        return state, metrics | {"temperature": memory.scale.temperature}

    return Stage(
        name="policy",
        num_steps=num_steps,
        steps_per_refresh=None,
        batch_size=config.batch_size,
        empty=partial(empty_memory_policy, config, spec),
        refresh=partial(refresh_memory_policy, config, spec),
        update=update,
        draw=draw_by_weight if config.policy_draw == "weights" else draw_uniformly,
        weights=lambda memory, rows: weigh(config, memory.advantages[rows.drawable], memory.scale),
    )


def regression(config: VEM, spec: Spec, num_steps: int) -> PolicyLearner:
    """Weighted regression of the recorded actions."""
    return PolicyLearner(
        init=partial(init_policy, config, spec, num_steps),
        stages=(policy_stage(config, spec, num_steps),),
        export=partial(export_policy, config),
        kind="gaussian",
    )


# Value-based Episodic Memory: expectile V-learning, planning along trajectories, weighted regression.


def arithmetic(config: VEM, spec: Spec) -> dict[str, float]:
    """Stage → floating-point operations that one update needs."""
    value = config.num_critics * trained((spec.observation_size, *config.value_hidden, 1))
    regression = trained((spec.observation_size, *config.policy_hidden, spec.head.num_outputs))
    guide = trained((spec.observation_size, *config.guide_hidden, spec.observation_size))
    executor = trained((2 * spec.observation_size, *config.policy_hidden, spec.head.num_outputs))
    counts = {"value": value, "policy": regression, "joint": value + regression, "guide": guide, "executor": executor}
    return {stage: config.batch_size * count for stage, count in counts.items()}


def make(config: VEM, spec: Spec, num_steps: int) -> Algorithm:
    """VEM for data of the given sizes, ``num_steps`` steps in all."""
    config, _ = config.complete(spec)
    assert config.value_share is not None, "complete decides it"
    num_value = max(1, round(num_steps * config.value_share)) if config.schedule == "value-then-policy" else 0
    from vem.algorithms.guided import guided  # it imports the values of this file

    learn = guided if config.policy == "guided" else regression
    learner = learn(config, spec, max(1, num_steps - num_value))
    if config.schedule == "joint":
        stages = (joint_stage(config, spec, num_steps),)
    else:
        stages = (value_stage(config, spec, num_value), *learner.stages)

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> VEMState:
        critic_key, policy_key = jax.random.split(key)
        critics = init_critics(config, spec, critic_key)
        value_opt_state = value_optimizer(config).init(critics)
        return VEMState(critics, critics, value_opt_state, learner.init(policy_key), swept)

    return Algorithm("vem", init, stages, learner.export, learner.kind)


class JointMemory(NamedTuple):
    """The values' memory, and the scale of the advantages taken from it."""

    values: jax.Array
    returns: jax.Array
    scale: AdvantageScale


def joint_stage(config: VEM, spec: Spec, num_steps: int) -> Stage:
    """The stage that learns values and policy from the same batches (paper, algorithm 1)."""

    def refresh(
        state: VEMState, old: JointMemory, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[VEMState, JointMemory]:
        before = ValueMemory(old.values, old.returns)
        state, memory = refresh_memory(config, spec, state, before, rows, index, key)
        sample = sample_rows(rows)
        v = apply_networks(state.critics, rows.observe(rows.observations[sample])).mean(0)
        scale = fit_scale(config, memory.returns[:, sample].min(0), v, rows, state.swept)
        return state, JointMemory(*memory, scale)

    def update(state: VEMState, memory: JointMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        returns = memory.returns[:, batch.rows]
        state, v, value_metrics = update_values(config, state, returns, batch)
        adv = compute_advantages(config, returns.min(0), v, memory.scale)
        weight = weigh(config, adv, memory.scale)
        state, policy_metrics = update_policy(config, spec.head, num_steps, state, weight, batch, key)
        return state, value_metrics | policy_metrics | {"temperature": memory.scale.temperature}

    def weights(memory: JointMemory, rows: Rows) -> jax.Array:
        adv = compute_advantages(config, memory.returns.min(0), memory.values.mean(0), memory.scale)
        return weigh(config, adv[rows.drawable], memory.scale)

    return Stage(
        name="joint",
        num_steps=num_steps,
        steps_per_refresh=config.steps_per_refresh,
        batch_size=config.batch_size,
        empty=lambda: JointMemory(*empty_memory(config, spec), empty_scale()),
        refresh=refresh,
        update=update,
        weights=weights,
        fresh_rows=rolling_rows(num_fresh(config)),
    )
