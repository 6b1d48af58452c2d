"""Logistic regression: a bias and one weight for every id."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from tulle.data.prepared.format import PreparedFeature
from tulle.train.contributions import BiasContribution
from tulle.train.gradients import Contribution
from tulle.train.models.embeddings import (
    Lookup,
    RoleEmbeddings,
    TableSharing,
    build_embeddings,
)
from tulle.train.models.initial_values import InitialValues
from tulle.train.models.settings_fields import (
    check_features,
    check_sharing,
    check_stddev,
    settings_to_dict,
)
from tulle.train.models.tower_model import check_towers
from tulle.train.table_reads import BatchReads
from tulle.train.tagged_settings import settings_of_kind

_BIAS = "common.bias"


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
        check_features(features)
        initial = InitialValues(seed, device, dtype)
        public, sensitive = (
            build_embeddings(
                role,
                features,
                dim=1,
                sharing=self.tables,
                stddev=self.initial_stddev,
                initial=initial,
            )
            for role in ("public", "sensitive")
        )
        return LogisticRegressionModel(public, sensitive, initial.zeros(1))

    def to_dict(self) -> dict[str, object]:
        """Plain data with the key `kind`."""
        return settings_to_dict(self)

    @classmethod
    def from_dict(cls, data: object) -> "LogisticRegression":
        """Reads what `to_dict` wrote; a key that is left out has its default."""
        return settings_of_kind(cls, data)


class LogisticRegressionModel:
    """The parameters of a logistic regression. Make one with `build`."""

    def __init__(self, public: RoleEmbeddings, sensitive: RoleEmbeddings, bias: Tensor) -> None:
        self._public = public
        self._sensitive = sensitive
        self._bias = bias

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Every parameter by name; change them in place only."""
        return self._public.parameters | self._sensitive.parameters | {_BIAS: self._bias}

    @property
    def output_bias(self) -> Tensor:
        """[1]: the parameter that is added to every logit."""
        return self._bias

    @property
    def tables(self) -> frozenset[str]:
        """Names of the parameters of which an example reads few rows."""
        return frozenset(self._public.parameters | self._sensitive.parameters)

    def forward(
        self, public_ids: Tensor, sensitive_ids: Tensor | None
    ) -> "LogisticRegressionForward":
        """Computes logits; None for sensitive ids is the truncated form.

        Privacy:
          As `TowerModel.forward`.
        """
        return self.forward_reads(self.reads(public_ids, sensitive_ids))

    def reads(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> BatchReads:
        """Which rows of its tables the model would read.

        Privacy:
          As sensitive as the ids.
        """
        return BatchReads(
            num_rows=len(public_ids),
            public=self._public.reads(public_ids),
            sensitive=None if sensitive_ids is None else self._sensitive.reads(sensitive_ids),
        )

    @torch.no_grad()
    def forward_reads(self, reads: BatchReads) -> "LogisticRegressionForward":
        """Computes logits from rows that were found already.

        Privacy:
          As `TowerModel.forward`.
        """
        lookups = {"public": self._public.look_up(reads.public)}
        if reads.sensitive is not None:
            lookups["sensitive"] = self._sensitive.look_up(reads.sensitive)
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
            contributions.append(BiasContribution(name=_BIAS, grads=logit_grads))
        return contributions
