"""Fair choices that nobody can foresee: rows in the order of a keyed md5.

md5 is the same on every engine, and with a secret salt in front of the text nobody outside can
tell which slices of a user are kept. An arithmetic key would be faster but not fair: its order
follows the values. Each part is written with its length, so that no two rows have one text.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

from collections.abc import Sequence

import polars as pl

from tulle.errors import ConfigError

SALT = "tulle_salt"
MIN_SALT_BYTES = 16
SALT_VALUE = f"(SELECT salt FROM {SALT})"
"""How steps read the salt."""
_DRAW_DIGITS = 12


def salt_frame(salt: bytes) -> pl.DataFrame:
    """The salt as a table of one row, so that it stands in no SQL text, log or plan."""
    if len(salt) < MIN_SALT_BYTES:
        raise ConfigError(
            f"salt has {len(salt)} bytes; it needs at least {MIN_SALT_BYTES} random ones, e.g. "
            "secrets.token_bytes(16)."
        )
    return pl.DataFrame({"salt": [salt.hex()]})


def keyed_md5(expressions: Sequence[str]) -> str:
    """The order of a secret choice, as text of 32 hexadecimal digits."""
    return f"MD5({SALT_VALUE} || {_encoded(expressions)})"


def keyed_draw(expressions: Sequence[str]) -> str:
    """Its first 48 bits, which sort faster: rows of one draw need another order after it."""
    return f"SUBSTRING({keyed_md5(expressions)}, 1, {_DRAW_DIGITS})"


def plain_md5(expressions: Sequence[str]) -> str:
    """An order that is the same in every run, for ties between rows."""
    return f"MD5({_encoded(expressions)})"


def _encoded(expressions: Sequence[str]) -> str:
    return " || ".join(_with_length(expression) for expression in expressions)


def _with_length(expression: str) -> str:
    text = f"CAST({expression} AS VARCHAR)"
    return f"COALESCE(CAST(LENGTH({text}) AS VARCHAR) || ':' || {text}, '-')"
