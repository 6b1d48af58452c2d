"""Sketches of Apache DataSketches, for merging huge sets without privacy.

HLL is small, CPC smaller, Theta also intersects. None of them is private: a sketch tells who may
be in the set, and one user can move its estimate by many, so noise made for one user on the
estimate protects nobody. For a release use the exact count of one engine, or Liquid Legions.
"""

import dataclasses
import enum
from typing import Any

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.lab.sketches.liquid_legions import UserIds, hash_users

_LOG_SIZES = (5, 21)
"""Least and largest sizes that all three kinds of sketches take."""


class PlainSketchKind(enum.Enum):
    """Which sketch."""

    HLL = "hll"
    CPC = "cpc"
    THETA = "theta"


_CLASSES = {
    PlainSketchKind.HLL: ("hll_sketch", "hll_union"),
    PlainSketchKind.CPC: ("cpc_sketch", "cpc_union"),
    PlainSketchKind.THETA: ("update_theta_sketch", "theta_union"),
}
"""Names of the library's sketches, and of what merges them."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PlainSketch:
    """Distinct users, roughly. Not private, and cannot be saved."""

    kind: PlainSketchKind
    log_size: int
    raw_sketch: Any = dataclasses.field(repr=False)
    """The library's object. Sensitive."""

    @classmethod
    def of_users(
        cls, user_ids: UserIds, *, key: bytes, kind: PlainSketchKind, log_size: int = 12
    ) -> "PlainSketch":
        """The sketch of these users, of about 2^log_size entries.

        Args:
          user_ids: Ids of users, each once or more often.
          key: Secret that the parties share.
          kind: Kind of the sketch.
          log_size: Logarithm of its number of entries to base 2.

        Privacy:
          None. Nothing that follows from a plain sketch may be released.
        """
        least, most = _LOG_SIZES
        if not least <= log_size <= most:
            raise ConfigError(f"log_size={log_size} must be from {least} to {most}, e.g. 12.")
        sketch = getattr(_library(), _CLASSES[kind][0])(log_size)
        for word in hash_users(user_ids, key, "plain sketch").words.view(np.int64).tolist():
            sketch.update(word)
        return cls(kind=kind, log_size=log_size, raw_sketch=sketch)

    @property
    def raw_estimate(self) -> float:
        """Estimated number of distinct users. Sensitive, whatever noise is added."""
        return float(self.raw_sketch.get_estimate())

    def __reduce__(self) -> tuple[object, ...]:
        raise DataError(
            "a plain sketch is not private and is not saved; release reach with "
            "release_frequencies() or release_sketch_reach()."
        )


def merge_plain(sketches: list[PlainSketch]) -> PlainSketch:
    """The sketch of the union.

    Privacy:
      None. Nothing that follows from a plain sketch may be released.
    """
    if not sketches:
        raise ConfigError("sketches=[] has nothing to merge; give at least one.")
    first = sketches[0]
    union = getattr(_library(), _CLASSES[first.kind][1])(first.log_size)
    for sketch in sketches:
        if (sketch.kind, sketch.log_size) != (first.kind, first.log_size):
            raise ConfigError(
                f"a sketch is {sketch.kind.value} of log_size={sketch.log_size}, another "
                f"{first.kind.value} of {first.log_size}; merge sketches of one kind and size."
            )
        union.update(sketch.raw_sketch)
    return dataclasses.replace(first, raw_sketch=union.get_result())


def _library() -> Any:
    try:
        import datasketches  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(
            "plain sketches need datasketches; pip install 'tulle[sketches]'."
        ) from None
    return datasketches
