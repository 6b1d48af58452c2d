"""Budgets of a browser: what each epoch's impressions may still give away.

There are three for each epoch: of the conversion site, of all sites together, and of each
site that showed the impressions. A report takes from all of them or from none.
"""

import dataclasses
import enum
import math
from collections.abc import Collection

from tulle.measure.w3c.limits import MICROEPSILONS, W3cLimits


class Refusal(enum.Enum):
    """Which budget was too small for a report."""

    CONVERSION_SITE = "conversion site budget"
    GLOBAL = "global budget"
    IMPRESSION_SITE = "impression site quota"


@dataclasses.dataclass(frozen=True, slots=True)
class Deduction:
    """What a report takes from one epoch, in microepsilons."""

    site: int
    """From the conversion site's budget."""
    shared: int
    """From the global budget and from the quota of each impression site."""


def microepsilons(sensitivity: int, *, max_value: int, epsilon: float) -> int:
    """What a change of a histogram by `sensitivity` in L1 costs, rounded up.

    In floating point and in the specification's order, so that ten reports of epsilon 0.1
    fit into a budget of 1.
    """
    return math.ceil(sensitivity / (2 * max_value / epsilon) * MICROEPSILONS)


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
    ) -> Refusal | None:
        """Takes a deduction from every budget, or says which one is too small and takes none."""
        site_left, all_left = self.left_for_site(epoch, site), self.left_for_all(epoch)
        if deduction.site > site_left:
            return Refusal.CONVERSION_SITE
        if deduction.shared > all_left:
            return Refusal.GLOBAL
        quotas = {name: self.left_for_impression_site(epoch, name) for name in impression_sites}
        if any(deduction.shared > left for left in quotas.values()):
            return Refusal.IMPRESSION_SITE
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
