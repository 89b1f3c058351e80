"""Fills in what the commands of a page print: python docs/outputs.py (own-logs.md, a minute of training).

What stands between <!-- output: COMMAND --> and <!-- /output --> is made anew by running the commands one after
another in an empty folder. ``python`` and ``vem`` are those that run this file.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "own-logs.md"
PART = re.compile(r"(<!-- output: (.*?) -->\n).*?(<!-- /output -->)", re.DOTALL)


def commands(text: str) -> list[str]:
    """The commands whose output a page shows, in order."""
    return [match[2] for match in PART.finditer(text)]


def run(command: str, folder: Path) -> str:
    """What a command prints; RuntimeError if it fails."""
    words = shlex.split(command)
    programs = {"python": [sys.executable], "vem": [sys.executable, "-m", "vem"]}
    words = [*programs[words[0]], *(str(ROOT / word) if word.startswith("examples/") else word for word in words[1:])]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "COLUMNS": "100"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stderr}")
    lines = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    return "\n".join(lines).replace(str(folder) + os.sep, "")


def filled(text: str, folder: Path) -> str:
    """The page with every output made anew."""
    return PART.sub(lambda match: f"{match[1]}\n```text\n{run(match[2], folder)}\n```\n\n{match[3]}", text)


def main() -> None:
    """Fill the page in place."""
    with tempfile.TemporaryDirectory() as folder:
        text = filled(PAGE.read_text(encoding="utf-8"), Path(folder).resolve())
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
