"""What an evaluation of another selection promises, made before a log is read."""

import dataclasses
import hashlib

from tulle.accounting.accountant import guarantee
from tulle.errors import ConfigError
from tulle.privacy.fields import Scalar, check_epsilon
from tulle.privacy.plan import Assumption, Bound, ColumnRoles, Plan, Status
from tulle.privacy.units import Adjacency, Scope, TrustModel
from tulle.runs.charging import ReleaseTerms, release_plan
from tulle.select.evaluation.device_terms import Estimator
from tulle.select.evaluation.estimate import OnDeviceEvaluation
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.mechanisms.slots import SlotMechanism
from tulle.select.selection_config import SelectionConfig
from tulle.select.settings import settings_text

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
