"""Files that are either complete or absent: safetensors and JSON, written aside, synced, renamed.

JAX is imported where a pytree is taken apart: a process that only loads a policy and acts needs NumPy alone.
"""

from __future__ import annotations

import json
import os
import platform
import struct
import uuid
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from vem.errors import RunError


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a pytree under dotted names, on the host."""
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


def unflatten(template: Any, tensors: dict[str, np.ndarray], what: str) -> Any:
    """The pytree shaped like ``template`` with the named leaves; RunError if names, shapes or types differ."""
    import jax

    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    found = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        tensor = tensors.get(name)
        if tensor is None or tensor.shape != leaf.shape or tensor.dtype != leaf.dtype:
            has = "nothing" if tensor is None else f"{tensor.dtype}{list(tensor.shape)}"
            raise RunError(f"{what}: tensor {name} should be {leaf.dtype}{list(leaf.shape)} and is {has}")
        found.append(tensor)
    return jax.tree_util.tree_unflatten(structure, found)


def write_file(path: Path, content: bytes) -> None:
    """Write ``content`` as ``replace_file`` does; RunError if that fails."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}; what was written before is intact") from None


def replace_file(path: Path, content: bytes) -> None:
    """Write ``content`` under a temporary name in the same directory, sync, rename, sync the directory.

    Missing directories are made. An OSError leaves neither them nor the temporary file behind.
    """
    made = [parent for parent in (path.parent, *path.parent.parents) if not parent.exists()]
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or never made
            for parent in made:
                parent.rmdir()
        raise


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, readable and complete."""
    write_file(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def write_tensors(path: Path, tensors: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write a safetensors file with ``header`` as JSON in its metadata."""
    contiguous = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    text = json.dumps({**header, "crc32": _checksum(contiguous)}, allow_nan=False)
    write_file(path, save(contiguous, metadata={"vem": text}))


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors and the header of a file that ``write_tensors`` wrote; RunError if it is damaged."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = json.loads((file.metadata() or {})["vem"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, struct.error) as error:
        raise RunError(f"{path} is damaged ({error})") from None
    if not isinstance(header, dict) or header.pop("crc32", None) != _checksum(tensors):
        raise RunError(f"{path} is damaged (its checksum differs)")
    return tensors, header


def _checksum(tensors: dict[str, np.ndarray]) -> int:
    """CRC-32 of all names and numbers: safetensors itself would not notice a flipped bit."""
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].reshape(-1).view(np.uint8).data, zlib.crc32(name.encode(), total))
    return total


def cache_directory() -> Path:
    """The folder for what can be made anew: ``$VEM_CACHE``, or ``vem`` in the user's cache folder."""
    if given := os.environ.get("VEM_CACHE"):
        return Path(given).expanduser()
    if platform.system() == "Darwin":
        return Path.home() / "Library" / "Caches" / "vem"
    if platform.system() == "Windows":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "vem" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vem"
