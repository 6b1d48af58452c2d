"""What mechanisms would bring, side by side, and the best one for each epsilon."""

import dataclasses
import enum
import json
import math
from typing import Any

from tulle.errors import ConfigError
from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.floors.shortlist import Cutoff, TopCandidates
from tulle.select.mechanism import SelectionMechanism
from tulle.select.metrics import MarketMetrics


class Objective(enum.Enum):
    """What a plan makes as large as possible."""

    WELFARE = "welfare"
    CLICK_RATE = "click_rate"
    REVENUE = "revenue"
    SURPLUS = "surplus"

    def of(self, metrics: MarketMetrics) -> float:
        """Its value."""
        return float(getattr(metrics, self.value))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionOption:
    """One mechanism and what it would bring."""

    mechanism: SelectionMechanism
    metrics: MarketMetrics
    captured_share: float | None
    """Of the welfare that personalisation without privacy adds; below 0 if it is better not to
    personalise, None if there is nothing to add."""

    @property
    def gamma(self) -> float | None:
        """Of its cutoff, if it has one."""
        shortlist = self._shortlist
        return shortlist.gamma if isinstance(shortlist, Cutoff) else None

    @property
    def num_finalists(self) -> int | None:
        """Length of its shortlist, if it is the same for all auctions."""
        shortlist = self._shortlist
        return shortlist.num_finalists if isinstance(shortlist, TopCandidates) else None

    def to_dict(self) -> dict[str, Any]:
        """All numbers by name; no epsilon if it is infinite."""
        epsilon = self.mechanism.epsilon
        return {
            "mechanism": self.mechanism.name,
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "gamma": self.gamma,
            "num_finalists": self.num_finalists,
            **self.metrics.to_dict(),
            "captured_share": self.captured_share,
        }

    @property
    def _shortlist(self) -> object:
        return getattr(self.mechanism, "shortlist", None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionOutlook:
    """All options of a plan. As sensitive as what it was computed from."""

    num_auctions: int
    epsilons: tuple[float, ...]
    objective: Objective
    is_from_devices: bool
    """True if it was computed from predictions of devices, and is as sensitive as they are."""
    baseline: MarketMetrics
    """Without personalisation."""
    ideal: MarketMetrics
    """Without privacy: the device's favourite."""
    options: tuple[SelectionOption, ...]

    def recommended(self, epsilon: float) -> SelectionOption:
        """The best response over a shortlist that spends at most this epsilon.

        The first of equally good ones. Baselines are compared and not recommended.

        Args:
          epsilon: One of those that the outlook was made for.
        """
        if epsilon not in self.epsilons:
            raise ConfigError(
                f"epsilon={epsilon} was not compared; the outlook has {self.epsilons}."
            )
        affordable = [
            option
            for option in self.options
            if isinstance(option.mechanism, FloorMechanism) and option.mechanism.epsilon <= epsilon
        ]
        return max(affordable, key=lambda option: self.objective.of(option.metrics))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a file or a report."""
        return {
            "num_auctions": self.num_auctions,
            "objective": self.objective.value,
            "is_from_devices": self.is_from_devices,
            "baseline": self.baseline.to_dict(),
            "ideal": self.ideal.to_dict(),
            "options": [option.to_dict() for option in self.options],
            "recommended": [
                {"for_epsilon": epsilon, **self.recommended(epsilon).to_dict()}
                for epsilon in self.epsilons
            ],
        }

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)
