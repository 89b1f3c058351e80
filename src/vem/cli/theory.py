"""``vem theory``: the paper's toy figures and every checkable statement of its theory, measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

DESCRIPTION = """Draw figures 2, 4(a) and 4(b) of the paper from many random decision processes, measure every
statement of its sections 3.1, 3.2 and 4 that can be checked, and write PNG, SVG, CSV and one HTML page. The
defaults are the paper's settings where it gives them."""


def theory(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Add the options; defaults that are None are those of ``vem.theory.output.Settings``."""
    parser.description = DESCRIPTION
    parser.set_defaults(run=run)
    output = parser.add_argument_group("output")
    output.add_argument("--out", type=Path, default=Path("theory"), help="directory to write (default: theory)")
    output.add_argument("--json", type=Path, metavar="FILE", help="also write all tables and verdicts as JSON")
    common = parser.add_argument_group("random processes")
    common.add_argument("--seed", type=int, default=0, help="(default: 0)")
    common.add_argument("--states", type=int, default=5, help="(default: 5)")
    common.add_argument("--actions", type=int, default=3, help="(default: 3)")
    common.add_argument("--discount", type=float, default=0.9, help="(default: 0.9)")
    common.add_argument(
        "--transitions", choices=("deterministic", "stochastic"), default="deterministic", help="(default: the first)"
    )
    common.add_argument(
        "--step-size", type=float, metavar="α", help="operator step (default: the largest, 1/(2·max(τ, 1−τ)))"
    )
    common.add_argument("--temperature", type=float, default=1.0, help="μ = softmax(Q*/temperature) (default: 1)")
    toy = parser.add_argument_group("figure 4")
    toy.add_argument("--mdps", type=int, default=200, help="processes (the paper: 1; default: 200)")
    toy.add_argument("--expectiles", type=float, nargs="+", metavar="τ", help="(default: 0.6 0.7 0.8 0.9)")
    toy.add_argument("--max-steps", type=int, nargs="+", metavar="n", help="4(a): n_max (default: 1 2 3 4)")
    toy.add_argument("--removed-actions", type=int, default=1, help="4(a): actions μ never takes (default: 1)")
    toy.add_argument("--temperatures", type=float, nargs="+", help="4(b): of the behavior (default: 0.1 0.3 1 3)")
    toy.add_argument("--behavior-max-steps", type=int, default=10, metavar="n", help="4(b): n_max (default: 10)")
    toy.add_argument("--rollouts", type=int, default=1000, help="for the variance (default: 1000)")
    toy.add_argument("--rollout-steps", type=int, default=100, help="(default: 100)")
    toy.add_argument("--pairs", type=int, default=50, help="for the supremum of the contraction (default: 50)")
    tradeoff = parser.add_argument_group("figure 2")
    tradeoff.add_argument("--tradeoff-mdps", type=int, default=20, help="processes (default: 20)")
    tradeoff.add_argument("--tradeoff-expectiles", type=float, nargs="+", metavar="τ", help="(default: 0.1 … 0.99)")
    tradeoff.add_argument(
        "--dataset-sizes", type=int, nargs="+", metavar="N", help="transitions (default: 30 100 300 1000 10000)"
    )
    tradeoff.add_argument("--noise", type=float, default=1.0, help="one sample's standard deviation (default: 1)")
    tradeoff.add_argument("--datasets", type=int, default=50, help="of each size and process (default: 50)")
    readings = parser.add_argument_group("readings of the memory operator (deterministic processes only)")
    readings.add_argument("--readings-mdps", type=int, default=50, help="processes (default: 50)")
    readings.add_argument("--readings-expectiles", type=float, nargs="+", metavar="τ", help="(default: 0.1 … 0.9)")
    readings.add_argument("--readings-max-steps", type=int, default=4, metavar="n", help="n_max (default: 4)")


def run(options: argparse.Namespace) -> int:
    """Compute, write, and print where the page is."""
    from vem.theory import output as files
    from vem.theory.output import run as measure

    settings = _settings(options)
    settings.check()
    for directory in (options.out, *([options.json.parent] if options.json else [])):
        files.prepare(directory)
    results = measure(settings)
    written = files.write(results, settings, options.out)
    if options.json is not None:
        files.write_json(results, options.json)
    for claim in results.claims:
        print(f"{claim.verdict:8} {claim.section}  {claim.statement}\n             {claim.measured}")
    print(f"figures, tables and the page: {written}")
    return 0


def _settings(options: argparse.Namespace):
    from dataclasses import replace

    from vem.theory.examples import Toy
    from vem.theory.mdp import deterministic_transitions, stochastic_transitions
    from vem.theory.output import Settings

    kinds = {"deterministic": deterministic_transitions, "stochastic": stochastic_transitions}
    toy = Toy(
        num_mdps=options.mdps,
        num_states=options.states,
        num_actions=options.actions,
        discount=options.discount,
        transitions=kinds[options.transitions],
        step_size=options.step_size,
        num_rollouts=options.rollouts,
        rollout_steps=options.rollout_steps,
        num_pairs=options.pairs,
        seed=options.seed,
    )
    listed = {
        "expectiles": options.expectiles,
        "max_steps": options.max_steps,
        "temperatures": options.temperatures,
        "tradeoff_expectiles": options.tradeoff_expectiles,
        "dataset_sizes": options.dataset_sizes,
        "readings_expectiles": options.readings_expectiles,
    }
    return Settings(
        toy=toy,
        temperature=options.temperature,
        num_removed=options.removed_actions,
        behavior_max_steps=options.behavior_max_steps,
        # Figure 2 uses the exact operator, which has no step.
        tradeoff=replace(toy, num_mdps=options.tradeoff_mdps, step_size=None),
        noise=options.noise,
        num_datasets=options.datasets,
        readings=replace(toy, num_mdps=options.readings_mdps),
        readings_max_steps=options.readings_max_steps,
        **{name: tuple(values) for name, values in listed.items() if values is not None},
    )
