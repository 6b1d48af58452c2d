"""The model that a run of Mosaic continues from: what a plan says of it, and what the run is given.

A released model may be used for anything: that is post-processing, and costs nothing. A run that
continues starts from its bias and tables, and believes each weight as much as its standard
deviation says, or a little less, as time has passed.

A plan names the model by its digest. Whoever carries the plan out must hand in that very model.
"""

import dataclasses
import math
from collections.abc import Sequence

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.privacy.fields import Scalar, check_finite, check_text
from tulle.privacy.plan import Assumption, Status
from tulle.train.methods.mosaic.cell_model import CellModel

KEEP_EVIDENCE = 0.7
"""Fraction of the evidence of earlier data that is kept where nobody says otherwise: two nights
halve it. Chosen on users of the search log that no published figure of daily training is of."""
_LEAST_KEPT = 1e-3
"""Least fraction: with less, nothing of the old deviations is left, and training from scratch is
what is meant."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartModel:
    """What a plan says of the model that its run continues from. Every field is public."""

    digest: str
    """SHA-256 over weights, features and encoder of the model, in hexadecimal."""
    epsilon: float | None
    """Epsilon that its card claims; None if it claims none."""
    delta: float
    """Delta that its card claims."""
    unit: str
    """Who its card protects."""
    is_private: bool
    """False if its card says that it is no private release."""
    keep_evidence: float = KEEP_EVIDENCE
    """Fraction of the evidence for its weights that is kept; 1 keeps all."""

    def __post_init__(self) -> None:
        check_text("digest", self.digest)
        check_text("unit", self.unit)
        if not isinstance(self.is_private, bool):
            raise ConfigError(f"is_private={self.is_private!r} must be True or False.")
        if not _LEAST_KEPT <= check_finite("keep_evidence", self.keep_evidence) <= 1:
            raise ConfigError(
                f"keep_evidence={self.keep_evidence} must be from {_LEAST_KEPT} to 1: the fraction "
                "of the evidence of the earlier model that is kept."
            )

    @property
    def settings(self) -> dict[str, Scalar]:
        """Settings of the plan that say where the run starts."""
        return {
            "starts_from": self.digest,
            "starts_from_epsilon": self.epsilon,
            "starts_from_delta": self.delta,
            "starts_from_unit": self.unit,
            "keep_evidence": self.keep_evidence,
        }

    @property
    def sentence(self) -> str:
        """What the run does with the model, in words for plans and cards."""
        return _SENTENCE.format(self.digest[:_SHOWN], self.keep_evidence)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What the claims rest on besides those of a run that starts from nothing."""
        statement = "The model that training started from is itself a private release."
        if not self.is_private:
            return (_PUBLIC_FIRST, Assumption(statement=statement, status=Status.ASSUMED))
        evidence = (
            f"its card claims epsilon={_shown(self.epsilon)}, delta={self.delta:g} for unit "
            f"{self.unit!r} and gives no reason against it; its files are those it was written "
            "with, and the run has compared its digest with the plan's"
        )
        found = Assumption(statement=statement, status=Status.CHECKED, evidence=evidence)
        return (_PUBLIC_FIRST, found)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EarlierModel:
    """A released model that a run may continue from, with its digest and the claim on its card."""

    model: CellModel
    features: tuple[PreparedFeature, ...]
    """Features that it was trained on."""
    start: StartModel
    """What a plan says of it."""


def check_earlier(
    start: StartModel | None,
    earlier: EarlierModel | None,
    features: Sequence[PreparedFeature] | None = None,
) -> None:
    """Refuses to carry out a plan with another model than it was made for.

    Args:
      start: What the plan says that the run continues from; None: from nothing.
      earlier: The model that was handed in.
      features: Features of the rows; None if they are not known yet.

    Raises:
      ConfigError: There is a model too many, one too few, or another one.
    """
    if start is None and earlier is None:
        return
    if start is None:
        raise ConfigError(
            "the plan starts from nothing, and a model to continue from is given; leave out "
            "from_model=…, or make a plan that continues from it."
        )
    if earlier is None:
        raise ConfigError(
            f"the plan continues from the model {start.digest[:_SHOWN]}…; hand it in "
            "with from_model=…."
        )
    if earlier.start.digest != start.digest:
        raise ConfigError(
            f"the plan continues from the model {start.digest[:_SHOWN]}…, and another one is given "
            f"({earlier.start.digest[:_SHOWN]}…); hand in the model that the plan was made for, "
            "or make the plan anew."
        )
    if earlier.start.is_private is not start.is_private:
        raise ConfigError(
            "the plan and the card of the model that it continues from do not agree on whether "
            "that model is a private release; make the plan anew."
        )
    if features is not None and tuple(features) != tuple(earlier.features):
        raise ConfigError(
            "the rows have other features than the model to continue from; read them with its "
            "encoder, as tulle.train.fit(from_model=…) does with files and tables."
        )


def check_output(
    model: CellModel, *, clip: float | None, num_heads: int, has_classes: bool = False
) -> None:
    """Refuses to continue a model that predicts something else.

    Args:
      model: The model to continue from.
      clip: Largest value that a label counts as in the run; None for labels of 0 and 1.
      num_heads: Number of sets of tables that the run learns.
      has_classes: True if labels of the run are classes.

    Raises:
      ConfigError: What they predict differs, or is classes.
    """
    if has_classes or model.output == "classes":
        raise ConfigError(
            "models of classes cannot be continued yet; train from scratch, or train a model of "
            "labels of 0 and 1 for the class that matters."
        )
    known = model.scale if model.output == "value" else None
    if clip != known:
        was = "probabilities" if known is None else f"values up to {known:g}"
        way_out = "leave the clip out" if known is None else f"give clip={known:g}"
        asked = "without a clip labels are 0 or 1" if clip is None else f"clip={clip:g} is given"
        raise ConfigError(
            f"the model to continue from predicts {was}, and {asked}; {way_out}, or train from "
            "scratch."
        )
    if num_heads != len(model.heads):
        raise ConfigError(
            f"the model to continue from has {len(model.heads)} sets of tables, and these settings "
            f"ask for {num_heads}; give the settings that it was trained with (rate_share)."
        )


def _shown(epsilon: float | None) -> str:
    return "infinity" if epsilon is None or math.isinf(epsilon) else f"{epsilon:g}"


_SHOWN = 12
"""Digits of a digest that a message shows: enough to tell models apart."""
_SENTENCE = (
    " Training continues from a released model ({}…), which costs nothing more: its weights are "
    "where it starts, and {:g} of the evidence for them is kept. Rows that are in both trainings "
    "are charged in both."
)
_PUBLIC_FIRST = Assumption(
    statement="Nothing of the earlier model that reads a sensitive column takes part while the "
    "noise hides labels alone.",
    status=Status.ENFORCED,
    evidence="its tables of public columns are used from the start; those of sensitive columns are "
    "refused until whole rows are hidden, and are added then",
)
