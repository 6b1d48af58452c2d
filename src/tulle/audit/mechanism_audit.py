"""Black-box audit of a randomizer: many draws on two neighbours against its whole claim.

Outputs without an order are scored by how much likelier each is on one input. These ratios are
learnt from some draws and used on others, so the score knows nothing of the randomizer and a wrong
one has no place to hide.
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.accounting.accountant import privacy_curve
from tulle.audit.profile import ProfileAuditConfig, ProfileAuditResult, audit_profile
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, noise_source
from tulle.privacy.events import Event
from tulle.privacy.fields import check_count, check_finite, null_if_infinite
from tulle.privacy.units import Adjacency

LEAST_DRAWS = 1000
"""Least number of draws of an audit; fewer show next to nothing."""
FloatArray = NDArray[np.float64]
_LEARNING_SHARE = 4
"""One draw of so many teaches; the others are scored."""
_PSEUDO_COUNT = 0.5
"""Added to counts, so that an output that taught nothing has a finite ratio."""


Draw = Callable[[bool, int, NoiseSource], NDArray[Any]]


class Outputs(enum.Enum):
    """How a randomizer's outputs tell its inputs apart."""

    RISING = "rising"
    """Numbers: the larger one is, the likelier the neighbour."""
    FINITE = "finite"
    """Few values, or rows of them, in any order."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """A randomizer with its settings on two neighbouring inputs, all synthetic."""

    event: Event
    """What one draw is claimed to cost."""
    adjacency: Adjacency
    """Adjacency under which the two inputs are neighbours."""
    draw: Draw
    """Independent outputs on the first input, or, if True is given, on its neighbour."""
    outputs: Outputs = Outputs.FINITE
    delta: float = 1e-5
    """Delta at which epsilon is quoted. All of the claim is audited."""


MakeTrial = Callable[[float], Trial]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Randomizer:
    """One randomizer of the library."""

    name: str
    modules: tuple[str, ...]
    """Modules that it is in, below tulle."""
    make: MakeTrial
    """The trial with all noise times a factor; noise set by an epsilon gets epsilon / factor."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismAudit:
    """What was found about one randomizer."""

    name: str
    num_draws: int
    """Number of draws on each of the two inputs."""
    profile: ProfileAuditResult

    @property
    def is_violated(self) -> bool:
        """True if the claim is wrong, but for the probability of a false alarm."""
        return self.profile.is_violated

    @property
    def verdict(self) -> str:
        """The result in one word for tables."""
        return "VIOLATED" if self.is_violated else "holds"

    def to_dict(self) -> dict[str, object]:
        """Plain data; a claim without limit is null."""
        profile = self.profile
        return {
            "randomizer": self.name,
            "claimed_epsilon": null_if_infinite(profile.claimed_epsilon),
            "epsilon_lower_bound": profile.epsilon_lower_bound,
            "delta": profile.delta,
            "worst_excess": profile.worst_excess,
            "num_draws": self.num_draws,
            "false_alarm_prob": profile.false_alarm_prob,
            "is_violated": profile.is_violated,
        }


def audit_randomizer(
    randomizer: Randomizer,
    *,
    num_draws: int = 20_000,
    rng: NoiseSource | None = None,
    noise_factor: float = 1.0,
    false_alarm_prob: float = 1e-6,
) -> MechanismAudit:
    """Draws on two neighbouring inputs and holds the outputs against the claim.

    Args:
      randomizer: What to audit.
      num_draws: Number of draws on each input. 20,000 show half the noise in every randomizer of
        the catalogue, and 40,000 noise that is a fifth too small in all but one.
      rng: Source of all draws; None: entropy of the operating system.
      noise_factor: Factor on the noise that is drawn; the claim stays that of 1. Anything below 1
        plants a fault that the audit should see.
      false_alarm_prob: Largest probability that a right randomizer is called wrong.

    Privacy:
      Inputs are synthetic: no data are read, and nothing is charged.
    """
    check_count("num_draws", num_draws, least=LEAST_DRAWS)
    if not check_finite("noise_factor", noise_factor) > 0:
        raise ConfigError(f"noise_factor={noise_factor} must be > 0; 1 audits what is released.")
    claimed, drawn = randomizer.make(1.0), randomizer.make(noise_factor)
    source = noise_source(None) if rng is None else rng
    outputs = drawn.draw(False, num_draws, source)
    neighbour_outputs = drawn.draw(True, num_draws, source)
    if drawn.outputs is Outputs.FINITE:
        scores, neighbour_scores = learnt_scores(outputs, neighbour_outputs)
    else:
        scores = np.asarray(outputs, dtype=np.float64)
        neighbour_scores = np.asarray(neighbour_outputs, dtype=np.float64)
    claim = privacy_curve(claimed.event, claimed.adjacency)
    config = ProfileAuditConfig(false_alarm_prob=false_alarm_prob, delta=claimed.delta)
    return MechanismAudit(
        name=randomizer.name,
        num_draws=num_draws,
        profile=audit_profile(scores, neighbour_scores, claim, config),
    )


def learnt_scores(
    outputs: NDArray[Any], neighbour_outputs: NDArray[Any]
) -> tuple[FloatArray, FloatArray]:
    """Estimated log-likelihood ratios of the draws that taught nothing.

    Args:
      outputs: Independent draws on one input: numbers, or one row a draw.
      neighbour_outputs: The same on its neighbour.

    Privacy:
      For synthetic inputs of an audit.
    """
    both = np.concatenate([outputs, neighbour_outputs])
    axis = 0 if both.ndim > 1 else None
    values, codes = np.unique(both, axis=axis, return_inverse=True)
    first, second = np.split(codes.reshape(-1), [len(outputs)])
    taught = [np.bincount(c[::_LEARNING_SHARE], minlength=len(values)) for c in (first, second)]
    ratios = np.log(taught[1] + _PSEUDO_COUNT) - np.log(taught[0] + _PSEUDO_COUNT)
    kept = [np.delete(codes, np.s_[::_LEARNING_SHARE]) for codes in (first, second)]
    return ratios[kept[0]], ratios[kept[1]]
