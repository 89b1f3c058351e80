"""The dataset that a run names, read by its rules."""

from __future__ import annotations

from typing import Any

from vem.data import Dataset, load
from vem.data.transforms import repeat_terminals
from vem.errors import SettingsError
from vem.runs.capacity import fits
from vem.runs.config import Config


def load_data(config: Config) -> Dataset:
    """The dataset of a config, read by its rules."""
    return read_data(config.dataset, config.rules, config.data_dir)


def read_data(source: str, rules: dict[str, Any], data_dir: str | None = None) -> Dataset:
    """The dataset of a source, read by a preset's rules or a run's."""
    rules = dict(rules)
    repeat = rules.pop("repeat_terminals", False)
    dataset = load(source, data_dir=data_dir, **rules)
    if repeat and dataset.shards is not None and not fits(dataset):
        raise SettingsError(
            f"{source} does not fit into the memory, which repeat_terminals (preset authors) needs; use another preset"
        )
    return repeat_terminals(dataset) if repeat else dataset
