"""Named settings: the paper's, its authors', ours, and the official ones of the other methods, as data.

A preset has settings of the method and rules for reading the data. ``default`` is the settings' own defaults, and
what a method's official program sets otherwise for the task's family. ``PRESETS`` has those of the built-in methods;
a registered method brings its own.
"""

from __future__ import annotations

from vem.algorithms.registry import METHODS, Preset, find_method
from vem.errors import SettingsError
from vem.tasks import Task

_OURS = Preset({}, {}, "the settings' own defaults, chosen by hand in short trials (docs/choices.md)")

_PAPER_VEM = Preset(
    settings={
        "expectile": 0.3,
        "discount": 0.99,
        "policy": "regression",
        "order": "expectile-then-plan",
        "value_loss": "squared",
        "plan": "episodic",
        "least_plan_steps": 1,
        "num_critics": 2,
        "initial_values": "random",
        "schedule": "joint",
        "steps_per_refresh": 200,
        "refresh": "full",
        "target_rate": 0.005,
        "target_update": "refresh",
        "advantage": "raw",
        "clip_quantile": None,
        "weight": "softmax",
        "temperature": 100.0,
        "policy_draw": "uniform",
        "policy_hidden": (256, 256),
        "log_std_low": -6.0,
        "log_std_high": 0.0,
        "value_lr": 1e-3,
        "policy_lr": 1e-3,
        "batch_size": 128,
        "normalize_observations": False,
        "normalize_rewards": False,
        "policy_lr_schedule": "none",
        "policy_weight_decay": 0.0,
    },
    rules={"time_limit": "end"},
    source="paper, sections 3.1 to 3.3, algorithm 1 and tables 2 and 3; the temperature is the authors'",
)

_AUTHORS_VEM = Preset(
    settings={
        "expectile": 0.3,
        "discount": 0.99,
        "policy": "regression",
        "order": "plan-then-expectile",
        "value_loss": "squared-weight",
        "plan": "crossed",
        "num_plan_steps": 1000,
        "least_plan_steps": 1,
        "num_critics": 4,
        "initial_values": "random",
        "schedule": "value-then-policy",
        "value_share": 0.5,
        "steps_per_refresh": 200,
        "refresh": "full",
        "target_rate": 1 - 0.995**200,
        "target_update": "update",
        "advantage": "raw",
        "clip_quantile": None,
        "weight": "softmax",
        "temperature": 100.0,
        "policy_draw": "uniform",
        "drop_below": -1000.0,
        "policy_hidden": (256, 256, 256, 256),
        "log_std_low": -6.0,
        "log_std_high": 0.0,
        "value_lr": 3e-4,
        "policy_lr": 3e-4,
        "batch_size": 128,
        "normalize_observations": False,
        "normalize_rewards": False,
        "policy_lr_schedule": "none",
        "policy_weight_decay": 0.0,
    },
    rules={"time_limit": "end", "repeat_terminals": True},
    source="the program the authors released",
)

_IQL = Preset(
    settings={},
    rules={},
    source="the official program's configurations",
    families={
        "antmaze": {"expectile": 0.9, "inverse_temperature": 10.0, "reward_shift": -1.0},
        "adroit": {"expectile": 0.7, "inverse_temperature": 0.5, "policy_dropout": 0.1},
        "mujoco": {"return_span": 1000.0},
    },
)

_AWR = Preset(
    settings={},
    rules={},
    source="the official program's configurations: σ 0.4 for the walking robots, 0.2 for Ant, taken for Adroit as well",
    families={"antmaze": {"policy_std": 0.2}, "adroit": {"policy_std": 0.2}},
)

_CQL_LAGRANGE = {"conservative_weight": 5.0, "lagrange_threshold": 5.0}
_CQL = Preset(
    settings={},
    rules={},
    source="the official program's settings for MuJoCo and AntMaze; for Adroit, which has none, the Lagrange ones",
    families={
        "mujoco": {"conservative_weight": 5.0},
        "antmaze": {**_CQL_LAGRANGE, "reward_scale": 4.0, "reward_shift": -2.0},
        "adroit": _CQL_LAGRANGE,
    },
)

_BAIL = Preset({}, {}, "the official program's settings, the same for every task")
_BCQ = Preset({}, {}, "the official program's settings, the same for every task")
_BCQ_EM = Preset({}, {}, "BCQ's official settings with the memory of the paper's appendix, which gives no numbers")
_TD3BC = Preset({}, {}, "the official program's settings, the same for every task")

PRESETS: dict[str, dict[str, Preset]] = {
    "vem": {"default": _OURS, "paper": _PAPER_VEM, "authors": _AUTHORS_VEM},
    "bc": {"default": _OURS},
    "awr": {"default": _AWR},
    "bail": {"default": _BAIL},
    "bcq": {"default": _BCQ},
    "bcq-em": {"default": _BCQ_EM},
    "cql": {"default": _CQL},
    "iql": {"default": _IQL},
    "td3bc": {"default": _TD3BC},
}

OFFICIAL_STEPS: dict[tuple[str, str], int] = {
    ("vem", "default"): 100_000,  # ours
    ("vem", "paper"): 2_000_000,  # 10,000 refreshes and 200 steps after each
    ("vem", "authors"): 4_000_000,  # as many for the values, then as many for the policy
    ("bc", "default"): 1_000_000,  # no program of its own: as the others
    ("awr", "default"): 1_000_000,  # its program has no number for recorded data: as the others
    ("bail", "default"): 286_000,  # 200,000 steps of cloning, and the share of the envelope before them
    ("bcq", "default"): 1_000_000,
    ("bcq-em", "default"): 1_000_000,  # the paper gives none: as BCQ
    ("cql", "default"): 3_000_000,  # 3,000 epochs of 1,000 steps
    ("iql", "default"): 1_000_000,
    ("td3bc", "default"): 1_000_000,
}
"""Method and preset → steps in all that its official program takes by default."""

_FAMILIES = {
    "vem/AntMaze": "antmaze",
    "vem/PointMaze": "antmaze",
    "vem/Adroit": "adroit",
    "vem/HalfCheetah": "mujoco",
    "vem/Hopper": "mujoco",
    "vem/Walker2d": "mujoco",
}
"""Start of an environment's id → its family. The built-in mazes go with AntMaze: sparse goals."""


def task_family(task: Task | None) -> str | None:
    """The family whose settings apply to a task; none for a task that is not known."""
    if task is None:
        return None
    return next((name for start, name in _FAMILIES.items() if task.environment.startswith(start)), None)


def split_label(label: str) -> tuple[str, str | None]:
    """The method that a cell's label names, and the preset that it names too: ``vem-paper`` is VEM's preset paper.

    SettingsError lists the methods if it is neither a method nor a method and one of its presets.
    """
    if label not in METHODS:
        for name, method in METHODS.items():
            if label.startswith(f"{name}-") and label.removeprefix(f"{name}-") in method.presets:
                return name, label.removeprefix(f"{name}-")
    find_method(label)
    return label, None


def official_steps(label: str) -> int:
    """Steps that the official program of a method takes; SettingsError where none is known."""
    algorithm, preset = split_label(label)
    if (algorithm, preset or "default") not in OFFICIAL_STEPS:
        raise SettingsError(f"no official number of steps is known of {label}; give --steps or --minutes instead")
    return OFFICIAL_STEPS[algorithm, preset or "default"]


def find_preset(algorithm: str, name: str, task: Task | None = None) -> Preset:
    """The preset of a method with the settings of the task's family.

    The paper's and the authors' VEM take the τ that the paper tuned for the task, if any. An ablation has the presets
    of the method it ablates, with its own changes on top.
    """
    method = find_method(algorithm)
    if name not in method.presets:
        raise SettingsError(f"{algorithm} has no preset {name!r}; choose from {', '.join(method.presets)}")
    preset = method.presets[name]
    settings = preset.settings | preset.families.get(task_family(task) or "", {})
    if (
        (method.ablates or algorithm) == "vem"
        and name != "default"
        and task is not None
        and task.paper_expectile is not None
    ):
        settings["expectile"] = task.paper_expectile
    return preset._replace(settings={**settings, **method.overrides})
