"""Parts of a batch are as large as the layers of a model let them be."""

import pytest
import torch

from tulle.data.prepared.feature import PreparedFeature
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import MLP, FactorizationMachine, ModelSettings
from tulle.train.steps.private_step import rows_that_suit

FEATURES = [
    PreparedFeature(name=f"f{i}", role="public", num_ids=10, table=f"f{i}") for i in range(39)
]
WIDE = MLP(public_hidden=(), common_hidden=(598, 598, 598))
NARROW = MLP(embedding_dim=4, public_hidden=(), common_hidden=(8,))
HUGE = MLP(public_hidden=(), common_hidden=(30_000,))


@pytest.mark.parametrize(
    ("settings", "num_rows"),
    [(WIDE, 1024), (NARROW, 16384), (HUGE, 256), (FactorizationMachine(), 16384)],
)
def test_a_cpu_takes_as_many_rows_as_stay_in_its_cache(
    settings: ModelSettings, num_rows: int
) -> None:
    model = build_model(settings, FEATURES, seed=0)
    assert rows_that_suit(model, torch.device("cpu")) == num_rows


def test_other_devices_take_large_parts() -> None:
    model = build_model(WIDE, FEATURES, seed=0)
    assert rows_that_suit(model, torch.device("cuda")) == 16384
