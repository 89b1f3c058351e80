"""config.json: everything a run depends on, in the layout of this version and of the one before."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from vem.errors import DataError, RunError, SettingsError
from vem.runs.config import Config, check_config, check_period
from vem.runs.records import DataFacts
from vem.storage import read_json, write_json

CONFIG_VERSION = 2
OLD_NAMES = {
    "num_updates": "steps",
    "policy_rate_decay": "policy_lr_schedule",
    "value_rate": "value_lr",
    "policy_rate": "policy_lr",
    "policy_decay": "policy_weight_decay",
    "value_decay": "value_weight_decay",
    "decay": "td_lambda",
    "updates_per_refresh": "steps_per_refresh",
    "value_updates": "value_share",
    "envelope_updates": "envelope_share",
    "cloning_updates": "cloning_steps",
    "normalise_observations": "normalize_observations",
    "normalise_rewards": "normalize_rewards",
}
"""Names in a config.json of version 1 → names since version 2."""
OLD_WORDS = {"standardised": "standardized"}


class Stored(NamedTuple):
    """What config.json holds."""

    config: Config
    facts: DataFacts
    packages: dict[str, str]
    """Versions that the run was started with; empty where they are not recorded."""
    evaluate_every: float | None = None
    """Steps between two evaluations on the way, or a share of all; None: no evaluation. It changes no result."""


def write_config(path: Path, stored: Stored) -> None:
    """Write the file."""
    config, facts, packages, evaluate_every = stored
    content = {
        "version": CONFIG_VERSION,
        "config": {**dataclasses.asdict(config), "seeds": list(config.seeds)},
        "data": facts.to_json(),
        "packages": packages,
        "evaluate_every": evaluate_every,
    }
    write_json(path, content)


def read_config(directory: Path) -> Stored:
    """What the config.json in ``directory`` holds, checked as a new run is; RunError if it is no run."""
    path = directory / "config.json"
    if not os.path.lexists(path):
        found = "has no config.json" if directory.is_dir() else "is a file" if directory.exists() else "does not exist"
        raise RunError(f"{directory} is not a run directory: it {found}; make one with vem train --out")
    try:
        stored = read_json(path, dict)
    except RunError as error:
        raise RunError(f"{error}; start the run again in another directory") from None
    if stored.get("version") not in (1, CONFIG_VERSION):
        raise RunError(f"{path} has no config of version {CONFIG_VERSION}; it was written by another vem")
    try:
        fields = stored["config"]
        if stored["version"] == 1:
            fields = _renamed(fields) | {"settings": _renamed(fields["settings"])}
        if not isinstance(fields["seeds"], list):
            raise SettingsError(f"seeds is {fields['seeds']!r}")
        config = check_config(Config(**{**fields, "seeds": tuple(fields["seeds"])}))
        facts = DataFacts.from_json(stored["data"])
        evaluate_every = check_period(stored.get("evaluate_every"))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, DataError, SettingsError) as error:
        raise RunError(f"{path} does not describe a run ({error}); it was edited or written by another vem") from None
    packages = stored.get("packages")
    return Stored(config, facts, packages if isinstance(packages, dict) else {}, evaluate_every)


def request_hash(config: Config, facts: DataFacts) -> str:
    """SHA-256 of all that decides the result of a run: its settings, the rows, and what their actions mean.

    Where the data are does not count, so they may be moved.
    """
    places = ("dataset", "data_dir")
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in places}
    columns = [dataclasses.asdict(column) for column in facts.info.action_columns]
    bounds = [list(map(float, ends)) for ends in (facts.info.action_low, facts.info.action_high)]
    return hashlib.sha256(json.dumps([settings, facts.sha256, bounds, columns], sort_keys=True).encode()).hexdigest()


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """Names and words of version 1 as they are called now."""
    return {
        OLD_NAMES.get(name, name): OLD_WORDS.get(value, value) if isinstance(value, str) else value
        for name, value in fields.items()
    }
