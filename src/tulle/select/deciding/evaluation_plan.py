"""What an evaluation of another selection promises, made before a log is read."""

import dataclasses
import hashlib
import math

from tulle.accounting.accountant import guarantee
from tulle.accounting.plan_check import verify_plan
from tulle.data.auction_files import AuctionColumns
from tulle.errors import ConfigError
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.conditions import Assumption, Bound, Status
from tulle.privacy.plan import Plan
from tulle.privacy.settings import Scalar
from tulle.privacy.units import Adjacency, Owner, Scope, TrustModel
from tulle.runs.release_books import paid_once
from tulle.select.evaluation.device_terms import Estimator
from tulle.select.evaluation.on_device_evaluation import OnDeviceEvaluation
from tulle.select.selection_config import SelectionConfig
from tulle.select.settings_file import settings_text
from tulle.select.slots import SlotMechanism

_CLICKED = "clicked"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Settings of an evaluation. Every field is public information."""

    logging: SelectionConfig
    """The selection that the choices were drawn by."""
    target: SelectionConfig
    """The selection to evaluate."""
    epsilon: float
    """Of the noisy sums together; the decisions were paid before."""
    estimator: Estimator = Estimator.DOUBLY_ROBUST
    max_weight: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.logging.shuffle is not None:
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
            if isinstance(getattr(self, name).mechanism, SlotMechanism):
                raise ConfigError(f"{name} has several slots; one slot can be evaluated.")
        if not 0 < self.epsilon < math.inf:
            raise ConfigError(f"epsilon={self.epsilon} must be > 0 and finite, e.g. 1.0.")
        self.evaluation()

    @property
    def max_decisions(self) -> int:
        """That count of one unit."""
        return self.logging.max_decisions_per_user or 1

    def evaluation(self) -> OnDeviceEvaluation:
        """Terms and noise."""
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
    config: EvaluationConfig, columns: AuctionColumns, *, noise_source: str, has_ledger: bool
) -> Plan:
    """The plan of an evaluation. Reads nothing."""
    event = config.evaluation().event()
    is_user = config.logging.unit.owner is Owner.USER
    settings: dict[str, Scalar] = {
        "estimator": config.estimator.value,
        "logging": config.logging.mechanism.name,
        "target": config.target.mechanism.name,
        "target settings": hashlib.sha256(settings_text(config.target).encode()).hexdigest()[:32],
        "logging settings": hashlib.sha256(settings_text(config.logging).encode()).hexdigest()[:32],
        "largest weight": "by floors" if config.max_weight is None else config.max_weight,
        "confidence": config.confidence,
        "noise from": noise_source,
        "charged to a ledger": has_ledger,
    }
    plan = Plan(
        name=f"evaluation of {config.target.name}",
        mechanism="each decision is weighted by its exact chances where it was made; sums of the "
        "terms and of their squares leave with discrete Laplace noise.",
        settings=settings,
        event=event,
        guarantee=guarantee(
            event,
            delta=0.0,
            unit=config.logging.unit,
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
        assumptions=_assumptions(has_ledger),
    )
    verify_plan(plan)
    return plan


def _assumptions(has_ledger: bool) -> tuple[Assumption, ...]:
    made = [
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
    ]
    if has_ledger:
        made.append(paid_once("evaluation"))
    return tuple(made)
