"""Typed configurations: what each setting means, which values it takes, and how text becomes one."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from vem.errors import SettingsError

if TYPE_CHECKING:
    from vem.algorithms.base import Spec

LIMITS: dict[str, tuple[str, Any]] = {
    "level": ("between 0 and 1, both excluded", lambda x: 0 < x < 1),
    "share": ("between 0 and 1", lambda x: 0 <= x <= 1),
    "positive share": ("above 0, at most 1", lambda x: 0 < x <= 1),
    "discount": ("at least 0 and below 1", lambda x: 0 <= x < 1),
    "positive": ("above 0", lambda x: x > 0),
    "not negative": ("0 or more", lambda x: x >= 0),
    "quantile": ("at least 0 and below ½", lambda x: 0 <= x < 0.5),
    "any": ("a finite number", lambda x: True),
}
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def setting(default: Any, meaning: str, limit: str = "any", sweep: bool = False) -> Any:
    """A dataclass field with its meaning, its limits (a key of LIMITS), and whether lists of values can be swept."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "limit": limit, "sweep": sweep})


def sweepable(cls: type) -> tuple[str, ...]:
    """Names of the settings that may take several values in one program."""
    return tuple(f.name for f in dataclasses.fields(cls) if f.metadata.get("sweep"))


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Base of a method's configuration: a frozen dataclass of ``setting`` fields, checked when it is made.

    Values are converted to the fields' types, so "0.7" and 0.7 make the same configuration. SettingsError says which
    setting is wrong and what it must be.
    """

    def __post_init__(self) -> None:
        hints = type_hints(type(self))
        for field in dataclasses.fields(self):
            value = convert(getattr(self, field.name), hints[field.name], field.name)
            object.__setattr__(self, field.name, value)
            expected, holds = LIMITS[field.metadata.get("limit", "any")]
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, float | int) and not (math.isfinite(part) and holds(part)):
                    raise SettingsError(f"{_flag(field.name)} is {part}; it must be {expected}")
        self.check()

    def check(self) -> None:
        """Raise SettingsError for combinations of settings that mean nothing; a method with such overrides this."""

    def complete(self, spec: Spec) -> tuple[Self, tuple[str, ...]]:
        """The configuration with all that follows from the data decided, and sentences that say why."""
        return self, ()


C = TypeVar("C", bound=Configuration)


@functools.cache
def type_hints(cls: type) -> dict[str, Any]:
    """The type of each setting."""
    return typing.get_type_hints(cls)


def build(cls: type[C], values: Mapping[str, Any]) -> C:
    """The configuration with ``values`` in place of its defaults; an unknown name gets the nearest known ones."""
    known = [f.name for f in dataclasses.fields(cls)]
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
            raise SettingsError(f"{cls.__name__} has no setting {name!r}; {hint}")
    return cls(**values)


def convert(value: Any, hint: Any, name: str) -> Any:
    """``value``, from Python, JSON or the command line, as the type of the setting."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        return convert(value, next(a for a in arguments if a is not type(None)), name)
    if origin is Literal:
        for choice in arguments:
            if value == choice or (isinstance(value, str) and value == str(choice)):
                return choice
        raise SettingsError(f"{_flag(name)} is {value!r}; choose from {', '.join(map(str, arguments))}")
    if origin is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            raise SettingsError(f"{_flag(name)} is {value!r}; it must be a list of numbers, such as 256,256")
        return tuple(convert(part, arguments[0], name) for part in parts)
    if hint is bool:
        text = str(value).lower()
        if text not in YES + NO:
            raise SettingsError(f"{_flag(name)} is {value!r}; write yes or no")
        return text in YES
    try:
        if isinstance(value, bool):
            raise TypeError
        number = float(value)
        if hint is int and number != int(number):
            raise ValueError
        return hint(number)
    except (TypeError, ValueError, OverflowError):
        kind = "a whole number" if hint is int else "a number"
        raise SettingsError(f"{_flag(name)} is {value!r}; it must be {kind}") from None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
