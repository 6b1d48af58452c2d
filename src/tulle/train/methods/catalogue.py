"""All training methods, and a method as plain data for settings files, runs and plans."""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy.codec import json_schema, plain_data, settings_from
from tulle.privacy.fields import did_you_mean
from tulle.privacy.options import option_name, options_of, with_options
from tulle.train.methods.baseline import NonPrivateConfig
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.hybrid import HybridConfig
from tulle.train.methods.label_projection.method import LabelProjectionConfig
from tulle.train.methods.method import Method
from tulle.train.methods.mosaic.label_parts import check_classes
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.methods.randomized_labels import RandomizedLabelsConfig
from tulle.train.settings.units import ExampleLevel, UnitLevel, UserLevel, unit_level

METHODS: tuple[type[Method], ...] = (
    MosaicConfig,
    HybridConfig,
    RandomizedLabelsConfig,
    DpSgdConfig,
    LabelProjectionConfig,
    NonPrivateConfig,
)
"""Every method; the first is the default."""

# Used where nobody gives one: below one over the number of rows up to ten million rows. A larger
# log should be given a smaller one.
_DEFAULT_DELTA = 1e-7


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


def chosen_method(
    method: str | Method | Mapping[str, Any],
    *,
    epsilon: float | None,
    delta: float | None,
    unit: UnitLevel | str | None,
    clip: float | None = None,
    classes: Sequence[object] | None = None,
    allow_constant: bool | None = None,
) -> Method:
    """The method that a caller names, with its target.

    Args:
      method: Its word, itself, or its settings as plain data.
      epsilon: Epsilon of the guarantee; None if the method has its target, or no guarantee.
      delta: Delta of the guarantee; None: 1e-7, or 0 for methods that need none.
      unit: Whom it protects: "example", "user" or the name of the unit column; None: as its
        settings say.
      clip: Largest value of a label, if labels are values; None: as its settings say.
      classes: Names of the classes, if labels are classes; None: as its settings say.
      allow_constant: Train also where the model can be expected to be a constant.

    Raises:
      ConfigError: Arguments contradict each other, or epsilon is missing.
    """
    if isinstance(method, str):
        chosen = method_of(method)()
    elif isinstance(method, Mapping):
        chosen = method_from(dict(method))
    elif isinstance(method, Method):
        chosen = method
    else:
        known = ", ".join(repr(known.kind) for known in METHODS)
        raise ConfigError(
            f"method of type {type(method).__name__} must be one of {known}, a config such as "
            "MosaicConfig(), or its settings as plain data."
        )
    if unit is not None:
        chosen = with_unit(chosen, unit)
    if clip is not None:
        chosen = _with_clip(chosen, clip)
    if classes is not None:
        chosen = _with_classes(chosen, classes)
    if allow_constant:
        chosen = _with_constant(chosen)
    if not chosen.is_private or chosen.target is not None:
        if epsilon is not None or delta is not None:
            reason = (
                "the method has its target already"
                if chosen.is_private
                else f"method {chosen.kind} has no guarantee"
            )
            name, value = ("delta", delta) if epsilon is None else ("epsilon", epsilon)
            raise ConfigError(
                f"{name}={value} is given, but {reason}; leave it out or change the method."
            )
        return chosen
    if epsilon is None:
        raise ConfigError(
            f"method {chosen.kind} needs an epsilon, e.g. epsilon=3; to train without privacy use "
            "method='nonprivate'."
        )
    if delta is None:
        delta = _DEFAULT_DELTA if chosen.needs_delta else 0.0
    return chosen.calibrate(epsilon=epsilon, delta=delta)


def configured_method(
    settings: Mapping[str, Any], *, word: str | None, given: Mapping[str, Any]
) -> Method:
    """A method from a settings file and options that win over it.

    Args:
      settings: Tables of the file without those of data and target. A file may serve several
        methods: where a method is named beside it, what only others know is left aside.
      word: The method that was named beside the file; None: that of the file, or the default.
      given: Options by name, see `privacy.options`.

    Raises:
      ConfigError: A setting or an option is unknown, or is of another method.
    """
    in_file = settings.get("method", METHODS[0].kind)
    if in_file == HybridConfig.kind and "cells" in settings:
        in_file = MosaicConfig.kind  # as version 0.1.0 called it
    chosen = method_of(in_file if word is None else word)
    known = _settings_of(chosen)
    others = {name for method in METHODS for name in _settings_of(method)} - set(known)
    is_other = word is not None and method_of(in_file) is not chosen
    kept = {
        name: value
        for name, value in settings.items()
        if name != "method" and not (is_other and name in others)
    }
    for name in given:
        if name not in options_of(chosen):
            raise _meaningless(name, chosen)
    return method_from(with_options(chosen, kept, given) | {"method": chosen.kind})


def _meaningless(name: str, chosen: type[Method]) -> ConfigError:
    """What is said of an option that only other methods have."""
    owners = [method.kind for method in METHODS if name in options_of(method)]
    instead = f", or use --method {' or '.join(owners[:2])}" if owners else ""
    if f"label_{name}" in options_of(chosen):
        instead = f", or give {option_name(f'label_{name}')}"
    return ConfigError(
        f"{option_name(name)} has no meaning for method {chosen.kind}; leave it out{instead}."
    )


def with_unit(method: Method, unit: UnitLevel | str) -> Method:
    """The method with a unit that was named beside its settings.

    Raises:
      ConfigError: The settings have another unit already.
    """
    level: UnitLevel = unit_level(unit) if isinstance(unit, str) else unit
    if method.unit is not None and type(method.unit) is not type(level):
        raise ConfigError(
            f"unit={unit!r} contradicts the settings of method {method.kind}, which protect "
            f"{'each row' if isinstance(method.unit, ExampleLevel) else 'users'}; say it once."
        )
    if isinstance(method.unit, UserLevel) and isinstance(level, UserLevel):
        # What was said of the rows of a user stays; the word says their window.
        level = dataclasses.replace(
            method.unit, window_seconds=level.window_seconds, calendar=level.calendar
        )
    return method if method.unit == level else method.with_unit(level)


def _with_clip(method: Method, clip: float) -> Method:
    if not isinstance(method, MosaicConfig):
        raise ConfigError(
            f"clip={clip} has no meaning for method {method.kind}, which learns labels of 0 and 1; "
            "use method='mosaic' to learn values, or give it labels of 0 and 1 without a clip."
        )
    if method.clip not in (None, clip):
        raise ConfigError(
            f"clip={clip} contradicts the settings of method {method.kind}, which have "
            f"clip={method.clip}; say it once."
        )
    return dataclasses.replace(method, clip=clip)


def _with_classes(method: Method, classes: Sequence[object]) -> Method:
    if not isinstance(method, MosaicConfig):
        raise ConfigError(
            f"classes={list(classes)} has no meaning for method {method.kind}, which learns labels "
            "of 0 and 1; use method='mosaic' to learn classes, or give it labels of 0 and 1 "
            "without classes."
        )
    names = check_classes(classes)
    if method.classes not in (None, names):
        raise ConfigError(
            f"classes={list(names)} contradicts the settings of method {method.kind}, which have "
            f"classes={list(method.classes or ())}; say it once."
        )
    return dataclasses.replace(method, classes=names)


def _with_constant(method: Method) -> Method:
    if not isinstance(method, MosaicConfig):
        raise ConfigError(
            f"allow_constant=True has no meaning for method {method.kind}, which refuses no data "
            "for having few rows; leave it out."
        )
    return dataclasses.replace(method, allow_constant=True)


def settings_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a settings file: those of one method, and which rows to use."""
    schema = json_schema(functools.reduce(operator.or_, METHODS), title="Settings of tulle train")
    for table in schema["anyOf"]:
        table["properties"]["data"] = {"type": "object"}
        table["required"] = []  # options of the command may say what the file leaves out
    return schema


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
    made: Method = settings_from(
        chosen, data | {"method": chosen.kind}, what=f"method {chosen.kind}"
    )
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
