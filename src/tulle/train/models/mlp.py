"""Multilayer perceptrons over embeddings, in three towers.

Each role's embeddings are concatenated and go through its tower's ReLU layers,
if it has any. Both towers' outputs are concatenated and go through the common
ReLU layers and one linear output.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from tulle.data.prepared.format import PreparedFeature
from tulle.train.gradients import Contribution
from tulle.train.models.embedded_model import EmbeddedModel
from tulle.train.models.embeddings import (
    FOURTH_ROOT,
    EmbeddingDim,
    Lookup,
    RoleEmbeddings,
    TableSharing,
    build_embeddings,
    check_embedding_dim,
    flat_values,
    table_contributions,
)
from tulle.train.models.initial_values import InitialValues
from tulle.train.models.linear_layers import (
    LinearLayer,
    layer_output_grads,
    relu_layers,
    run_layers,
    through_relu,
)
from tulle.train.models.settings_fields import (
    check_features,
    check_sharing,
    check_sizes,
    check_stddev,
)
from tulle.train.models.tower_model import check_towers
from tulle.train.table_reads import BatchReads, TableReads


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLP:
    """Sizes of a multilayer perceptron. Every field is public information."""

    kind: ClassVar[str] = "mlp"

    embedding_dim: EmbeddingDim = 32
    """A number, or "fourth root" for int(2 V^0.25) by table of V rows."""
    tables: TableSharing = TableSharing.AS_PREPARED
    """Which features share embedding rows."""
    public_hidden: tuple[int, ...] = (256,)
    """Sizes of the public tower's layers."""
    sensitive_hidden: tuple[int, ...] = ()
    """Sizes of the sensitive tower's layers."""
    common_hidden: tuple[int, ...] = (256, 256)
    """Sizes of the common tower's layers, without the output."""
    initial_stddev: float = 0.01
    """Of the embeddings."""

    def __post_init__(self) -> None:
        check_embedding_dim("embedding_dim", self.embedding_dim)
        object.__setattr__(self, "tables", check_sharing("tables", self.tables))
        for name in ("public_hidden", "sensitive_hidden", "common_hidden"):
            object.__setattr__(self, name, check_sizes(name, getattr(self, name)))
        check_stddev("initial_stddev", self.initial_stddev)

    @classmethod
    def semi_sensitive_search(cls) -> "MLP":
        """The semi-sensitive paper on the Sponsored Search log (appendix A)."""
        return cls()

    @classmethod
    def semi_sensitive_display(cls) -> "MLP":
        """The semi-sensitive paper on the Display log (appendix A)."""
        return cls(public_hidden=(598,), common_hidden=(598, 598))

    @classmethod
    def hybrid_display(cls) -> "MLP":
        """The hybrid paper on the Display log, with numbers as buckets, not as inputs."""
        return cls(
            embedding_dim=FOURTH_ROOT,
            tables=TableSharing.PER_FEATURE,
            public_hidden=(),
            common_hidden=(598, 598, 598, 598),
        )

    @classmethod
    def hybrid_attribution(cls) -> "MLP":
        """The hybrid paper on the Attribution log, with numbers as buckets, not as inputs."""
        return cls(
            embedding_dim=8,
            tables=TableSharing.PER_FEATURE,
            public_hidden=(),
            common_hidden=(128, 64),
        )

    def build(
        self,
        features: Sequence[PreparedFeature],
        *,
        seed: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "MLPModel":
        """A model with initial values that depend on `seed` and the features alone."""
        check_features(features)
        initial = InitialValues(seed, device, dtype)
        public = self._tower("public", features, self.public_hidden, initial)
        sensitive = self._tower("sensitive", features, self.sensitive_hidden, initial)
        num_inputs = public.width + sensitive.width
        hidden = relu_layers("common", num_inputs, self.common_hidden, initial)
        output = LinearLayer(
            name=f"common.layer.{len(hidden)}",
            weight=initial.linear(1, self.common_hidden[-1] if hidden else num_inputs),
            bias=initial.zeros(1),
        )
        return MLPModel(public, sensitive, (*hidden, output))

    def _tower(
        self,
        role: str,
        features: Sequence[PreparedFeature],
        hidden: tuple[int, ...],
        initial: InitialValues,
    ) -> "_RoleTower":
        embeddings = build_embeddings(
            role,
            features,
            dim=self.embedding_dim,
            sharing=self.tables,
            stddev=self.initial_stddev,
            initial=initial,
        )
        sizes = hidden if embeddings.width else ()
        return _RoleTower(embeddings, relu_layers(role, embeddings.width, sizes, initial))


class MLPModel(EmbeddedModel):
    """The parameters of an MLP. Make one with `MLP(...).build(...)`."""

    def __init__(
        self, public: "_RoleTower", sensitive: "_RoleTower", common: tuple[LinearLayer, ...]
    ) -> None:
        super().__init__(public.embeddings, sensitive.embeddings)
        self._public = public
        self._sensitive = sensitive
        self._common = common

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
        """Those of each tower, in order; the last common one puts out the logit."""
        return {
            "public": self._public.layers,
            "sensitive": self._sensitive.layers,
            "common": self._common,
        }

    def forward(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> "MLPForward":
        """Computes logits; None for sensitive ids is the truncated form.

        Privacy:
          As `TowerModel.forward`.
        """
        return self.forward_reads(self.reads(public_ids, sensitive_ids))

    @torch.no_grad()
    def forward_reads(self, reads: BatchReads) -> "MLPForward":
        """Computes logits from rows that were found already.

        Privacy:
          As `TowerModel.forward`.
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
          As `Contribution`: all of it is raw.
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
    """Of every layer."""
    outputs: list[Tensor]
    """Side by side they are the tower's output."""

    @property
    def width(self) -> int:
        return sum(output.shape[1] for output in self.outputs)

    def backward(self, grads: Tensor) -> list[Contribution]:
        """Contributions from the gradient by the tower's output."""
        if not self.layers:
            return [*table_contributions(self.lookups, grads)]
        last = through_relu(grads, self.outputs[0])
        output_grads = layer_output_grads(self.layers, self.inputs, last)
        below = table_contributions(self.lookups, output_grads[0] @ self.layers[0].weight)
        return [*below, *map(LinearLayer.contribution, self.layers, self.inputs, output_grads)]
