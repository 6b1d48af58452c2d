"""Factorization machines: linear terms and all pairwise products of embeddings.

With S the sum of the factors v_f of all features of both roles,
logit = bias + sum of linear terms + (|S|^2 - sum |v_f|^2) / 2. As towers (the
semi-sensitive paper, section 5.1): a role's tower gives the scalar of its linear
terms and its own pairs, and the vector of its sum of factors; the common tower
adds the bias and the product of both vectors. Column 0 of a table holds the
linear terms.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from tulle.data.prepared.format import PreparedFeature
from tulle.privacy.fields import check_count
from tulle.train.contributions import BiasContribution
from tulle.train.gradients import Contribution
from tulle.train.models.embedded_model import BiasedModel, embeddings_and_bias
from tulle.train.models.embeddings import TableSharing
from tulle.train.models.factor_reads import ReadFactors, read_factors
from tulle.train.models.initial_values import InitialValues
from tulle.train.models.settings_fields import (
    check_sharing,
    check_stddev,
)
from tulle.train.models.tower_model import check_towers
from tulle.train.table_reads import BatchReads


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactorizationMachine:
    """Sizes of a factorization machine. Every field is public information."""

    kind: ClassVar[str] = "factorization machine"

    factor_dim: int = 32
    """Of each embedding, without the linear term."""
    tables: TableSharing = TableSharing.AS_PREPARED
    """Which features share rows."""
    initial_stddev: float = 0.01
    """Of factors and linear terms (the semi-sensitive paper, appendix A)."""

    def __post_init__(self) -> None:
        check_count("factor_dim", self.factor_dim)
        object.__setattr__(self, "tables", check_sharing("tables", self.tables))
        check_stddev("initial_stddev", self.initial_stddev)

    def build(
        self,
        features: Sequence[PreparedFeature],
        *,
        seed: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "FactorizationMachineModel":
        """A model with initial values that depend on `seed` and the features alone."""
        parts = embeddings_and_bias(
            features,
            InitialValues(seed, device, dtype),
            dim=1 + self.factor_dim,
            sharing=self.tables,
            stddev=self.initial_stddev,
        )
        return FactorizationMachineModel(*parts)


class FactorizationMachineModel(BiasedModel):
    """The parameters of a factorization machine. Make one with `build`."""

    def forward(
        self, public_ids: Tensor, sensitive_ids: Tensor | None
    ) -> "FactorizationMachineForward":
        """Computes logits; None for sensitive ids is the truncated form.

        Privacy:
          As `TowerModel.forward`.
        """
        return self.forward_reads(self.reads(public_ids, sensitive_ids))

    @torch.no_grad()
    def forward_reads(self, reads: BatchReads) -> "FactorizationMachineForward":
        """Computes logits from rows that were found already.

        Privacy:
          As `TowerModel.forward`.
        """
        roles = {"public": (self._public_rows, reads.public)}
        if reads.sensitive is not None:
            roles["sensitive"] = (self._sensitive_rows, reads.sensitive)
        read = {
            tower: tuple(
                read_factors(found, found.source(tables.parameters[found.table]))
                for found in of_tower
            )
            for tower, (tables, of_tower) in roles.items()
        }
        parts = [part for of_tower in read.values() for part in of_tower]
        if not parts:
            logits = self._bias.repeat(reads.num_rows)
            sums = logits.new_zeros(len(logits), 1)
            return FactorizationMachineForward(logits=logits, read=read, sums=sums)
        sums = parts[0].sums
        for part in parts[1:]:
            sums = sums + part.sums
        logits = torch.linalg.vector_norm(sums[:, 1:], dim=1).square_()
        for part in parts:
            logits -= part.squares
        logits = logits.div_(2).add_(sums[:, 0]).add_(self._bias)
        return FactorizationMachineForward(logits=logits, read=read, sums=sums)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FactorizationMachineForward:
    """One batch that went through a factorization machine."""

    logits: Tensor
    """[batch]: log odds of label 1."""
    read: dict[str, tuple[ReadFactors, ...]]
    """What each tower read; a tower that is cut off is not there."""
    sums: Tensor
    """[batch, 1 + factors]: over all features."""

    @torch.no_grad()
    def backward(self, logit_grads: Tensor, *, towers: frozenset[str]) -> list[Contribution]:
        """What each example adds to the gradients of the parameters of some towers.

        Privacy:
          As `Contribution`: all of it is raw.
        """
        check_towers(towers)
        contributions: list[Contribution] = [
            part.contribution(self.sums, logit_grads)
            for tower, parts in self.read.items()
            if tower in towers
            for part in parts
        ]
        if "common" in towers:
            contributions.append(BiasContribution(name=BiasedModel.BIAS, grads=logit_grads))
        return contributions
