"""Files and arrays → Dataset.

Names are imported on first use: a policy needs ``encoding`` and ``action_columns`` alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vem.data.arrays import from_arrays
    from vem.data.dataset import DataInfo, Dataset
    from vem.data.description import Description, describe
    from vem.data.mapping import TableMap
    from vem.data.sources import load
    from vem.data.tables import from_table

_PLACES = {
    "DataInfo": "dataset",
    "Dataset": "dataset",
    "Description": "description",
    "TableMap": "mapping",
    "describe": "description",
    "from_arrays": "arrays",
    "from_table": "tables",
    "load": "sources",
}

__all__ = ["DataInfo", "Dataset", "Description", "TableMap", "describe", "from_arrays", "from_table", "load"]


def __getattr__(name: str) -> Any:
    """A public name, imported on first use."""
    if name not in _PLACES:
        raise AttributeError(f"module 'vem.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"vem.data.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *_PLACES})
