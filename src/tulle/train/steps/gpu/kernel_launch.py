"""How work gets to the kernels of a GPU."""

import importlib.util

from torch import Tensor


def uses_kernels(values: Tensor) -> bool:
    """True if work on a tensor is done by Triton kernels: it is on a GPU."""
    return values.is_cuda


def has_kernels() -> bool:
    """True if the kernels can be compiled: triton comes with torch's CUDA builds for Linux."""
    return importlib.util.find_spec("triton") is not None


def block_space(size: int) -> int:
    """The least power of 2 that is not smaller: blocks of a kernel have such sizes."""
    return 1 << max(0, size - 1).bit_length()


def num_blocks(size: int, block: int) -> int:
    """How many blocks cover a size."""
    return -(-size // block)
