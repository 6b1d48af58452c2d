"""What an evaluation of another selection promises, before a log is read, and its record.

`evaluation.json` comes with `evaluation.release.json`: the plan, the settings of the evaluated
selection, the meaning of each number, and a hash of the file. Everything in it is public.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tulle.accounting.accountant import guarantee
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import Scalar, check_epsilon
from tulle.privacy.plan import Assumption, Bound, ColumnRoles, Plan, Status
from tulle.privacy.units import Adjacency, Scope, TrustModel
from tulle.runs.charging import ReleaseTerms, release_plan
from tulle.runs.record import TableRecord
from tulle.select.evaluation.device_terms import Estimator
from tulle.select.evaluation.estimate import OnDeviceEvaluation
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.mechanisms.slots import SlotMechanism
from tulle.select.selection_config import SelectionConfig
from tulle.select.settings import settings_text

if TYPE_CHECKING:
    import polars as pl


_SHARED_FORMATS = ("tulle selection 1", "tulle selection 2")
"""Formats of version 0.1, in which an estimate had the record of choices."""
_CLICKED = "clicked"
_ASSUMPTIONS = (
    Assumption(
        statement="What one unit adds to the sums is within its bounds.",
        status=Status.ENFORCED,
        evidence="Terms are put on a grid of whole numbers in a public range, and further "
        "decisions of a unit are left out.",
    ),
    Assumption(
        statement="No propensity leaves.",
        status=Status.ENFORCED,
        evidence="Sums of all decisions are written, and nothing of a single one.",
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Settings of an evaluation. Every field is public information."""

    logging: SelectionConfig
    """The selection that the choices were drawn by."""
    target: SelectionConfig
    """The selection to evaluate."""
    epsilon: float
    """Cost of the noisy sums together; the decisions were charged before."""
    estimator: Estimator = Estimator.DOUBLY_ROBUST
    """How decisions are weighted."""
    max_weight: float | None = None
    """Largest weight; larger ones are cut, which biases; None: the floors' own limit."""
    confidence: float = 0.95
    """Confidence of the interval."""

    def __post_init__(self) -> None:
        if self.logging.privacy.shuffle is not None:
            raise ConfigError(
                "behind a shuffler choices are not linked to auctions; let each device add its "
                "own term with release_estimate()."
            )
        if self.target.pricing.reserve != self.logging.pricing.reserve:
            raise ConfigError(
                f"reserve={self.target.pricing.reserve:g} of the target is not that of the logging "
                f"selection, {self.logging.pricing.reserve:g}; other ads would take part. What is "
                "evaluated is another mechanism on the same decisions."
            )
        for name in ("logging", "target"):
            if getattr(self, name).mechanism.num_slots > 1:
                raise ConfigError(f"{name} has several slots; one slot can be evaluated.")
        check_epsilon(self.epsilon)
        self.evaluation()

    @property
    def max_decisions(self) -> int:
        """Most decisions of one unit that count."""
        return self.logging.privacy.max_decisions_per_user or 1

    def evaluation(self) -> OnDeviceEvaluation:
        """The evaluation as devices carry it out: terms and noise."""
        logging, target = self.logging.mechanism, self.target.mechanism
        if isinstance(logging, SlotMechanism) or isinstance(target, SlotMechanism):
            raise ConfigError("one slot can be evaluated.")
        return OnDeviceEvaluation(
            logging=logging,
            target=target,
            estimator=self.estimator,
            epsilon=self.epsilon,
            max_decisions_per_user=self.max_decisions,
            max_weight=self.max_weight,
        )


def make_evaluation_plan(
    config: EvaluationConfig, columns: AuctionColumns, terms: ReleaseTerms
) -> Plan:
    """The plan of an evaluation. Reads nothing.

    Args:
      config: What is evaluated.
      columns: Names of the auctions' columns.
      terms: Whether a ledger will know the estimate, and where the noise will come from.
    """
    event = config.evaluation().event()
    is_user = config.logging.privacy.is_by_user
    settings: dict[str, Scalar] = {
        "estimator": config.estimator.value,
        "logging": config.logging.mechanism.name,
        "target": config.target.mechanism.name,
        "target settings": hashlib.sha256(settings_text(config.target).encode()).hexdigest()[:32],
        "logging settings": hashlib.sha256(settings_text(config.logging).encode()).hexdigest()[:32],
        "largest weight": "by floors" if config.max_weight is None else config.max_weight,
        "confidence": config.confidence,
    }
    draft = Plan(
        name=f"evaluation of {config.target.name}",
        mechanism="each decision is weighted by its exact probabilities where it was made; sums of "
        "the terms and of their squares leave with discrete Laplace noise.",
        settings=settings,
        event=event,
        guarantee=guarantee(
            event,
            delta=0.0,
            unit=config.logging.privacy.unit,
            adjacency=Adjacency.REPLACE,
            scope=Scope.SENSITIVE_COLUMNS,
        ),
        trust=TrustModel.CENTRAL,
        columns=ColumnRoles(
            label=None,
            public=(columns.auction, columns.ad, columns.bid, columns.server_prob),
            sensitive=(columns.device_prob, _CLICKED),
            unit=columns.user if is_user else None,
        ),
        bounds=(
            Bound(what="decisions per unit", limit=config.max_decisions, where="the first ones"),
        ),
        assumptions=_ASSUMPTIONS,
    )
    return release_plan(draft, terms, what="evaluation")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationRecord(TableRecord):
    """A release of an estimate. Every field is public information."""

    what: ClassVar[str] = "evaluation record"
    formats: ClassVar[tuple[str, ...]] = (*_SHARED_FORMATS, "tulle selection evaluation 1")
    keys: ClassVar[tuple[str, ...]] = (
        *("plan", "target", "num_decisions", "columns", "table", "table_sha256"),
        *("randomness", "is_secure", "format"),
    )

    target: str
    """The settings file of the evaluated selection, as text."""
    num_decisions: int
    """Personalised decisions that the estimate was made from."""

    @classmethod
    def read_fields(cls, data: object) -> dict[str, Any]:
        """The values of the fields that a file gives, also one of an earlier version."""
        if isinstance(data, dict) and data.get("format") in _SHARED_FORMATS:
            data = {key: data[key] for key in cls.keys if key in data} | {
                "target": data.get("settings"),
                "num_decisions": data.get("num_personalised"),
            }
        return super().read_fields(data)

    def frame(self, path: Path | None, name: str | None = None) -> "pl.DataFrame":
        """The released numbers as a frame of one row, the interval as low and high.

        Args:
          path: Where the release was written.
          name: Name of the file; may be left out.
        """
        if name not in (None, self.table):
            raise ConfigError(f"there is no table {name!r}; there is {self.table!r}.")
        if path is None:
            raise ConfigError("the estimate was not written to a file; its numbers came with it.")
        return estimate_frame(read_numbers(path))


def read_numbers(path: Path) -> dict[str, Any]:
    """Reads the numbers of a released estimate.

    Raises:
      DataError: The file is gone or cannot be read.
    """
    try:
        numbers: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(
            f"{path.name} cannot be read as an estimate; restore the file that was released."
        ) from None
    return numbers


def estimate_frame(numbers: Mapping[str, Any]) -> "pl.DataFrame":
    """The numbers of an estimate as a frame of one row, the interval as low and high."""
    import polars as pl

    low, high = numbers["interval"]
    row: dict[str, Any] = {}
    for name, value in numbers.items():
        row |= {"low": low, "high": high} if name == "interval" else {name: value}
    return pl.DataFrame([row])
