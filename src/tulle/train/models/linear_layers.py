"""A stack of linear layers with a ReLU between each two."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from tulle.train.contributions import LinearContribution
from tulle.train.models.initial_values import InitialValues


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LinearLayer:
    """z = W a + b."""

    name: str
    weight: Tensor
    """[out, in]."""
    bias: Tensor
    """[out]."""

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Weight and bias by name."""
        return {f"{self.name}.weight": self.weight, f"{self.name}.bias": self.bias}

    def apply(self, inputs: Tensor) -> Tensor:
        """[batch, out]; inputs that are cut off at the end count as zeros."""
        return torch.addmm(self.bias, inputs, self.weight[:, : inputs.shape[1]].t())

    def contribution(self, inputs: Tensor, output_grads: Tensor) -> LinearContribution:
        """What the examples add to the gradients of weight and bias."""
        return LinearContribution(
            weight=f"{self.name}.weight",
            bias=f"{self.name}.bias",
            inputs=inputs,
            output_grads=output_grads,
            num_zero_inputs=self.weight.shape[1] - inputs.shape[1],
        )


def relu_layers(
    tower: str, num_inputs: int, sizes: Sequence[int], initial: InitialValues
) -> tuple[LinearLayer, ...]:
    """Layers of the given sizes that each have a ReLU behind them."""
    layers: list[LinearLayer] = []
    for index, size in enumerate(sizes):
        weight = initial.before_relu(size, num_inputs)
        name = f"{tower}.layer.{index}"
        layers.append(LinearLayer(name=name, weight=weight, bias=initial.zeros(size)))
        num_inputs = size
    return tuple(layers)


def run_layers(layers: Sequence[LinearLayer], inputs: Tensor) -> list[Tensor]:
    """The inputs of every layer, and last the stack's output before any ReLU."""
    values = [inputs]
    for index, layer in enumerate(layers):
        if index:
            values[-1].relu_()
        values.append(layer.apply(values[-1]))
    return values


def layer_output_grads(
    layers: Sequence[LinearLayer], inputs: Sequence[Tensor], last: Tensor
) -> list[Tensor]:
    """The gradients by the output of every layer.

    Args:
      layers: At least one.
      inputs: Of every layer, as `run_layers` gave them.
      last: By the output of the last layer.
    """
    grads = [last]
    for layer, layer_inputs in zip(reversed(layers[1:]), reversed(inputs[1:]), strict=True):
        grads.append(through_relu(grads[-1] @ layer.weight, layer_inputs))
    return grads[::-1]


def through_relu(grads: Tensor, outputs: Tensor) -> Tensor:
    """Gradients by the input of a ReLU, in place of those by its output."""
    # In place: a fresh tensor of a large batch would need fresh pages in every step.
    torch.ops.aten.threshold_backward.grad_input(grads, outputs, 0, grad_input=grads)
    return grads
