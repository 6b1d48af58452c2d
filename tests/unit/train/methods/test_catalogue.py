import dataclasses
import tomllib

import pytest

from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.fields import toml_text
from tulle.train.methods.baseline import NonPrivateConfig
from tulle.train.methods.catalogue import METHODS, configured_method, method_data, method_from
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.hybrid import HybridConfig
from tulle.train.methods.label_projection.method import LabelProjectionConfig, Projection
from tulle.train.methods.method import Accounting, Method, Target
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.methods.randomized_labels import RandomizedLabelsConfig
from tulle.train.settings.models import FactorizationMachine
from tulle.train.settings.optimizers import Yogi
from tulle.train.settings.phases import (
    BudgetSplit,
    ConstantRate,
    EarlyStopping,
    ExplicitSplit,
    LabelCorrection,
    LabelPhase,
    PaperSplit,
    PlainPhase,
    PrivatePhase,
    PublicTower,
    RatioSplit,
)
from tulle.train.settings.step_noise import BandedNoise, LatticeNoise, SelectedRows
from tulle.train.settings.units import (
    DataShape,
    ExampleLevel,
    RowChoice,
    UnitLevel,
    UserAccounting,
    UserLevel,
)
from unit.train.small_data import FEATURES, SCHEMA, make_shape

CONFIGS: dict[str, Method] = {
    "all defaults": HybridConfig(),
    "mosaic": MosaicConfig(),
    "hybrid": HybridConfig(
        model=FactorizationMachine(),
        label_phase=LabelPhase(
            epochs=0.5,
            optimizer=Yogi(learning_rate=0.1, weight_decay=0.01),
            schedule=ConstantRate(),
            early_stopping=EarlyStopping(validation_share=0.1, patience=3),
            correction=LabelCorrection.DEBIASED,
        ),
        private_phase=PrivatePhase(
            noise_multiplier=0.7, public_tower=PublicTower.FREEZE, monitor_share=0.0
        ),
        split=ExplicitSplit(epsilon_of_labels=1.5),
        unit=UserLevel(
            max_rows_per_user=7,
            max_labels_per_user=2,
            accounting=UserAccounting.CLIPPED_USERS,
            choice=RowChoice.FIRST,
        ),
        accounting=Accounting.PAPER_RDP,
        initial_seed=9,
    ).calibrate(epsilon=3, delta=1e-7),
    "rr": RandomizedLabelsConfig(unit=UserLevel()).calibrate(epsilon=1.0),
    "dp-sgd": DpSgdConfig(unit=ExampleLevel()).calibrate(epsilon=1.0, delta=1e-6),
    "banded": HybridConfig(private_phase=PrivatePhase(noise=BandedNoise(num_bands=32))),
    "lattice": DpSgdConfig(private_phase=PrivatePhase(noise=LatticeNoise(bits=30))),
    "selected rows": DpSgdConfig(private_phase=PrivatePhase(noise=SelectedRows(threshold=2))),
    "label-projection": LabelProjectionConfig(
        unit=UserLevel(max_rows_per_user=3), projection=Projection(public_batch_size=99)
    ).calibrate(epsilon=0.5, delta=1e-6),
    "nonprivate": NonPrivateConfig(phase=PlainPhase(early_stopping=EarlyStopping())),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_survives_plain_data_and_toml(name: str) -> None:
    config = CONFIGS[name]
    data = method_data(config)
    assert method_from(data) == config
    assert method_from(tomllib.loads(toml_text(data))) == config
    assert data["method"] == config.kind


@pytest.mark.parametrize("method", METHODS)
def test_what_is_left_out_has_its_default(method: type[Method]) -> None:
    for word in (method.kind, *method.former_kinds):
        assert method_from({"method": word}) == method()


def test_every_method_has_words_of_its_own() -> None:
    words = [word for method in METHODS for word in (method.kind, *method.former_kinds)]
    assert len(set(words)) == len(words)
    assert METHODS[0] is MosaicConfig


def test_the_hybrid_of_the_first_version_is_mosaic_now() -> None:
    data = method_data(MosaicConfig()) | {"method": "hybrid"}
    assert method_from(data) == MosaicConfig()
    assert method_from({"method": "hybrid"}) == HybridConfig()


def test_settings_within_a_phase_may_be_left_out_too() -> None:
    config = method_from({"method": "hybrid", "private_phase": {"epochs": 9}})
    assert config == HybridConfig(private_phase=PrivatePhase(epochs=9))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "need the key 'method'"),
        ({}, "need the key 'method'"),
        ({"method": "hybird"}, "did you mean 'hybrid'"),
        ({"method": ["hybrid"]}, "is unknown"),
        ({"method": "cells"}, "is unknown"),
        ({"method": "rr", "private_phase": {}}, "private_phase"),
        ({"method": "mosaic", "label_phase": {"epochs": 1.0}}, "which is of hybrid and rr"),
        (
            {"method": "mosaic", "model": {"kind": "mlp"}},
            "It has clip, rate_share, classes, allow_constant, cells, start, unit, target",
        ),
        ({"method": "mosaic", "cell": {}}, "did you mean 'cells'"),
        ({"method": "hybrid", "lable_phase": {}}, "label_phase"),
        ({"method": "hybrid", "label_phase": {"epoch": 1}}, "epochs"),
        ({"method": "hybrid", "label_phase": 3}, "label_phase"),
        ({"method": "hybrid", "label_phase": {"correction": "forwards"}}, "correction"),
        ({"method": "hybrid", "label_phase": {"early_stopping": {"patince": 1}}}, "patience"),
        ({"method": "hybrid", "private_phase": {"public_tower": "frozen"}}, "public_tower"),
        ({"method": "hybrid", "private_phase": {"optimizer": {"kind": "sdg"}}}, "sgd"),
        ({"method": "hybrid", "private_phase": {"epochs": "many"}}, "epochs"),
        ({"method": "hybrid", "private_phase": {"noise": {"kind": "bandet"}}}, "banded"),
        (
            {"method": "hybrid", "private_phase": {"noise": {"kind": "banded", "bands": 2}}},
            "num_b",
        ),
        (
            {"method": "hybrid", "private_phase": {"noise": "banded"}},
            "must be a table",
        ),
        ({"method": "hybrid", "split": {"kind": "ratio"}}, "label_share"),
        ({"method": "hybrid", "unit": {"kind": "person"}}, "person"),
        ({"method": "hybrid", "unit": {"kind": "user", "choice": "last"}}, "choice"),
        ({"method": "hybrid", "unit": {"kind": "example", "max_rows_per_user": 2}}, "max_rows"),
        ({"method": "hybrid", "accounting": "rdp"}, "accounting"),
        ({"method": "hybrid", "target": {"epsilon": 1}}, "delta"),
        ({"method": "hybrid", "target": {"epsilon": "1", "delta": 0}}, "epsilon"),
        ({"method": "hybrid", "initial_seed": -1}, "initial_seed"),
        ({"method": "nonprivate", "target": {"epsilon": 1, "delta": 0}}, "target"),
    ],
)
def test_wrong_data_is_refused_with_the_name_of_the_setting(data: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        method_from(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 0},
        {"epochs": float("nan")},
        {"batch_size": 0},
        {"clip_norm": 0.0},
        {"clip_norm": 1e-30},
        {"clip_norm": 1e5},
        {"clip_norm": float("inf")},
        {"noise_multiplier": 0.0},
        {"noise_multiplier": -1.0},
        {"monitor_share": 0.6},
        {"monitor_share": -0.1},
        {"public_tower": "freeze"},
    ],
)
def test_impossible_private_phases_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        PrivatePhase(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes", [{"epochs": -1}, {"batch_size": 1.5}, {"correction": "forward"}]
)
def test_impossible_label_phases_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        LabelPhase(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes", [{"validation_share": 0.0}, {"validation_share": 0.6}, {"patience": 0}]
)
def test_impossible_early_stopping_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        EarlyStopping(**changes)  # type: ignore[arg-type]


def test_steps_of_a_plain_phase_cover_its_epochs() -> None:
    assert PlainPhase(epochs=2, batch_size=10).num_steps(25) == 6
    assert PlainPhase(epochs=0.5, batch_size=10).num_steps(25) == 2
    assert PlainPhase(epochs=0.01, batch_size=10).num_steps(25) == 1


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [
        (0.0, 1e-6, "use NonPrivateConfig"),
        (-1.0, 1e-6, "epsilon"),
        (float("inf"), 1e-6, "epsilon"),
        (1.0, 1.0, "delta"),
        (1.0, -1e-9, "delta"),
    ],
)
def test_impossible_targets_are_refused(epsilon: float, delta: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HybridConfig().calibrate(epsilon=epsilon, delta=delta)


def test_calibrate_changes_nothing_but_the_target() -> None:
    config = DpSgdConfig(initial_seed=3)
    calibrated = config.calibrate(epsilon=2.0, delta=1e-6)
    assert config.target is None
    assert calibrated.target == Target(epsilon=2.0, delta=1e-6)
    assert dataclasses.replace(calibrated, target=None) == config


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": "user"},
        {"target": 3.0},
        {"initial_seed": 0.5},
        {"label_phase": PlainPhase()},
        {"private_phase": PlainPhase()},
        {"split": "paper"},
        {"accounting": "add-or-remove, Renyi"},
    ],
)
def test_configs_refuse_other_things_than_settings(changes: dict[str, object]) -> None:
    (name,) = changes
    for cls in (HybridConfig, RandomizedLabelsConfig, DpSgdConfig):
        if name in {field.name for field in dataclasses.fields(cls)}:
            with pytest.raises(ConfigError, match=f"{name}="):
                cls(**changes)


@pytest.mark.parametrize(
    ("split", "epsilon", "of_labels"),
    [
        (PaperSplit(), 1.0, 0.6),
        (PaperSplit(), 5.0, 3.0),
        (PaperSplit(), 12.0, 3.0),
        (RatioSplit(label_share=0.25), 8.0, 2.0),
        (RatioSplit(label_share=1.0), 8.0, 8.0),
        (ExplicitSplit(epsilon_of_labels=0.5), 8.0, 0.5),
    ],
)
def test_splits_give_labels_their_part(
    split: BudgetSplit, epsilon: float, of_labels: float
) -> None:
    assert split.label_epsilon(epsilon) == pytest.approx(of_labels)
    assert settings_from(BudgetSplit, plain_data(split), what="split") == split


def test_impossible_splits_are_refused() -> None:
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="label_share"):
            RatioSplit(label_share=share)
    with pytest.raises(ConfigError, match="epsilon_of_labels"):
        ExplicitSplit(epsilon_of_labels=-1.0)
    with pytest.raises(ConfigError, match=r"must be <= epsilon=2\.0"):
        ExplicitSplit(epsilon_of_labels=3.0).label_epsilon(2.0)
    with pytest.raises(ConfigError, match="kind"):
        settings_from(BudgetSplit, {"kind": "thirds"}, what="split")


@pytest.mark.parametrize(
    "level", [ExampleLevel(), UserLevel(), UserLevel(max_rows_per_user=3, choice=RowChoice.RANDOM)]
)
def test_units_survive_plain_data(level: ExampleLevel | UserLevel) -> None:
    assert settings_from(UnitLevel, plain_data(level), what="unit") == level


@pytest.mark.parametrize(
    "changes",
    [
        {"max_rows_per_user": 0},
        {"max_labels_per_user": 0},
        {"accounting": "group privacy"},
        {"choice": "first"},
    ],
)
def test_impossible_user_levels_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        UserLevel(**changes)  # type: ignore[arg-type]


def test_a_shape_knows_its_roles() -> None:
    shape = make_shape(10)
    assert [feature.name for feature in shape.public_features] == ["site", "slot", "hour"]
    assert shape.has_sensitive
    assert not dataclasses.replace(shape, features=FEATURES[:3]).has_sensitive


@pytest.mark.parametrize(
    "changes",
    [{"features": ()}, {"num_label_rows": 0}, {"num_private_rows": 0}, {"num_users": 0}],
)
def test_impossible_shapes_are_refused(changes: dict[str, object]) -> None:
    fields = {
        "features": FEATURES,
        "columns": SCHEMA.roles,
        "num_label_rows": 1,
        "num_private_rows": 1,
    }
    with pytest.raises(ConfigError, match=next(iter(changes))):
        DataShape(**(fields | changes))  # type: ignore[arg-type]


def test_the_word_of_the_default_optimizer_keeps_its_learning_rate() -> None:
    given = {"optimizer": "adam"}
    assert configured_method({}, word="dp-sgd", given=given) == DpSgdConfig()
    in_file = {"private_phase": {"optimizer": {"kind": "sgd", "learning_rate": 0.1}}}
    with pytest.raises(ConfigError, match="--optimizer adam needs --learning-rate"):
        configured_method(in_file, word="dp-sgd", given=given)
