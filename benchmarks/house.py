"""How large the package is, and how far one has to walk in it: the counts that its design aims to keep small.

    python benchmarks/house.py [--json]

Counted from the sources: lines and files by package, the complexity of functions, and the files that name one method,
kind of policy, environment family, setting or file format, which are the places to change to add another one. Counted
by tracing a tiny training from an HDF5 file: the modules that are imported, those whose functions run, and the
functions; what runs while a module is imported does not count.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src" / "vem"
TRACER = """
import sys, threading
seen, importing = set(), [0]
def profile(frame, event, argument):
    name, code = frame.f_globals.get("__name__", ""), frame.f_code
    if not name.startswith("vem") or event not in ("call", "return"):
        return
    if code.co_name == "<module>":
        importing[0] += 1 if event == "call" else -1
    elif event == "call" and not importing[0] and not set("<>") & set(code.co_name):
        seen.add((name, code.co_qualname))
threading.setprofile(profile)
sys.setprofile(profile)
from vem.cli import main
code = main(["train", DATA, "--steps", "20", "--out", OUT, "--no-cache", "--json"])
sys.setprofile(None)
import json
imported = sorted(name for name in sys.modules if name == "vem" or name.startswith("vem."))
print(json.dumps({"code": code, "imported": imported, "functions": sorted(seen)}))
"""
PLACES = {
    "a method": r"\bawr\b|\bAWR\b",
    "a kind of policy": r"constrained-greedy",
    "an environment family": r"\bHopper",
    "a setting": r"\bleast_plan_steps\b",
    "a file format": r"\.npz[\"']",
}
"""What could be added → how an existing one is named in the sources."""


def count_lines() -> dict[str, tuple[int, int]]:
    """Package → files and lines."""
    counts: dict[str, tuple[int, int]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES).parts
        package = parts[0] if len(parts) > 1 else "(top)"
        files, lines = counts.get(package, (0, 0))
        counts[package] = files + 1, lines + len(path.read_text(encoding="utf-8").splitlines())
    return counts


def count_complexity() -> dict[str, float]:
    """Mean and largest cyclomatic complexity of the functions, as ruff counts it (C901)."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "C901", "--output-format", "json"]
    command += ["--config", "lint.mccabe.max-complexity=0", str(SOURCES)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    numbers = [int(match[1]) for record in found if (match := re.search(r"\((\d+) > 0\)", record["message"]))]
    return {"functions": len(numbers), "mean": sum(numbers) / len(numbers), "largest": max(numbers)}


def places_to_change() -> dict[str, list[str]]:
    """What could be added → the files that name an existing one."""
    texts = {str(path.relative_to(SOURCES)): path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")}
    return {what: sorted(p for p, text in texts.items() if re.search(name, text)) for what, name in PLACES.items()}


def trace_training() -> dict[str, list[str]]:
    """The modules and functions that a training of an HDF5 file imports and runs."""
    import h5py
    import numpy as np

    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.hdf5"
        with h5py.File(data, "w") as file:
            file["observations"] = generator.normal(size=(200, 3)).astype(np.float32)
            file["actions"] = generator.uniform(-1, 1, size=(200, 2)).astype(np.float32)
            file["rewards"] = generator.normal(size=200).astype(np.float32)
            file["terminals"] = np.zeros(200, bool)
            file["timeouts"] = np.arange(200) % 20 == 19
        program = TRACER.replace("DATA", repr(str(data))).replace("OUT", repr(str(Path(folder) / "run")))
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = json.loads(result.stdout.splitlines()[-1])
    run = sorted({module for module, _ in found["functions"]})
    return {"imported": found["imported"], "run": run, "functions": [".".join(name) for name in found["functions"]]}


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    options = parser.parse_args()
    lines, complexity, places, trace = count_lines(), count_complexity(), places_to_change(), trace_training()
    total = Counter[str]()
    for files, number in lines.values():
        total.update(files=files, lines=number)
    if options.json:
        print(
            json.dumps({"packages": lines, "total": total, "complexity": complexity, "places": places, "train": trace})
        )
        return
    for package, (files, number) in [*lines.items(), ("total", (total["files"], total["lines"]))]:
        print(f"{package:12} {files:4} files {number:7,} lines")
    mean, largest = complexity["mean"], complexity["largest"]
    print(f"complexity   {complexity['functions']} functions, mean {mean:.2f}, largest {largest:.0f}")
    for what, files in places.items():
        print(f"to add {what}: {len(files)} ({', '.join(files)})")
    imported, run, functions = (len(trace[name]) for name in ("imported", "run", "functions"))
    print(f"vem train FILE.hdf5 imports {imported} modules, runs {run}, {functions} functions")


if __name__ == "__main__":
    main()
