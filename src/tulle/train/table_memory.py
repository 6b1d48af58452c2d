"""Memory for tensors that are read row by row, anywhere in them.

A table of millions of rows has more small pages than a processor keeps addresses of, so that
most reads of a row first look one up. On Linux numpy asks for large pages for what it
allocates, and torch does not: measured, gathers and updates of rows take a third less time.
"""

import numpy as np
import torch
from torch import Tensor

_NUMPY_TYPES = {torch.float32: np.float32, torch.float64: np.float64}


def table_empty(num_rows: int, dim: int, dtype: torch.dtype) -> Tensor:
    """A table on the CPU whose values are still to be written."""
    if dtype not in _NUMPY_TYPES:
        return torch.empty(num_rows, dim, dtype=dtype)
    return torch.from_numpy(np.empty((num_rows, dim), _NUMPY_TYPES[dtype]))


def zeros_like_table(table: Tensor) -> Tensor:
    """Zeros of the shape, type and device of a table, in memory of their own."""
    if table.device.type != "cpu" or table.dtype not in _NUMPY_TYPES:
        return torch.zeros_like(table)
    return torch.from_numpy(np.zeros(tuple(table.shape), _NUMPY_TYPES[table.dtype]))
