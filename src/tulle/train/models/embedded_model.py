"""What all models have in common: public and sensitive embeddings, read row by row."""

from collections.abc import Sequence

from torch import Tensor

from tulle.data.prepared.format import PreparedFeature
from tulle.train.models.embeddings import (
    Lookup,
    RoleEmbeddings,
    TableSharing,
    build_embeddings,
)
from tulle.train.models.initial_values import InitialValues
from tulle.train.models.settings_fields import check_features
from tulle.train.table_reads import BatchReads


class EmbeddedModel:
    """The embeddings of a model; MLP, factorization machine and logistic regression are ones."""

    def __init__(self, public_rows: RoleEmbeddings, sensitive_rows: RoleEmbeddings) -> None:
        self._public_rows = public_rows
        self._sensitive_rows = sensitive_rows

    @property
    def tables(self) -> frozenset[str]:
        """Names of the parameters of which an example reads few rows."""
        return frozenset(self._public_rows.parameters | self._sensitive_rows.parameters)

    def reads(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> BatchReads:
        """Which rows of its tables the model would read.

        Privacy:
          As sensitive as the ids.
        """
        sensitive = self._sensitive_rows
        return BatchReads(
            num_rows=len(public_ids),
            public=self._public_rows.reads(public_ids),
            sensitive=None if sensitive_ids is None else sensitive.reads(sensitive_ids),
        )


class BiasedModel(EmbeddedModel):
    """Embeddings and one bias: all parameters of a model without layers."""

    BIAS = "common.bias"

    def __init__(
        self, public_rows: RoleEmbeddings, sensitive_rows: RoleEmbeddings, bias: Tensor
    ) -> None:
        super().__init__(public_rows, sensitive_rows)
        self._bias = bias

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Every parameter by name; change them in place only."""
        rows = self._public_rows.parameters | self._sensitive_rows.parameters
        return rows | {self.BIAS: self._bias}

    @property
    def output_bias(self) -> Tensor:
        """[1]: the parameter that is added to every logit."""
        return self._bias

    def _look_up(self, reads: BatchReads) -> dict[str, tuple[Lookup, ...]]:
        """What each tower reads; a tower that is cut off is not there."""
        lookups = {"public": self._public_rows.look_up(reads.public)}
        if reads.sensitive is not None:
            lookups["sensitive"] = self._sensitive_rows.look_up(reads.sensitive)
        return lookups


def embeddings_and_bias(
    features: Sequence[PreparedFeature],
    initial: InitialValues,
    *,
    dim: int,
    sharing: TableSharing,
    stddev: float,
) -> tuple[RoleEmbeddings, RoleEmbeddings, Tensor]:
    """The parameters of a `BiasedModel`, with normal rows and a bias of 0."""
    check_features(features)
    public, sensitive = (
        build_embeddings(role, features, dim=dim, sharing=sharing, stddev=stddev, initial=initial)
        for role in ("public", "sensitive")
    )
    return public, sensitive, initial.zeros(1)
