"""Every choice of VEM, and which of them go together.

They span both readings of the method: what the paper describes and what its authors released
(``docs/algorithms/vem.md`` has the table).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from vem.algorithms.base import Spec
from vem.algorithms.config import Configuration, setting
from vem.errors import SettingsError

JOINING = 0.1
"""Share of steps without a reward ahead in their own recording from which on recordings must be joined."""
RARE = 0.95
"""The same share from which on most states are so far from any reward that γ = 0.99 leaves nothing of it."""
SHORTEST_RECORDING = 8
"""Steps of the typical recording below which there is nothing for a guide to point at."""
LONGEST_HORIZON = 25
WEIGHT_DECAY = 0.1
"""Of a regression, whose good rows are few; an executor learns from all rows, and weight decay costs it far mazes."""


@dataclass(frozen=True)
class VEM(Configuration):
    """Every choice of the method; the defaults are ours, ``algorithms.presets`` has the paper's and the authors'."""

    expectile: float = setting(0.3, "τ: above ½ values are optimistic, below ½ conservative", "level", sweep=True)
    discount: float | None = setting(
        None, "Discount γ; none: 0.99, up to 0.997 for a guided policy on long recordings with rare rewards", "discount"
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
        "How values become a policy; regression: of good actions; guided: where good recordings go and how to get "
        "there; auto: guided where recordings must be joined to reach a reward",
    )
    horizon: int | None = setting(
        None, "Steps k that a guide looks ahead; none: a quarter of the typical recording, at most 25", "positive"
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

        Weighted regression suits data whose recordings are rewarded on the way. Where many recordings end without any
        reward, the way to it must be joined from parts of several, and a guided policy follows such ways better.
        """
        config, notes = self, []
        if config.policy == "auto":
            can_guide = config.schedule != "joint" and config.policy_draw == "weights" and config.weight != "leaky-relu"
            joins = spec.unrewarded >= JOINING and spec.typical_steps >= SHORTEST_RECORDING
            policy: Literal["guided", "regression"] = "guided" if joins and can_guide else "regression"
            share = f"{100 * spec.unrewarded:.0f} %"
            notes.append(f"policy {policy}: {share} of the steps have no reward ahead in their own recording")
            config = dataclasses.replace(config, policy=policy)
        is_guided = config.policy == "guided"
        if is_guided and config.horizon is None:
            horizon = max(1, min(LONGEST_HORIZON, spec.typical_steps // 4))
            notes.append(f"horizon {horizon}: the typical recording has {spec.typical_steps:,} steps")
            config = dataclasses.replace(config, horizon=horizon)
        if config.value_share is None:
            config = dataclasses.replace(config, value_share=0.25 if is_guided else 0.5)
        if config.policy_weight_decay is None:
            config = dataclasses.replace(config, policy_weight_decay=0.0 if is_guided else WEIGHT_DECAY)
        if config.discount is None:
            is_far = is_guided and spec.unrewarded >= RARE
            discount = round(min(max(1 - 3 / spec.typical_steps, 0.99), 0.997), 4) if is_far else 0.99
            if discount > 0.99:
                notes.append(f"discount {discount:g}: rewards are rare and recordings long")
            config = dataclasses.replace(config, discount=discount)
        return config, tuple(notes)
