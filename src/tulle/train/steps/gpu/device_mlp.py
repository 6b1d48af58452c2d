"""Passes of a perceptron on a device: products of half precision, norms of single precision.

Every matrix product has inputs of a given type, e.g. bfloat16. What an example adds to a
gradient is a product of what is stored, and its norm is taken from what is stored, so
clipping bounds what is really added; only scaling by the clip factor rounds once more, by
at most 2^-9 of each number, for which `StepSettings.clip_slack` leaves room.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.train.models.contributions import BatchReads, TableReads
from tulle.train.models.mlp import LinearLayer, MLPModel
from tulle.train.steps.gpu.device_rows import DeviceRows
from tulle.train.steps.gpu.layer_ops import (
    add_products,
    exact_product,
    products_backward,
    relu_rows,
    relu_rows_backward,
    scale_rows,
    weighted_rows,
)
from tulle.train.steps.gpu.row_ops import add_table_norms, gather_rows

_ALIGNMENT = 16
"""Bytes that rows of matrices are a multiple of, for the fast products."""


class DevicePerceptron:
    """Forward and backward passes of one model; `DevicePasses`."""

    def __init__(self, model: MLPModel, towers: frozenset[str], dtype: torch.dtype) -> None:
        self._towers, self._dtype = towers, dtype
        self._parameters = model.parameters
        self._stacks = {
            tower: [_Layer(layer, tower, dtype) for layer in layers]
            for tower, layers in model.layers.items()
        }
        self._top: list[_Block] = []
        self._top_weights: list[Tensor] = []
        self._logit_grads = model.output_bias

    def forward(self, reads: BatchReads) -> Tensor:
        """[batch]: logits."""
        blocks = self._tower("public", reads.public, is_first=True)
        blocks += self._tower("sensitive", reads.sensitive or (), is_first=not blocks)
        *hidden, last = self._stacks["common"]
        for layer in hidden:
            blocks = [layer.forward(blocks, is_first=True)]
        self._top = blocks
        logits = last.bias.repeat(reads.num_rows)
        self._top_weights = last.rows_for(blocks)
        for block, weight in zip(blocks, self._top_weights, strict=True):
            add_products(logits, block.values, weight)
        return logits

    def backward(self, logit_grads: Tensor) -> Tensor:
        """[batch]: the squared norm of each example's gradient, over all trained parameters."""
        self._logit_grads = logit_grads
        squares = torch.zeros_like(logit_grads)
        if "common" in self._towers:
            squares += logit_grads.square() * _sum_of_squares(self._top)
        for block, weight in zip(self._top, self._top_weights, strict=True):
            if self._is_trained(block):
                own = torch.empty_like(squares)
                block.grads = products_backward(
                    logit_grads, weight, block.values, own, has_relu=block.layer is not None
                )
                self._below(block, own, squares)
        return squares

    def add_rows(self, factors: Tensor, scale: Tensor, rows: Mapping[str, DeviceRows]) -> None:
        """Adds the clipped gradients of tables.

        Args:
          factors: [batch]: what each example's gradient is multiplied with.
          scale: [1]: what all are multiplied with on top.
          rows: The trained tables.
        """
        for block in self._all_blocks(self._top):
            if block.read is not None and block.grads is not None:
                rows[block.read.table].add_gradient(block.grads, block.read.rows, factors, scale)

    def layer_sums(self, factors: Tensor) -> dict[str, Tensor]:
        """The sums of clipped gradients of all parameters but tables."""
        sums: dict[str, Tensor] = {}
        if "common" in self._towers:
            grads = self._logit_grads.masked_fill(factors == 0, 0) * factors
            parts = [weighted_rows(block.values, grads) for block in self._top]
            name = self._stacks["common"][-1].name
            sums[f"{name}.weight"] = _side_by_side(
                [
                    part[: block.width].unsqueeze(0)
                    for part, block in zip(parts, self._top, strict=True)
                ]
            )
            sums[f"{name}.bias"] = grads.sum().unsqueeze(0)
        for block in self._all_blocks(self._top):
            if block.layer is None or block.grads is None or block.tower not in self._towers:
                continue
            parts = [self._clipped_product(block.grads, feed, factors) for feed in block.inputs]
            # The first input has the 1 that stands for the bias.
            sums[f"{block.layer.name}.bias"] = parts[0][: block.width, block.inputs[0].width]
            sums[f"{block.layer.name}.weight"] = torch.cat(
                [
                    part[: block.width, : feed.width]
                    for part, feed in zip(parts, block.inputs, strict=True)
                ],
                dim=1,
            )
        return sums

    def _tower(self, role: str, reads: Sequence[TableReads], *, is_first: bool) -> "list[_Block]":
        layers = self._stacks[role]
        blocks: list[_Block] = []
        for read in reads:
            has_one = not blocks and (is_first or bool(layers))
            blocks.append(self._look_up(read, role, has_one=has_one))
        for number, layer in enumerate(layers if blocks else [], start=1):
            blocks = [layer.forward(blocks, is_first=is_first or number < len(layers))]
        return blocks

    def _look_up(self, read: TableReads, role: str, *, has_one: bool) -> "_Block":
        table = self._parameters[read.table]
        width = read.rows.shape[1] * table.shape[1]
        shape = (len(read.rows), _padded(width + 1, self._dtype))
        values = torch.empty(shape, dtype=self._dtype, device=table.device)
        squares = table.new_empty(len(read.rows))
        gather_rows(table, read.rows, values, squares, has_one=has_one)
        return _Block(
            tower=role, values=values, width=width, squares=squares, has_one=has_one, read=read
        )

    def _is_trained(self, block: "_Block") -> bool:
        """True if anything that a block was made of is trained."""
        return block.tower in self._towers or any(map(self._is_trained, block.inputs))

    def _below(self, block: "_Block", own: Tensor, squares: Tensor) -> None:
        """Adds the squares of a block's layer, or table, and of all that feed it."""
        if block.grads is None:
            return
        if block.read is not None:
            self._add_table_norms(block.read, block.grads, squares)
        if block.layer is None:
            return
        if block.tower in self._towers:
            squares += own * _sum_of_squares(block.inputs)
        for feed, weight in zip(block.inputs, block.layer.copies, strict=True):
            if self._is_trained(feed):
                feed.grads = block.grads @ weight
                below = torch.empty_like(squares)
                if feed.layer is not None:
                    relu_rows_backward(feed.grads, feed.values, below)
                self._below(feed, below, squares)

    def _add_table_norms(self, read: TableReads, grads: Tensor, squares: Tensor) -> None:
        add_table_norms(squares, grads, read, self._parameters[read.table].shape[1])

    def _clipped_product(self, grads: Tensor, feed: "_Block", factors: Tensor) -> Tensor:
        """Changes the gradients: for a layer of several inputs they are scaled by the first."""
        if feed.has_one:
            scale_rows(grads, feed.values, factors)
        else:
            feed.values.masked_fill_((factors == 0).unsqueeze(1), 0)
        return exact_product(grads, feed.values)

    def _all_blocks(self, blocks: "list[_Block]") -> "list[_Block]":
        found = list(blocks)
        for block in blocks:
            found += self._all_blocks(block.inputs)
        return found


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class _Block:
    """What a table or a layer puts out."""

    tower: str
    values: Tensor
    """[batch, more than width]."""
    width: int
    squares: Tensor
    """[batch]: the squared norm of each row, with the 1 behind it if there is one."""
    has_one: bool
    """True if it is the first input of its layer, and stands for the bias too."""
    read: TableReads | None = None
    layer: "_Layer | None" = None
    inputs: "list[_Block]" = dataclasses.field(default_factory=list)
    """Inputs of the layer."""
    grads: Tensor | None = None
    """Gradients by `values` of a table, or by what the ReLU of a layer was fed."""


class _Layer:
    """A layer with copies of its weight in the type of the products, one for each input."""

    def __init__(self, layer: LinearLayer, tower: str, dtype: torch.dtype) -> None:
        self.name, self.weight, self.bias = layer.name, layer.weight, layer.bias
        self._tower, self._dtype = tower, dtype
        self.copies: list[Tensor] = []
        """[out, in] for each input, both padded."""
        self._padded_bias: Tensor | None = None

    def forward(self, inputs: list[_Block], *, is_first: bool) -> _Block:
        """The ReLU of the layer's output; with a 1 behind it if it is a first input itself."""
        num_outputs = len(self.weight)
        if self._padded_bias is None:
            self._make_copies(inputs, is_first=is_first)
        values: Tensor | None = None
        for block, copy, columns in zip(inputs, self.copies, _columns(inputs), strict=True):
            copy[:num_outputs, : block.width] = self.weight[:, columns]
            if values is None:
                values = block.values @ copy.t()
            else:
                values = torch.addmm(values, block.values, copy.t())
        bias = self._padded_bias
        if values is None or bias is None:
            raise ConfigError("a layer without inputs cannot be recorded.")
        bias[:num_outputs] = self.bias
        squares = self.bias.new_empty(len(values))
        relu_rows(values, bias, squares)
        return _Block(
            tower=self._tower,
            values=values,
            width=num_outputs,
            squares=squares,
            has_one=is_first,
            layer=self,
            inputs=inputs,
        )

    def rows_for(self, blocks: list[_Block]) -> list[Tensor]:
        """The only row of the weight, cut and padded as the inputs are."""
        return [
            torch.nn.functional.pad(
                self.weight[0, columns], (0, block.values.shape[1] - block.width)
            )
            for block, columns in zip(blocks, _columns(blocks), strict=True)
        ]

    def _make_copies(self, inputs: list[_Block], *, is_first: bool) -> None:
        """Memory for the copies; what is behind the weights stays 0 for good."""
        num_outputs = len(self.weight)
        stride = _padded(num_outputs + 1, self._dtype)
        self.copies = [
            torch.zeros(
                (stride, block.values.shape[1]), dtype=self._dtype, device=self.weight.device
            )
            for block in inputs
        ]
        self._padded_bias = self.bias.new_zeros(stride)
        if is_first:
            self._padded_bias[num_outputs : num_outputs + 1].fill_(1)


def _columns(blocks: list[_Block]) -> list[slice]:
    """Which columns of a weight each input meets."""
    found, start = [], 0
    for block in blocks:
        found.append(slice(start, start + block.width))
        start += block.width
    return found


def _side_by_side(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _sum_of_squares(blocks: list[_Block]) -> Tensor:
    total = blocks[0].squares
    for block in blocks[1:]:
        total = total + block.squares
    return total


def _padded(width: int, dtype: torch.dtype) -> int:
    per_row = _ALIGNMENT // torch.empty((), dtype=dtype).element_size()
    return -(-width // per_row) * per_row
