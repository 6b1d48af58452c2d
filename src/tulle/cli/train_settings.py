"""Settings of a training run: the file of --config, and the options that win over it."""

import copy
import dataclasses
import itertools
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.cli.noise_settings import set_noise
from tulle.cli.train_options import SettingOptions
from tulle.errors import ConfigError, TulleError, reason_of
from tulle.privacy.codec import plain_data
from tulle.privacy.fields import did_you_mean

if TYPE_CHECKING:
    from tulle.train.methods.method import Method

_DATA_KEYS = ("source", "rows", "synth_seed", "test_fraction", "test", "allow_public")
_DATA_OPTIONS = {"data": "source"} | {name: name for name in _DATA_KEYS if name != "source"}
_MODELS = {"mlp": "mlp", "fm": "factorization machine", "lr": "logistic regression"}
_OPTIMIZERS = ("sgd", "adam", "rmsprop", "yogi")
_OPTIMIZER = "optimizer"
_NOISE = "noise"
_DEFAULT_DELTA = 1e-7

_MOSAIC, _HYBRID = "mosaic", "hybrid"
_STEPS = dict.fromkeys((_HYBRID, "dp-sgd", "label-projection"), "private_phase")
_LABELS = {_HYBRID: "label_phase", "rr": "label_phase"}
_BASELINE = {"nonprivate": "phase"}
_PROJECTION = {"label-projection": "projection"}
_TOWERS = (_HYBRID, "dp-sgd", "rr", "label-projection", "nonprivate")
_PRIVATE = (_MOSAIC, _HYBRID, "dp-sgd", "rr", "label-projection")
_UNIT = dict.fromkeys(_PRIVATE, "unit")
_USERS = {method: section for method, section in _UNIT.items() if method != _MOSAIC}
_PLACES: dict[str, tuple[dict[str, str], str]] = {
    "epochs": (_STEPS | _BASELINE, "epochs"),
    "batch_size": (_STEPS | _BASELINE, "batch_size"),
    "learning_rate": (_STEPS | _BASELINE, _OPTIMIZER),
    "optimizer": (_STEPS | _BASELINE, _OPTIMIZER),
    "clip_norm": (_STEPS, "clip_norm"),
    "noise": (_STEPS, _NOISE),
    "bands": (_STEPS, _NOISE),
    "lattice_bits": (_STEPS, _NOISE),
    "selection_share": (_STEPS, _NOISE),
    "selection_threshold": (_STEPS, _NOISE),
    "public_tower": ({_HYBRID: "private_phase"}, "public_tower"),
    "label_epochs": (_LABELS, "epochs"),
    "label_batch_size": (_LABELS, "batch_size"),
    "label_learning_rate": (_LABELS, _OPTIMIZER),
    "correction": (_LABELS, "correction"),
    "early_stopping": (_LABELS | _BASELINE, "early_stopping"),
    "unit": (_UNIT, "kind"),
    "max_rows_per_user": (_USERS, "max_rows_per_user"),
    "max_labels_per_user": (_USERS, "max_labels_per_user"),
    "user_accounting": (_USERS, "accounting"),
    "public_batch_size": (_PROJECTION, "public_batch_size"),
    "smoothing": (_PROJECTION, "smoothing"),
    "smoothing_prior": (_PROJECTION, "prior"),
    "epsilon": (dict.fromkeys(_PRIVATE, "target"), "epsilon"),
    "delta": (dict.fromkeys(_PRIVATE, "target"), "delta"),
    "split": ({_HYBRID: ""}, "split"),
    "accounting": ({_HYBRID: "", "dp-sgd": ""}, "accounting"),
}
"""Where each option goes: the table of the config by method, and the key in it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataChoice:
    """Which rows are trained and tested on."""

    source: str
    rows: int | None = None
    synth_seed: int | None = None
    test_fraction: float | None = None
    test: Path | None = None
    allow_public: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """All that was chosen, before the data are looked at."""

    data: DataChoice
    method: "Method"
    is_batch_size_given: bool
    """True if the batch size of the baseline was given; private steps fit theirs to the data."""
    is_label_batch_size_given: bool


def require_torch() -> None:
    """Says how to install what training needs.

    Idle threads of torch spin by default. On cores that others use too, small steps then take
    up to thirty times as long, so here they sleep, unless the user says otherwise.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import tulle.train  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        raise TulleError(str(error)) from None


def read_settings(options: SettingOptions) -> TrainSettings:
    """What the options and the file of --config say together."""
    from tulle.train.methods.catalogue import method_from

    file = read_file(options.config)
    data = config_data(options, file)
    return TrainSettings(
        data=data_choice(options, file),
        method=method_from(data),
        is_batch_size_given="batch_size" in data.get("phase", {}),
        is_label_batch_size_given="batch_size" in data.get("label_phase", {}),
    )


def read_file(path: Path | None) -> dict[str, Any]:
    """The settings in a TOML file; none if there is no file."""
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"--config {path} cannot be read: {reason_of(error)}; give a TOML file."
        ) from None


def data_choice(options: SettingOptions, file: dict[str, Any]) -> DataChoice:
    """Which rows to use."""
    from tulle.privacy.fields import check_count, check_fields, check_finite, check_text

    data = dict(check_fields("[data]", file.get("data", {}), (), _DATA_KEYS))
    for option, key in _DATA_OPTIONS.items():
        if (value := getattr(options, option)) is not None:
            data[key] = value
    if options.test_fraction is not None and options.test is None:
        data.pop("test", None)
    if options.test is not None and options.test_fraction is None:
        data.pop("test_fraction", None)
    if "source" not in data:
        raise ConfigError(
            "--data is missing; give the folder of a prepared dataset, or e.g. synth:search."
        )
    if "test" in data and "test_fraction" in data:
        raise ConfigError("--test and --test-fraction exclude each other; give one.")
    for key, least in (("rows", 1), ("synth_seed", 0)):
        if key in data:
            check_count(f"data.{key}", data[key], least=least)
    if (
        "test_fraction" in data
        and not 0 <= check_finite("test_fraction", data["test_fraction"]) < 1
    ):
        raise ConfigError(f"test_fraction={data['test_fraction']} must be in [0, 1), e.g. 0.2.")
    names = data.get("allow_public", [])
    if not isinstance(names, list):
        raise ConfigError(f"data.allow_public={names!r} must be a list of columns.")
    test = data.get("test")
    return DataChoice(
        source=check_text("--data", data["source"]),
        rows=data.get("rows"),
        synth_seed=data.get("synth_seed"),
        test_fraction=data.get("test_fraction"),
        test=None if test is None else Path(check_text("--test", str(test))),
        allow_public=tuple(names),
    )


def config_data(options: SettingOptions, file: dict[str, Any]) -> dict[str, Any]:
    """A config as plain data."""
    method = _method_word(options, file)
    data = _of_method(method, file, is_other=options.method not in (None, file.get("method")))
    for name, (sections, key) in _PLACES.items():
        value = getattr(options, name)
        if value is None or value is False:
            continue
        if method not in sections:
            raise _meaningless(name, method, knowing=sections)
        section = sections[method]
        if key not in (_OPTIMIZER, _NOISE):
            _set(data.setdefault(section, {}) if section else data, section, key, value)
    steps, labels = (_STEPS | _BASELINE).get(method), _LABELS.get(method)
    _set_optimizer(data, steps, options.optimizer, options.learning_rate)
    _set_optimizer(data, labels, None, options.label_learning_rate)
    if method in _STEPS:
        set_noise(data, options)
    if options.model is not None:
        if method not in _TOWERS:
            raise _meaningless("model", method, knowing=_TOWERS)
        _set_model(data, options.model)
    if method != "nonprivate":
        _complete_target(data, method)
        _complete_unit(data)
    return data


def _method_word(options: SettingOptions, file: dict[str, Any]) -> str:
    """The word of the method that was chosen, also by a word that stands for it too."""
    from tulle.train.methods.catalogue import method_of

    if options.method is None and file.get("method") == _HYBRID and "cells" in file:
        return _MOSAIC  # as version 0.1.0 called it
    return method_of(options.method or file.get("method", _MOSAIC)).kind


def given_settings(options: SettingOptions) -> list[str]:
    """The options that a finished plan has fixed already."""
    names = ("config", "method", "model", *_PLACES)
    return [_option(name) for name in names if getattr(options, name) not in (None, False)]


def _of_method(method: str, file: dict[str, Any], *, is_other: bool) -> dict[str, Any]:
    """The part of the file that is for this method, as a copy that may be changed."""
    from tulle.privacy.fields import check_fields
    from tulle.train.methods.catalogue import METHODS

    keys = {cls.kind: [field.name for field in dataclasses.fields(cls)] for cls in METHODS}  # type: ignore[arg-type]
    known = dict.fromkeys(key for names in keys.values() for key in names)
    check_fields("the settings file", file, (), ("method", "data", *known))
    # A file may serve several methods: what only others know is left aside.
    skipped = set(known) - set(keys[method]) if is_other else set()
    kept = {key: value for key, value in file.items() if key not in skipped and key != "data"}
    phases = ("private_phase", "label_phase", "phase", "projection", "cells")
    for key in (*phases, "unit", "target", "model"):
        if key in kept and not isinstance(kept[key], dict):
            raise ConfigError(f"{key}={kept[key]!r} must be a table, [{key}].")
    return copy.deepcopy(kept) | {"method": method}


def _set(table: dict[str, Any], section: str, key: str, value: Any) -> None:
    if key == "early_stopping":
        table.setdefault(key, {})
    elif key == "split":
        table[key] = _split(value)
    elif key == "accounting":
        table[key] = value.replace("-", " ") if section == "unit" else _accounting(value)
    elif key == "kind":
        if value != table.get(key, value):
            table.clear()
        table[key] = value
    else:
        table[key] = value


def _set_optimizer(
    data: dict[str, Any], section: str | None, kind: str | None, rate: float | None
) -> None:
    """Another rate, or another optimizer with its rate."""
    from tulle.train.phases import PlainPhase, PrivatePhase

    if section is None or (kind is None and rate is None):
        return
    phase = PrivatePhase() if section == "private_phase" else PlainPhase()
    table = data.setdefault(section, {})
    current = table.get("optimizer", plain_data(phase.optimizer))
    if not isinstance(current, dict):
        raise ConfigError(f"{section}.optimizer={current!r} must be a table.")
    if kind is not None and kind != current.get("kind"):
        if rate is None:
            raise ConfigError(
                f"--optimizer {kind} needs --learning-rate: the rate of one optimizer does not "
                f"suit another. It is one of {', '.join(_OPTIMIZERS)}."
            )
        current = {"kind": kind}
    table["optimizer"] = current | ({} if rate is None else {"learning_rate": rate})


def _set_model(data: dict[str, Any], name: str) -> None:
    kind = _MODELS.get(name)
    if kind is None:
        raise ConfigError(
            f"--model {name} is unknown{did_you_mean(name, _MODELS)}; "
            f"use one of {', '.join(_MODELS)}."
        )
    if data.get("model", {}).get("kind") != kind:
        data["model"] = {"kind": kind}


def _complete_target(data: dict[str, Any], method: str) -> None:
    from tulle.train.methods.catalogue import method_of

    target = data.setdefault("target", {})
    if "epsilon" not in target:
        raise ConfigError(
            f"method {method} needs --epsilon, e.g. 3; to train without privacy use "
            "--method nonprivate."
        )
    target.setdefault("delta", _DEFAULT_DELTA if method_of(method).needs_delta else 0.0)


def _complete_unit(data: dict[str, Any]) -> None:
    unit = data.get("unit")
    if (
        unit is not None
        and unit.get("kind", "example") == "example"
        and len(unit.keys() - {"kind"})
    ):
        given = sorted(unit.keys() - {"kind"})[0]
        raise ConfigError(
            f"{given} is for users, but each example is protected; add --unit user or leave it out."
        )


def _split(text: str) -> dict[str, Any]:
    kind, _, number = text.partition(":")
    if text == "paper":
        return {"kind": "paper"}
    keys = {"ratio": ("ratio", "label_share"), "epsilon": ("explicit", "epsilon_of_labels")}
    try:
        name, key = keys[kind]
        return {"kind": name, key: float(number)}
    except (KeyError, ValueError):
        raise ConfigError(
            f"--split {text} is unknown{did_you_mean(kind, ('paper', *keys))}; "
            "use paper, ratio:0.25 or epsilon:1.2."
        ) from None


def _accounting(text: str) -> str:
    from tulle.train.methods.method import Accounting

    known = {"replace": Accounting.REPLACE_PLD, "paper": Accounting.PAPER_RDP}
    if text not in known:
        raise ConfigError(
            f"--accounting {text} is unknown{did_you_mean(text, known)}; use {' or '.join(known)}."
        )
    return known[text].value


def _meaningless(name: str, method: str, *, knowing: Iterable[str]) -> ConfigError:
    instead = _instead(name, method, knowing)
    return ConfigError(
        f"{_option(name)} has no meaning for method {method}; leave it out{instead}."
    )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _instead(name: str, method: str, knowing: Iterable[str]) -> str:
    label_name = f"label_{name}"
    if method == "rr" and label_name in _PLACES:
        return f", or give {_option(label_name)}"
    if method == _MOSAIC:
        # It has nothing to tune; whoever tunes wants one of the others.
        return f", or use --method {' or '.join(itertools.islice(knowing, 2))}"
    return ""
