"""Named settings: the paper's, its authors' and ours, as data.

A preset has settings of the method and rules for reading the data. ``default`` is the settings' own defaults.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from vem.errors import SettingsError
from vem.scores import Task


class Preset(NamedTuple):
    """What a preset sets."""

    settings: dict[str, Any]
    rules: dict[str, Any]
    """Reading rules of ``vem.data.load``, and ``repeat_terminals``."""
    source: str
    """Where the numbers come from."""


_OURS = Preset({}, {}, "the settings' own defaults, chosen by the measurements in docs/results.md")

_PAPER_VEM = Preset(
    settings={
        "expectile": 0.3,
        "order": "expectile-then-plan",
        "value_loss": "squared",
        "plan": "episodic",
        "num_critics": 2,
        "schedule": "joint",
        "updates_per_refresh": 200,
        "refresh": "full",
        "target_rate": 0.005,
        "target_update": "refresh",
        "advantage": "raw",
        "clip_quantile": None,
        "weight": "softmax",
        "temperature": 1.0,
        "effective_sample": None,
        "policy_hidden": (256, 256),
        "log_std_low": -6.0,
        "log_std_high": 0.0,
        "value_rate": 1e-3,
        "policy_rate": 1e-3,
        "batch_size": 128,
        "normalise_observations": False,
        "normalise_rewards": False,
    },
    rules={"time_limit": "end"},
    source="paper, sections 3.1 to 3.3, algorithm 1 and tables 2 and 3; the temperature and α are not given there",
)

_AUTHORS_VEM = Preset(
    settings={
        "expectile": 0.3,
        "order": "plan-then-expectile",
        "value_loss": "squared-weight",
        "plan": "crossed",
        "num_plan_steps": 1000,
        "num_critics": 4,
        "schedule": "value-then-policy",
        "value_updates": 0.5,
        "updates_per_refresh": 200,
        "refresh": "full",
        "target_rate": 1 - 0.995**200,
        "target_update": "update",
        "advantage": "raw",
        "clip_quantile": None,
        "weight": "softmax",
        "temperature": 100.0,
        "effective_sample": None,
        "drop_below": -1000.0,
        "policy_hidden": (256, 256, 256, 256),
        "log_std_low": -6.0,
        "log_std_high": 0.0,
        "value_rate": 3e-4,
        "policy_rate": 3e-4,
        "batch_size": 128,
        "normalise_observations": False,
        "normalise_rewards": False,
    },
    rules={"time_limit": "end", "repeat_terminals": True},
    source="the program the authors released",
)

PRESETS: dict[str, dict[str, Preset]] = {
    "vem": {"default": _OURS, "paper": _PAPER_VEM, "authors": _AUTHORS_VEM},
    "bc": {"default": _OURS},
}


def find_preset(algorithm: str, name: str, task: Task | None = None) -> Preset:
    """The preset of a method; the paper's and the authors' take the τ that the paper tuned for the task, if any."""
    known = PRESETS[algorithm]
    if name not in known:
        raise SettingsError(f"{algorithm} has no preset {name!r}; choose from {', '.join(known)}")
    preset = known[name]
    if algorithm == "vem" and name != "default" and task is not None and task.paper_expectile is not None:
        preset = preset._replace(settings={**preset.settings, "expectile": task.paper_expectile})
    return preset
