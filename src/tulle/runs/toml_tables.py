"""Settings as tables of a TOML file.

Unknown settings are refused with a suggestion: one that is dropped silently could weaken what
is promised.
"""

import contextlib
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tulle.errors import ConfigError, DataError, reason_of
from tulle.privacy.fields import check_count, did_you_mean
from tulle.privacy.units import parse_seconds


def read_toml(path: Path) -> dict[str, Any]:
    """All tables of a settings file.

    Raises:
      ConfigError: It is not TOML.
      DataError: It cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path.name} does not exist; name a settings file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path.name} cannot be read: {reason_of(error)}; name a settings file."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not TOML: {error}; correct it.") from None


def check_table(
    what: str, table: object, required: Collection[str], optional: Collection[str] | None = None
) -> dict[str, Any]:
    """The table itself, if it has every required key and no unknown one.

    Args:
      what: Its name in messages.
      table: As TOML gives it.
      required: Keys that must be there.
      optional: Further keys that may be; None allows any.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{what} must be a table of settings, not {table!r}.")
    if optional is not None:
        known = list(dict.fromkeys([*required, *optional]))
        for key in table:
            if key not in known:
                raise ConfigError(
                    f"{what} has no setting {key!r}{did_you_mean(key, known)}; "
                    f"it has {', '.join(known)}."
                )
    for key in required:
        if key not in table:
            raise ConfigError(f"{what} needs the setting {key!r}; add it.")
    return table


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Puts the name of a table before what is wrong with its settings."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None


def check_flag(name: str, value: object) -> bool:
    """True or False, and nothing that only looks like it."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r} must be true or false.")
    return value


def seconds_of(name: str, length: object) -> int:
    """Seconds of "7 days", or of a whole number of seconds."""
    if isinstance(length, str):
        try:
            return parse_seconds(length)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
    return check_count(name, length)
