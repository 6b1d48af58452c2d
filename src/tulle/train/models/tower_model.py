"""A model in three towers: public features, sensitive features, and what joins them.

The truncated form of a model sees zeros where the sensitive tower's output would
be, so that it can be trained where no sensitive column may be read.
"""

from typing import Protocol

from torch import Tensor

from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean
from tulle.train.models.contributions import Contribution
from tulle.train.models.table_reads import BatchReads
from tulle.train.settings.models import TOWERS


class ForwardPass(Protocol):
    """One batch that went through a model, with what the way back needs."""

    @property
    def logits(self) -> Tensor:
        """[batch]: log odds of label 1."""
        ...

    def backward(self, logit_grads: Tensor, *, towers: frozenset[str]) -> list[Contribution]:
        """What each example adds to the gradients of the parameters of some towers.

        Args:
          logit_grads: [batch]: derivative of each example's loss by its logit.
          towers: Those that are trained. All others get nothing and cost nothing. The
            sensitive tower gets nothing in the truncated form.
        """
        ...


class TowerModel(Protocol):
    """Parameters and how they make logits."""

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Every parameter by name; change them in place only."""
        ...

    @property
    def output_bias(self) -> Tensor:
        """[1]: the parameter that is added to every logit."""
        ...

    @property
    def tables(self) -> frozenset[str]:
        """Names of the parameters of which an example reads few rows."""
        ...

    def forward(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> ForwardPass:
        """Computes logits, without an autograd graph.

        Args:
          public_ids: [batch, public features], int64; [batch, 0] if there are none.
            Ids are trusted: check them once, when data are opened.
          sensitive_ids: [batch, sensitive features], or None for the truncated form.

        Privacy:
          With `sensitive_ids=None` nothing sensitive is read. Otherwise logits are raw:
          they depend on the example's own sensitive values.
        """
        ...

    def reads(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> BatchReads:
        """Which rows of its tables the model would read, for whoever must touch them first."""
        ...

    def forward_reads(self, reads: BatchReads) -> ForwardPass:
        """Computes logits from rows that were found already; `forward` in two parts."""
        ...


def check_towers(towers: frozenset[str]) -> None:
    """Refuses a name that is no tower: a misspelt one would stay untrained in silence."""
    if unknown := sorted(towers - TOWERS):
        raise ConfigError(
            f"tower {unknown[0]!r} is unknown{did_you_mean(unknown[0], TOWERS)}; "
            f"use {', '.join(sorted(TOWERS))}."
        )
