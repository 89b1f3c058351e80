"""Files that are either complete or absent: safetensors and JSON, written aside, synced, renamed.

JAX is imported where a pytree is taken apart: a process that only loads a policy and acts needs NumPy alone.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import platform
import struct
import sys
import types
import typing
import uuid
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from vem.errors import RunError

T = TypeVar("T")
MOST_JSON_BYTES = 64 << 20
LARGEST = {int: 2**53, float: sys.float_info.max}
"""Numbers of a file up to which all that reads it can hold them."""
MOST_JSON_DEPTH = 64
"""Lists and objects inside one another; no file of a run comes near."""


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


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says; ValueError, and nothing else, if it is none or too deep."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("it is too deep") from None
    level = [content]
    for _ in range(MOST_JSON_DEPTH):
        level = [entry for value in level if isinstance(value, dict | list) for entry in _entries(value)]
        if not level:
            return content
    raise ValueError("it is too deep")


def _entries(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def misfit(value: Any, hint: Any, name: str = "it") -> str | None:
    """The name of the first part of ``value`` that is not what a type hint says, or None if all is.

    For what was built from JSON: dataclasses and named tuples are looked into; numbers must be finite.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    found: Iterable[str | None] = ()
    if origin in (typing.Union, types.UnionType):
        return None if any(misfit(value, each) is None for each in arguments) else name
    if origin is typing.Literal:
        fits = isinstance(value, str) and value in arguments
    elif origin is list or (origin is tuple and arguments[-1] is Ellipsis):
        fits = isinstance(value, origin)
        found = (misfit(part, arguments[0], name) for part in value) if fits else ()
    elif origin is tuple:
        fits = isinstance(value, tuple) and len(value) == len(arguments)
        found = (misfit(part, each, name) for part, each in zip(value, arguments, strict=True)) if fits else ()
    elif origin is dict:
        fits = isinstance(value, dict) and all(isinstance(key, arguments[0]) for key in value)
        found = (misfit(part, arguments[1], f"{name}.{key}") for key, part in value.items()) if fits else ()
    elif hint is Any:
        fits = True
    elif hint in (int, float):
        fits = type(value) in (int, hint) and abs(value) <= LARGEST[hint]
    elif isinstance(value, hint) and (hints := _part_hints(hint)):
        fits, found = True, (misfit(getattr(value, part), each, part) for part, each in hints.items())
    else:
        fits = isinstance(value, hint)
    return next((part for part in found if part is not None), None) if fits else name


@functools.cache
def _part_hints(cls: type) -> dict[str, Any]:
    """The types of the parts of a dataclass or a named tuple; empty for other classes."""
    return typing.get_type_hints(cls) if dataclasses.is_dataclass(cls) or hasattr(cls, "_fields") else {}


def read_json(path: Path, kind: type[T]) -> T:
    """What a JSON file holds, a ``kind`` of object; RunError if that is not what it holds, or it cannot be read."""
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no regular file")
        if (size := path.stat().st_size) > MOST_JSON_BYTES:
            raise ValueError(f"its {size:,} bytes are too many")
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not isinstance(content, kind):
        raise RunError(f"{path} cannot be read (it holds a {type(content).__name__} where a {kind.__name__} belongs)")
    return content


def write_tensors(path: Path, tensors: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write a safetensors file with ``header`` as JSON in its metadata, after the checksum of all that it holds."""
    contiguous = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    text = json.dumps(header, allow_nan=False)
    # One entry, because safetensors writes several in any order.
    write_file(path, save(contiguous, metadata={"vem": f"{_checksum(text, contiguous):08x} {text}"}))


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors and the header of a file that ``write_tensors`` wrote; RunError if it is damaged."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            checksum, _, text = (file.metadata() or {})["vem"].partition(" ")
            if checksum.startswith("{"):
                raise RunError(f"{path} was written by another version of vem, whose files this one does not read")
            header = parse_json(text)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        # TypeError, AttributeError: numbers of a kind that NumPy does not have
        raise RunError(f"{path} is damaged ({error})") from None
    if not isinstance(header, dict):
        raise RunError(f"{path} is damaged (its header is a {type(header).__name__})")
    if checksum != f"{_checksum(text, tensors):08x}":
        raise RunError(f"{path} is damaged (its checksum differs)")
    return tensors, header


def _checksum(text: str, tensors: dict[str, np.ndarray]) -> int:
    """CRC-32 of the header and of all tensors: safetensors itself would not notice a flipped bit."""
    total = zlib.crc32(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total = zlib.crc32(f"{name} {tensor.dtype.str} {tensor.shape}".encode(), total)
        total = zlib.crc32(tensor.reshape(-1).view(np.uint8).data, total)
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
