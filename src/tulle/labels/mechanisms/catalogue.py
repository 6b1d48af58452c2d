"""All label mechanisms: the one list of their settings, by the words of the command line.

A settings object knows everything but epsilon: what the labels can be and how they are noised. It
is made in Python, from plain data with a `kind`, or from a word and single settings. What a record
says of a mechanism leads back to its class here too.
"""

import dataclasses
import functools
import operator
from collections.abc import Mapping
from typing import Any

from tulle.errors import ConfigError
from tulle.labels.label_mechanism import DescribedMechanism, Description
from tulle.labels.label_noise import LabelNoise, LabelSettings
from tulle.labels.mechanisms.added_noise import LaplaceNoise, LaplaceNoiseClipped
from tulle.labels.mechanisms.bin_response import BinRr
from tulle.labels.mechanisms.class_response import BinaryRr, ClassRr
from tulle.labels.mechanisms.prior_response import PriorRr
from tulle.labels.mechanisms.stepped_noise import (
    DiscreteLaplaceNoise,
    DiscreteLaplaceNoiseClipped,
    StaircaseNoise,
    StaircaseNoiseClipped,
)
from tulle.labels.mechanisms.unbiased_response import UnbiasedRr
from tulle.labels.mechanisms.unit_noise import JointRr, JointSubset, UnitRr
from tulle.privacy.codec import settings_from
from tulle.privacy.fields import check_epsilon, did_you_mean

_SETTINGS: tuple[type[LabelSettings], ...] = (
    BinaryRr,
    ClassRr,
    PriorRr,
    BinRr,
    UnbiasedRr,
    LaplaceNoise,
    DiscreteLaplaceNoise,
    StaircaseNoise,
    LaplaceNoiseClipped,
    DiscreteLaplaceNoiseClipped,
    StaircaseNoiseClipped,
    UnitRr,
    JointRr,
    JointSubset,
)

LABEL_MECHANISMS: Mapping[str, type[LabelSettings]] = {cls.kind: cls for cls in _SETTINGS}
"""The settings class of each word."""

MECHANISM_SETTINGS: Any = functools.reduce(operator.or_, _SETTINGS)
"""The union of all settings classes, which the codec tells apart by their kind."""


def mechanism_by_word(word: str, settings: Mapping[str, object] | None = None) -> LabelSettings:
    """The settings object of a word.

    Args:
      word: One of `LABEL_MECHANISMS`, e.g. "joint-rr".
      settings: Values of its fields; those that are not there have their defaults.

    Raises:
      ConfigError: The word is unknown, or a setting is not one of this mechanism.
    """
    if word not in LABEL_MECHANISMS:
        raise ConfigError(
            f"mechanism={word!r} is unknown{did_you_mean(word, LABEL_MECHANISMS)}; use one of "
            f"{', '.join(LABEL_MECHANISMS)}."
        )
    return mechanism_from({"kind": word, **(settings or {})})


def mechanism_from(data: Mapping[str, object]) -> LabelSettings:
    """The settings object of plain data.

    Args:
      data: A `kind` and values of its fields, as JSON or TOML give them.

    Raises:
      ConfigError: The kind is unknown, or a setting is not one of this mechanism.
    """
    word = str(data.get("kind"))
    if word in LABEL_MECHANISMS:
        _check_settings(word, data)
    made: LabelSettings = settings_from(MECHANISM_SETTINGS, data, what="mechanism")
    return made


def settings_of_word(word: str) -> tuple[str, ...]:
    """Names of the settings that a user may give for a word."""
    cls: Any = LABEL_MECHANISMS[word]
    return tuple(field.name for field in dataclasses.fields(cls))


def words_with_setting(name: str) -> list[str]:
    """The mechanisms that have a setting of this name."""
    return [word for word in LABEL_MECHANISMS if name in settings_of_word(word)]


def mechanism_class(described: Description) -> type[DescribedMechanism] | None:
    """The class of the mechanism that a record describes; None for one of another tulle.

    Args:
      described: What its `describe` gave.
    """
    settings = LABEL_MECHANISMS.get(str(described.get("mechanism")))
    return None if settings is None else settings.mechanism_class


def noise_of(
    mechanism: str | Mapping[str, object] | LabelSettings | LabelNoise, epsilon: float | None
) -> LabelNoise:
    """The noise that a mechanism adds, whichever way it was chosen.

    Args:
      mechanism: A word, plain data, a settings object, or noise that has its own epsilon already.
      epsilon: What the release may cost one unit in all; None if the noise says it.
    """
    if isinstance(mechanism, LabelNoise):
        if epsilon is not None and epsilon != mechanism.epsilon:
            raise ConfigError(
                f"epsilon={epsilon} is not that of the mechanism, {mechanism.epsilon}; leave "
                "epsilon out, or give the mechanism by its word."
            )
        return mechanism
    epsilon = given_epsilon(epsilon)
    if isinstance(mechanism, str):
        mechanism = mechanism_by_word(mechanism)
    elif isinstance(mechanism, Mapping):
        mechanism = mechanism_from(mechanism)
    if not isinstance(mechanism, LabelSettings):
        raise ConfigError(
            f"mechanism={mechanism!r} must be a word such as 'rr', or settings such as JointRr()."
        )
    return mechanism.noise(epsilon)


def given_epsilon(epsilon: float | None) -> float:
    """The epsilon of a release, which must have been given."""
    if epsilon is None:
        raise ConfigError("epsilon is missing: say what the release may cost one unit, e.g. 1.")
    return check_epsilon(epsilon)


def _check_settings(word: str, data: Mapping[str, object]) -> None:
    """Refuses settings of other mechanisms, and names all that are missing at once."""
    for name in data:
        words = words_with_setting(name)
        if words and word not in words:
            raise ConfigError(f"{name} is for {', '.join(words)}, not for {word}; leave it out.")
    cls: Any = LABEL_MECHANISMS[word]
    needed = [
        field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING
    ]
    if set(needed) - set(data):
        raise ConfigError(
            f"mechanism {word!r} needs {' and '.join(needed)}: public numbers, not read off the "
            "labels."
        )
