"""Packages that can be called: ``vem.compare(…)`` works although ``vem.compare`` is a package as well."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(package: str, function: Callable[..., Any]) -> None:
    """Let calls of the package be calls of ``function``.

    Python puts an imported package into its parent under its name, over a function that was there; so the package
    itself must be what can be called.
    """
    kind = type("CallablePackage", (ModuleType,), {"__call__": staticmethod(function), "__doc__": function.__doc__})
    sys.modules[package].__class__ = kind
