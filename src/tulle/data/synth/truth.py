"""The known truth of a synthetic log: exact label probabilities and the best AUC there is.

A frequent value of a feature has an effect of its own, a hash of its name made normal.
Effects fade with the rank as 1 / sqrt(1 + rank / 1,000) and end at rank 65,536, so that
most of the signal lies in values that a model sees often enough to learn; mapping the
rest to one out-of-vocabulary token loses nothing. Effects have mean 0 over the rows.

Features that no entity ties together are independent, so the laws of the public and of
the sensitive part of the logit are convolutions of the laws of single effects. From
the two follow, without sampling, the constant that gives the label rate, the best
public-only prediction E[p | public part], and the AUC loss (1 - AUC) of both. Values
that each user has once count as independent here: that is the law over the population
of users, which a short log samples.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from tulle.data.synth.shapes import USER, SynthFeature, SynthKind, SynthShape, TimeLaw
from tulle.data.synth.zipf import CodeArray, CodeTable, normal_deviates, salt_of, scramble

# Where effects end and how they fade, as the head of this module says.
MAX_EFFECTS = 1 << 16
_FADING_RANK = 1000
_CURVE_WAVES = 3
"""Few waves give a smooth curve that buckets of a logarithm can follow."""


class EffectTable:
    """Effects of one feature's codes, in units of the logit."""

    def __init__(self, feature: SynthFeature, stddev: float) -> None:
        codes = np.arange(min(MAX_EFFECTS, feature.law.num_values + 1))
        make = _curve if feature.kind is SynthKind.COUNT else _named_effects
        raw = make(feature, codes)
        self.probs = feature.law.prob(codes)
        # All codes beyond the table share its last entry.
        self.probs[-1] += max(0.0, 1 - float(self.probs.sum()))
        raw -= self.probs @ raw
        spread = float(self.probs @ raw**2) ** 0.5
        self.effects = (raw * (stddev / spread if spread > 0 else 0.0)).astype(np.float32)

    def take(self, codes: CodeArray) -> npt.NDArray[np.float32]:
        """The effect of each code."""
        return self.effects.take(codes, mode="clip")


def _named_effects(feature: SynthFeature, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    effects = normal_deviates(codes, salt_of(f"effect of {feature.name}"))
    effects /= np.sqrt(1 + codes / _FADING_RANK)
    if feature.law.num_values >= MAX_EFFECTS:
        effects[-1] = 0
    return effects


def _curve(feature: SynthFeature, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    weights = normal_deviates(np.arange(_CURVE_WAVES + 1), salt_of(f"curve of {feature.name}"))
    place = np.log1p(codes) / np.log1p(codes[-1])
    waves = np.arange(1, _CURVE_WAVES + 1)
    curve = np.cos(np.pi * np.outer(place, waves)) @ (weights[1:] / waves)
    curve[0] = weights[0] / 2
    return curve


FloatArray = npt.NDArray[np.float64]

# Grid of logits from -32 to 32. Beyond, a probability is 0 or 1 to 1e-14; values between two points
# are split over both, so that means stay exact.
_STEP = 1 / 64
_HALF_WIDTH = 1 << 11
_GRID: FloatArray = _STEP * np.arange(-_HALF_WIDTH, _HALF_WIDTH, dtype=np.float64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth:
    """What drives the labels of a shape, and how well any model can do."""

    intercept: float
    public_curve: npt.NDArray[np.float32]
    """E[p | public part of the logit] on a fixed grid."""
    auc_loss: float
    """1 - AUC of the true probability: no model of all features does better."""
    public_auc_loss: float
    """1 - AUC of E[p | public features]: no model of the public features does better."""

    def true_prob(self, logit: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """P(label = 1) given all features, from the sum of all effects."""
        odds = np.exp(np.float32(-self.intercept) - logit)
        return np.asarray(np.float32(1) / (np.float32(1) + odds))

    def public_prob(self, public_logit: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """P(label = 1) given the public features and the time."""
        place = (public_logit - np.float32(_GRID[0])) * np.float32(1 / _STEP)
        index = place.astype(np.int32)
        low = self.public_curve.take(index, mode="clip")
        high = self.public_curve.take(index + 1, mode="clip")
        return low + (high - low) * (place - index.astype(np.float32))


def find_truth(
    shape: SynthShape, tables: dict[str, CodeTable], effects: dict[str, EffectTable]
) -> Truth:
    """The truth of a shape, computed from its laws alone.

    Args:
      shape: Laws of columns, times and labels.
      tables: Values of each column with their probabilities.
      effects: Effect of each column's values on the label's logit.
    """
    public = _spread(hour_logits(shape.time), hour_volumes(shape.time))
    sensitive = _spread(np.zeros(1), np.ones(1))
    for group in _tied_groups(shape):
        values, probs = _joint_effects(group, tables, effects)
        if group[0].sensitive:
            sensitive = _convolve(sensitive, _spread(values, probs))
        else:
            public = _convolve(public, _spread(values, probs))
    intercept = _intercept(_convolve(public, sensitive), shape.label_rate)
    curve = _convolve(_sigmoid(_GRID + intercept), sensitive[::-1], shift=1)
    total = _convolve(public, sensitive)
    return Truth(
        intercept=intercept,
        public_curve=curve.astype(np.float32),
        auc_loss=_auc_loss(total, _sigmoid(_GRID + intercept)),
        public_auc_loss=_auc_loss(public, curve),
    )


def entity_words(feature: SynthFeature, entity: CodeArray) -> npt.NDArray[np.uint32]:
    """The words that fix a feature's value for each entity (an ad, a user)."""
    return scramble(entity, salt_of(f"{feature.name} of {feature.given_by}"))


def hour_volumes(time: TimeLaw) -> FloatArray:
    """Share of the rows in each hour."""
    hours = np.arange(24 * time.num_days)
    volumes = 1 - time.daily_swing * np.cos(2 * np.pi * (hours % 24 - 3) / 24)
    return np.asarray(volumes / volumes.sum())


def hour_logits(time: TimeLaw) -> FloatArray:
    """What the time adds to the logit in each hour."""
    hours = np.arange(24 * time.num_days)
    drift = time.label_drift * (hours / len(hours) - 0.5)
    return np.asarray(drift + time.weekly_swing * np.cos(2 * np.pi * hours / (24 * 7)))


def _tied_groups(shape: SynthShape) -> list[list[SynthFeature]]:
    groups: dict[str, list[SynthFeature]] = {}
    root = {USER: USER}
    for feature in shape.features:
        parent = root.get(feature.given_by or "", USER)
        root[feature.name] = feature.name if parent == USER else parent
        groups.setdefault(root[feature.name], []).append(feature)
    return list(groups.values())


def _joint_effects(
    group: list[SynthFeature], tables: dict[str, CodeTable], effects: dict[str, EffectTable]
) -> tuple[FloatArray, FloatArray]:
    first = group[0]
    table = effects[first.name]
    if len(group) == 1:
        return table.effects.astype(np.float64), table.probs
    codes = {first.name: np.arange(first.law.num_values + 1, dtype=np.int32)}
    total = table.take(codes[first.name]).astype(np.float64)
    for feature in group[1:]:
        words = entity_words(feature, codes[feature.given_by or ""])
        codes[feature.name] = tables[feature.name].codes(words)
        total += effects[feature.name].take(codes[feature.name])
    return total, first.law.prob(codes[first.name])


def _spread(values: FloatArray, probs: FloatArray) -> FloatArray:
    """The law of a value on the grid; each value is split between its two neighbours."""
    place = np.clip(values / _STEP + _HALF_WIDTH, 0, len(_GRID) - 2)
    low = place.astype(np.int64)
    share = place - low
    law = np.bincount(low, probs * (1 - share), len(_GRID))
    return np.asarray(law + np.bincount(low + 1, probs * share, len(_GRID)), dtype=np.float64)


def _convolve(first: FloatArray, second: FloatArray, shift: int = 0) -> FloatArray:
    from scipy.signal import fftconvolve

    padded = np.concatenate(
        [np.full(_HALF_WIDTH, first[0]), first, np.full(_HALF_WIDTH, first[-1])]
    )
    full = fftconvolve(padded, second)
    start = 2 * _HALF_WIDTH - shift
    return np.maximum(full[start : start + len(_GRID)], 0)


def _intercept(law: FloatArray, label_rate: float) -> float:
    from scipy.optimize import brentq

    def excess(intercept: float) -> float:
        return float(law @ _sigmoid(_GRID + intercept)) - label_rate

    return float(brentq(excess, -40, 40, xtol=1e-12))


def _auc_loss(law: FloatArray, probs: FloatArray) -> float:
    positive, negative = law * probs, law * (1 - probs)
    below = np.cumsum(negative) - negative / 2
    return float(1 - positive @ below / (positive.sum() * negative.sum()))


def _sigmoid(logits: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 + np.exp(-logits)))
