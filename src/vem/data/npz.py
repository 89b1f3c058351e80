"""NumPy ``.npz`` archives with D4RL's column names → Dataset, never unpickling anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vem.data.arrays import from_arrays
from vem.data.checks import located, resembling_names
from vem.data.dataset import Dataset
from vem.data.files import MOST_COMPRESSION, require_file
from vem.data.hdf5 import NEEDED, OPTIONAL
from vem.errors import DataError


def read_npz(path: str | Path, **rules: Any) -> Dataset:
    """The Dataset in an ``.npz`` with the columns of ``from_arrays``, whose rules ``rules`` are."""
    path = Path(path)
    require_file(path)
    with located(str(path)):
        columns, remarks = _columns(path)
        return from_arrays(**columns, source=str(path), remarks=remarks, **{"name": path.stem, **rules})


def _columns(path: Path) -> tuple[dict[str, np.ndarray | None], list[str]]:
    """The columns that are known, and what there is to say about the others."""
    key = ""
    try:
        # NumPy leaves a damaged file open, so it is opened here.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError("the file is a single array, not an .npz archive; write it with numpy.savez.")
            missing = [needed for needed in NEEDED if needed not in archive]
            if missing:
                raise DataError(
                    f"column '{missing[0]}' is missing; the file holds "
                    f"{', '.join(archive.files[:12]) or 'nothing'}, and {', '.join(NEEDED)} are needed."
                )
            claimed = sum(member.file_size for member in (archive.zip.infolist() if archive.zip else ()))
            if claimed > MOST_COMPRESSION * path.stat().st_size:
                raise DataError(f"the file claims {claimed:,} bytes, more than it can hold; it is damaged.")
            columns = {}
            for key in (*NEEDED, *OPTIONAL):
                columns[key] = archive.get(key)
            return columns, resembling_names(archive.files, columns)
    except DataError:
        raise
    except Exception as error:  # whatever NumPy and zipfile make of damaged bytes
        if "allow_pickle" in str(error) and key:
            raise DataError(
                f"column '{key}' holds Python objects, which are never unpickled; save plain number arrays."
            ) from None
        where = f"column '{key}'" if key else "the file"
        raise DataError(
            f"{where} is no .npz data, or is damaged or cut short ({error or type(error).__name__}); save it again."
        ) from None
