"""Logistic regression: a bias and one weight for every id."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from tulle.data.prepared.format import PreparedFeature
from tulle.train.contributions import BiasContribution
from tulle.train.gradients import Contribution
from tulle.train.models.embedded_model import BiasedModel, embeddings_and_bias
from tulle.train.models.embeddings import (
    Lookup,
    TableSharing,
)
from tulle.train.models.initial_values import InitialValues
from tulle.train.models.settings_fields import (
    check_sharing,
    check_stddev,
)
from tulle.train.models.tower_model import check_towers
from tulle.train.table_reads import BatchReads


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogisticRegression:
    """Settings of a logistic regression. Every field is public information."""

    kind: ClassVar[str] = "logistic regression"

    tables: TableSharing = TableSharing.AS_PREPARED
    """Which features share weights."""
    initial_stddev: float = 0.0
    """Of the weights; zero is as good as any, the loss is convex."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", check_sharing("tables", self.tables))
        check_stddev("initial_stddev", self.initial_stddev, may_be_zero=True)

    def build(
        self,
        features: Sequence[PreparedFeature],
        *,
        seed: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "LogisticRegressionModel":
        """A model with initial values that depend on `seed` and the features alone."""
        parts = embeddings_and_bias(
            features,
            InitialValues(seed, device, dtype),
            dim=1,
            sharing=self.tables,
            stddev=self.initial_stddev,
        )
        return LogisticRegressionModel(*parts)


class LogisticRegressionModel(BiasedModel):
    """The parameters of a logistic regression. Make one with `build`."""

    def forward(
        self, public_ids: Tensor, sensitive_ids: Tensor | None
    ) -> "LogisticRegressionForward":
        """Computes logits; None for sensitive ids is the truncated form.

        Privacy:
          As `TowerModel.forward`.
        """
        return self.forward_reads(self.reads(public_ids, sensitive_ids))

    @torch.no_grad()
    def forward_reads(self, reads: BatchReads) -> "LogisticRegressionForward":
        """Computes logits from rows that were found already.

        Privacy:
          As `TowerModel.forward`.
        """
        lookups = self._look_up(reads)
        logits = self._bias.repeat(reads.num_rows)
        for found in lookups.values():
            for lookup in found:
                logits += lookup.values.sum((1, 2))
        return LogisticRegressionForward(logits=logits, lookups=lookups)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LogisticRegressionForward:
    """One batch that went through a logistic regression."""

    logits: Tensor
    """[batch]: log odds of label 1."""
    lookups: dict[str, tuple[Lookup, ...]]
    """What each tower read; a tower that is cut off is not there."""

    @torch.no_grad()
    def backward(self, logit_grads: Tensor, *, towers: frozenset[str]) -> list[Contribution]:
        """What each example adds to the gradients of the parameters of some towers.

        Privacy:
          As `Contribution`: all of it is raw.
        """
        check_towers(towers)
        contributions: list[Contribution] = []
        for tower, lookups in self.lookups.items():
            if tower in towers:
                contributions += [
                    lookup.contribution(logit_grads[:, None, None].expand_as(lookup.values))
                    for lookup in lookups
                ]
        if "common" in towers:
            contributions.append(BiasContribution(name=BiasedModel.BIAS, grads=logit_grads))
        return contributions
