"""How exact the matrix products of recorded steps are."""

import enum

import torch


class Products(enum.Enum):
    """Precision of matrix products on a GPU. Norms and noise are of single precision in any case.

    Changes speed and rounding alone: what is clipped is what is really added, and clipping
    leaves room for what rounding adds after it.
    """

    HALF = "bfloat16"
    """Inputs of 8 significant bits; twice as fast."""
    SINGLE = "tf32"
    """Inputs of 11 significant bits."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the inputs in memory."""
        return torch.bfloat16 if self is Products.HALF else torch.float32
