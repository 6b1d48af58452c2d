"""Attribution inside one browser: impressions, budgets, and credit for one conversion at a time.

Calls must come in the order of time, because what a conversion gets depends on what earlier
ones have spent.

There are three budgets for each epoch: of the conversion site, of all sites together, and of each
site that showed the impressions. A report takes from all of them or from none. Epochs are weeks
that start at an hour which each browser draws once for itself, so that the loss of a site whose
budget runs out late in an epoch falls on other days in other browsers. How credit is rounded is
the other thing that a browser draws.

Credit is a whole value divided by weights, in whole parts. Shares are rounded in pairs: one of the
two becomes whole, the other takes what that one lost or gained, and probabilities are such that
each keeps its mean. So parts add up to the value, every part has the mean it should have, and none
is off by one or more. Shares are kept as whole multiples of 1 / (sum of weights), which makes all
of this exact.
"""

import bisect
import dataclasses
import enum
import functools
import math
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol

from tulle.errors import ConfigError
from tulle.measure.w3c.options import DAY_SECONDS, MICROEPSILONS, W3cLimits
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import WORD_BITS, sample_bernoulli
from tulle.privacy.fields import check_finite

_HOUR_SECONDS = 3600


class BudgetRefusal(enum.Enum):
    """Which budget was too small for a report."""

    CONVERSION_SITE = "conversion site budget"
    GLOBAL = "global budget"
    IMPRESSION_SITE = "impression site quota"


def microepsilons(sensitivity: int, *, max_value: int, epsilon: float) -> int:
    """What a change of a histogram by `sensitivity` in L1 costs, rounded up.

    In floating point and in the specification's order, so that ten reports of epsilon 0.1
    fit into a budget of 1.

    Args:
      sensitivity: The change in L1.
      max_value: Most that a report of the aggregate may add up to.
      epsilon: Epsilon of the conversion.
    """
    return math.ceil(sensitivity / (2 * max_value / epsilon) * MICROEPSILONS)


class Draws(Protocol):
    """Uniform numbers in [0, 1), asked for one decision at a time."""

    def is_below(self, numerator: int, denominator: int) -> bool:
        """Whether a fresh uniform number is below numerator / denominator."""

    def epoch_start(self) -> float:
        """How far into an epoch the browser is when it first needs one."""


class EpochBudgets:
    """What is left of all budgets of one browser. Sensitive."""

    def __init__(self, limits: W3cLimits) -> None:
        self._limits = limits
        self._site: dict[tuple[int, str], int] = {}
        self._global: dict[int, int] = {}
        self._impression_site: dict[tuple[int, str], int] = {}

    def left_for_site(self, epoch: int, site: str) -> int:
        """What a conversion site may still spend on an epoch."""
        return self._site.get((epoch, site), self._limits.per_site_privacy_budget)

    def left_for_all(self, epoch: int) -> int:
        """What all conversion sites together may still spend on an epoch."""
        return self._global.get(epoch, self._limits.global_privacy_budget_per_epoch)

    def left_for_impression_site(self, epoch: int, site: str) -> int:
        """What reports on the impressions of a site may still spend on an epoch."""
        return self._impression_site.get(
            (epoch, site), self._limits.impression_site_quota_per_epoch
        )

    def spend(
        self,
        epoch: int,
        site: str,
        impression_sites: Collection[str],
        *,
        from_site: int,
        from_shared: int,
    ) -> BudgetRefusal | None:
        """Takes from every budget what a report costs, or says which is too small and takes none.

        Args:
          epoch: Number of the epoch.
          site: The conversion site.
          impression_sites: Sites that showed the impressions.
          from_site: Microepsilons that the conversion site's budget gives.
          from_shared: Microepsilons that the global budget and each impression site's quota give.
        """
        site_left, all_left = self.left_for_site(epoch, site), self.left_for_all(epoch)
        if from_site > site_left:
            return BudgetRefusal.CONVERSION_SITE
        if from_shared > all_left:
            return BudgetRefusal.GLOBAL
        quotas = {name: self.left_for_impression_site(epoch, name) for name in impression_sites}
        if any(from_shared > left for left in quotas.values()):
            return BudgetRefusal.IMPRESSION_SITE
        self._site[epoch, site] = site_left - from_site
        self._global[epoch] = all_left - from_shared
        for name, left in quotas.items():
            self._impression_site[epoch, name] = left - from_shared
        return None

    def use_up(self, epoch: int, site: str) -> None:
        """Leaves nothing of a conversion site's budget."""
        self._site[epoch, site] = 0

    def forget(self, sites: Collection[str]) -> None:
        """Drops what is kept for some sites. The global budget stays spent."""
        for store in (self._site, self._impression_site):
            for key in [key for key in store if key[1] in sites]:
                del store[key]

    def forget_all(self) -> None:
        """Drops everything."""
        self._site.clear()
        self._global.clear()
        self._impression_site.clear()


class EpochClock:
    """Turns a time in seconds into the number of its epoch."""

    def __init__(self, epoch_days: int, draws: Draws) -> None:
        self._period = epoch_days * DAY_SECONDS
        self._draws = draws
        self._start: int | None = None

    def epoch_of(self, seconds: int) -> int:
        """The epoch of a time. The first call draws the start, within an epoch before it."""
        if self._start is None:
            drawn = seconds - self._draws.epoch_start() * self._period
            self._start = math.floor(drawn / _HOUR_SECONDS) * _HOUR_SECONDS
        return (seconds - self._start) // self._period


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedDraws:
    """Draws that are one number every time, as conformance cases want it."""

    credit_fraction: float = 0.5
    epoch_fraction: float = 0.5

    def __post_init__(self) -> None:
        for name in ("credit_fraction", "epoch_fraction"):
            if not 0 <= check_finite(name, getattr(self, name)) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be in [0, 1).")

    def is_below(self, numerator: int, denominator: int) -> bool:
        """Compares the fixed number."""
        return Fraction(self.credit_fraction) * denominator < numerator

    def epoch_start(self) -> float:
        """The fixed number."""
        return self.epoch_fraction


@dataclasses.dataclass(frozen=True)
class RandomDraws:
    """Exact draws from a source of random words."""

    rng: NoiseSource

    def is_below(self, numerator: int, denominator: int) -> bool:
        """True with probability numerator / denominator, exactly."""
        return bool(sample_bernoulli(Fraction(numerator, denominator), 1, rng=self.rng)[0])

    def epoch_start(self) -> float:
        """A multiple of 2^-53."""
        return (int(self.rng.words(1)[0]) >> (WORD_BITS - 53)) * 2.0**-53


class SavedImpression(NamedTuple):
    """One impression in the store of a browser. Times are in seconds."""

    timestamp: int
    lifetime: int
    histogram_index: int
    priority: int
    site: str
    caller: str
    """The site whose code saved it: a frame's own, or `site`."""
    match_value: int = 0
    conversion_sites: frozenset[str] = frozenset()
    conversion_callers: frozenset[str] = frozenset()


class Conversion(NamedTuple):
    """One checked call of measureConversion()."""

    now: int
    site: str
    caller: str
    lookback: int
    """Longest time from an impression to the conversion, in seconds."""
    histogram_size: int
    epsilon: float
    value: int
    max_value: int
    credit: tuple[float, ...]
    match_values: frozenset[int] = frozenset()
    impression_sites: frozenset[str] = frozenset()
    impression_callers: frozenset[str] = frozenset()


class BrowserCredit(NamedTuple):
    """Who gets how much of a conversion."""

    touches: list[SavedImpression]
    """Impressions with credit, the most important first."""
    parts: list[int]
    """What each of them gets; they add up to the value, or there are none."""
    matched: list[SavedImpression]
    """All impressions that match, also where budgets were too small for their epoch."""
    refusals: list[BudgetRefusal]
    """One for each epoch with matching impressions that could not be used."""


class AttributionState:
    """What one browser remembers. Sensitive: it holds what a person saw and did."""

    def __init__(self, limits: W3cLimits, draws: Draws) -> None:
        self.impressions: list[SavedImpression] = []
        """Impressions in the order of time."""
        self.budgets = EpochBudgets(limits)
        self._clock = EpochClock(limits.privacy_budget_epoch_days, draws)
        self._draws = draws
        self._max_lookback = limits.max_lookback_days * DAY_SECONDS
        self._last_clear: int | None = None

    def attribute(self, conversion: Conversion) -> BrowserCredit:
        """Gives the value of a conversion to impressions, as far as budgets allow.

        Privacy:
          Unit: the impressions that one browser saved in one epoch, seen by one conversion
          site, add-remove. Without them a histogram changes by its own L1 norm if the
          lookback lies in one epoch, and else by at most 2 * value. This is what the budget
          pays for. Relies on: Laplace noise of scale 2 * max_value / epsilon on the sum.
        """
        current = self._clock.epoch_of(conversion.now)
        by_epoch = self._matching(conversion)
        if not by_epoch:
            return BrowserCredit([], [], [], [])
        matched = [impression for group in by_epoch.values() for impression in group]
        is_single_epoch = current == self._clock.epoch_of(conversion.now - conversion.lookback)
        sensitivity = 2 * conversion.value
        if is_single_epoch:
            # Drawn once: a second draw could be larger than the one that is paid for.
            touches, parts = self._give_credit(matched, conversion)
            sensitivity = _norm(touches, parts, conversion.histogram_size)
        granted, refusals = self._spend(by_epoch, conversion, sensitivity)
        if not granted:
            return BrowserCredit([], [], matched, refusals)
        if not is_single_epoch:
            touches, parts = self._give_credit(granted, conversion)
        return BrowserCredit(touches, parts, matched, refusals)

    def use_up_budgets(self, sites: Iterable[str], now: int) -> None:
        """Leaves sites no budget in any epoch that they could still ask about."""
        # In the specification's order: the first call of the clock draws its start.
        first = self._start_epoch(now)
        epochs = range(first, self._clock.epoch_of(now) + 1)
        for site in sites:
            for epoch in epochs:
                self.budgets.use_up(epoch, site)

    def forget_visits(self, sites: frozenset[str], now: int) -> None:
        """Drops what is kept about sites, or everything; closes all epochs up to this one."""
        if sites:
            self.impressions = [kept for kept in self.impressions if kept.site not in sites]
            self.budgets.forget(sites)
        else:
            self.impressions = []
            self.budgets.forget_all()
        self._last_clear = now

    def _matching(self, conversion: Conversion) -> dict[int, list[SavedImpression]]:
        """Impressions that a conversion may use, by epoch, in the order of time."""
        earliest = conversion.now - conversion.lookback
        start_epoch = self._start_epoch(conversion.now)
        first = bisect.bisect_left(self.impressions, (earliest,))
        by_epoch: dict[int, list[SavedImpression]] = {}
        for impression in self.impressions[first:]:
            if _matches(impression, conversion):
                epoch = self._clock.epoch_of(impression.timestamp)
                if epoch >= start_epoch:
                    by_epoch.setdefault(epoch, []).append(impression)
        return by_epoch

    def _start_epoch(self, now: int) -> int:
        earliest = self._clock.epoch_of(now - self._max_lookback)
        if self._last_clear is None:
            return earliest
        return max(earliest, self._clock.epoch_of(self._last_clear) + 1)

    def _spend(
        self, by_epoch: dict[int, list[SavedImpression]], conversion: Conversion, sensitivity: int
    ) -> tuple[list[SavedImpression], list[BudgetRefusal]]:
        """The impressions of epochs whose budgets suffice, and why others do not."""
        max_value, epsilon = conversion.max_value, conversion.epsilon
        from_site = microepsilons(sensitivity, max_value=max_value, epsilon=epsilon)
        from_shared = microepsilons(2 * conversion.value, max_value=max_value, epsilon=epsilon)
        granted: list[SavedImpression] = []
        refusals: list[BudgetRefusal] = []
        for epoch, group in by_epoch.items():
            sites = {impression.site for impression in group}
            refusal = self.budgets.spend(
                epoch, conversion.site, sites, from_site=from_site, from_shared=from_shared
            )
            if refusal is None:
                granted += group
            else:
                refusals.append(refusal)
        return granted, refusals

    def _give_credit(
        self, impressions: list[SavedImpression], conversion: Conversion
    ) -> tuple[list[SavedImpression], list[int]]:
        touches = most_important(impressions, len(conversion.credit))
        credit = conversion.credit[: len(touches)]
        return touches, fairly_allocate_credit(credit, conversion.value, self._draws)


def most_important(impressions: list[SavedImpression], most: int) -> list[SavedImpression]:
    """The first by priority, and the latest among equals."""
    return sorted(impressions, key=_importance)[:most]


def fairly_allocate_credit(credit: Sequence[float], value: int, draws: Draws) -> list[int]:
    """Whole parts of `value` in proportion to `credit`, in expectation.

    Args:
      credit: Weights.
      value: The whole number to divide.
      draws: What decides how parts are rounded.
    """
    if len(credit) == 1:
        return [value]
    weights, whole = _whole_weights(tuple(credit))
    parts = [value * weight for weight in weights]
    open_part = 0
    for next_part in range(1, len(parts)):
        open_rest, next_rest = parts[open_part] % whole, parts[next_part] % whole
        if open_rest == next_rest == 0:
            continue
        rounds_up = open_rest + next_rest > whole
        open_step = whole - open_rest if rounds_up else -open_rest
        next_step = whole - next_rest if rounds_up else -next_rest
        if draws.is_below(abs(next_step), abs(open_step + next_step)):
            open_part, next_part, step = next_part, open_part, open_step
        else:
            step = next_step
        parts[next_part] += step
        parts[open_part] -= step
    return [part // whole for part in parts]


def _importance(impression: SavedImpression) -> tuple[int, int]:
    return -impression.priority, -impression.timestamp


def _matches(impression: SavedImpression, conversion: Conversion) -> bool:
    return (
        conversion.now <= impression.timestamp + impression.lifetime
        and _allows(impression.conversion_sites, conversion.site)
        and _allows(impression.conversion_callers, conversion.caller)
        and _allows(conversion.match_values, impression.match_value)
        and _allows(conversion.impression_sites, impression.site)
        and _allows(conversion.impression_callers, impression.caller)
    )


def _allows(chosen: frozenset[str] | frozenset[int], value: str | int) -> bool:
    """An empty set chooses everything."""
    return not chosen or value in chosen


def _norm(touches: list[SavedImpression], parts: list[int], histogram_size: int) -> int:
    """Credit of buckets beyond the histogram is lost, and costs nothing."""
    return sum(
        part
        for touch, part in zip(touches, parts, strict=True)
        if touch.histogram_index < histogram_size
    )


@functools.lru_cache(maxsize=64)
def _whole_weights(credit: tuple[float, ...]) -> tuple[tuple[int, ...], int]:
    """Credit as whole numbers in the same proportion, and their sum."""
    ratios = [weight.as_integer_ratio() for weight in credit]
    denominator = math.lcm(*(below for _, below in ratios))
    weights = tuple(above * (denominator // below) for above, below in ratios)
    return weights, sum(weights)
