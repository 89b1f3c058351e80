"""The parts of the page that need no simulator: what the data are, what policies do with them, what to beware of."""

from __future__ import annotations

from vem.data import Dataset
from vem.estimation.result import Value, read_estimate
from vem.report import against_log, calibration, data_facts
from vem.report.page import Section
from vem.report.plain_table import PlainTable, cell_text
from vem.report.records import RunRecord, Series
from vem.report.style import Look


def warning_section(runs: list[RunRecord]) -> Section:
    """What was found when the runs' training ended, and what to do."""
    rows, unknown = [], []
    for run in runs:
        found = run.files.warnings()
        if found is None and run.policies:
            unknown.append(run.label)
        rows += [[run.label, warning.text, warning.advice] for warning in found or ()]
    if len(runs) == 1:
        rows = [row[1:] for row in rows]
    head = ["run", "what was found", "what to do"] if len(runs) > 1 else ["what was found", "what to do"]
    lead = ""
    if not rows and not unknown and any(run.policies for run in runs):
        lead = (
            "None: values had settled, enough rows carry the weights, rewards do not look like luck, and the policy's "
            "actions stay near the data."
        )
    if unknown:
        lead = f"Not looked for in {', '.join(unknown)}: an earlier version trained it."
    return Section("warnings", "Warnings", [], lead=lead, tables=[PlainTable(head, rows)] if rows else [])


def data_section(dataset: Dataset | None, sample: Dataset | None) -> Section:
    """What the data are."""
    tables = [] if dataset is None or sample is None else data_facts.data_tables(dataset, sample)
    return Section("data", "Data", [], tables=tables)


def log_sections(
    series: list[Series],
    looks: list[Look],
    datasets: list[Dataset | None],
    samples: list[Dataset | None],
    prefix: str,
) -> list[Section]:
    """Values against recorded returns, differences from the log, states where they are largest, and support.

    ``datasets`` and ``samples`` are those of each series, None where they cannot be read.
    """
    compared = against_log.compare_series(series, looks, datasets, samples)
    return [
        Section(
            "calibration",
            "Values against the log",
            calibration.draw_calibration(series, looks, samples, prefix),
        ),
        Section(
            "differences",
            "What the policy does differently",
            against_log.draw_differences(compared, prefix),
            tables=against_log.difference_tables(compared),
        ),
        Section("states", "Where it differs most", [], tables=against_log.state_tables(compared)),
        Section(
            "support",
            "Support",
            [*against_log.draw_support(compared, prefix), *against_log.draw_reach(compared, prefix)],
        ),
    ]


def estimate_section(runs: list[RunRecord]) -> Section:
    """What the policies are worth by recorded data alone, where a run's directory holds such an estimate."""
    tables = []
    for run in runs:
        if (found := read_estimate(run.files)) is not None:
            rows = [["the log", _value(found.log), "", ""]]
            for group in found.groups:
                settings = ", ".join(f"{name} {value:g}" for name, value in group.settings.items())
                rows.append([settings or run.label, _value(group.value), _value(group.difference), group.verdict])
            caption = " ".join(group.reason for group in found.groups)
            tables.append(PlainTable(["", "value [95 %]", "minus the log", "verdict"], rows, caption))
    return Section("estimate", "Estimate from recorded data", [], tables=tables)


def _value(found: Value) -> str:
    """An estimated value and its interval."""
    if found.value is None:
        return "unknown"
    ends = "" if found.interval is None else f" [{' to '.join(cell_text(float(end)) for end in found.interval)}]"
    return cell_text(float(found.value)) + ends
