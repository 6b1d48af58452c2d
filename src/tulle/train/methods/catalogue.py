"""All training methods, and a method as plain data for settings files, runs and plans."""

import dataclasses
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.fields import did_you_mean
from tulle.train.methods.baseline import NonPrivateConfig
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.hybrid import HybridConfig
from tulle.train.methods.label_projection.method import LabelProjectionConfig
from tulle.train.methods.method import Method
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.methods.randomized_labels import RandomizedLabelsConfig

METHODS: tuple[type[Method], ...] = (
    MosaicConfig,
    HybridConfig,
    RandomizedLabelsConfig,
    DpSgdConfig,
    LabelProjectionConfig,
    NonPrivateConfig,
)
"""Every method; the first is the default."""


def method_of(word: object) -> type[Method]:
    """The method of this word, or of one that stands for it too.

    Raises:
      ConfigError: There is no such method.
    """
    for method in METHODS:
        if word == method.kind or word in method.former_kinds:
            return method
    known = [method.kind for method in METHODS]
    raise ConfigError(
        f"method={word!r} is unknown{did_you_mean(word, known)}; use one of {', '.join(known)}."
    )


def method_data(method: Method) -> dict[str, Any]:
    """A method as plain data without empty entries, so that TOML can hold it."""
    return plain_data(method)


def method_from(data: object) -> Method:
    """Reads what `method_data` wrote, now or in version 0.1.0; what is left out has its default.

    Raises:
      ConfigError: A setting is unknown, missing or wrong.
    """
    if not isinstance(data, dict) or "method" not in data:
        known = ", ".join(method.kind for method in METHODS)
        raise ConfigError(f"the settings of a method need the key 'method': {known}.")
    word = data["method"]
    if word == HybridConfig.kind and "cells" in data:
        # Version 0.1.0 called Mosaic hybrid, and always wrote the settings of its cells.
        word = MosaicConfig.kind
    chosen = method_of(word)
    _refuse_settings_of_others(chosen, data)
    made = settings_from(chosen, data | {"method": chosen.kind}, what=f"method {chosen.kind}")
    return _checked(made)


def _checked(made: Any) -> Method:
    if not isinstance(made, Method):
        raise ConfigError(f"settings of type {type(made).__name__} are of no method.")
    return made


def _refuse_settings_of_others(chosen: type[Method], data: dict[str, Any]) -> None:
    """Refuses a setting that another method has, and says which."""
    known = _settings_of(chosen)
    for name in data:
        if name == "method" or name in known:
            continue
        owners = [method.kind for method in METHODS if name in _settings_of(method)]
        if owners:
            raise ConfigError(
                f"method {chosen.kind} has no setting {name!r}, which is of "
                f"{' and '.join(owners)}; leave it out or change the method. "
                f"It has {', '.join(known)}."
            )


def _settings_of(method: type[Method]) -> list[str]:
    return [field.name for field in dataclasses.fields(method)]  # type: ignore[arg-type]
