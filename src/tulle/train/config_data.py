"""A config as plain data, for settings files, run folders and finished plans."""

import dataclasses
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy.fields import check_choice, check_fields, did_you_mean
from tulle.train.budget_split import split_from_dict, split_to_dict
from tulle.train.cells.cell_settings import CellSettings
from tulle.train.configs import (
    METHOD_NAMES,
    Accounting,
    HybridConfig,
    Target,
    TrainConfig,
    TwoPhaseConfig,
    method_name,
)
from tulle.train.models.model_settings import model_from_dict
from tulle.train.optimizers.settings_json import optimizer_from_dict
from tulle.train.phases import (
    EarlyStopping,
    LabelCorrection,
    LabelPhase,
    PlainPhase,
    PrivatePhase,
    PublicTower,
)
from tulle.train.projected.projection import Projection
from tulle.train.schedules import schedule_from_dict
from tulle.train.step_noise import step_noise_from_dict
from tulle.train.unit_level import unit_from_dict, unit_to_dict


def config_to_dict(config: TrainConfig) -> dict[str, object]:
    """Plain data without empty entries, so that TOML can hold it."""
    data: dict[str, object] = {"method": method_name(config)}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is not None:
            data[field.name] = _WRITERS.get(field.name, _as_it_is)(value)
    return data


def config_from_dict(data: object) -> TrainConfig:
    """Reads what `config_to_dict` wrote; what is left out has its default."""
    if not isinstance(data, dict) or "method" not in data:
        raise ConfigError(f"a config needs the key 'method': {', '.join(METHOD_NAMES.values())}.")
    by_name = {name: cls for cls, name in METHOD_NAMES.items()}
    cls = by_name.get(data["method"]) if isinstance(data["method"], str) else None
    if cls is None:
        raise ConfigError(
            f"method={data['method']!r} is unknown{did_you_mean(data['method'], by_name)}; "
            f"use one of {', '.join(by_name)}."
        )
    names = [field.name for field in dataclasses.fields(cls)]
    if cls is HybridConfig:
        _check_no_phases(data, names)
    fields = check_fields(f"{data['method']} config", data, ("method",), names)
    read = {name: _READERS.get(name, _as_it_is)(v) for name, v in fields.items()}
    del read["method"]
    return cls(**read)


def _check_no_phases(data: dict[str, Any], names: list[str]) -> None:
    """Refuses settings of the two-phase algorithm, which the papers call Hybrid."""
    word = METHOD_NAMES[TwoPhaseConfig]
    for field in dataclasses.fields(TwoPhaseConfig):
        if field.name in data and field.name not in names:
            raise ConfigError(
                f"method='hybrid' has no key {field.name!r}; it is of the method now called {word}."
                f" Write method='{word}', or leave it out; keys of hybrid are {', '.join(names)}."
            )


def _as_it_is(value: Any) -> Any:
    return value


def _phase_to_dict(phase: PlainPhase | PrivatePhase) -> dict[str, object]:
    data: dict[str, object] = {}
    for field in dataclasses.fields(phase):
        value = getattr(phase, field.name)
        if field.name in ("optimizer", "schedule", "noise"):
            data[field.name] = value.to_dict()
        elif field.name == "early_stopping" and value is not None:
            data[field.name] = dataclasses.asdict(value)
        elif field.name in ("correction", "public_tower"):
            data[field.name] = value.value
        elif value is not None:
            data[field.name] = value
    return data


def _read_phase(cls: Any, what: str, data: object) -> Any:
    names = [field.name for field in dataclasses.fields(cls)]
    fields = dict(check_fields(what, data, (), names))
    if "optimizer" in fields:
        fields["optimizer"] = optimizer_from_dict(fields["optimizer"])
    if "schedule" in fields:
        fields["schedule"] = schedule_from_dict(fields["schedule"])
    if "noise" in fields:
        fields["noise"] = step_noise_from_dict(fields["noise"])
    if "early_stopping" in fields:
        names = [field.name for field in dataclasses.fields(EarlyStopping)]
        stopping = check_fields("early_stopping", fields["early_stopping"], (), names)
        fields["early_stopping"] = EarlyStopping(**stopping)
    if "correction" in fields:
        fields["correction"] = check_choice("correction", fields["correction"], LabelCorrection)
    if "public_tower" in fields:
        fields["public_tower"] = check_choice("public_tower", fields["public_tower"], PublicTower)
    return cls(**fields)


def _read_target(data: object) -> Target:
    return Target(**check_fields("target", data, ("epsilon", "delta")))


_WRITERS: dict[str, Any] = {
    "model": lambda model: model.to_dict(),
    "label_phase": _phase_to_dict,
    "private_phase": _phase_to_dict,
    "phase": _phase_to_dict,
    "projection": lambda projection: projection.to_dict(),
    "cells": lambda cells: cells.to_dict(),
    "split": split_to_dict,
    "unit": unit_to_dict,
    "accounting": lambda accounting: accounting.value,
    "target": dataclasses.asdict,
}
_READERS: dict[str, Any] = {
    "model": model_from_dict,
    "label_phase": lambda data: _read_phase(LabelPhase, "label_phase", data),
    "private_phase": lambda data: _read_phase(PrivatePhase, "private_phase", data),
    "phase": lambda data: _read_phase(PlainPhase, "phase", data),
    "projection": Projection.from_dict,
    "cells": CellSettings.from_dict,
    "split": split_from_dict,
    "unit": unit_from_dict,
    "accounting": lambda value: check_choice("accounting", value, Accounting),
    "target": _read_target,
}
