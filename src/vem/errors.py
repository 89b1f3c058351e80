"""The one family of errors: each says what was found, what was expected, and what to do."""

from __future__ import annotations

import importlib.util


def printable(text: str, kept: str = "") -> str:
    r"""The text as a terminal only shows it: control characters and their like as ``\x1b``, ``\n``, but those ``kept``.

    Names that come from files go through it on their way into reports, comments and messages.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


class VemError(Exception):
    """Base of every error that ``vem`` raises on purpose."""


class DataError(VemError):
    """A dataset, a file or an array that cannot be used as it is."""


class SettingsError(VemError):
    """A setting, or a combination of settings, that means nothing."""


class DivergenceError(VemError):
    """Training left the finite or the plausible numbers."""


class RunError(VemError):
    """A run directory, a checkpoint or a policy file that cannot be used."""


class SimulatorError(VemError):
    """An environment that is unknown, not installed, or does not fit the policy."""


class MissingPackageError(VemError, ImportError):
    """A package that an extra installs and that is not here."""


class DataWarning(UserWarning):
    """Something in the data that is legal and probably not meant."""


class Stopped(KeyboardInterrupt):
    """Training was asked to stop (Ctrl-C, SIGTERM) and has saved its state; the text says how to go on."""


# The optional packages: which extra installs them, and one sentence where one is missing.


EXTRAS = {
    "train": ("filelock", "h5py", "jax", "jaxlib", "optax", "rich", "scipy"),
    "envs": ("gymnasium", "gymnasium_robotics", "mujoco"),
    "video": ("moviepy",),
    "report": ("jinja2", "matplotlib"),
    "onnx": ("onnx", "onnxruntime"),
    "tables": ("pyarrow",),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "minari": ("minari",),
    "ray": ("fsspec", "ray"),
}
"""Name of each extra → the packages that it installs and ``vem`` imports."""
SERVICES = ("wandb", "ray")
"""Extras that ``vem[all]`` leaves out."""
_EXTRA_OF = {package: extra for extra, packages in EXTRAS.items() for package in packages}


def is_installed(package: str) -> bool:
    """Whether a package can be imported, found without importing it."""
    return importlib.util.find_spec(package) is not None


def require(*packages: str) -> None:
    """MissingPackageError for the first of these packages that is not installed."""
    for package in packages:
        if not is_installed(package):
            raise _missing(package)


def explain(error: ModuleNotFoundError) -> MissingPackageError | None:
    """The sentence for a failed import; None if the package belongs to no extra."""
    package = (error.name or "").split(".")[0]
    return _missing(package) if package in _EXTRA_OF else None


def _missing(package: str) -> MissingPackageError:
    extra = _EXTRA_OF[package]
    most = "" if extra in SERVICES else ", or 'vem[all]' for everything"
    return MissingPackageError(f"this needs {package}, which is not installed: pip install 'vem[{extra}]'{most}")
