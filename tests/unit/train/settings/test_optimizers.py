"""Optimizer settings check their ranges and survive a settings file."""

import json
import math

import pytest

from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data, settings_from
from tulle.train.settings.optimizers import SGD, Adam, AnyOptimizer, RMSprop, Yogi

CLASSES = [SGD, Adam, RMSprop, Yogi]
BAD_VALUES = [
    ("learning_rate", [0.0, -1.0, math.nan, math.inf, True, "0.1"]),
    ("weight_decay", [-0.1, math.nan, None]),
    ("momentum", [-0.1, 1.0, math.nan]),
    ("square_memory", [-0.1, 1.0, math.nan]),
    ("stabilizer", [0.0, -1e-8, math.nan]),
    ("initial_square", [-1e-6, math.nan]),
]


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(("name", "values"), BAD_VALUES)
def test_a_value_out_of_range_is_refused_by_name(cls: type, name: str, values: list) -> None:
    if name not in cls.__dataclass_fields__:
        with pytest.raises(ConfigError, match=f"no setting {name!r}"):
            settings_from(cls, {"kind": cls.kind, "learning_rate": 0.1, name: 0.1}, what="x")
        return
    for value in values:
        with pytest.raises(ConfigError, match=f"{name}="):
            cls(**{"learning_rate": 0.1, name: value})


@pytest.mark.parametrize(
    "settings",
    [
        SGD(learning_rate=0.1, momentum=0.5, weight_decay=1e-4),
        Adam(learning_rate=1, stabilizer=1e-6),
        RMSprop(learning_rate=3e-4, square_memory=0.9),
        Yogi(learning_rate=0.01, initial_square=0.0),
    ],
)
def test_settings_come_back_from_json(settings: AnyOptimizer) -> None:
    data = json.loads(json.dumps(plain_data(settings)))
    assert settings_from(AnyOptimizer, data, what="optimizer") == settings
    assert isinstance(data["learning_rate"], float)


def test_all_settings_are_written_and_defaults_may_be_left_out() -> None:
    assert plain_data(Adam(learning_rate=0.1)) == {
        "kind": "adam",
        "learning_rate": 0.1,
        "momentum": 0.9,
        "square_memory": 0.999,
        "stabilizer": 1e-8,
        "weight_decay": 0.0,
    }
    assert settings_from(
        AnyOptimizer, {"kind": "yogi", "learning_rate": 0.1}, what="optimizer"
    ) == Yogi(learning_rate=0.1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "adm", "learning_rate": 0.1}, "did you mean 'adam'"),
        ({"kind": 3, "learning_rate": 0.1}, "unknown"),
        ({"kind": "adam"}, "needs the setting 'learning_rate'"),
        ({"kind": "adam", "learning_rate": 0.1, "weight_deca": 0.1}, "did you mean 'weight_decay'"),
        ({"kind": "sgd", "learning_rate": "fast"}, "learning_rate='fast'"),
        ({"learning_rate": 0.1}, "setting 'kind'"),
        (["adam"], "must be a table"),
    ],
)
def test_unknown_plain_data_is_refused(data: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from(AnyOptimizer, data, what="optimizer")
