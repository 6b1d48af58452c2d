"""What an audit needs of a randomizer: a worst pair of neighbours, draws on both, a claim."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event
from tulle.privacy.units import Adjacency

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
