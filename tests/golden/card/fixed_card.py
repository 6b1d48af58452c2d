"""One plan and one card with every entry filled in, from fixed inputs."""

import functools
from datetime import UTC, datetime

from tulle.mechanisms.entropy import OperatingSystemNoise
from tulle.privacy.events import Composed, Gaussian, PoissonSampled, RandomizedResponse, Repeated
from tulle.privacy.guarantee import Claim, Guarantee, Interval
from tulle.privacy.plan import Assumption, Bound, ColumnRoles, Plan, Status
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.runs.card import Card, build_card
from tulle.runs.card_entries import AuditResult, Provenance, UtilityFigure, keyed_fingerprint

COLUMNS = ColumnRoles(
    label="clicked",
    public=("campaign", "hour"),
    sensitive=("age_group", "last_sites"),
    unit="user_id",
    time="day",
    ignored=("row_number",),
)
ENFORCED = Assumption(
    statement="A user has at most 3 rows.",
    status=Status.ENFORCED,
    evidence="rows beyond the first 3 by time are dropped before sampling",
)
CHECKED = Assumption(
    statement="The number of rows is public.",
    status=Status.CHECKED,
    evidence="compared with the number in the plan",
)


def steps(max_rows_per_unit: int = 1) -> Repeated:
    step = PoissonSampled(
        sampling_prob=0.01,
        event=Gaussian(noise_multiplier=4.0),
        max_rows_per_unit=max_rows_per_unit,
    )
    return Repeated(event=step, count=100)


def promise(epsilon: float, unit: Unit, scope: Scope) -> Guarantee:
    return Guarantee(
        epsilon=epsilon, delta=1e-7, unit=unit, adjacency=Adjacency.REPLACE, scope=scope
    )


BOTH, SENSITIVE = Scope.LABELS_AND_SENSITIVE_COLUMNS, Scope.SENSITIVE_COLUMNS
VARIANTS = (
    Claim(guarantee=promise(0.8, Unit.user(), SENSITIVE), event=steps(3)),
    Claim(
        guarantee=promise(0.75, Unit.example(), BOTH),
        event=Composed((RandomizedResponse(epsilon=0.5), steps())),
    ),
)


def make_plan(**changes: object) -> Plan:
    fields: dict[str, object] = {
        "name": "click model",
        "mechanism": "Labels by randomized response, then 100 steps of DP-SGD on all columns.",
        "settings": {"clip": 1.0, "noise_multiplier": 4.0, "sampler": "poisson", "steps": 100},
        "event": Composed((Repeated(event=RandomizedResponse(epsilon=0.5), count=3), steps(3))),
        "guarantee": promise(2.2, Unit.user(), BOTH),
        "variants": VARIANTS,
        "trust": TrustModel.CENTRAL,
        "columns": COLUMNS,
        "bounds": (Bound(what="rows per user", limit=3, where="first rows by time"),),
        "assumptions": (ENFORCED, CHECKED),
    }
    return Plan(**fields | changes)  # type: ignore[arg-type]


PROVENANCE = Provenance(
    tulle_version="0.1.0",
    python_version="3.11.9",
    platform="Linux x86_64",
    created_at=datetime(2026, 1, 14, 9, 30, tzinfo=UTC),
    libraries={"dp-accounting": "0.6.0", "numpy": "2.3.5", "scipy": "1.17.1"},
    data_fingerprint=keyed_fingerprint(b"digest of the data", key=b"0123456789abcdef"),
    settings={"model": "logistic", "learning_rate": 0.05},
)
UTILITY = UtilityFigure(
    name="AUC",
    value=0.731,
    measured_on="last day, held out",
    interval=Interval(low=0.725, high=0.737),
    baseline=0.748,
    baseline_name="same model without noise",
)
AUDIT = AuditResult(method="canaries, one run", lower_bound=0.31, claim=2.2)


@functools.cache
def make_card() -> Card:
    return build_card(
        make_plan(),
        randomness=OperatingSystemNoise(),
        provenance=PROVENANCE,
        utility=(UTILITY,),
        audit=AUDIT,
        accounting_note="calibrated by bisection, rounded up",
    )
