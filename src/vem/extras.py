"""The optional packages: which extra installs them, and one sentence where one is missing.

Acting needs NumPy and safetensors alone; all else is imported where it is used.
"""

from __future__ import annotations

import importlib.util

from vem.errors import MissingPackageError

EXTRAS = {
    "train": ("filelock", "h5py", "jax", "jaxlib", "optax", "rich", "scipy"),
    "envs": ("gymnasium", "gymnasium_robotics", "mujoco"),
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
