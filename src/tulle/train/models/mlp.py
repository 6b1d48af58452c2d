"""Multilayer perceptrons over embeddings, in three towers.

Each role's embeddings are concatenated and go through its tower's ReLU layers,
if it has any. Both towers' outputs are concatenated and go through the common
ReLU layers and one linear output.
"""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from tulle.train.models.contributions import (
    BatchReads,
    Contribution,
    LinearContribution,
    TableReads,
)
from tulle.train.models.exported_model import run_layers
from tulle.train.models.tower_model import (
    EmbeddedModel,
    InitialValues,
    Lookup,
    RoleEmbeddings,
    build_embeddings,
    check_towers,
    flat_values,
    table_contributions,
)
from tulle.train.settings.models import MLP, TableLayout, TowerLayout


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
    """Layers of the given sizes that each have a ReLU behind them.

    Args:
      tower: Name of the tower, with which the names of parameters begin.
      num_inputs: Number of inputs of the first layer.
      sizes: Number of outputs of each layer.
      initial: Source of the first weights.
    """
    layers: list[LinearLayer] = []
    for index, size in enumerate(sizes):
        weight = initial.before_relu(size, num_inputs)
        name = f"{tower}.layer.{index}"
        layers.append(LinearLayer(name=name, weight=weight, bias=initial.zeros(size)))
        num_inputs = size
    return tuple(layers)


def layer_output_grads(
    layers: Sequence[LinearLayer], inputs: Sequence[Tensor], last: Tensor
) -> list[Tensor]:
    """The gradients by the output of every layer.

    Args:
      layers: One layer or more, in order.
      inputs: Inputs of every layer, as `run_layers` gave them.
      last: Gradients by the output of the last layer.
    """
    grads = [last]
    for layer, layer_inputs in zip(reversed(layers[1:]), reversed(inputs[1:]), strict=True):
        # What comes out of a ReLU is positive just where what goes in is, so that outputs suffice.
        grads.append(through_relu(grads[-1] @ layer.weight, layer_inputs))
    return grads[::-1]


def through_relu(grads: Tensor, outputs: Tensor) -> Tensor:
    """Gradients by the input of a ReLU, in place of those by its output."""
    # In place: a fresh tensor of a large batch would need fresh pages in every step.
    torch.ops.aten.threshold_backward.grad_input(grads, outputs, 0, grad_input=grads)
    return grads


class MLPModel(EmbeddedModel):
    """The parameters of an MLP. Make one with `MLP().build()`."""

    def __init__(
        self, public: "_RoleTower", sensitive: "_RoleTower", common: tuple[LinearLayer, ...]
    ) -> None:
        super().__init__(public.embeddings, sensitive.embeddings)
        self._public = public
        self._sensitive = sensitive
        self._common = common

    @classmethod
    def of(cls, settings: MLP, layout: TowerLayout, initial: InitialValues) -> "MLPModel":
        """Makes a model with initial parameters.

        Args:
          settings: Sizes of the layers.
          layout: Tables of the embeddings.
          initial: Draws the parameters.
        """
        public, sensitive = (
            _initial_tower(role, layout[role], hidden, settings.initial_stddev, initial)
            for role, hidden in (
                ("public", settings.public_hidden),
                ("sensitive", settings.sensitive_hidden),
            )
        )
        num_inputs = public.width + sensitive.width
        hidden = relu_layers("common", num_inputs, settings.common_hidden, initial)
        output = LinearLayer(
            name=f"common.layer.{len(hidden)}",
            weight=initial.linear(1, settings.common_hidden[-1] if hidden else num_inputs),
            bias=initial.zeros(1),
        )
        return cls(public, sensitive, (*hidden, output))

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Every parameter by name; change them in place only."""
        found = self._public.parameters | self._sensitive.parameters
        for layer in self._common:
            found |= layer.parameters
        return found

    @property
    def output_bias(self) -> Tensor:
        """[1]: the parameter that is added to every logit."""
        return self._common[-1].bias

    @property
    def layers(self) -> dict[str, tuple[LinearLayer, ...]]:
        """Layers of each tower, in order; the last common one puts out the logit."""
        return {
            "public": self._public.layers,
            "sensitive": self._sensitive.layers,
            "common": self._common,
        }

    @torch.no_grad()
    def forward_reads(self, reads: BatchReads) -> "MLPForward":
        """Computes logits from rows that were found already.

        Privacy:
          The same as for `TowerModel.forward`.
        """
        public = self._public.forward(reads.public)
        sensitive = None if reads.sensitive is None else self._sensitive.forward(reads.sensitive)
        pieces = public.outputs + (sensitive.outputs if sensitive else [])
        if len(pieces) == 1:
            inputs = pieces[0]
        elif pieces:
            inputs = torch.cat(pieces, dim=1)
        else:
            inputs = self._common[0].weight.new_empty(reads.num_rows, 0)
        return MLPForward(
            common=self._common,
            public=public,
            sensitive=sensitive,
            values=run_layers(self._common, inputs),
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MLPForward:
    """One batch that went through an MLP."""

    common: tuple[LinearLayer, ...]
    public: "_TowerPass"
    sensitive: "_TowerPass | None"
    values: list[Tensor]
    """Inputs of every common layer, and the logits as a column."""

    @property
    def logits(self) -> Tensor:
        """[batch]: log odds of label 1."""
        return self.values[-1].squeeze(1)

    @torch.no_grad()
    def backward(self, logit_grads: Tensor, *, towers: frozenset[str]) -> list[Contribution]:
        """What each example adds to the gradients of the parameters of some towers.

        Privacy:
          The same as for `Contribution`: all of it is raw.
        """
        check_towers(towers)
        inputs = self.values[:-1]
        grads = layer_output_grads(self.common, inputs, logit_grads.unsqueeze(1))
        contributions: list[Contribution] = []
        weight = self.common[0].weight
        width = self.public.width
        if "public" in towers and width:
            contributions += self.public.backward(grads[0] @ weight[:, :width])
        if "sensitive" in towers and self.sensitive is not None and self.sensitive.width:
            contributions += self.sensitive.backward(grads[0] @ weight[:, width:])
        if "common" in towers:
            contributions += map(LinearLayer.contribution, self.common, inputs, grads)
        return contributions


def _initial_tower(
    role: str,
    layout: Sequence[TableLayout],
    hidden: tuple[int, ...],
    stddev: float,
    initial: InitialValues,
) -> "_RoleTower":
    embeddings = build_embeddings(layout, stddev=stddev, initial=initial)
    # Layers without inputs would put out their biases, the same for every example.
    sizes = hidden if embeddings.width else ()
    return _RoleTower(embeddings, relu_layers(role, embeddings.width, sizes, initial))


class _RoleTower:
    """The embeddings of a role and the layers above them."""

    def __init__(self, embeddings: RoleEmbeddings, layers: tuple[LinearLayer, ...]) -> None:
        self.embeddings = embeddings
        self.layers = layers

    @property
    def parameters(self) -> dict[str, Tensor]:
        found = self.embeddings.parameters
        for layer in self.layers:
            found |= layer.parameters
        return found

    @property
    def width(self) -> int:
        return len(self.layers[-1].bias) if self.layers else self.embeddings.width

    def forward(self, reads: tuple[TableReads, ...]) -> "_TowerPass":
        lookups = self.embeddings.look_up(reads)
        outputs = flat_values(lookups)
        if not self.layers:
            return _TowerPass(layers=(), lookups=lookups, inputs=[], outputs=outputs)
        inputs = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
        values = run_layers(self.layers, inputs)
        last = values.pop().relu_()
        return _TowerPass(layers=self.layers, lookups=lookups, inputs=values, outputs=[last])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _TowerPass:
    """One batch that went through a role's tower."""

    layers: tuple[LinearLayer, ...]
    lookups: tuple[Lookup, ...]
    inputs: list[Tensor]
    """Inputs of every layer."""
    outputs: list[Tensor]
    """Side by side they are the tower's output."""

    @property
    def width(self) -> int:
        return sum(output.shape[1] for output in self.outputs)

    def backward(self, grads: Tensor) -> list[Contribution]:
        """Contributions from the gradient by the tower's output."""
        if not self.layers:
            return [*table_contributions(self.lookups, grads)]
        # May be written over: `grads` is a product that was made for this call.
        last = through_relu(grads, self.outputs[0])
        output_grads = layer_output_grads(self.layers, self.inputs, last)
        below = table_contributions(self.lookups, output_grads[0] @ self.layers[0].weight)
        return [*below, *map(LinearLayer.contribution, self.layers, self.inputs, output_grads)]
