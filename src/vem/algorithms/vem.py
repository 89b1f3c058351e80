"""Value-based Episodic Memory: expectile V-learning, planning along trajectories, weighted regression.

The file follows the paper and has the numbers of its sections, equations and algorithms. Where the paper and the
program of its authors differ there is a setting; the presets at the end hold both readings, and the ablations.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem import losses, plan
from vem.algorithms.base import (
    Algorithm,
    Batch,
    Configuration,
    Method,
    Metrics,
    Preset,
    Rows,
    Spec,
    Stage,
    draw_uniformly,
    setting,
)
from vem.data.actions import ACTION_KINDS
from vem.errors import SettingsError
from vem.losses import WEIGHTS, AdvantageScale, advantage, effective_share
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
)
from vem.tasks import Task

STITCHING_SHARE = 0.1
"""Share of steps without a reward ahead in their own trajectory from which on trajectories must be stitched."""
RARE_SHARE = 0.95
"""The same share from which on most states are so far from any reward that γ = 0.99 leaves nothing of it."""
SHORTEST_TRAJECTORY = 8
"""Steps of the typical trajectory below which there is nothing for a guide to point at."""
LONGEST_HORIZON = 25
SCALE_SAMPLE = 16384
"""Rows that the scale of the advantages is fitted to."""


# ---- Settings ----


@dataclass(frozen=True)
class VEM(Configuration):
    """Every choice of VEM; the defaults are ours, the presets ``paper`` and ``authors`` are the two readings.

        V̂(s) = V′(s) + 2α·(τ·[δ]₊ + (1−τ)·[δ]₋),  δ = r + γ·V′(s′) − V′(s)    (eq. 3 and 4)
        R_t  = r_t + γ·max(R_{t+1}, V̂(s_{t+1}))                               (eq. 5 and 6)
        L_V  = E[(R − V(s))²],  J_π = E[log π(a|s)·f(R − V(s))]               (eq. 4 and 7)

    The authors' program and our default plan over V′ and take the expectile in the regression of V instead.

    Paper: Ma et al., Offline Reinforcement Learning with Value-based Episodic Memory, ICLR 2022
    (https://arxiv.org/abs/2110.09796). Its authors' program: https://github.com/YiqinYang/VEM.
    """

    expectile: float = setting(0.3, "τ: above ½ values are optimistic, below ½ conservative", "level", sweep=True)
    discount: float | None = setting(
        None, "Discount γ; none: 0.99, to 0.997 for a guided policy on long trajectories with rare rewards", "discount"
    )
    plan: Literal["episodic", "crossed", "n-step", "one-step", "monte-carlo"] = setting(
        "episodic", "Plan of the memory; crossed: the authors' double selection"
    )
    num_plan_steps: int | None = setting(None, "Longest rollout n of the plan; none: to the episode's end", "positive")
    least_plan_steps: int | None = setting(
        None,
        "Shortest rollout n of the episodic plan; none: a twentieth of the typical episode, at most 10",
        "positive",
    )
    order: Literal["plan-then-expectile", "expectile-then-plan"] = setting(
        "plan-then-expectile", "Where τ acts: in the regression (authors), or in the operator before the plan (paper)"
    )
    value_loss: Literal["expectile", "squared-weight", "quantile", "squared"] = setting(
        "expectile", "Loss of the values; squared-weight: the authors'; squared: for expectile-then-plan"
    )
    operator_step: float | None = setting(None, "α of the expectile operator; none: 1/(2·max(τ, 1−τ))", "positive")
    num_critics: Literal[1, 2, 4] = setting(2, "Critics; 4: two groups, and the smaller of two is the value of a group")
    initial_values: Literal["zero", "random"] = setting(
        "zero", "Values before training; random: those of fresh networks, which sink slowly"
    )
    schedule: Literal["value-then-policy", "joint"] = setting(
        "value-then-policy", "Train values first and then the policy, or both together"
    )
    value_share: float | None = setting(
        None, "Share of the steps that train the values, with value-then-policy; none: ½, if guided ¼", "level"
    )
    steps_per_refresh: int = setting(200, "Steps between two refreshes of the memory", "positive")
    refresh: Literal["rolling", "full"] = setting(
        "rolling", "Rows valued at a refresh; rolling: as many as cost the same as the steps between two; full: all"
    )
    target_rate: float = setting(0.005, "κ: share by which targets move toward the trained networks", "positive share")
    target_update: Literal["update", "refresh"] = setting(
        "update", "When target networks move: at each update or at each refresh"
    )
    advantage: Literal["raw", "standardized", "relative"] = setting(
        "relative", "Unit of the advantage; relative: log of the ratio of return and value"
    )
    policy: Literal["auto", "guided", "regression"] = setting(
        "auto",
        "How values become a policy; regression: of good actions; guided: where good trajectories go and how to get "
        "there; auto: guided where trajectories must be stitched to reach a reward",
    )
    horizon: int | None = setting(
        None, "Steps k that a guide looks ahead; none: a quarter of the typical trajectory, at most 25", "positive"
    )
    clip_quantile: float | None = setting(
        0.02, "Quantile at which advantages are clipped, on both sides; none: no clipping", "quantile"
    )
    weight: Literal["softmax", "leaky-relu", "exponential"] = setting(
        "softmax", "How an advantage becomes the weight of a row"
    )
    effective_sample: float | None = setting(
        None, "Share of rows that dominate the weights; none: by the number of rows", "positive share", sweep=True
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
    policy_hidden: tuple[int, ...] = setting(
        (256, 256), "Hidden layers of the actor; of guide and executor, if guided", "positive"
    )
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

    def check(self) -> None:
        """Raise SettingsError for combinations that mean nothing."""

        def refuse(is_wrong: bool, message: str) -> None:
            if is_wrong:
                raise SettingsError(message)

        is_leaky, is_joint, is_guided = self.weight == "leaky-relu", self.schedule == "joint", self.policy == "guided"
        is_operator, by_weight = self.order == "expectile-then-plan", self.policy_draw == "weights"
        least, longest = self.least_plan_steps, self.num_plan_steps
        message = f"value-loss {self.value_loss} with order expectile-then-plan applies τ twice; use value-loss squared"
        refuse(is_operator and self.value_loss != "squared", message)
        message = "value-loss squared with order plan-then-expectile ignores τ; use value-loss expectile"
        refuse(not is_operator and self.value_loss == "squared", message)
        no_length = self.plan in ("one-step", "monte-carlo") and longest is not None
        refuse(no_length, f"plan {self.plan} has no num-plan-steps; leave it out")
        refuse(self.plan == "n-step" and longest is None, "plan n-step needs num-plan-steps, for example 10")
        no_critics = self.plan == "crossed" and self.num_critics == 1
        refuse(no_critics, "plan crossed needs two groups of critics; use num-critics 2 or 4")
        message = f"least-plan-steps belongs to plan episodic; with plan {self.plan} leave it out"
        refuse(self.plan != "episodic" and least not in (None, 1), message)
        message = f"least-plan-steps {least} is above num-plan-steps {longest}"
        refuse((longest or math.inf) < (least or 1), message)
        refuse(is_guided and is_joint, "policy guided needs the final values; use schedule value-then-policy")
        message = "policy guided draws the guide's rows by their weights; use policy-draw weights"
        refuse(is_guided and (is_leaky or not by_weight), message)
        no_horizon = self.policy == "regression" and self.horizon is not None
        refuse(no_horizon, "horizon belongs to policy guided; with policy regression leave it out")
        message = "drop-below sets weights to 0 and leaky-relu weights are negative there; leave one out"
        refuse(is_leaky and self.drop_below is not None, message)
        message = "effective-sample sets the temperature; give one of the two and set the other to none"
        refuse(self.temperature is not None and self.effective_sample is not None, message)
        message = "leaky-relu weights need a temperature, the inverse slope below 0; for example 1"
        refuse(is_leaky and self.temperature is None, message)
        message = "policy-draw weights needs the final values; with schedule joint use uniform"
        refuse(by_weight and is_joint, message)
        message = "leaky-relu weights can be negative, so rows cannot be drawn by them; use policy-draw uniform"
        refuse(by_weight and is_leaky, message)

    def complete(self, spec: Spec) -> tuple[VEM, tuple[str, ...]]:
        """The settings with everything decided that follows from the data, and for each decision a sentence why."""
        decided: dict[str, Any] = {}
        notes: list[str] = []

        def decide(name: str, value: Any, reason: str) -> None:
            if getattr(self, name) in (None, "auto"):
                decided[name] = value
                text = f"{value:.3g}" if isinstance(value, float) else value
                notes.append(f"{name.replace('_', '-')} {text}: {reason}")

        steps, num_rows = spec.typical_steps, spec.num_transitions or spec.num_rows
        typical = f"the typical trajectory ({steps:,} steps)"
        decide("policy", *self._choose_policy(spec))
        is_guided = decided.get("policy", self.policy) == "guided"
        if is_guided:
            horizon = max(1, min(LONGEST_HORIZON, steps // 4))
            decide("horizon", horizon, f"the guide looks a quarter of {typical} ahead, 25 steps at most")
            decide("value_share", 0.25, "the guide and its executor need more of the steps than the values")
            decide("policy_weight_decay", 0.0, "the executor learns from all rows, so it may fit them closely")
        else:
            if self.schedule == "value-then-policy":
                decide("value_share", 0.5, "half of the steps for the values, half for the policy")
            decide("policy_weight_decay", 0.1, "few rows are good, and the regression must not memorize them")
        if is_guided and spec.unrewarded >= RARE_SHARE and steps > 300:
            discount = round(min(1 - 3 / steps, 0.997), 4)
            decide("discount", discount, f"rewards are rare and trajectories long ({steps:,} steps)")
        else:
            decide("discount", 0.99, "the usual one; only guided policies that seek rare rewards far off have more")
        if self.plan == "episodic":
            least = min(10, max(1, steps // 20), self.num_plan_steps or 10)
            decide("least_plan_steps", least, f"the plan looks a twentieth of {typical} ahead, 1 to 10 steps")
        if self.temperature is None:
            share = losses.typical_share(num_rows)
            reason = f"about {share * num_rows:,.0f} of {num_rows:,} steps decide the policy; the temperature follows"
            decide("effective_sample", share, reason)
        return dataclasses.replace(self, **decided), tuple(notes)

    def _choose_policy(self, spec: Spec) -> tuple[str, str]:
        """How the data's values become a policy best, and why."""
        if self.schedule == "joint" or self.policy_draw == "uniform" or self.weight == "leaky-relu":
            return "regression", "a guided policy needs schedule value-then-policy and policy-draw weights"
        if spec.unrewarded < STITCHING_SHARE:
            reason = "trajectories earn reward on their way (guided policies help where they must be stitched)"
            return "regression", reason
        if spec.typical_steps < SHORTEST_TRAJECTORY:
            return "regression", f"trajectories of {spec.typical_steps} steps are too short for a guide"
        share = f"{100 * spec.unrewarded:.0f} %"
        return "guided", f"in {share} of the steps no reward follows in the same trajectory, so they must be stitched"


class VEMState(NamedTuple):
    """The critics, what the way from values to a policy keeps, and the swept settings."""

    critics: Network
    targets: Network
    value_opt_state: Any
    policy: Any
    """Of the chosen way: ``PolicyState`` for the regression, ``guided.GuidedState`` for guided policies."""
    swept: dict[str, jax.Array]


# ---- 3.1 Values: expectile V-learning ----


VALUE_LOSSES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "expectile": losses.expectile_loss,
    "squared-weight": losses.squared_weight_loss,
    "quantile": losses.quantile_loss,
    "squared": lambda difference, expectile: difference**2,
}


def expectile_operator(config: VEM, values: jax.Array, steps: plan.Steps, expectile: jax.Array) -> jax.Array:
    """V̂ = V′ + 2α·(τ·[δ]₊ + (1−τ)·[δ]₋), δ = r + γ·V′(s′) − V′(s) (eq. 3 and 4); final observations keep V′."""
    step_size = config.operator_step or 1 / (2 * jnp.maximum(expectile, 1 - expectile))
    difference = plan.one_step(values, steps) - values
    return values + losses.expectile_step(difference, expectile, step_size)


def num_groups(config: VEM) -> int:
    """How many values a state has: one for each group of critics."""
    return min(config.num_critics, 2)


def target_values(config: VEM, state: VEMState, rows: Rows, observations: jax.Array) -> jax.Array:
    """V′(s) of each group, the smaller of its two critics if it has two: shape (groups, rows)."""
    v = apply_networks(state.targets, rows.observe(observations))
    return v.reshape(num_groups(config), -1, v.shape[-1]).min(axis=1)


def update_values(
    config: VEM, state: VEMState, returns: jax.Array, batch: Batch
) -> tuple[VEMState, jax.Array, Metrics]:
    """One regression step of the critics toward R (eq. 4): the state, V(s) before the step, the metrics.

    ``returns`` has shape (groups, batch).
    """
    per_critic = jnp.repeat(returns, config.num_critics // num_groups(config), axis=0)

    def compute_loss(critics: Network) -> tuple[jax.Array, jax.Array]:
        v = apply_networks(critics, batch.observations)
        return VALUE_LOSSES[config.value_loss](per_critic - v, state.swept["expectile"]).mean(axis=1).sum(), v

    (loss, v), grads = jax.value_and_grad(compute_loss, has_aux=True)(state.critics)
    critics, opt_state = descend(optax.adam(config.value_lr), grads, state.value_opt_state, state.critics)
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


# ---- 3.2 Memory and plan ----


class ValueMemory(NamedTuple):
    """Target values and planned returns of every row, one line a critic group."""

    values: jax.Array
    returns: jax.Array
    scale: AdvantageScale | None = None
    """Of the advantages, where the policy learns from the same batches."""


def steps_of(config: VEM, rows: Rows) -> plan.Steps:
    """What plans need of the rows."""
    assert config.discount is not None, "complete decides it"
    return plan.Steps(rows.rewards, config.discount * rows.continues, rows.valid)


def plan_returns(config: VEM, values: jax.Array, rows: Rows, expectile: jax.Array) -> jax.Array:
    """R of every row (eq. 5 and 6): the plan over V̂, or over V′ where τ acts in the regression.

    With a shortest rollout of n = 1 a value that is too high keeps itself up: R_t ≥ γ·V(s_{t+1}), so it sinks by a
    factor γ at a refresh. From n on it sinks by γⁿ, and the return of a row tells more of where its trajectory went
    than of noise in V. The price is that trajectories are stitched no finer than that, so short ones keep n = 1.
    """
    steps, longest = steps_of(config, rows), config.num_plan_steps
    if config.order == "expectile-then-plan":
        values = expectile_operator(config, values, steps, expectile)
    match config.plan:
        case "episodic":
            return plan.episodic_maximum(values, steps, longest, config.least_plan_steps or 1)
        case "crossed":
            return plan.crossed_maximum(values, steps, longest)
        case "n-step":
            return plan.n_step(values, steps, longest or 1)
        case "one-step":
            return plan.one_step(values, steps)
        case "monte-carlo":
            return plan.monte_carlo(values, steps)


def num_fresh(config: VEM) -> int | None:
    """Rows valued at a refresh after the first; None: all."""
    # A refreshed row costs one forward pass, an updated row about three.
    return None if config.refresh == "full" else 3 * config.batch_size * config.steps_per_refresh


def refresh_memory(
    config: VEM, state: VEMState, old: ValueMemory, rows: Rows, index: jax.Array
) -> tuple[VEMState, ValueMemory]:
    """Algorithm 2: values of all rows at the first refresh, of the next slices at later ones, and the plan over all."""
    if config.target_update == "refresh":
        rate = jnp.where(index == 0, 0.0, config.target_rate)
        state = state._replace(targets=optax.incremental_update(state.critics, state.targets, rate))
    value = lambda observations: target_values(config, state, rows, observations)
    is_zero = config.initial_values == "zero"
    values = plan.refresh_values(
        value, rows.observations, old.values, index, num_fresh(config), is_zero_at_first=is_zero
    )
    returns = plan_returns(config, values, rows, state.swept["expectile"])
    return state, old._replace(values=values, returns=returns)


def final_returns(config: VEM, state: VEMState, rows: Rows) -> jax.Array:
    """R of every row under the target networks as they are, the smallest over the groups: shape (rows,)."""
    value = lambda observations: target_values(config, state, rows, observations)
    values = plan.value_rows(value, rows.observations, num_groups(config))
    return plan_returns(config, values, rows, state.swept["expectile"]).min(0)


def final_values(state: VEMState, rows: Rows) -> jax.Array:
    """V of every row, the mean of the critics: shape (rows,)."""
    value = lambda observations: apply_networks(state.critics, rows.observe(observations)).mean(0, keepdims=True)
    return plan.value_rows(value, rows.observations, 1)[0]


# ---- 3.3 Policy: generalized advantage-weighted learning ----


class PolicyState(NamedTuple):
    """The actor, the free parameters of its log σ, and their optimizer."""

    actor: Network
    free_log_std: jax.Array
    opt_state: Any


class PolicyMemory(NamedTuple):
    """The advantage of every row, in the unit of ``scale``, and what rows are drawn by."""

    advantages: jax.Array
    """−∞ for rows that are not to be learned from."""
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


def policy_optimizer(config: VEM, num_steps: int) -> optax.GradientTransformation:
    """Adam with decoupled weight decay; the learning rate falls over ``num_steps`` steps if scheduled."""
    assert config.policy_weight_decay is not None, "complete decides it"
    lr = scheduled_lr(config.policy_lr, config.policy_lr_schedule, num_steps)
    return optax.adamw(lr, weight_decay=config.policy_weight_decay)


def sample_rows(rows: Rows) -> jax.Array:
    """Evenly spaced drawable rows, at most ``SCALE_SAMPLE`` of them."""
    count = min(SCALE_SAMPLE, rows.drawable.size)
    return rows.drawable[(jnp.arange(count) * (rows.drawable.size / count)).astype(jnp.int32)]


def fit_advantages(config: VEM, returns: jax.Array, values: jax.Array, swept: dict[str, jax.Array]) -> AdvantageScale:
    """The unit, clipping bounds and temperature of the advantages of a sample of rows."""
    share = swept.get("effective_sample", config.effective_sample)
    return losses.fit_scale(returns, values, config.advantage, swept.get("temperature"), config.clip_quantile, share)


def weigh_rows(
    config: VEM, returns: jax.Array, values: jax.Array, usable: jax.Array, rows: Rows, swept: dict[str, jax.Array]
) -> PolicyMemory:
    """A = R − V of the usable rows and the weights f(A) of eq. 7."""
    sample = sample_rows(rows)
    scale = fit_advantages(config, returns[sample], values[sample], swept)
    adv = advantage(returns, values, scale, config.advantage, config.drop_below)
    adv = jnp.where(usable, adv, -jnp.inf)
    weigh = WEIGHTS[config.weight]
    share = effective_share(jnp.abs(weigh(adv[rows.drawable], scale.temperature)))
    shares = cumulate(weigh(adv, scale.temperature)) if config.policy_draw == "weights" else None
    return PolicyMemory(adv, scale, share, shares)


def empty_weights(config: VEM, spec: Spec) -> PolicyMemory:
    """The rows' weights before the refresh."""
    shares = empty_shares(spec.num_rows) if config.policy_draw == "weights" else None
    return PolicyMemory(jnp.zeros(spec.num_rows), AdvantageScale.empty(), jnp.zeros(()), shares)


def update_policy(
    config: VEM,
    head: Head,
    optimizer: optax.GradientTransformation,
    state: VEMState,
    weight: jax.Array,
    batch: Batch,
) -> tuple[VEMState, Metrics]:
    """One step of eq. 7: on −mean(w·log π(a|s))."""
    policy: PolicyState = state.policy
    least = config.least_log_likelihood * batch.actions.shape[-1]

    def compute_loss(parameters: tuple[Network, jax.Array]) -> tuple[jax.Array, jax.Array]:
        actor, free = parameters
        log_std = log_deviation(free, config.log_std_low, config.log_std_high)
        likelihood = head.log_likelihood(apply_network(actor, batch.observations), log_std, batch.actions)
        return losses.weighted_likelihood_loss(weight, likelihood, least), likelihood.mean()

    parameters = (policy.actor, policy.free_log_std)
    (loss, likelihood), grads = jax.value_and_grad(compute_loss, has_aux=True)(parameters)
    (actor, free), opt_state = descend(optimizer, grads, policy.opt_state, parameters)
    metrics = {
        "policy_loss": loss,
        "log_likelihood": likelihood,
        "effective_share": effective_share(jnp.abs(weight)),
    }
    return state._replace(policy=PolicyState(actor, free, opt_state)), metrics


def regression(config: VEM, spec: Spec, num_steps: int) -> PolicyLearner:
    """Weighted regression of the recorded actions, from final values."""
    head, optimizer = spec.head, policy_optimizer(config, num_steps)

    def init(key: jax.Array) -> PolicyState:
        actor = init_network(key, (spec.observation_size, *config.policy_hidden, head.num_outputs))
        free_log_std = jnp.zeros(head.num_boxes)
        return PolicyState(actor, free_log_std, optimizer.init((actor, free_log_std)))

    def refresh(
        state: VEMState, old: PolicyMemory, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[VEMState, PolicyMemory]:
        returns, values = final_returns(config, state, rows), final_values(state, rows)
        return state, weigh_rows(config, returns, values, rows.valid, rows, state.swept)

    def draw(memory: PolicyMemory, rows: Rows, count: int, key: jax.Array) -> jax.Array:
        if memory.shares is None:
            return draw_uniformly(memory, rows, count, key)
        return draw_rows(memory.shares, count, key)

    def update(state: VEMState, memory: PolicyMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        # Drawn by their weights rows count 1 each; the expectation is the same, and no row is drawn in vain.
        weight, more = jnp.ones(batch.rows.shape), {"effective_share": memory.effective_share}
        if memory.shares is None:
            weight, more = WEIGHTS[config.weight](memory.advantages[batch.rows], memory.scale.temperature), {}
        state, metrics = update_policy(config, head, optimizer, state, weight, batch)
        return state, metrics | more | {"temperature": memory.scale.temperature}

    def export(state: VEMState) -> dict[str, Any]:
        log_std = log_deviation(state.policy.free_log_std, config.log_std_low, config.log_std_high)
        return {"actor": state.policy.actor, "log_std": log_std, "critics": state.critics}

    def weights(memory: PolicyMemory, rows: Rows) -> jax.Array:
        return WEIGHTS[config.weight](memory.advantages[rows.drawable], memory.scale.temperature)

    empty = lambda: empty_weights(config, spec)
    stage = Stage("policy", num_steps, None, config.batch_size, empty, refresh, update, draw, weights=weights)
    return PolicyLearner(init, (stage,), export, "gaussian")


# ---- Algorithm 1 ----


def value_stage(config: VEM, spec: Spec, num_steps: int) -> Stage:
    """The stage that learns values; with schedule joint the policy too, from the same batches as algorithm 1 has it."""
    is_joint, optimizer = config.schedule == "joint", policy_optimizer(config, num_steps)

    def empty() -> ValueMemory:
        blank = jnp.zeros((num_groups(config), spec.num_rows))
        return ValueMemory(blank, blank, AdvantageScale.empty() if is_joint else None)

    def refresh(
        state: VEMState, old: ValueMemory, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[VEMState, ValueMemory]:
        state, memory = refresh_memory(config, state, old, rows, index)
        if is_joint:
            sample = sample_rows(rows)
            v = apply_networks(state.critics, rows.observe(rows.observations[sample])).mean(0)
            returns = memory.returns[:, sample].min(0)
            memory = memory._replace(scale=fit_advantages(config, returns, v, state.swept))
        return state, memory

    def update(state: VEMState, memory: ValueMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        returns, scale = memory.returns[:, batch.rows], memory.scale
        state, v, metrics = update_values(config, state, returns, batch)
        if scale is None:
            return state, metrics
        adv = advantage(returns.min(0), v, scale, config.advantage, config.drop_below)
        weight = WEIGHTS[config.weight](adv, scale.temperature)
        state, more = update_policy(config, spec.head, optimizer, state, weight, batch)
        return state, metrics | more | {"temperature": scale.temperature}

    def weights(memory: ValueMemory, rows: Rows) -> jax.Array:
        assert memory.scale is not None, "of the joint schedule"
        adv = advantage(memory.returns.min(0), memory.values.mean(0), memory.scale, config.advantage, config.drop_below)
        return WEIGHTS[config.weight](adv[rows.drawable], memory.scale.temperature)

    name, fresh = "joint" if is_joint else "value", plan.rolling_rows(num_fresh(config))
    return Stage(
        name,
        num_steps,
        config.steps_per_refresh,
        config.batch_size,
        empty,
        refresh,
        update,
        trains_policy=is_joint,
        fresh_rows=fresh,
        weights=weights if is_joint else None,
    )


def make(config: VEM, spec: Spec, num_steps: int) -> Algorithm:
    """VEM for data of the given sizes, ``num_steps`` steps in all."""
    from vem.algorithms.guided import guided  # it is built on the values of this file

    config, _ = config.complete(spec)
    if config.schedule == "joint":
        learner = regression(config, spec, num_steps)
        stages = (value_stage(config, spec, num_steps),)
    else:
        assert config.value_share is not None, "complete decides it"
        num_value = max(1, round(num_steps * config.value_share))
        learn = guided if config.policy == "guided" else regression
        learner = learn(config, spec, max(1, num_steps - num_value))
        stages = (value_stage(config, spec, num_value), *learner.stages)

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> VEMState:
        critic_key, policy_key = jax.random.split(key)
        critics = init_networks(critic_key, (spec.observation_size, *config.value_hidden, 1), config.num_critics)
        if config.initial_values == "zero":
            critics = (*critics[:-1], jax.tree.map(jnp.zeros_like, critics[-1]))
        value_opt_state = optax.adam(config.value_lr).init(critics)
        return VEMState(critics, critics, value_opt_state, learner.init(policy_key), swept)

    return Algorithm("vem", init, stages, learner.export, learner.kind)


# ---- The two readings of the paper, and the ablations ----


IN_BOTH: dict[str, Any] = {
    "expectile": 0.3,
    "discount": 0.99,
    "policy": "regression",
    "least_plan_steps": 1,
    "initial_values": "random",
    "steps_per_refresh": 200,
    "refresh": "full",
    "advantage": "raw",
    "clip_quantile": None,
    "weight": "softmax",
    "temperature": 100.0,
    "policy_draw": "uniform",
    "log_std_low": -6.0,
    "log_std_high": 0.0,
    "batch_size": 128,
    "normalize_observations": False,
    "normalize_rewards": False,
    "policy_lr_schedule": "none",
    "policy_weight_decay": 0.0,
}
DIFFERENT: dict[str, tuple[Any, Any]] = {
    "order": ("expectile-then-plan", "plan-then-expectile"),
    "value_loss": ("squared", "squared-weight"),
    "plan": ("episodic", "crossed"),
    "num_plan_steps": (None, 1000),
    "num_critics": (2, 4),
    "schedule": ("joint", "value-then-policy"),
    "value_share": (None, 0.5),
    "target_rate": (0.005, 1 - 0.995**200),
    "target_update": ("refresh", "update"),
    "drop_below": (None, -1000.0),
    "policy_hidden": ((256, 256), (256, 256, 256, 256)),
    "value_lr": (1e-3, 3e-4),
    "policy_lr": (1e-3, 3e-4),
}
"""Setting → (what the paper says, what its authors released)."""


def tuned_expectile(task: Task) -> dict[str, Any]:
    """The τ that the paper tuned for a task, if any."""
    return {} if task.paper_expectile is None else {"expectile": task.paper_expectile}


PRESETS = {
    "default": Preset(
        settings={},
        rules={},
        source="the settings' own defaults, chosen by hand in short trials (docs/choices.md)",
        steps=100_000,
    ),
    "paper": Preset(
        settings=IN_BOTH | {name: paper for name, (paper, _) in DIFFERENT.items()},
        rules={"time_limit": "end"},
        source="paper, sections 3.1 to 3.3, algorithm 1 and tables 2 and 3; the temperature is the authors'",
        by_task=tuned_expectile,
        steps=2_000_000,  # 10,000 refreshes and 200 steps after each
    ),
    "authors": Preset(
        settings=IN_BOTH | {name: authors for name, (_, authors) in DIFFERENT.items()},
        rules={"time_limit": "end", "repeat_terminals": True},
        source="the program the authors released",
        by_task=tuned_expectile,
        steps=4_000_000,  # as many for the values, then as many for the policy
    ),
}
METHOD = Method(VEM, make, "Value-based Episodic Memory", PRESETS, ACTION_KINDS)


def ablation(summary: str, **overrides: Any) -> Method:
    """VEM with its presets, and ``overrides`` on top of any of them."""
    return METHOD._replace(summary=f"VEM, ablated: {summary}", ablates="vem", overrides=overrides)


ABLATIONS = {
    "vem-1step": ablation("no memory, one-step targets", plan="one-step", num_plan_steps=None),
    "vem-nstep": ablation("10-step returns instead of the maximum", plan="n-step", num_plan_steps=10),
    "vem-abs": ablation("quantile loss", order="plan-then-expectile", value_loss="quantile"),
    "vem-operator": ablation("τ acts before planning", order="expectile-then-plan", value_loss="squared"),
    "vem-crossed": ablation("the authors' crossed selection", plan="crossed"),
    "vem-4critics": ablation("two groups of two critics", num_critics=4),
    "vem-guided": ablation(
        "always a guided policy",
        policy="guided",
        schedule="value-then-policy",
        policy_draw="weights",
        weight="softmax",
    ),
    "vem-regression": ablation("always weighted regression", policy="regression"),
    "vem-joint": ablation("values and policy together", schedule="joint", policy_draw="uniform"),
}
