"""Files and arrays → Dataset."""

from vem.data.arrays import from_arrays
from vem.data.dataset import DataInfo, Dataset
from vem.data.description import Description, describe
from vem.data.mapping import TableMap
from vem.data.sources import load
from vem.data.tables import from_table

__all__ = ["DataInfo", "Dataset", "Description", "TableMap", "describe", "from_arrays", "from_table", "load"]
