"""Attribution inside one browser: impressions, budgets, and credit for one conversion at a time.

Calls must come in the order of time, because what a conversion gets depends on what earlier
ones have spent.
"""

import bisect
from collections.abc import Iterable
from typing import NamedTuple

from tulle.measure.w3c.budgets import Deduction, EpochBudgets, Refusal, microepsilons
from tulle.measure.w3c.credit import fairly_allocate_credit
from tulle.measure.w3c.draws import Draws
from tulle.measure.w3c.epochs import EpochClock
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
    """In seconds."""
    histogram_size: int
    epsilon: float
    value: int
    max_value: int
    credit: tuple[float, ...]
    match_values: frozenset[int] = frozenset()
    impression_sites: frozenset[str] = frozenset()
    impression_callers: frozenset[str] = frozenset()


class Attribution(NamedTuple):
    """Who gets how much of a conversion."""

    touches: list[SavedImpression]
    """Impressions with credit, the most important first."""
    parts: list[int]
    """What each of them gets; they add up to the value, or there are none."""
    matched: list[SavedImpression]
    """All impressions that match, also where budgets were too small for their epoch."""
    refusals: list[Refusal]
    """One for each epoch with matching impressions that could not be used."""


class AttributionState:
    """What one browser remembers. Sensitive: it holds what a person saw and did."""

    def __init__(self, limits: W3cLimits, draws: Draws) -> None:
        self.impressions: list[SavedImpression] = []
        """In the order of time."""
        self.budgets = EpochBudgets(limits)
        self._clock = EpochClock(limits.privacy_budget_epoch_days, draws)
        self._draws = draws
        self._max_lookback = limits.max_lookback_days * DAY_SECONDS
        self._last_clear: int | None = None

    def attribute(self, conversion: Conversion) -> Attribution:
        """Gives the value of a conversion to impressions, as far as budgets allow.

        Privacy:
          Unit: the impressions that one browser saved in one epoch, seen by one conversion
          site, add-or-remove. Without them a histogram changes by its own L1 norm if the
          lookback lies in one epoch, and else by at most 2 * value. This is what the budget
          pays for. Relies on: Laplace noise of scale 2 * max_value / epsilon on the sum.
        """
        current = self._clock.epoch_of(conversion.now)
        by_epoch = self._matching(conversion)
        if not by_epoch:
            return Attribution([], [], [], [])
        matched = [impression for group in by_epoch.values() for impression in group]
        is_single_epoch = current == self._clock.epoch_of(conversion.now - conversion.lookback)
        sensitivity = 2 * conversion.value
        if is_single_epoch:
            # Drawn once: a second draw could be larger than the one that is paid for.
            touches, parts = self._give_credit(matched, conversion)
            sensitivity = _norm(touches, parts, conversion.histogram_size)
        granted, refusals = self._spend(by_epoch, conversion, sensitivity)
        if not granted:
            return Attribution([], [], matched, refusals)
        if not is_single_epoch:
            touches, parts = self._give_credit(granted, conversion)
        return Attribution(touches, parts, matched, refusals)

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
    ) -> tuple[list[SavedImpression], list[Refusal]]:
        """The impressions of epochs whose budgets suffice, and why others do not."""
        max_value, epsilon = conversion.max_value, conversion.epsilon
        deduction = Deduction(
            microepsilons(sensitivity, max_value=max_value, epsilon=epsilon),
            microepsilons(2 * conversion.value, max_value=max_value, epsilon=epsilon),
        )
        granted: list[SavedImpression] = []
        refusals: list[Refusal] = []
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
