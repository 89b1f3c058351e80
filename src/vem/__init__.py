"""Offline reinforcement learning with Value-based Episodic Memory.

dataset = vem.load("antmaze-umaze.hdf5")
run = vem.train(dataset, vem.IQL(expectile=0.9), steps=100_000, seeds=3)     # or "iql", expectile=0.9
action = run.policies[0].act(observation)
result = vem.evaluate(run, episodes=100)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vem.algorithms.awr import AWR
    from vem.algorithms.bail import BAIL
    from vem.algorithms.base import register
    from vem.algorithms.bc import BC
    from vem.algorithms.bcq import BCQ, BCQEM
    from vem.algorithms.cql import CQL
    from vem.algorithms.iql import IQL
    from vem.algorithms.td3bc import TD3BC
    from vem.algorithms.vem import VEM
    from vem.api import resume, train
    from vem.comparison.compare import compare, sweep
    from vem.data.arrays import from_arrays
    from vem.data.dataset import Dataset
    from vem.data.description import describe
    from vem.data.load import load
    from vem.data.tables import from_table
    from vem.errors import VemError
    from vem.estimation.estimate import estimate
    from vem.estimation.select import select
    from vem.evaluation.differences import differences
    from vem.evaluation.evaluate import evaluate
    from vem.policy import Policy, load_policy
    from vem.reports.report import write_report as report
    from vem.training import callbacks as callbacks
    from vem.training.export import export
    from vem.training.run import Run, open_run

_PLACES = {
    "AWR": "vem.algorithms.awr",
    "BAIL": "vem.algorithms.bail",
    "BC": "vem.algorithms.bc",
    "BCQ": "vem.algorithms.bcq",
    "BCQEM": "vem.algorithms.bcq",
    "CQL": "vem.algorithms.cql",
    "Dataset": "vem.data.dataset",
    "IQL": "vem.algorithms.iql",
    "Policy": "vem.policy",
    "Run": "vem.training.run",
    "TD3BC": "vem.algorithms.td3bc",
    "VEM": "vem.algorithms.vem",
    "VemError": "vem.errors",
    "callbacks": "vem.training.callbacks",
    "compare": "vem.comparison.compare",
    "describe": "vem.data.description",
    "differences": "vem.evaluation.differences",
    "estimate": "vem.estimation.estimate",
    "evaluate": "vem.evaluation.evaluate",
    "export": "vem.training.export",
    "from_arrays": "vem.data.arrays",
    "from_table": "vem.data.tables",
    "load": "vem.data.load",
    "load_policy": "vem.policy",
    "open_run": "vem.training.run",
    "register": "vem.algorithms",
    "report": "vem.reports.report",
    "resume": "vem.api",
    "select": "vem.estimation.select",
    "sweep": "vem.comparison.compare",
    "train": "vem.api",
}

__all__ = [
    "AWR",
    "BAIL",
    "BC",
    "BCQ",
    "BCQEM",
    "CQL",
    "IQL",
    "TD3BC",
    "VEM",
    "Dataset",
    "Policy",
    "Run",
    "VemError",
    "compare",
    "describe",
    "differences",
    "estimate",
    "evaluate",
    "export",
    "from_arrays",
    "from_table",
    "load",
    "load_policy",
    "open_run",
    "register",
    "report",
    "resume",
    "select",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that ``import vem`` and ``vem --help`` load no numerics."""
    if name not in _PLACES:
        raise AttributeError(f"module 'vem' has no attribute {name!r}")
    try:
        module = importlib.import_module(_PLACES[name])
    except ModuleNotFoundError as error:
        from vem.errors import explain

        if (missing := explain(error)) is None:
            raise
        raise missing from None
    if name == "callbacks":
        return module
    return getattr(module, "write_report" if name == "report" else name)


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *_PLACES})
