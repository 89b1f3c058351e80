"""Files and arrays → Dataset."""

from vem.data.arrays import from_arrays
from vem.data.dataset import DataInfo, Dataset
from vem.data.description import Description, describe
from vem.data.sources import load

__all__ = ["DataInfo", "Dataset", "Description", "describe", "from_arrays", "load"]
