"""Gradients of a batch, and what each example adds to them.

DP-SGD needs the norm of each example's gradient and a weighted sum of all of
them, never the gradients themselves. A `Contribution` gives both from what one
backward pass leaves behind. The gradient of an example is the concatenation of
its parts in all contributions of a pass; each parameter is in exactly one.
"""

import dataclasses
from typing import Protocol

from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DenseGradient:
    """The gradient of a whole parameter."""

    name: str
    values: Tensor
    """Of the parameter's shape."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowGradient:
    """The gradient of a table of which few rows were read; all others have zero."""

    name: str
    rows: Tensor
    """int64, distinct, in order."""
    values: Tensor
    """[rows, dim]."""


Gradient = DenseGradient | RowGradient


class Contribution(Protocol):
    """What the examples of a batch add to the gradients of some parameters.

    Privacy:
      Everything it returns is raw. Clip by the norms over all contributions
      together, sum, and add noise before anything leaves the process.
    """

    def squared_norms(self) -> Tensor:
        """[batch]: the squared L2 norm of each example's part."""
        ...

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        """[pairs]: the inner product of the parts of examples left[i] and right[i]."""
        ...

    def weighted_sum(self, weights: Tensor) -> list[Gradient]:
        """The sum over examples of weights[i] times the part of example i."""
        ...
