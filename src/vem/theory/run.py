"""All studies and all statements of the paper in one run."""

from dataclasses import dataclass, field
from typing import NamedTuple

from vem.theory import claims, figure_claims, memory_claims, studies
from vem.theory.claim import Claim
from vem.theory.mdp import deterministic_transitions
from vem.theory.processes import draw_processes
from vem.theory.toy import Table, Toy


@dataclass(frozen=True)
class Settings:
    """Every parameter of ``vem theory``; the defaults are the paper's where it states them."""

    toy: Toy = field(default_factory=Toy)
    expectiles: tuple[float, ...] = (0.6, 0.7, 0.8, 0.9)
    max_steps: tuple[int, ...] = (1, 2, 3, 4)
    temperature: float = 1.0
    num_removed: int = 1
    temperatures: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    behavior_max_steps: int = 10
    tradeoff: Toy = field(default_factory=lambda: Toy(num_mdps=20))
    tradeoff_expectiles: tuple[float, ...] = studies.TRADEOFF_EXPECTILES
    dataset_sizes: tuple[int, ...] = (30, 100, 300, 1000, 10000)
    noise: float = 1.0
    num_datasets: int = 50
    readings: Toy = field(default_factory=lambda: Toy(num_mdps=50))
    readings_expectiles: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    readings_max_steps: int = 4

    def check(self) -> None:
        """Raise on settings that mean nothing, before anything is computed."""
        self.toy.check(self.expectiles, [*self.max_steps, self.behavior_max_steps])
        self.tradeoff.check(self.tradeoff_expectiles, [1])
        self.readings.check(self.readings_expectiles, [self.readings_max_steps])
        if self.can_enumerate:
            studies.check_enumeration(self.readings, self.readings_max_steps)

    @property
    def can_enumerate(self) -> bool:
        """Rollouts can be enumerated in deterministic processes only."""
        return self.readings.transitions is deterministic_transitions


class Results(NamedTuple):
    """One table a study, and the paper's statements with what was measured."""

    tables: dict[str, Table]
    claims: list[Claim]


def run(settings: Settings) -> Results:
    """Compute everything; seconds with the defaults, most of them for the sampled variance."""
    settings.check()
    tradeoff = studies.tradeoff_study(
        settings.tradeoff,
        expectiles=settings.tradeoff_expectiles,
        dataset_sizes=settings.dataset_sizes,
        noise=settings.noise,
        num_datasets=settings.num_datasets,
        temperature=settings.temperature,
    )
    horizon = studies.horizon_study(
        settings.toy,
        expectiles=settings.expectiles,
        max_steps=settings.max_steps,
        temperature=settings.temperature,
        num_removed=settings.num_removed,
    )
    behavior = studies.behavior_study(
        settings.toy,
        expectiles=settings.expectiles,
        temperatures=settings.temperatures,
        max_steps=settings.behavior_max_steps,
    )
    tables = {"tradeoff": tradeoff, "horizon": horizon, "behavior": behavior}
    found = [*figure_claims.tradeoff_claims(tradeoff), *figure_claims.horizon_claims(horizon)]
    found += figure_claims.behavior_claims(behavior, settings.toy.discount)
    if settings.can_enumerate:
        tables["readings"] = studies.readings_study(
            settings.readings,
            expectiles=settings.readings_expectiles,
            max_steps=settings.readings_max_steps,
            temperature=settings.temperature,
        )
        found += figure_claims.readings_claims(tables["readings"])
    deterministic, stochastic = draw_processes(discount=settings.toy.discount, seed=settings.toy.seed)
    found += claims.expectile_learning(deterministic, stochastic)
    found += claims.convergence(deterministic, stochastic)
    found += memory_claims.memory(deterministic)
    return Results(tables, sorted(found, key=lambda claim: claim.section))
