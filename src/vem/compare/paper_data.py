"""The data of the paper's table: which is on this machine, which can be made here, and where the rest comes from."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from vem.compare.mirror import is_address
from vem.data.mazes import write_maze
from vem.data.random_policies import RANDOM_TASKS, write_random
from vem.data.recorder import Report
from vem.data.sources import dataset_files, matches, search_directories
from vem.errors import DataError, SettingsError, VemError
from vem.evaluation.cloned import CLONED_TASKS, write_cloned
from vem.tasks import TASKS, d4rl_file

OWN_TASK = "pointmaze-large"
"""A line of our own below the paper's: its data needs no foreign file."""
PAPER_TASKS = (*(name for name, task in TASKS.items() if task.paper_scores), OWN_TASK)
HANDS = ("door", "hammer", "relocate", "pen")


class PaperData(NamedTuple):
    """A dataset of the table."""

    name: str
    files: list[str]
    """Where it is on this machine, the file that is used first."""
    command: str | None
    """What makes it here, if anything does."""
    advice: str
    """How to get it otherwise; empty where nothing else is needed."""
    origin: str | None = None
    """The file that it is made from, if any."""
    source: str = ""
    """What ``vem.load`` takes for it, if it is here: its name where that is enough."""

    @property
    def state(self) -> Literal["here", "to make", "absent"]:
        """Whether it is here, can be made here, or has to be brought."""
        return "here" if self.files else "to make" if self.command else "absent"

    @property
    def text(self) -> str:
        """How to get what is not here."""
        return f"make it: {self.command}" if self.command else self.advice


def made_place(out: str | Path, data_dir: str | None = None) -> Path:
    """Where made data goes: the data directory if one is given, else ``data`` below ``out``."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if is_address(out):
        raise SettingsError(f"data cannot be made at {out}; give a folder for it with --data-dir DIR")
    return Path(out) / "data"


def paper_data(out: str | Path, data_dir: str | None = None) -> list[PaperData]:
    """The datasets of the table, in the paper's order."""
    place = None if is_address(out) and data_dir is None else made_place(out, data_dir)
    files = dataset_files(data_dir)
    if place is not None and place not in search_directories(data_dir):
        files += dataset_files(place)
    files = list(dict.fromkeys(files))
    found = {name: [str(path) for path in files if matches(name, path)] for name in TASKS}
    named = set(search_directories(data_dir))
    entries = []
    for name in PAPER_TASKS:
        is_named = name != OWN_TASK and any(Path(file).parent in named for file in found[name])
        source = name if is_named else next(iter(found[name]), "")
        entries.append(_entry(name, found, place or Path())._replace(source=source))
    return entries


def _entry(name: str, found: dict[str, list[str]], place: Path) -> PaperData:
    out = shlex.quote(str(place / f"{name}.hdf5"))
    file = d4rl_file(name)
    if name in RANDOM_TASKS or name == OWN_TASK:
        return PaperData(name, found[name], f"vem data make {name} --out {out}", "")
    if name in CLONED_TASKS:
        human = name.replace("-cloned", "-human")
        if found[human]:
            origin = found[human][0]
            command = f"vem data make {name} --from {shlex.quote(origin)} --out {out}"
            return PaperData(name, found[name], command, "", origin)
        return PaperData(name, found[name], None, f"D4RL's {file}; or make it from {human}, once that is here")
    if name.startswith("antmaze-"):
        walking = f"vem data make {name} --walker FILE --out {out}, with a policy that walks"
        return PaperData(name, found[name], None, f"D4RL's {file}; or {walking}")
    advice = f"D4RL's {file}"
    if (hand := name.split("-")[0]) in HANDS:
        kind = name.removeprefix(f"{hand}-")
        advice += f"; Minari has D4RL/{hand}/{kind}-v2 with other rewards: vem compare minari:… --task {name}"
    return PaperData(name, found[name], None, advice)


def make_missing(
    entries: Iterable[PaperData],
    place: Path,
    say: Callable[[str], None],
    report: Report = lambda what, done, total: None,
    num_rows: int | None = None,
) -> dict[str, str]:
    """Make what can be made into ``place``; name → why, for what failed. An interrupted recording goes on."""
    failures = {}
    for entry in entries:
        if entry.state != "to make":
            continue
        path = place / f"{entry.name}.hdf5"
        say(f"{entry.name}: making {path}")
        try:
            _make(entry, path, report, {} if num_rows is None else {"num_rows": num_rows})
        except VemError as error:
            failures[entry.name] = str(error)
            say(f"{entry.name}: failed: {error}")
    return failures


def _make(entry: PaperData, path: Path, report: Report, given: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path.parent} cannot be made ({error.strerror or error}); give another --data-dir") from None
    if entry.name in RANDOM_TASKS:
        write_random(path, entry.name, **given, report=report)
    elif entry.origin is not None:
        write_cloned(path, entry.name, entry.origin, **given, report=report)
    else:
        write_maze(path, entry.name, **given)
