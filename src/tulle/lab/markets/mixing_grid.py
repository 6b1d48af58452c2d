"""Epsilon at which randomized response overtakes clipped noisy max, by candidates and knowledge.

Figure 13 of Laro et al. 2024. The fewer the candidates and the more devices know, the earlier.
The clipped scores get the width that is best for each epsilon, on the very sample they are
judged on: the comparison favours them.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tulle.errors import ConfigError
from tulle.lab.markets.market_sample import MarketSample, mix_device_clicks
from tulle.lab.markets.sweeps import tuned_clipping
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.noisy_max import typical_score
from tulle.select.mechanisms.noisy_max_probs import NoiseKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridSettings:
    """What is compared. Every field is public."""

    alphas: Sequence[float] = (1.0, 0.5, 0.25, 0.1)
    """How much of the difference between device and server is left."""
    epsilons: Sequence[float] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 8.0, 10.0)
    relative_widths: Sequence[float] = (0.02, 0.1, 0.35, 1.0, 3.0)
    """Widths of clipping, in typical server scores."""
    noise: NoiseKind = NoiseKind.EXPONENTIAL
    objective: str = "click_rate"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridRow:
    """One kind of auction and one alpha. As sensitive as the sample."""

    group: str
    alpha: float
    epsilons: Sequence[float]
    response_values: Sequence[float]
    """Values of the objective with randomized response over all candidates."""
    clipped_values: Sequence[float]
    """The same with clipped noisy max."""
    baseline: float
    ideal: float

    @property
    def overtaking_epsilon(self) -> float | None:
        """Epsilon from which on randomized response is at least as good; None if there is none."""
        return overtaking_epsilon(self.epsilons, self.response_values, self.clipped_values)

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return dataclasses.asdict(self) | {"overtaking_epsilon": self.overtaking_epsilon}


def mixing_grid(groups: Mapping[str, MarketSample], settings: GridSettings) -> tuple[GridRow, ...]:
    """Every group of auctions with every alpha.

    Privacy:
      Not a private release: computed from device predictions.
    """
    return tuple(
        _row(name, sample, alpha, settings)
        for name, sample in groups.items()
        for alpha in settings.alphas
    )


def groups_by_size(
    sample: MarketSample, *, few: int = 3, many: int = 10
) -> dict[str, MarketSample]:
    """Auctions with up to `few` candidates, with `many` or more, and those between.

    Args:
      sample: Auctions with their devices.
      few: Most candidates of a small auction.
      many: Fewest candidates of a large auction.

    Privacy:
      Sorted by public data alone; the parts are as sensitive as the sample.
    """
    if not 1 <= few < many:
        raise ConfigError(f"few={few} must be at least 1 and below many={many}.")
    sizes = sample.auctions.sizes
    members = {
        f"up to {few} candidates": sizes <= few,
        f"{few + 1} to {many - 1} candidates": (sizes > few) & (sizes < many),
        f"{many} candidates or more": sizes >= many,
    }
    return {
        name: sample.subset(np.flatnonzero(is_member))
        for name, is_member in members.items()
        if is_member.any()
    }


def _row(name: str, sample: MarketSample, alpha: float, settings: GridSettings) -> GridRow:
    device = mix_device_clicks(sample.auctions, sample.device, alpha=alpha)
    mixed = dataclasses.replace(sample, device=device)
    unit = typical_score(mixed.auctions)
    widths = [width * unit for width in settings.relative_widths]
    response_values, clipped_values = [], []
    for epsilon in settings.epsilons:
        clipped = tuned_clipping(
            mixed,
            epsilon=epsilon,
            widths=widths,
            noise=settings.noise,
            objective=settings.objective,
        )
        response = FloorMechanism(epsilon=epsilon)
        response_values.append(mixed.metrics(response).to_dict()[settings.objective])
        clipped_values.append(mixed.metrics(clipped).to_dict()[settings.objective])
    return GridRow(
        group=name,
        alpha=alpha,
        epsilons=tuple(settings.epsilons),
        response_values=tuple(response_values),
        clipped_values=tuple(clipped_values),
        baseline=mixed.baseline.to_dict()[settings.objective],
        ideal=mixed.ideal.to_dict()[settings.objective],
    )


def overtaking_epsilon(
    epsilons: Sequence[float], values: Sequence[float], others: Sequence[float]
) -> float | None:
    """The least epsilon from which on `values` are never below `others`; None if there is none.

    Args:
      epsilons: Rising.
      values: Values of the mechanism that may overtake, one for each epsilon.
      others: Values of the mechanism it is compared with.
    """
    found = None
    for epsilon, value, other in reversed(list(zip(epsilons, values, others, strict=True))):
        if value < other:
            break
        found = epsilon
    return found
