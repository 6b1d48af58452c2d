"""Settings of models as plain data."""

import json

import pytest

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data, settings_from
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import (
    MLP,
    AnyModel,
    FactorizationMachine,
    LogisticRegression,
    TableSharing,
)

FEATURE = PreparedFeature(name="a", role="public", num_ids=2, table="a")


@pytest.mark.parametrize(
    "settings",
    [
        MLP(),
        MLP.hybrid_display(),
        MLP(public_hidden=(3, 2), sensitive_hidden=(1,), common_hidden=(), initial_stddev=1),
        FactorizationMachine(factor_dim=7, tables=TableSharing.PER_FEATURE),
        LogisticRegression(initial_stddev=0.5),
    ],
)
def test_settings_come_back_from_json(settings: AnyModel) -> None:
    data = plain_data(settings)
    assert settings_from(AnyModel, json.loads(json.dumps(data)), what="model") == settings
    assert json.loads(json.dumps(data)) == data


def test_left_out_settings_have_their_defaults() -> None:
    assert settings_from(AnyModel, {"kind": "mlp", "embedding_dim": 8}, what="model") == MLP(
        embedding_dim=8
    )
    assert (
        settings_from(AnyModel, {"kind": "logistic regression"}, what="model")
        == LogisticRegression()
    )


def test_lists_become_tuples() -> None:
    assert MLP(common_hidden=[8, 4]).common_hidden == (8, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "mpl"}, "did you mean 'mlp'"),
        ({"embedding_dim": 8}, "setting 'kind'"),
        ({"kind": ["mlp"]}, "unknown"),
        ([], "must be a table"),
        ({"kind": "mlp", "embeding_dim": 8}, "did you mean 'embedding_dim'"),
        ({"kind": "mlp", "tables": "per role"}, "'as prepared', 'per feature'"),
        ({"kind": "mlp", "embedding_dim": "fourth"}, "fourth root"),
        ({"kind": "mlp", "embedding_dim": 0}, "embedding_dim=0"),
        ({"kind": "mlp", "embedding_dim": True}, "embedding_dim=True"),
        ({"kind": "mlp", "common_hidden": [8, 0]}, "common_hidden"),
        ({"kind": "mlp", "common_hidden": "8"}, "common_hidden='8'"),
        ({"kind": "mlp", "public_hidden": 256}, "public_hidden=256"),
        ({"kind": "mlp", "initial_stddev": 0}, "never leave it"),
        ({"kind": "factorization machine", "factor_dim": 1.5}, "factor_dim=1.5"),
        ({"kind": "factorization machine", "initial_stddev": -1}, "initial_stddev=-1"),
        ({"kind": "logistic regression", "initial_stddev": float("nan")}, "finite"),
    ],
)
def test_wrong_settings_are_refused(data: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from(AnyModel, data, what="model")


def test_a_model_needs_features_and_a_seed() -> None:
    with pytest.raises(ConfigError, match="at least one feature"):
        build_model(MLP(), [], seed=0)
    with pytest.raises(ConfigError, match="seed=-1"):
        build_model(LogisticRegression(), [FEATURE], seed=-1)
