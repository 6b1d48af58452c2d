"""What each value of a feature adds to the logit.

A frequent value has an effect of its own, a hash of its name made normal. Effects fade
with the rank as 1 / sqrt(1 + rank / 1,000) and end at rank 65,536, so that most of the
signal lies in values that a model sees often enough to learn; mapping the rest to one
out-of-vocabulary token loses nothing. Effects have mean 0 over the rows.
"""

import numpy as np
import numpy.typing as npt

from tulle.data.synth.hashing import normal_deviates, salt_of
from tulle.data.synth.shape import SynthFeature, SynthKind
from tulle.data.synth.zipf import CodeArray

MAX_EFFECTS = 1 << 16
_FADING_RANK = 1000
_CURVE_WAVES = 3


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
