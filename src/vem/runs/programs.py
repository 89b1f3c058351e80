"""Compiled programs are kept in the user's cache folder, so that the next run of the same shapes starts at once."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import jax

from vem.storage import cache_directory

LARGEST_BYTES = 512 * 2**20
"""Programs beyond this are deleted, the longest unused first."""
SHORTEST_SECONDS = 0.2
"""Programs that compile faster are not kept."""


def keep_programs() -> Path | None:
    """Have JAX keep what it compiles, and return the folder; None where the user has chosen one for JAX already.

    The folder can be deleted at any time. One that cannot be written costs nothing but the time to compile.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return None
    folder = cache_directory() / "programs" / _processor()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", LARGEST_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_SECONDS)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    jax.config.update("jax_raise_persistent_cache_errors", False)
    return folder


def _processor() -> str:
    """A name for this kind of processor: a program compiled for one may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        text = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        text = platform.processor()
    return hashlib.sha256(f"{platform.machine()} {text}".encode()).hexdigest()[:12]
