"""Layouts of the papers, by the shapes of their parameters."""

import torch

from tulle.data.prepared.feature import PreparedFeature
from tulle.train.models.contributions import LinearContribution
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import MLP

SEARCH = [
    *(PreparedFeature(name=f"p{i}", role="public", num_ids=100, table="public") for i in range(17)),
    *(
        PreparedFeature(name=f"s{i}", role="sensitive", num_ids=50, table="sensitive")
        for i in range(3)
    ),
]


def shapes(settings: MLP) -> dict[str, tuple[int, ...]]:
    return {n: tuple(v.shape) for n, v in build_model(settings, SEARCH, seed=0).parameters.items()}


def test_the_semi_sensitive_search_layout() -> None:
    assert shapes(MLP.semi_sensitive_search()) == {
        "public.table.0": (100, 32),
        "public.layer.0.weight": (256, 17 * 32),
        "public.layer.0.bias": (256,),
        "sensitive.table.0": (50, 32),
        "common.layer.0.weight": (256, 256 + 3 * 32),
        "common.layer.0.bias": (256,),
        "common.layer.1.weight": (256, 256),
        "common.layer.1.bias": (256,),
        "common.layer.2.weight": (1, 256),
        "common.layer.2.bias": (1,),
    }


def test_the_semi_sensitive_display_layout() -> None:
    found = shapes(MLP.semi_sensitive_display())
    assert found["public.layer.0.weight"] == (598, 17 * 32)
    assert found["common.layer.0.weight"] == (598, 598 + 3 * 32)
    assert found["common.layer.2.weight"] == (1, 598)


def test_the_hybrid_display_layout() -> None:
    found = shapes(MLP.hybrid_display())
    assert found["public.table.0"] == (1700, 6)
    assert found["sensitive.table.0"] == (150, 5)
    assert found["common.layer.0.weight"] == (598, 17 * 6 + 3 * 5)
    assert found["common.layer.3.weight"] == (598, 598)
    assert found["common.layer.4.weight"] == (1, 598)
    assert not any(name.startswith("public.layer") for name in found)


def test_the_hybrid_attribution_layout() -> None:
    found = shapes(MLP.hybrid_attribution())
    assert found["common.layer.0.weight"] == (128, 20 * 8)
    assert found["common.layer.1.weight"] == (64, 128)
    assert found["common.layer.2.weight"] == (1, 64)


def test_the_truncated_form_multiplies_no_zeros() -> None:
    model = build_model(
        MLP(embedding_dim=2, public_hidden=(3,), common_hidden=(4,)), SEARCH, seed=0
    )
    forward = model.forward(torch.zeros(2, 17).long(), None)
    first, _ = forward.backward(torch.ones(2), towers=frozenset({"common"}))
    assert isinstance(first, LinearContribution)
    assert first.inputs.shape == (2, 3)
    assert first.num_zero_inputs == 6
    assert first.weighted_sum(torch.ones(2))[0].values.shape == (4, 9)


def test_initial_weights_keep_the_scale_of_a_relu_layer() -> None:
    weight = build_model(MLP(), SEARCH, seed=0).parameters["common.layer.1.weight"]
    bound = (6 / 256) ** 0.5
    assert bound * 0.99 < float(weight.abs().max()) <= bound
    # Uniform on [-b, b] has deviation b / sqrt(3); of 65,536 values to 0.2%.
    assert abs(float(weight.std()) * 3**0.5 / bound - 1) < 0.02
