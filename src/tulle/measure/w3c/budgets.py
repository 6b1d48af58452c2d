"""Budgets of a browser: what each epoch's impressions may still give away, and when epochs begin.

There are three budgets for each epoch: of the conversion site, of all sites together, and of each
site that showed the impressions. A report takes from all of them or from none. Epochs are weeks
that start at an hour which each browser draws once for itself, so that the loss of a site whose
budget runs out late in an epoch falls on other days in other browsers. How credit is rounded is
the other thing that a browser draws.
"""

import dataclasses
import enum
import math
from collections.abc import Collection
from fractions import Fraction
from typing import Protocol

from tulle.errors import ConfigError
from tulle.measure.w3c.limits import DAY_SECONDS, MICROEPSILONS, W3cLimits
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import WORD_BITS, sample_bernoulli
from tulle.privacy.fields import check_finite

_HOUR_SECONDS = 3600


class BudgetRefusal(enum.Enum):
    """Which budget was too small for a report."""

    CONVERSION_SITE = "conversion site budget"
    GLOBAL = "global budget"
    IMPRESSION_SITE = "impression site quota"


@dataclasses.dataclass(frozen=True, slots=True)
class Deduction:
    """What a report takes from one epoch, in microepsilons."""

    site: int
    """What is taken from the conversion site's budget."""
    shared: int
    """What is taken from the global budget and from the quota of each impression site."""


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
        self, epoch: int, site: str, impression_sites: Collection[str], deduction: Deduction
    ) -> BudgetRefusal | None:
        """Takes a deduction from every budget, or says which one is too small and takes none.

        Args:
          epoch: Number of the epoch.
          site: The conversion site.
          impression_sites: Sites that showed the impressions.
          deduction: What the report takes.
        """
        site_left, all_left = self.left_for_site(epoch, site), self.left_for_all(epoch)
        if deduction.site > site_left:
            return BudgetRefusal.CONVERSION_SITE
        if deduction.shared > all_left:
            return BudgetRefusal.GLOBAL
        quotas = {name: self.left_for_impression_site(epoch, name) for name in impression_sites}
        if any(deduction.shared > left for left in quotas.values()):
            return BudgetRefusal.IMPRESSION_SITE
        self._site[epoch, site] = site_left - deduction.site
        self._global[epoch] = all_left - deduction.shared
        for name, left in quotas.items():
            self._impression_site[epoch, name] = left - deduction.shared
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
