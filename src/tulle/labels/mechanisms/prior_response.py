"""Randomized response among the classes that a prior finds likely.

A public prior ranks the classes. Only the top k of them can be reported: a label
among these is noised by k-ary randomized response, any other is replaced by an even
draw (RRTop-k of Ghazi et al. 2021, with the k that makes a true report likeliest). The
guarantee holds for every prior that was made without the labels. Reports lean towards
the prior, and only where k is the number of classes can that be undone.
"""

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError
from tulle.labels.label_mechanism import (
    MOST_VALUES_SHOWN,
    ChannelFacts,
    ChannelTable,
    DescribedMechanism,
    Description,
    LabelKind,
    NoisyLabels,
)
from tulle.labels.mechanisms.class_response import ClassResponse, checked_classes
from tulle.labels.mechanisms.label_prior import LabelPriorConfig, PriorSettings, is_informative
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.thresholds import WORD_VALUES, log_ratio, loser_mass, sample_below
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.fields import check_count, check_epsilon

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PriorResponse:
    """Randomized response with a prior and its epsilon. Every field is public."""

    epsilon: float
    """Largest log-likelihood ratio of a report between any two classes."""
    prior: FloatArray
    """How likely each class is: one vector for all rows, or one row of a matrix for each.
    It must not be made with the labels that are to be noised."""

    label_kind: ClassVar[LabelKind] = LabelKind.CLASSES
    has_rising_outputs: ClassVar[bool] = False
    name: ClassVar[str] = "prior-rr"

    def __post_init__(self) -> None:
        self.event()
        weights = _checked_priors(self.prior)
        weights.flags.writeable = False
        object.__setattr__(self, "prior", weights)
        _check_says_something(self)

    @property
    def rests_on_prior(self) -> bool:
        """True if the prior prefers some classes, and so must not come from these labels."""
        return is_informative(self.prior)

    @property
    def far_labels(self) -> tuple[float, float]:
        """The two likeliest classes, which are always among those that can be reported."""
        first, second = sorted(self.ranking[0, :2].tolist())
        return first, second

    @property
    def num_classes(self) -> int:
        """Number of classes, which are counted from 0."""
        return int(self.prior.shape[-1])

    @functools.cached_property
    def ranking(self) -> IntArray:
        """Classes from the most to the least likely, ties in their order; one row a prior."""
        return np.argsort(-np.atleast_2d(self.prior), axis=1, kind="stable")

    @functools.cached_property
    def num_reported(self) -> IntArray:
        """Number of classes that can be reported, one number a prior."""
        return best_num_reported(self.prior, self.epsilon)

    @property
    def is_invertible(self) -> bool:
        """True if all classes can be reported in every row, so that the noise can be undone."""
        return bool(np.all(self.num_reported == self.num_classes))

    def event(self) -> EpsilonDelta:
        """What one noisy label of a unit costs."""
        check_epsilon(self.epsilon)
        return EpsilonDelta(epsilon=self.epsilon)

    @property
    def realised_epsilon(self) -> float:
        """Largest log-likelihood ratio of the sampler; below epsilon by rounding only."""
        ratios = [
            Fraction(WORD_VALUES, _lie_mass(self.epsilon, count)) - (count - 1)
            for count in np.unique(self.num_reported).tolist()
            if count > 1
        ]
        return min(self.epsilon, log_ratio(max(ratios))) if ratios else 0.0

    def channel_matrix(self, row: int = 0) -> FloatArray:
        """Probability of each report (column) for each label (row) before rounding."""
        num_reported = int(self.num_reported[row])
        classes = self.ranking[row, :num_reported]
        truth = 1 / (1 + (num_reported - 1) * math.exp(-self.epsilon))
        channel = np.zeros((self.num_classes, self.num_classes))
        channel[:, classes] = 1 / num_reported
        channel[np.ix_(classes, classes)] = truth * math.exp(-self.epsilon)
        channel[classes, classes] = truth
        return channel

    def realised_channel(self, row: int = 0) -> list[list[Fraction]]:
        """Exact probability of each report (column) for each label (row) under a prior."""
        num_reported = int(self.num_reported[row])
        classes = self.ranking[row, :num_reported].tolist()
        lie = Fraction(_lie_mass(self.epsilon, num_reported), WORD_VALUES)
        channel = [[Fraction(0)] * self.num_classes for _ in range(self.num_classes)]
        for label in range(self.num_classes):
            for report in classes:
                channel[label][report] = lie if label in classes else Fraction(1, num_reported)
            if label in classes:
                channel[label][label] = 1 - (num_reported - 1) * lie
        return channel

    def true_report_prob(self) -> float:
        """Probability that a report is the label, if labels follow the prior; mean over rows."""
        return float(true_report_probs(self.prior, self.epsilon).max(axis=1).mean())

    def could_report(self, classes: NDArray[Any]) -> BoolArray:
        """Whether one class a row is among those that the row's prior lets through."""
        ranks = self._ranks_of(checked_classes(classes, self.num_classes))
        return np.asarray(ranks < self.num_reported)

    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels that are not a class, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """
        checked_classes(raw_labels, self.num_classes)

    def release(self, raw_labels: NDArray[Any], *, rng: NoiseSource | None = None) -> NoisyLabels:
        """Draws one noisy label a row, once.

        Args:
          raw_labels: Classes from 0 to num_classes - 1, a vector.
          rng: Source of the noise; None: the operating system. Sensitive: never log its state.

        Privacy:
          Unit: one label, replace. Local: each label is noised on its own.
          Event: one EpsilonDelta without delta. Relies on: one label a unit, drawn once,
          and a prior that does not depend on the label of the row.
        """
        labels = checked_classes(raw_labels, self.num_classes)
        if labels.ndim != 1:
            raise DataError(f"labels have the shape {labels.shape}, must be a vector.")
        ranks = self._draw_ranks(self._ranks_of(labels), rng or release_rng())
        if self.prior.ndim == 1:
            return self._plain.noisy_labels(self.ranking[0][ranks])
        reports = np.take_along_axis(self.ranking, ranks[:, None], axis=1)[:, 0]
        return self._plain.noisy_labels(reports)

    def describe(self) -> dict[str, Any]:
        """Settings and the channel's numbers as plain data; a matrix of priors by its shape."""
        facts: dict[str, Any] = {
            "mechanism": self.name,
            "epsilon": self.epsilon,
            "num_classes": self.num_classes,
            "mean_num_reported": float(self.num_reported.mean()),
            "true_report_prob": self.true_report_prob(),
            "is_invertible": self.is_invertible,
        }
        if self.prior.ndim == 1:
            reported = self.ranking[0, : self.num_reported[0]]
            facts["prior"] = self.prior.tolist()
            facts["reported_classes"] = sorted(reported.tolist())
        return facts

    @classmethod
    def channel_facts(cls, described: Description) -> ChannelFacts:
        """The channel from what `describe` said: only likely classes come out."""
        num_classes, num_likely = described["num_classes"], len(described["reported_classes"])
        about = (
            f"Only classes that the prior finds likely come out: {num_likely} of {num_classes:,}."
        )
        if num_classes > MOST_VALUES_SHOWN:
            table = _likely_or_not(described["epsilon"], num_likely, num_classes, about)
        else:
            names = [str(number) for number in range(num_classes)]
            prior = np.array(described["prior"], np.float64)
            probs = cls(epsilon=described["epsilon"], prior=prior).channel_matrix().tolist()
            about = f"{about} Rows add up to 100%."
            table = ChannelTable(labels=names, reports=names, probs=probs, about=about)
        return ChannelFacts(pictures=(table,), true_report_prob=described["true_report_prob"])

    @property
    def _plain(self) -> ClassResponse:
        """What it is where all classes can be reported."""
        return ClassResponse(epsilon=self.epsilon, num_classes=self.num_classes)

    def _ranks_of(self, classes: IntArray) -> IntArray:
        """The place of one class a row in the ranking of its prior."""
        if self.prior.ndim == 1:
            return np.asarray(np.argsort(self.ranking[0], kind="stable")[classes])
        if classes.shape != self.prior.shape[:1]:
            raise DataError(
                f"labels have the shape {classes.shape} and there are {len(self.prior)} priors; "
                "give one label for each."
            )
        # Counting what comes before one class is cheaper than the place of every class.
        own = np.take_along_axis(self.prior, classes[:, None], axis=1)
        is_before = self.prior > own
        is_before |= (self.prior == own) & (np.arange(self.num_classes) < classes[:, None])
        return np.asarray(is_before.sum(axis=1))

    def _draw_ranks(self, raw_ranks: IntArray, rng: NoiseSource) -> IntArray:
        """The rank to report for each true rank; rows of one k together."""
        num_reported = np.broadcast_to(self.num_reported, raw_ranks.shape)
        ranks = np.empty(raw_ranks.size, np.int64)
        for count in np.unique(self.num_reported).tolist():
            rows = np.flatnonzero(num_reported == count)
            held = raw_ranks[rows]
            is_in = held < count
            drawn = np.empty(rows.size, np.int64)
            drawn[is_in] = _draw_within(held[is_in], self.epsilon, count, rng)
            # No bias at all: each probability is exactly 1 / count.
            drawn[~is_in] = sample_below(count, int((~is_in).sum()), rng=rng).astype(np.int64)
            ranks[rows] = drawn
        return ranks


@dataclasses.dataclass(frozen=True, kw_only=True)
class PriorRr(PriorSettings):
    """Randomized response among the classes that a prior thinks likely."""

    num_classes: int
    """Number of classes n; labels are 0 to n - 1. Public."""

    kind: ClassVar[str] = PriorResponse.name
    mechanism_class: ClassVar[type[DescribedMechanism]] = PriorResponse

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("num_classes", self.num_classes, least=2)
        if self.prior is None and self.prior_epsilon is None:
            raise ConfigError("prior-rr needs a prior or prior_epsilon: without it is class-rr.")

    @classmethod
    def example(cls) -> "PriorRr":
        """Four classes, for audits and contracts."""
        return cls(num_classes=4, prior=(0.4, 0.3, 0.2, 0.1))

    @property
    def _num_values(self) -> int:
        return self.num_classes

    def _built(self, epsilon: float, prior: FloatArray) -> PriorResponse:
        return PriorResponse(epsilon=epsilon, prior=prior)

    def _without_prior(self, epsilon: float) -> ClassResponse:
        return ClassResponse(epsilon=epsilon, num_classes=self.num_classes)

    def _learnt_prior(self, epsilon: float) -> LabelPriorConfig:
        return LabelPriorConfig(epsilon=epsilon, labels=self.num_classes)


def true_report_probs(prior: FloatArray, epsilon: float) -> FloatArray:
    """Probability of a true report for each number k = 1 ... K of classes that can be reported.

    One row for each prior: e^epsilon / (e^epsilon + k - 1) times the mass of the top k.
    """
    descending = -np.sort(-np.atleast_2d(np.asarray(prior, np.float64)), axis=1)
    num_others = np.arange(descending.shape[1])
    kept: FloatArray = np.cumsum(descending, axis=1) / (1 + num_others * math.exp(-epsilon))
    return kept


def best_num_reported(prior: FloatArray, epsilon: float) -> IntArray:
    """The k that makes a true report likeliest, the smaller one at ties; one a prior.

    No mechanism of this epsilon reports the truth more often (Ghazi et al. 2021).
    """
    return np.asarray(np.argmax(true_report_probs(prior, epsilon), axis=1) + 1)


def _draw_within(held: IntArray, epsilon: float, count: int, rng: NoiseSource) -> IntArray:
    """Randomized response among `count` ranks."""
    loser = rng.words(held.size) // np.uint64(_lie_mass(epsilon, count))
    is_lie = loser < np.uint64(count - 1)
    other = np.where(is_lie, loser, 0).astype(np.int64)
    other += other >= held
    return np.where(is_lie, other, held)


def _lie_mass(epsilon: float, num_reported: int) -> int:
    # One class alone is always reported; the mass is then of nothing.
    return loser_mass(epsilon, num_reported) if num_reported > 1 else WORD_VALUES - 1


def _checked_priors(prior: FloatArray) -> FloatArray:
    weights = np.array(prior, np.float64)
    if weights.ndim not in (1, 2) or weights.shape[-1] < 2:
        raise ConfigError(
            f"prior has the shape {weights.shape}; give one weight for each of at least two "
            "classes, for all rows or in one row of a matrix for each."
        )
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ConfigError("prior must have no negative and no missing weights.")
    # Single precision models give rows that miss 1 by some 1e-7.
    if not np.all(np.abs(weights.sum(axis=-1) - 1) <= 1e-5):
        raise ConfigError("prior must add up to 1, in each row; divide it by its sum.")
    return weights


def _check_says_something(config: PriorResponse) -> None:
    if config.num_classes > 2 and config.prior.ndim == 2:
        return
    if np.any(config.num_reported == 1):
        likeliest = float(np.atleast_2d(config.prior).max(axis=1)[config.num_reported == 1].min())
        way_out = "rr" if config.num_classes == 2 else "class-rr"
        raise ConfigError(
            f"epsilon={config.epsilon} is too small for a prior of {likeliest:.4g} on one class: "
            "a true report is likeliest if that class is always reported, which says "
            f"nothing. Use {way_out}, or epsilon > ln of the odds of the two likeliest classes."
        )


def _likely_or_not(epsilon: float, num_likely: int, num_classes: int, about: str) -> ChannelTable:
    """The channel of many classes: all likely ones are alike, and so are all others."""
    truth, other = 1.0, 0.0
    if num_likely > 1:
        among = ClassResponse(epsilon=epsilon, num_classes=num_likely).response.support_probs
        truth, other = float(among.if_held), float(among.if_not_held)
    rows = {f"one of {num_likely} likely": (truth, other, other * (num_likely - 1))}
    if num_others := num_classes - num_likely:
        rows[f"one of {num_others} others"] = (0.0, 1 / num_likely, 1.0)
    reports = ("the truth", "each other likely", "all of these")
    return ChannelTable(labels=list(rows), reports=reports, probs=list(rows.values()), about=about)
