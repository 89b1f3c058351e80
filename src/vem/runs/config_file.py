"""config.json: everything a run depends on, in the layout of this version and of the one before."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from vem.errors import DataError, RunError, SettingsError
from vem.runs.config import Config, build_settings
from vem.runs.records import DataFacts
from vem.storage import write_json

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


def write_config(path: Path, config: Config, facts: DataFacts, packages: dict[str, str]) -> None:
    """Write the file."""
    stored = {
        "version": CONFIG_VERSION,
        "config": {**dataclasses.asdict(config), "seeds": list(config.seeds)},
        "data": facts.to_json(),
        "packages": packages,
    }
    write_json(path, stored)


def read_config(directory: Path) -> tuple[Config, DataFacts, dict[str, str]]:
    """The Config, the data and the packages of the run in ``directory``; RunError if it is no run."""
    path = directory / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        found = "has no config.json" if directory.is_dir() else "is a file" if directory.exists() else "does not exist"
        raise RunError(f"{directory} is not a run directory: it {found}; make one with vem train --out") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); start the run again in another directory") from None
    if not isinstance(stored, dict) or stored.get("version") not in (1, CONFIG_VERSION):
        raise RunError(f"{path} has no config of version {CONFIG_VERSION}; it was written by another vem")
    try:
        fields = stored["config"]
        if stored["version"] == 1:
            fields = _renamed(fields) | {"settings": _renamed(fields["settings"])}
        config = Config(**{**fields, "seeds": tuple(fields["seeds"])})
        settings = build_settings(config.algorithm, config.settings)
        facts = DataFacts.from_json(stored["data"])
    except (KeyError, TypeError, ValueError, AttributeError, DataError, SettingsError) as error:
        raise RunError(f"{path} does not describe a run ({error}); it was edited or written by another vem") from None
    packages = stored.get("packages")
    config = dataclasses.replace(config, settings=dataclasses.asdict(settings))
    return config, facts, packages if isinstance(packages, dict) else {}


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """Names and words of version 1 as they are called now."""
    return {
        OLD_NAMES.get(name, name): OLD_WORDS.get(value, value) if isinstance(value, str) else value
        for name, value in fields.items()
    }
