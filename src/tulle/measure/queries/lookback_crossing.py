"""How much credit a unit with windows costs, from the settings alone.

A conversion is credited to impressions of its own window only. Else the numbers of one window would
depend on the rows of another, and the guarantee for each window would be false. Conversions soon
after the begin of a window therefore miss impressions.
"""

import dataclasses

from tulle.measure.queries.query import MeasureConfig
from tulle.privacy.time_zones import DAY_SECONDS
from tulle.privacy.units import Unit
from tulle.privacy.windows import TimeWindows

_MONTH = TimeWindows(None)
_SHORT_SECONDS = DAY_SECONDS
"""The shorter lookback that is offered."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LookbackCrossing:
    """What the windows of a unit cut off the lookback of conversions. Public: no row is read.

    Shares hold for conversions that are spread evenly over time.
    """

    unit: Unit
    windows: TimeWindows
    lookback_seconds: int

    @property
    def most_conversions(self) -> float:
        """Share of conversions whose lookback begins before their window: at most these lose."""
        return min(1.0, self.lookback_seconds / self.windows.shortest_seconds)

    @property
    def lookback_lost(self) -> float:
        """Share of the time within a lookback that lies before the window, over all conversions."""
        length, lookback = self.windows.shortest_seconds, self.lookback_seconds
        if lookback <= length:
            return lookback / (2 * length)
        return 1 - length / (2 * lookback)

    def to_dict(self) -> dict[str, object]:
        """Plain data for a plan in JSON."""
        return {
            "unit": str(self.unit),
            "lookback_seconds": self.lookback_seconds,
            "most_conversions": self.most_conversions,
            "lookback_lost": self.lookback_lost,
        }

    def __str__(self) -> str:
        most, lost = f"{self.most_conversions:.0%}", f"{self.lookback_lost:.0%}"
        return (
            f"unit '{self.unit}': conversions are credited to impressions of their own window. "
            f"With a lookback of {_days(self.lookback_seconds)}, up to {most} of conversions may "
            f"miss impressions of the window before, and {lost} of all lookback time is cut off, "
            "if conversions are spread evenly over time. Ways out: "
            f"{'; '.join(self._ways_out())}."
        )

    def _ways_out(self) -> list[str]:
        ways = []
        if self.windows.shortest_seconds < _MONTH.shortest_seconds:
            longer = dataclasses.replace(self, windows=_MONTH)
            ways.append(f"a longer window (per month: up to {longer.most_conversions:.0%})")
        if self.lookback_seconds > _SHORT_SECONDS:
            shorter = dataclasses.replace(self, lookback_seconds=_SHORT_SECONDS)
            ways.append(f"a shorter lookback (1 day: up to {shorter.most_conversions:.0%})")
        whole = self.unit.owner.value
        ways.append(
            f"the unit '{whole}' over a log with the impressions before, charged to a budget of "
            f"'{self.unit}' with adjacency replace: each window that the log touches then pays "
            "twice epsilon"
        )
        return ways


def lookback_crossing(config: MeasureConfig) -> LookbackCrossing | None:
    """Returns what the windows of the unit cut off; None without windows or without attribution."""
    if config.unit.windows is None or config.attribution is None:
        return None
    return LookbackCrossing(
        unit=config.unit,
        windows=config.unit.windows,
        lookback_seconds=config.attribution.lookback_seconds,
    )


def _days(seconds: int) -> str:
    days = seconds / DAY_SECONDS
    return "1 day" if days == 1 else f"{days:.3g} days"
