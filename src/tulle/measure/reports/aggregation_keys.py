"""The 128-bit keys of summary reports, and the contributions of one report.

A source registers a piece of a key under a name, a trigger another piece for the names it
lists. The key of a name is the bitwise OR of its pieces, so each side sets bits of its own.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count

KEY_BITS = 128
L1_BUDGET = 1 << 16
"""The most that all reports of one source may add up to."""
MOST_CONTRIBUTIONS = 20
"""Contributions of one report."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TriggerPiece:
    """A piece of a key that a trigger adds to some names. Names no source has are ignored."""

    piece: int
    source_keys: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_piece(self.piece)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contribution:
    """One value that a report adds to one key."""

    key: int
    value: int


def read_piece(text: str) -> int:
    """A piece as registrations write it: 0x and 1 to 32 hexadecimal digits."""
    digits = text[2:]
    is_hex = text[:2].lower() == "0x" and digits != "" and digits.isalnum() and digits.isascii()
    try:
        piece = int(digits, 16) if is_hex else -1
    except ValueError:
        piece = -1
    if piece < 0 or len(digits) > KEY_BITS // 4:
        raise ConfigError(f"key piece {text!r} must be 0x and 1 to 32 hexadecimal digits.")
    return piece


def contributions_of(
    source_pieces: Mapping[str, int],
    trigger_pieces: Sequence[TriggerPiece],
    values: Mapping[str, int],
) -> tuple[Contribution, ...]:
    """The contributions of the report that a trigger makes on a source.

    Args:
      source_pieces: The source's piece of each name.
      trigger_pieces: What the trigger adds.
      values: What the trigger contributes under each name; names the source lacks are ignored.
    """
    made = []
    for name, source_piece in source_pieces.items():
        key = _check_piece(source_piece)
        for part in trigger_pieces:
            if name in part.source_keys:
                key |= part.piece
        if name in values:
            made.append(Contribution(key=key, value=_check_value(name, values[name])))
    if len(made) > MOST_CONTRIBUTIONS:
        raise ConfigError(
            f"a report would have {len(made)} contributions and may have {MOST_CONTRIBUTIONS}; "
            "give values for fewer names."
        )
    return tuple(made)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyLayout:
    """Which bits of a key say what: a run of bits for each field, from the lowest on."""

    field_sizes: Mapping[str, int]
    """How many values each field has."""

    def __post_init__(self) -> None:
        for name, size in self.field_sizes.items():
            check_count(name, size)
        if self.num_bits > KEY_BITS:
            raise ConfigError(
                f"the fields {', '.join(self.field_sizes)} need {self.num_bits} bits and a key "
                f"has {KEY_BITS}; slice by fewer columns or coarser values."
            )

    @property
    def num_bits(self) -> int:
        """Bits that the fields take together."""
        return sum(_bits(size) for size in self.field_sizes.values())

    def piece(self, codes: Mapping[str, int]) -> int:
        """The piece that says these fields and leaves all other bits 0."""
        widths = [_bits(size) for size in self.field_sizes.values()]
        offsets = dict(zip(self.field_sizes, itertools.accumulate(widths, initial=0), strict=False))
        piece = 0
        for name, code in codes.items():
            if not 0 <= code < self.field_sizes[name]:
                raise ConfigError(
                    f"field {name} has {self.field_sizes[name]} values; code {code} is none."
                )
            piece |= code << offsets[name]
        return piece


def _bits(size: int) -> int:
    return max(1, (size - 1).bit_length())


def _check_piece(piece: int) -> int:
    if check_count("key piece", piece, least=0) >> KEY_BITS:
        raise ConfigError(f"key piece {hex(piece)} must fit {KEY_BITS} bits.")
    return piece


def _check_value(name: str, value: int) -> int:
    if check_count(f"value of {name!r}", value) > L1_BUDGET:
        raise ConfigError(
            f"value of {name!r} must be from 1 to {L1_BUDGET}; scale values to the budget."
        )
    return value
