"""What each figure of ``vem theory`` shows, in words, with the settings it was drawn from."""

from collections.abc import Sequence
from typing import NamedTuple

from vem.theory.mdp import deterministic_transitions
from vem.theory.run import Settings
from vem.theory.toy import Toy


class Caption(NamedTuple):
    """A heading, what the figure shows and how, and what to see in it."""

    title: str
    shows: str
    see: str


def captions(settings: Settings) -> dict[str, Caption]:
    """One caption for each table of ``theory.run``."""
    step = "the largest permitted one" if settings.toy.step_size is None else f"{settings.toy.step_size:g}"
    measured = (
        f"{_processes(settings.toy)} with step size α: {step}. The contraction rate is measured twice: from "
        f"V = 0 toward the fixed point in one application, as the paper's figure does, and as a supremum over "
        f"{settings.toy.num_pairs} pairs of values, as its text defines it. The bias is the distance of the "
        f"fixed point to V*. The deviation is that of one sampled update at V = 0 from T_vem, over "
        f"{settings.toy.num_rollouts:,} rollouts of {settings.toy.rollout_steps} steps in each process. "
        f"Bars are 95 % intervals of the mean."
    )
    removed = "the first action" if settings.num_removed == 1 else f"the first {settings.num_removed} actions"
    return {
        "tradeoff": Caption(
            "Figure 2: how far to trust a dataset",
            f"The mean fixed point of the expectile operator when every one-step target of (s,a) carries "
            f"Gaussian noise of standard deviation {settings.noise:g}/√n(s,a), with n(s,a) = "
            f"max(1, N·μ(a|s)/states) the number of samples that a dataset of N transitions holds. The noise is "
            f"drawn once for each dataset. {_processes(settings.tradeoff)}, {settings.num_datasets} datasets of "
            f"each size, μ = softmax(Q*/{settings.temperature:g}). Bands are 95 % intervals of the mean "
            f"difference to V*.",
            "At τ = ½ all curves meet the value of the behavior. Toward τ = 1 they tend to the optimality "
            "operator, which picks the luckiest noise and bootstraps on it: the smaller the dataset, the higher "
            "it lies above V*. Where a curve crosses V* is the τ that its dataset can bear.",
        ),
        "horizon": Caption(
            "Figure 4(a): planning further ahead",
            f"T_vem for n_max = {_listed(settings.max_steps)}; μ = softmax(Q*/{settings.temperature:g})"
            f"{', with probability 0 for ' + removed if settings.num_removed else ''}. {measured}",
            "From V = 0 a larger n_max is faster and noisier, and it leaves the bias alone; a larger τ lowers the "
            "bias and is slower. The supremum does not depend on n_max: where values are too high, the best n "
            "is 1."
            + (" Actions that μ never takes cannot be learned, so a bias remains." if settings.num_removed else ""),
        ),
        "behavior": Caption(
            "Figure 4(b): better data",
            f"T_vem with n_max = {settings.behavior_max_steps}; μ = softmax(Q*/temperature) for temperatures "
            f"{_listed(settings.temperatures)}. {measured}",
            "The nearer the behavior is to the optimal policy, the smaller are the bias, the rate from V = 0 "
            "and the deviation. The supremum does not depend on the behavior.",
        ),
        "readings": Caption(
            "Beyond the paper: four readings of the memory, and τ below ½",
            f"Where repeated application settles, for n_max = {settings.readings_max_steps}. "
            f"{_processes(settings.readings)}, μ = softmax(Q*/{settings.temperature:g}), every rollout "
            f"enumerated with its probability, so that no sampling noise remains. Bars are 95 % intervals of "
            f"the mean.",
            "T_vem takes the best n of expectations and keeps the fixed point of T_τ for τ ≥ ½; below ½ it lies "
            "above it. An algorithm cannot take expectations before it compares: it takes the best n along each "
            "recorded trajectory, which is optimistic already at τ = ½. The authors' program plans with plain "
            "values and then regresses with squared weights, so its τ acts like τ²/(τ²+(1−τ)²). On such plans "
            "τ = ½ is not the behavior's value, and a τ below ½ takes the optimism back.",
        ),
    }


def _processes(toy: Toy) -> str:
    kind = "deterministic" if toy.transitions is deterministic_transitions else "stochastic"
    return (
        f"{toy.num_mdps} random {kind} processes of {toy.num_states} states and {toy.num_actions} actions, "
        f"γ = {toy.discount:g}"
    )


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
