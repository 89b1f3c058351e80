"""Files and arrays → Dataset."""

from vem.data.arrays import from_arrays
from vem.data.dataset import DataInfo, Dataset
from vem.data.sources import load

__all__ = ["DataInfo", "Dataset", "from_arrays", "load"]
