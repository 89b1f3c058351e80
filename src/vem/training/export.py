"""``vem.export``: a policy of a run, or a policy file, as ONNX."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vem.errors import RunError, SettingsError, VemError, require
from vem.policy import Policy, load_policy
from vem.policy.onnx import Exported, check_format, export_policy

if TYPE_CHECKING:
    from vem.training.run import Run


def export(
    source: Run | Policy | str | Path,
    path: str | Path | None = None,
    *,
    format: str = "onnx",  # noqa: A002  # the flag's name
    seed: int | None = None,
    trial: str | None = None,
) -> Exported:
    """Write one policy as an ONNX file and return where it is and how it compares with ``Policy.act``.

    ``source`` is a run or its directory, a policy or its file. Of several policies, ``seed`` or ``trial`` chooses one.
    By default the file lies beside the policy's, with the suffix ``.onnx``. It is compared with the policy on rows of
    the run's data where they can be read, else on random rows, and written only if both act alike.
    """
    check_format(format)
    require("onnx", "onnxruntime")
    if isinstance(source, Policy):
        if path is None:
            raise SettingsError("a policy in memory has no place; name the file to write: vem.export(policy, path)")
        return export_policy(source, path)
    place = Path(source)
    if place.is_file() or place.suffix == ".safetensors":
        if seed is not None or trial is not None:
            raise SettingsError(f"{place} is one policy; seed and trial choose among those of a run directory")
        return export_policy(load_policy(place), place.with_suffix(".onnx") if path is None else path)
    return _export_run(source, path, seed, trial)


def _export_run(source: Any, path: str | Path | None, seed: int | None, trial: str | None) -> Exported:
    from vem.training.run import Run

    files = Run(source)
    if path is None:
        files.check_links()
    name, found = _choose(files, seed, trial)
    if not found.exists():
        raise RunError(
            f"{files.directory} has no policy of {name} yet; finish it with vem train --resume {files.directory}"
        )
    policy = load_policy(found)
    facts: dict[str, Any] = {"data_sha256": files.facts.sha256}
    if (estimate := files.estimate()) is not None:
        facts["estimate"] = estimate
    return export_policy(policy, found.with_suffix(".onnx") if path is None else path, _observations(source), facts)


def _choose(files: Run, seed: int | None, trial: str | None) -> tuple[str, Path]:
    """Name and file of the policy that is meant."""
    trials = zip(files.config.trials, files.policy_paths, strict=True)
    fitting = [
        (each.name, path) for each, path in trials if trial in (None, each.name) and (seed is None or each.seed == seed)
    ]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(name for name, _ in fitting or [(each.name, None) for each in files.config.trials])
    if not fitting:
        raise RunError(f"{files.directory} has no such policy; it has {names}")
    raise RunError(f"{files.directory} has {len(fitting)} policies: {names}; choose one with --seed or --trial")


def _observations(source: Any) -> np.ndarray | None:
    """The observations of the run's data, or None where they cannot be read any more."""
    from vem.training.run import Run

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # training has shown them
            run = source if isinstance(source, Run) else Run.open(source)
            return run.dataset.observations
    except (VemError, OSError):
        return None
