"""The methods, by name. Each is one file: its settings with their presets, ``make`` and ``METHOD``."""

from __future__ import annotations

from vem.algorithms import awr, bail, bc, bcq, cql, iql, td3bc, vem
from vem.algorithms.base import METHODS, Method, Preset, check_actions, find_method, method_of, register

__all__ = ["METHODS", "Method", "Preset", "check_actions", "find_method", "method_of", "register"]

METHODS.update(
    {
        "vem": vem.METHOD,
        "bc": bc.METHOD,
        "awr": awr.METHOD,
        "bail": bail.METHOD,
        "bcq": bcq.METHOD,
        "bcq-em": bcq.EPISODIC_METHOD,
        "cql": cql.METHOD,
        "iql": iql.METHOD,
        "td3bc": td3bc.METHOD,
        **vem.ABLATIONS,
    }
)
