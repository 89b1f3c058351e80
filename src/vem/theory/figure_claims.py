"""What the paper reads off figures 2 and 4, checked on the tables of the studies."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from vem.theory.claim import Claim, verdict
from vem.theory.toy import Table


def tradeoff_claims(table: Table) -> Iterator[Claim]:
    """Section 3.1's toy example, figure 2."""
    sizes = sorted({row["dataset_size"] for row in table})
    by_size = {size: [row for row in table if row["dataset_size"] == size] for size in sizes}
    excess = [_at(by_size[size], expectile=1)["value"] - table[0]["optimal_value"] for size in sizes]
    span = table[0]["optimal_value"] - table[0]["behavior_value"]
    yield Claim(
        "3.1",
        "With noise the optimality operator over-estimates severely.",
        f"by {_series(excess)} for N = {_series(sizes, '{:.0f}')} (V* − V^μ is {span:.2f})",
        verdict(min(excess) > 0 and excess[0] > span, "in part"),
    )
    best = [min(by_size[size], key=lambda row: (row["expectile"] == 1, row["error"])) for size in sizes]
    yield Claim(
        "3.1",
        "With a proper τ, EVL comes close to the optimal value.",
        f"mean |V − V*| at the best τ {_series([row['error'] for row in best])}, with the optimality "
        f"operator {_series([_at(by_size[size], expectile=1)['error'] for size in sizes])}",
        verdict(all(row["error"] <= _at(by_size[row["dataset_size"]], expectile=1)["error"] for row in best)),
    )
    levels = [row["expectile"] for row in best]
    yield Claim(
        "3.1",
        "Small datasets need a smaller τ, large ones allow a larger τ.",
        f"the τ nearest to V* is {_series(levels)} for N = {_series(sizes, '{:.0f}')}",
        verdict(sorted(levels) == levels and levels[0] < levels[-1]),
    )


def horizon_claims(table: Table) -> Iterator[Claim]:
    """Section 4.3 on figure 4(a), and the remarks of sections 4.1 and 4.2 that it illustrates."""
    levels, steps = _axis(table, "expectile"), _axis(table, "max_steps")
    if min(len(levels), len(steps)) < 2:
        return
    middle = levels[len(levels) // 2]

    def along_steps(measure: str, expectile: float) -> list[float]:
        return [_at(table, max_steps=n, expectile=expectile)[measure] for n in steps]

    def along_levels(measure: str) -> list[float]:
        return [_at(table, max_steps=steps[-1], expectile=tau)[measure] for tau in levels]

    numbers = f"for n_max = {_series(steps, '{:.0f}')} at τ = {middle:g}"
    yield Claim(
        "4.3",
        "The contraction rate, a supremum over all pairs, decreases with n_max.",
        f"supremum {_series(along_steps('rate_supremum', middle), '{:.4f}')} {numbers}: always γ_τ",
        verdict(all(_falls(along_steps("rate_supremum", tau), by=1e-6) for tau in levels)),
    )
    yield Claim(
        "4.3",
        "The contraction rate from V = 0, which the figure plots, decreases with n_max.",
        f"{_series(along_steps('rate_from_zero', middle), '{:.3f}')} {numbers}",
        verdict(all(_falls(along_steps("rate_from_zero", tau)) for tau in levels)),
    )
    yield Claim(
        "4.3",
        "The fixed-point bias grows as τ becomes smaller.",
        f"{_series(along_levels('bias'))} for τ = {_series(levels)}",
        verdict(_falls(along_levels("bias"))),
    )
    yield Claim(
        "4.3",
        "The variance is positively correlated with n_max.",
        f"{_series(along_steps('deviation', middle), '{:.3f}')} {numbers}, V = 0",
        verdict(all(_falls(along_steps("deviation", tau)[::-1]) for tau in levels)),
    )
    spread = max(max(along_steps("bias", tau)) - min(along_steps("bias", tau)) for tau in levels)
    yield Claim(
        "4.2",
        "Remark 2: n_max adds no bias; τ alone controls it.",
        f"the bias of T_vem changes by at most {spread:.0e} over n_max (but see the plan along trajectories)",
        verdict(spread < 1e-6),
    )


def behavior_claims(table: Table, discount: float) -> Iterator[Claim]:
    """Section 4.3 on figure 4(b), and section 4.2 on expert data."""
    levels, temperatures = _axis(table, "expectile"), _axis(table, "temperature")
    if len(temperatures) < 2:
        return
    middle = levels[len(levels) // 2]

    def along(measure: str, expectile: float) -> list[float]:
        return [_at(table, temperature=t, expectile=expectile)[measure] for t in temperatures]

    numbers = f"for temperatures {_series(temperatures)} at τ = {middle:g}"
    yield Claim(
        "4.3",
        "Better data give a lower contraction rate.",
        f"from V = 0 {_series(along('rate_from_zero', middle), '{:.3f}')} {numbers}; the supremum stays "
        f"{_series(along('rate_supremum', middle), '{:.4f}')}",
        verdict(
            all(_falls(along("rate_supremum", tau)[::-1], by=1e-6) for tau in levels),
            "in part" if all(_falls(along("rate_from_zero", tau)[::-1]) for tau in levels) else "fails",
        ),
    )
    yield Claim(
        "4.3",
        "Better data give a lower variance.",
        f"{_series(along('deviation', middle), '{:.3f}')} {numbers}",
        verdict(all(_falls(along("deviation", tau)[::-1]) for tau in levels)),
    )
    row = _at(table, temperature=temperatures[0], expectile=middle)
    limit = discount ** (row["best_steps"] - 1) * row["rate_bound"]
    yield Claim(
        "4.2",
        "For expert data the rate comes near γ^(n*−1)·γ_τ.",
        f"from V = 0 {row['rate_from_zero']:.3f} against {limit:.3f} at temperature {temperatures[0]:g}, "
        f"τ = {middle:g}, mean n* {row['best_steps']:.1f}",
        verdict(abs(row["rate_from_zero"] - limit) < 0.1 * limit, "in part"),
    )


def readings_claims(table: Table) -> Iterator[Claim]:
    """Remark 2 of section 4.2 for plans along trajectories, which both published algorithms use."""
    middle = min(table, key=lambda row: abs(row["expectile"] - 0.5))
    low = table[0]
    yield Claim(
        "4.2",
        "Implied: remark 2 carries over to a plan along each trajectory.",
        f"at τ = {middle['expectile']:g} the maximum along trajectories settles at "
        f"{middle['memory_sampled']:.2f} and the authors' plan at {middle['memory_authors']:.2f} instead of "
        f"{middle['memory_operator']:.2f}; at τ = {low['expectile']:g} at {low['memory_sampled']:.2f} and "
        f"{low['memory_authors']:.2f} instead of {low['memory_operator']:.2f} (0 = V^μ, 1 = V*)",
        verdict(abs(middle["memory_sampled"] - middle["memory_operator"]) < 1e-3),
    )


def _at(table: Table, **where: float) -> dict[str, float]:
    return next(row for row in table if all(row[name] == value for name, value in where.items()))


def _axis(table: Table, name: str) -> list[float]:
    return sorted({row[name] for row in table})


def _series(numbers: Sequence[float], form: str = "{:.3g}") -> str:
    return ", ".join(form.format(number) for number in numbers)


def _falls(numbers: Sequence[float], by: float = 0.0) -> bool:
    return all(first - second > by for first, second in pairwise(numbers))
