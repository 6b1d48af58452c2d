"""Liquid Legions that also count: frequency across parties.

A register keeps the hash of its user and how often he was seen. Where two different users meet,
it is marked as shared and counts no more; users who are alone in their register are a uniform
sample of all, because hashing knows nothing of frequencies.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError, DataError
from tulle.measure.reach.liquid_legions import LiquidLegionsConfig, check_mergeable, key_mark
from tulle.measure.reach.user_hashes import UserIds, hash_users
from tulle.mechanisms.entropy import Words
from tulle.privacy.fields import check_count

IntArray = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CountedLegions:
    """Registers with their users' counts. Sensitive: nothing may get out without noise."""

    config: LiquidLegionsConfig
    key_mark: str
    raw_owners: Words = dataclasses.field(repr=False)
    """A hash of the only user of each register; 0 if it has none or several."""
    raw_counts: IntArray = dataclasses.field(repr=False)
    """How often the only user was seen; 0 if there is none or several."""
    raw_is_shared: Marks = dataclasses.field(repr=False)

    @classmethod
    def of_impressions(
        cls, user_ids: UserIds, config: LiquidLegionsConfig, *, key: bytes
    ) -> "CountedLegions":
        """The sketch of impressions, given by the user of each.

        Privacy:
          Nothing is released. A user changes one register, whatever rows he has.
        """
        owners = np.maximum(hash_users(user_ids, key, "owner").words, np.uint64(1))
        registers = config.registers_of(hash_users(user_ids, key, "register").uniforms)
        users, first_rows, counts = np.unique(owners, return_index=True, return_counts=True)
        registers = registers[first_rows]
        is_shared = np.bincount(registers, minlength=config.num_registers) > 1
        is_alone = ~is_shared[registers]
        raw_owners = np.zeros(config.num_registers, np.uint64)
        raw_owners[registers[is_alone]] = users[is_alone]
        raw_counts = np.zeros(config.num_registers, np.int64)
        raw_counts[registers[is_alone]] = counts[is_alone]
        return cls(
            config=config,
            key_mark=key_mark(key),
            raw_owners=raw_owners,
            raw_counts=raw_counts,
            raw_is_shared=is_shared,
        )

    def __reduce__(self) -> tuple[object, ...]:
        raise DataError("a sketch tells who is in the set; release its frequencies with noise.")

    @property
    def raw_num_marks(self) -> int:
        """Registers with one user or more. Sensitive."""
        return int(np.sum(self.raw_is_shared | (self.raw_owners != 0)))

    def raw_frequencies(self, max_frequency: int) -> IntArray:
        """How many lonely users were seen 1, 2, ... and at least max_frequency times."""
        check_count("max_frequency", max_frequency)
        counts = np.minimum(self.raw_counts[self.raw_owners != 0], max_frequency)
        return np.bincount(counts, minlength=max_frequency + 1)[1:].astype(np.int64)


def merge_counted(sketches: list[CountedLegions]) -> CountedLegions:
    """The sketch of all impressions together: counts of the same user add up.

    Privacy:
      Nothing is released. Runs where all sketches may be seen: the central model.
    """
    if not sketches:
        raise ConfigError("sketches=[] has nothing to merge; give at least one.")
    check_mergeable([(sketch.config, sketch.key_mark) for sketch in sketches])
    merged = sketches[0]
    for other in sketches[1:]:
        merged = _merge_two(merged, other)
    return merged


def _merge_two(first: CountedLegions, second: CountedLegions) -> CountedLegions:
    has_both = (first.raw_owners != 0) & (second.raw_owners != 0)
    differs = has_both & (first.raw_owners != second.raw_owners)
    is_shared = first.raw_is_shared | second.raw_is_shared | differs
    owners = np.maximum(first.raw_owners, second.raw_owners)
    return dataclasses.replace(
        first,
        raw_owners=np.where(is_shared, np.uint64(0), owners),
        raw_counts=np.where(is_shared, 0, first.raw_counts + second.raw_counts),
        raw_is_shared=is_shared,
    )
