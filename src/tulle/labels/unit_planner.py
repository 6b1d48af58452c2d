"""Which way to release the labels of a unit says most, from public row counts alone.

Options are compared by information. A statistic sums w x t over rows, with t the
debiased target, x a centred feature and w a weight. A row has the variance
v + p (1 - p): noise, and a label that is 1 with probability p. With the best weights
the information is the sum over kept rows of kept^2 / (v + p (1 - p)), where
`kept` is the share of conversions within the cap (dropping conversions shrinks
the signal). Its inverse per row of the table is the effective variance: that of
a row in a table of as many rows, all released alike, which says as much.

Rows of one unit that are noised together also have a covariance c. It adds
w w' x x' c for each pair of rows. Where features of two rows of a unit are
uncorrelated these terms cancel in the mean; with correlation r they add
r (K - 1) c to the variance of a row. With one conversion at most c is negative,
so r = 0 is the cautious default. The correlation of the labels themselves is left
out: it is nearly the same for all options.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tulle.errors import ConfigError
from tulle.labels.mechanisms.unit_response import (
    JointResponse,
    PerRowResponse,
    RowShare,
)
from tulle.labels.unit_rows import mean_covariance
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.privacy.fields import check_count, check_finite, check_prob

UnitWay = PerRowResponse | JointResponse
"""A way to release the labels of units."""

ROW_CAPS = (1, 2, 3, 5, 10, 20)
"""Caps on the rows of a unit that are tried."""
CONVERSION_CAPS = (1, 2, 3)
"""Caps on the conversions of a unit that are tried."""

_AS_GOOD = 1.001
"""Options within this factor of the best count as equal: then the simplest one is recommended."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanAssumptions:
    """Public guesses about the labels. They steer the choice and never the privacy."""

    base_rate: float = 0.05
    """Share of rows that convert."""
    beyond_first_share: float = 0.0
    """Share s of conversions that come after the first of their unit. If each conversion is
    followed by another with one probability, a cap of C conversions drops the share s^C."""
    feature_correlation: float = 0.0
    """Correlation of the features of two rows of one unit."""

    def __post_init__(self) -> None:
        check_prob("base_rate", self.base_rate)
        for name in ("beyond_first_share", "feature_correlation"):
            if not 0 <= check_finite(name, getattr(self, name)) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be in [0, 1), e.g. 0.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitOption:
    """One way to release the labels, and what it promises. Public."""

    mechanism: UnitWay
    mean_variance: float
    """Noise variance of a target, mean over the kept rows."""
    kept_rows_share: float
    """Share of the rows of the table that are released."""
    kept_conversions_share: float
    """Share of the conversions of released rows that are within the cap."""
    effective_variance: float
    """Variance per row of the table that says as much; lower is better."""

    def describe(self) -> dict[str, Any]:
        """Plain data, for a table or a file."""
        return {
            **self.mechanism.describe(),
            "mean_variance": self.mean_variance,
            "kept_rows_share": self.kept_rows_share,
            "kept_conversions_share": self.kept_conversions_share,
            "effective_variance": self.effective_variance,
        }

    @property
    def kind(self) -> dict[str, Any]:
        """The settings without the cap on rows: options that differ by it alone are alike."""
        settings = self.mechanism.describe()
        del settings["max_rows_per_unit"]
        return settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitPlan:
    """All options, best first; the simplest leads those within 0.1% of the best. Public."""

    options: tuple[UnitOption, ...]
    impression_variance: float
    """Effective variance if each row were a unit of its own: the price of a larger unit."""
    assumptions: PlanAssumptions
    left_out: tuple[str, ...] = ()
    """Reasons why options are missing."""

    @property
    def recommended(self) -> UnitOption:
        """The option with the most information."""
        return self.options[0]

    @property
    def ratio_to_runner_up(self) -> float | None:
        """How many times the effective variance the best option of another kind has."""
        others = [o for o in self.options if o.kind != self.recommended.kind]
        if not others:
            return None
        return others[0].effective_variance / self.recommended.effective_variance

    @property
    def ratio_to_best_per_row(self) -> float:
        """How many times the effective variance the best noise on single rows has."""
        best = next(o for o in self.options if isinstance(o.mechanism, PerRowResponse))
        return best.effective_variance / self.recommended.effective_variance

    @property
    def ratio_to_impression(self) -> float:
        """How many times the effective variance of impressions the best option has."""
        return self.recommended.effective_variance / self.impression_variance

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know about the comparison, in sentences."""
        remarks = [
            f"price of the unit: {self.ratio_to_impression:.3g} times the effective variance of "
            f"single rows at the same epsilon, {self.impression_variance:.4g}"
        ]
        if self.ratio_to_runner_up is not None:
            remarks.insert(
                0, f"next best mechanism: {self.ratio_to_runner_up - 1:.1%} more variance"
            )
        return (*remarks, *(f"left out: {reason}" for reason in self.left_out))

    def table(self) -> list[dict[str, Any]]:
        """One row for each option, best first."""
        return [
            {
                "mechanism": _words(option.mechanism),
                "variance": option.mean_variance,
                "rows_kept": option.kept_rows_share,
                "effective_variance": option.effective_variance,
            }
            for option in self.options
        ]

    def describe(self) -> dict[str, Any]:
        """Plain data, for a file."""
        return {
            "recommended": self.recommended.describe(),
            "ratio_to_runner_up": self.ratio_to_runner_up,
            "ratio_to_best_per_row": self.ratio_to_best_per_row,
            "ratio_to_impression": self.ratio_to_impression,
            "impression_variance": self.impression_variance,
            "assumptions": dataclasses.asdict(self.assumptions),
            "options": [option.describe() for option in self.options],
            "left_out": list(self.left_out),
        }


def plan_units(
    length_counts: Mapping[int, int],
    *,
    epsilon: float,
    assumptions: PlanAssumptions | None = None,
) -> UnitPlan:
    """Compares the ways to release labels, without reading any.

    Args:
      length_counts: How many units have each number of rows, see UnitRows.length_counts().
      epsilon: What all labels of a unit may cost together.
      assumptions: Public guesses about the labels.

    Privacy:
      No release and no label: row counts of units are public under replace.
    """
    assumed = PlanAssumptions() if assumptions is None else assumptions
    if not length_counts:
        raise ConfigError("length_counts={} has no unit; group the rows first with group_rows().")
    for length, count in length_counts.items():
        check_count("length of a unit", length)
        check_count("number of units", count)
    options: list[UnitOption] = []
    left_out: list[str] = []
    for mechanism in _candidates(epsilon, max(length_counts), assumed.base_rate):
        try:
            option = judge_option(mechanism, length_counts, assumed)
        except ConfigError as error:
            left_out.append(f"{mechanism.name}: {error}")
        else:
            if not _is_twin(option, options):
                options.append(option)
    if not options:
        raise ConfigError(f"epsilon={epsilon} is too small for units of this size; raise it.")
    impression = BinaryChannel.of_response(RandomizedResponseConfig(epsilon=epsilon))
    return UnitPlan(
        options=_best_first(options),
        impression_variance=float(1 / impression.weights(assumed.base_rate)),
        assumptions=assumed,
        left_out=tuple(left_out),
    )


def judge_option(
    mechanism: UnitWay, length_counts: Mapping[int, int], assumptions: PlanAssumptions
) -> UnitOption:
    """Computes what one way to release labels promises for units of these sizes.

    Args:
      mechanism: The way.
      length_counts: How many units have each number of rows.
      assumptions: Public guesses about the labels.
    """
    counts: dict[int, int] = {}
    for length, count in length_counts.items():
        size = mechanism.num_kept(length)
        counts[size] = counts.get(size, 0) + count
    num_table_rows = sum(length * count for length, count in length_counts.items())
    num_kept = sum(size * count for size, count in counts.items())
    variance = conversions = information = 0.0
    # The largest first: if one is refused, it is.
    for size, count in sorted(counts.items(), reverse=True):
        kept, noise, total = _row_figures(mechanism, size, assumptions)
        variance += size * count * noise
        conversions += size * count * kept
        information += size * count * kept**2 / total
    return UnitOption(
        mechanism=mechanism,
        mean_variance=variance / num_kept,
        kept_rows_share=num_kept / num_table_rows,
        kept_conversions_share=conversions / num_kept,
        effective_variance=num_table_rows / information,
    )


def _words(way: UnitWay) -> str:
    """A way with its caps, in short."""
    words = [way.name]
    if way.max_rows_per_unit is not None:
        words.append(f"rows <= {way.max_rows_per_unit}")
    if isinstance(way, JointResponse) and way.max_conversions_per_unit > 1:
        words.append(f"conversions <= {way.max_conversions_per_unit}")
    if isinstance(way, PerRowResponse) and way.row_share is RowShare.EQUAL:
        words.append("equal shares")
    return ", ".join(words)


def _is_twin(option: UnitOption, others: list[UnitOption]) -> bool:
    """True for a subset of one state: that is the joint response listed just before it."""
    is_subset = isinstance(option.mechanism, JointResponse) and option.mechanism.subset
    if not (is_subset and others):
        return False
    return math.isclose(option.effective_variance, others[-1].effective_variance, rel_tol=1e-12)


def _best_first(options: list[UnitOption]) -> tuple[UnitOption, ...]:
    """Sorted, but led by the first listed option that is as good as the best but for 0.1%."""
    ranked = sorted(options, key=lambda option: option.effective_variance)
    most = ranked[0].effective_variance * _AS_GOOD
    simplest = next(option for option in options if option.effective_variance <= most)
    return (simplest, *(option for option in ranked if option is not simplest))


def _candidates(epsilon: float, longest: int, base_rate: float) -> Iterator[UnitWay]:
    """Simple ways first."""
    yield PerRowResponse(epsilon=epsilon, max_rows_per_unit=None, row_share=RowShare.OWN)
    caps = [cap for cap in ROW_CAPS if cap < longest]
    for cap in caps:
        yield PerRowResponse(epsilon=epsilon, max_rows_per_unit=cap, row_share=RowShare.OWN)
        if cap > 1:
            yield PerRowResponse(epsilon=epsilon, max_rows_per_unit=cap, row_share=RowShare.EQUAL)
    if longest == 1:
        return
    for rows_cap in (None, *(cap for cap in caps if cap > 1)):
        for conversions_cap in CONVERSION_CAPS:
            for subset in (False, True) if conversions_cap == 1 else (False,):
                yield JointResponse(
                    epsilon=epsilon,
                    max_conversions_per_unit=conversions_cap,
                    max_rows_per_unit=rows_cap,
                    subset=subset,
                    assumed_base_rate=base_rate,
                )


def _row_figures(
    mechanism: UnitWay, size: int, assumptions: PlanAssumptions
) -> tuple[float, float, float]:
    """Share of conversions kept, noise variance and whole variance of a row."""
    kept = 1.0
    covariance = 0.0
    if isinstance(mechanism, JointResponse):
        cap = mechanism.max_conversions_per_unit
        # At most C of K labels can be 1, whatever was assumed.
        fits = min(cap, size) / (size * assumptions.base_rate)
        kept = min(1 - assumptions.beyond_first_share**cap if size > cap else 1.0, fits)
    rate = assumptions.base_rate * kept
    noise = float(mechanism.row_channel(size).mean_variance(rate))
    if isinstance(mechanism, JointResponse) and size > 1 and assumptions.feature_correlation:
        covariance = mean_covariance(
            mechanism.vector_config(size), rate, mechanism.max_conversions_per_unit
        )
    shared = assumptions.feature_correlation * (size - 1) * covariance
    return kept, noise, noise + rate * (1 - rate) + shared
