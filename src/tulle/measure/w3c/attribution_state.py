"""Attribution inside one browser: impressions, budgets, and credit for one conversion at a time.

Calls must come in the order of time, because what a conversion gets depends on what earlier
ones have spent.

Credit is a whole value divided by weights, in whole parts. Shares are rounded in pairs: one of the
two becomes whole, the other takes what that one lost or gained, and probabilities are such that
each keeps its mean. So parts add up to the value, every part has the mean it should have, and none
is off by one or more. Shares are kept as whole multiples of 1 / (sum of weights), which makes all
of this exact.
"""

import bisect
import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tulle.measure.w3c.budgets import (
    BudgetRefusal,
    Deduction,
    Draws,
    EpochBudgets,
    EpochClock,
    microepsilons,
)
from tulle.measure.w3c.limits import DAY_SECONDS, W3cLimits


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
        deduction = Deduction(
            microepsilons(sensitivity, max_value=max_value, epsilon=epsilon),
            microepsilons(2 * conversion.value, max_value=max_value, epsilon=epsilon),
        )
        granted: list[SavedImpression] = []
        refusals: list[BudgetRefusal] = []
        for epoch, group in by_epoch.items():
            sites = {impression.site for impression in group}
            refusal = self.budgets.spend(epoch, conversion.site, sites, deduction)
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
