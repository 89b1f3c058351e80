"""The methods, by name. Each is one file: a settings dataclass and ``make(settings, spec, num_updates)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from vem.algorithms import bc, vem
from vem.algorithms.base import Algorithm, Spec
from vem.errors import SettingsError


class Method(NamedTuple):
    """A method before it is bound to settings and data."""

    settings: type
    make: Callable[[Any, Spec, int], Algorithm]
    summary: str


METHODS: dict[str, Method] = {
    "vem": Method(vem.VEMSettings, vem.make, "Value-based Episodic Memory"),
    "bc": Method(bc.BCSettings, bc.make, "behaviour cloning"),
}


def find_method(name: str) -> Method:
    """The method of that name; SettingsError lists the known ones."""
    if name not in METHODS:
        raise SettingsError(f"there is no algorithm {name!r}; choose from {', '.join(METHODS)}")
    return METHODS[name]
