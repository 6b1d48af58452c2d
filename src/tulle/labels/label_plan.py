"""Which mechanism a release of labels would use and what it would promise, before a label is read.

Where no mechanism is named, those for such labels are compared by the noise they leave, from
public settings and, for units that own several rows, from public row counts.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from tulle.errors import ConfigError
from tulle.labels.label_grid import NumberRange, Prior, as_prior, prior_weights
from tulle.labels.label_noise import LabelNoise, LabelSettings
from tulle.labels.label_release import make_release_plan
from tulle.labels.label_table import LabelTable
from tulle.labels.mechanisms.catalogue import (
    MECHANISM_SETTINGS,
    given_epsilon,
    mechanism_by_word,
    noise_of,
    settings_of_word,
    words_with_setting,
)
from tulle.labels.mechanisms.class_response import BinaryResponse, BinaryRr, ClassResponse, ClassRr
from tulle.labels.mechanisms.label_prior import split_epsilon
from tulle.labels.mechanisms.unbiased_response import MOST_ATOMS
from tulle.labels.mechanisms.unit_noise import settings_of_units
from tulle.labels.numeric_planner import NumericPlan, plan_numeric
from tulle.labels.unit_planner import PlanAssumptions, UnitPlan, plan_units
from tulle.labels.unit_rows import UnitRows
from tulle.mechanisms.noisy_reports import variance_per_report
from tulle.privacy.codec import settings_from
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.plan import Plan
from tulle.privacy.units import Owner


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneMechanism:
    """The mechanism for single labels of 0 and 1, or of classes: there is nothing to choose."""

    name: str
    """The word for the mechanism."""
    variance: float
    """Variance of the noise on one label."""
    remarks: tuple[str, ...]
    """What to know about it, in sentences."""

    def describe(self) -> dict[str, Any]:
        """Plain data, for a file."""
        return {"options": self.table()}

    def table(self) -> list[dict[str, Any]]:
        """One row with the mechanism and its noise."""
        return [{"mechanism": self.name, "variance": self.variance}]


Comparison = UnitPlan | NumericPlan | OneMechanism
"""Mechanisms side by side, by the kind of label."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestMechanism:
    """Lets the planner choose the mechanism, from what the labels are. All fields are public."""

    num_classes: int | None = None
    """Number of classes n, for labels that are classes from 0 to n - 1."""
    label_low: float | None = None
    """Least label, for labels that are numbers."""
    label_high: float | None = None
    """Largest label, for labels that are numbers."""
    label_step: float = 1.0
    """Distance of two labels that are numbers."""
    prior: Prior | None = None
    """Public weights of the numbers, not made with the labels that are released."""
    prior_epsilon: float | None = None
    """Part of epsilon that pays for a prior that is learnt, in place of a given one."""
    prior_cells: int | None = None
    """Number of cells of a learnt prior."""
    atoms: int | None = None
    """Values that the unbiased mechanism rounds to."""
    base_rate: float = 0.05
    """A public guess of the share of ones. It steers the choice and costs no privacy."""

    kind: ClassVar[str] = "best"

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", as_prior(self.prior))

    @property
    def is_numeric(self) -> bool:
        """True if labels are numbers in a range."""
        return self.label_low is not None or self.label_high is not None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LabelPlan:
    """What a release of labels would promise. Made without reading a label."""

    table: LabelTable = dataclasses.field(repr=False)
    mechanism: LabelSettings | LabelNoise
    """The chosen one, or the recommended one. A release takes it as it is."""
    epsilon: float | None
    comparison: Comparison | None = None
    """Options by the noise they leave; None where the mechanism was named."""
    unit_rows: UnitRows | None = dataclasses.field(default=None, repr=False)

    @functools.cached_property
    def noise(self) -> LabelNoise:
        """How the labels would be noised."""
        return noise_of(self.mechanism, self.epsilon)

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan with event, guarantee and assumptions, as the card will show it."""
        return make_release_plan(self.table, self.noise, unit_rows=self.unit_rows)

    @property
    def guarantee(self) -> Guarantee:
        """What would be promised."""
        return self.plan.guarantee


ANY_MECHANISM: Any = MECHANISM_SETTINGS | BestMechanism
"""The union of what plain data may choose: a mechanism, or the best for the labels."""


def chosen_mechanism(
    word: str | None, settings: Mapping[str, object]
) -> LabelSettings | BestMechanism:
    """The mechanism of a word, or whichever is best for the labels that settings describe.

    Args:
      word: One of `LABEL_MECHANISMS`; None or "best": the planner chooses.
      settings: Settings of the mechanism, or facts about the labels.

    Raises:
      ConfigError: A setting is not one of this mechanism, or needs one to be named.
    """
    if word is not None and word != BestMechanism.kind:
        return mechanism_by_word(word, settings)
    known = [field.name for field in dataclasses.fields(BestMechanism)]
    for name in settings:
        if name not in known and (words := words_with_setting(name)):
            raise ConfigError(
                f"{name} is for the mechanism {' or '.join(words)}; name it, or leave {name} out."
            )
    best: BestMechanism = settings_from(
        BestMechanism, {"kind": BestMechanism.kind, **settings}, what="mechanism"
    )
    return best


def plan_labels(
    table: LabelTable,
    mechanism: str | Mapping[str, object] | LabelSettings | BestMechanism | LabelNoise,
    epsilon: float | None,
) -> LabelPlan:
    """Plans a release. Reads whose the rows are, where units own several, and no label.

    Args:
      table: The raw table.
      mechanism: A word, plain data, settings, noise with an epsilon of its own, or what the
        labels are.
      epsilon: What the release may cost one unit in all.

    Privacy:
      No release and no label: rows and public columns are public under replace.
    """
    if mechanism == BestMechanism.kind:
        mechanism = BestMechanism()
    if isinstance(mechanism, Mapping) and mechanism.get("kind") == BestMechanism.kind:
        given = {name: value for name, value in mechanism.items() if name != "kind"}
        mechanism = chosen_mechanism(None, given)
    if isinstance(mechanism, BestMechanism):
        return _best(table, mechanism, given_epsilon(epsilon))
    noise = noise_of(mechanism, epsilon)
    unit_rows = table.unit_rows() if noise.is_for_units else None
    return LabelPlan(table=table, mechanism=noise, epsilon=None, unit_rows=unit_rows)


def _best(table: LabelTable, labels: BestMechanism, epsilon: float) -> LabelPlan:
    table.check_columns()
    is_example = table.unit.owner is Owner.EXAMPLE
    if not is_example and (labels.is_numeric or labels.num_classes is not None):
        raise ConfigError(
            f"unit='{table.unit}' is for labels of 0 and 1; numbers and classes are released row "
            "by row: use unit='example', and at most one row a user where users are protected."
        )
    planned = functools.partial(LabelPlan, table=table, epsilon=epsilon)
    if labels.is_numeric:
        numbers = _compare_numbers(labels, epsilon)
        chosen = mechanism_by_word(numbers.recommended.name, _settings_for(numbers, labels))
        return planned(mechanism=chosen, comparison=numbers)
    if labels.num_classes is not None:
        classes = ClassRr(num_classes=labels.num_classes)
        return planned(mechanism=classes, comparison=_for_classes(classes, epsilon))
    if is_example:
        return planned(mechanism=BinaryRr(), comparison=_for_bits(labels, epsilon))
    unit_rows = table.unit_rows()
    units = plan_units(
        unit_rows.length_counts(),
        epsilon=epsilon,
        assumptions=PlanAssumptions(base_rate=labels.base_rate),
    )
    chosen = settings_of_units(units.recommended.mechanism, labels.base_rate)
    return planned(mechanism=chosen, comparison=units, unit_rows=unit_rows)


def _compare_numbers(labels: BestMechanism, epsilon: float) -> NumericPlan:
    if labels.label_low is None or labels.label_high is None:
        raise ConfigError(
            "labels that are numbers need label_low and label_high: a public range, not read "
            "off the labels."
        )
    grid = NumberRange(
        label_low=labels.label_low, label_high=labels.label_high, label_step=labels.label_step
    ).grid
    left = epsilon
    if labels.prior_epsilon is not None:
        left = split_epsilon(epsilon, labels.prior_epsilon)
    return plan_numeric(
        grid,
        epsilon=left,
        prior=prior_weights(labels.prior, grid.num_values),
        atoms=labels.atoms or MOST_ATOMS,
    )


def _settings_for(numbers: NumericPlan, labels: BestMechanism) -> dict[str, object]:
    names = settings_of_word(numbers.recommended.name)
    return {name: value for name in names if (value := getattr(labels, name, None)) is not None}


def _for_bits(labels: BestMechanism, epsilon: float) -> OneMechanism:
    base_rate = PlanAssumptions(base_rate=labels.base_rate).base_rate
    channel = BinaryResponse(epsilon=epsilon).channel
    return OneMechanism(
        name=BinaryRr.kind,
        variance=float(channel.mean_variance(base_rate)),
        remarks=("no mechanism says more about one bit at the same epsilon",),
    )


def _for_classes(classes: ClassRr, epsilon: float) -> OneMechanism:
    response = ClassResponse(epsilon=epsilon, num_classes=classes.num_classes).response
    return OneMechanism(
        name=classes.kind,
        variance=variance_per_report(response),
        remarks=(
            "the variance is that of the mark of one class, for a row of another class",
            "prior-rr says more where a prior is sure of most rows; its targets are biased then",
        ),
    )
