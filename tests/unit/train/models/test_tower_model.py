"""Every model's hand-written passes equal a loop of single-example autograd."""

import dataclasses
import itertools
import zlib

import pytest
import torch
from torch import Tensor

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.train.models.contributions import LinearContribution, RowGradient, TableContribution
from tulle.train.models.linear_models import FactorContribution
from tulle.train.models.tower_model import table_empty, zeros_like_table
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import (
    MLP,
    TOWERS,
    AnyModel,
    FactorizationMachine,
    LogisticRegression,
    TableSharing,
)
from unit.train.models.reference_models import (
    Batch,
    Settings,
    flat_weighted_sum,
    reference_gradients,
    total_inner_products,
    total_squared_norms,
)

MODELS: dict[str, Settings] = {
    "semi-sensitive mlp": MLP(embedding_dim=3, public_hidden=(5,), common_hidden=(4, 4)),
    "hybrid mlp": MLP(
        embedding_dim="fourth root",
        tables=TableSharing.PER_FEATURE,
        public_hidden=(),
        common_hidden=(5, 4, 4, 3),
    ),
    "mlp with layers in both towers": MLP(
        embedding_dim="fourth root",
        public_hidden=(4, 3),
        sensitive_hidden=(3,),
        common_hidden=(),
    ),
    "factorization machine": FactorizationMachine(factor_dim=3),
    "factorization machine per feature": FactorizationMachine(
        factor_dim=2, tables=TableSharing.PER_FEATURE
    ),
    "logistic regression": LogisticRegression(),
    "logistic regression per feature": LogisticRegression(tables=TableSharing.PER_FEATURE),
}


def feature(name: str, role: str, num_ids: int, table: str | None = None) -> PreparedFeature:
    return PreparedFeature(name=name, role=role, num_ids=num_ids, table=table or name)


PUBLIC = [feature(f"p{i}", "public", 5, "public") for i in range(4)]
SENSITIVE = [feature(f"s{i}", "sensitive", 3, "sensitive") for i in range(3)]
SEPARATE = [
    feature("a", "public", 2),
    feature("b", "public", 90),
    feature("c", "public", 4),
    feature("x", "sensitive", 40),
    feature("y", "sensitive", 3),
]
DATASETS = {
    "shared tables": [*PUBLIC, *SENSITIVE],
    "separate tables": SEPARATE,
    "two tables a role": [*PUBLIC, *SEPARATE[:3], *SENSITIVE, *SEPARATE[3:]],
    "no sensitive features": PUBLIC,
    "no public features": SENSITIVE,
}
TRAINED = {
    "all": TOWERS,
    "frozen public tower": TOWERS - {"public"},
    "public tower alone": frozenset({"public"}),
    "common tower alone": frozenset({"common"}),
    "nothing": frozenset[str](),
}


def random_ids(
    features: list[PreparedFeature], role: str, size: int, rng: torch.Generator
) -> Tensor:
    columns = [
        torch.randint(f.num_ids, (size, 1), generator=rng) for f in features if f.role == role
    ]
    return torch.cat([torch.zeros(size, 0, dtype=torch.int64), *columns], dim=1)


def assert_close(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    scale = float(wanted.abs().max()) if wanted.numel() else 0.0
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance * scale)


def assert_equals_autograd(
    settings: Settings,
    features: list[PreparedFeature],
    *,
    size: int = 6,
    is_truncated: bool = False,
    towers: frozenset[str] = TOWERS,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> None:
    rng = torch.Generator().manual_seed(zlib.crc32(repr((settings, features)).encode()))
    model = build_model(settings, features, seed=1, dtype=dtype, device=device)
    for parameter in model.parameters.values():
        values = torch.randn(parameter.shape, generator=rng, dtype=torch.float64) * 0.7
        parameter.copy_(values)
    batch = Batch(
        public_ids=random_ids(features, "public", size, rng),
        sensitive_ids=None if is_truncated else random_ids(features, "sensitive", size, rng),
        logit_grads=torch.randn(size, generator=rng, dtype=torch.float64).to(dtype),
    )
    weights = torch.rand(size, generator=rng, dtype=torch.float64).to(dtype)
    reference = reference_gradients(settings, features, model.parameters, batch, towers)

    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    sensitive_ids = None if batch.sensitive_ids is None else batch.sensitive_ids.to(device)
    forward = model.forward(batch.public_ids.to(device), sensitive_ids)
    assert forward.logits.dtype == dtype
    assert_close(forward.logits.cpu().double(), reference.logits, tolerance)

    contributions = forward.backward(batch.logit_grads.to(device), towers=towers)
    gradients = reference.gradients
    norms = total_squared_norms(contributions, size)
    assert_close(norms, gradients.square().sum(1), tolerance)
    found = flat_weighted_sum(contributions, weights.to(device), model.parameters)
    assert_close(found, weights.double() @ gradients, tolerance)
    pairs = torch.tensor(list(itertools.product(range(size), repeat=2)), dtype=torch.int64)
    left, right = pairs.reshape(-1, 2).t()
    products = total_inner_products(contributions, left.to(device), right.to(device))
    assert_close(products, (gradients @ gradients.t()).flatten(), tolerance)


@pytest.mark.parametrize("is_truncated", [False, True], ids=["full", "truncated"])
@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("model", MODELS)
def test_gradients_equal_autograd(model: str, dataset: str, is_truncated: bool) -> None:
    assert_equals_autograd(MODELS[model], DATASETS[dataset], is_truncated=is_truncated)


@pytest.mark.parametrize("is_truncated", [False, True], ids=["full", "truncated"])
@pytest.mark.parametrize("towers", TRAINED)
@pytest.mark.parametrize("model", MODELS)
def test_only_trained_towers_get_gradients(model: str, towers: str, is_truncated: bool) -> None:
    features = DATASETS["two tables a role"]
    assert_equals_autograd(
        MODELS[model], features, is_truncated=is_truncated, towers=TRAINED[towers]
    )


@pytest.mark.parametrize("dataset", ["shared tables", "two tables a role"])
@pytest.mark.parametrize("model", MODELS)
def test_gradients_equal_autograd_in_single_precision(model: str, dataset: str) -> None:
    assert_equals_autograd(MODELS[model], DATASETS[dataset], dtype=torch.float32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gradients_equal_autograd_on_a_gpu() -> None:
    for settings, features, size in itertools.product(MODELS.values(), DATASETS.values(), (0, 6)):
        for is_truncated in (False, True):
            assert_equals_autograd(
                settings, features, size=size, is_truncated=is_truncated, device="cuda"
            )


@pytest.mark.parametrize("is_truncated", [False, True], ids=["full", "truncated"])
@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("model", MODELS)
def test_an_empty_batch_has_zero_gradients(model: str, dataset: str, is_truncated: bool) -> None:
    assert_equals_autograd(MODELS[model], DATASETS[dataset], size=0, is_truncated=is_truncated)


@pytest.mark.parametrize("model", MODELS)
def test_no_tower_trained_gives_no_contribution(model: str) -> None:
    built = build_model(MODELS[model], DATASETS["shared tables"], seed=0)
    forward = built.forward(torch.zeros(2, 4).long(), torch.zeros(2, 3).long())
    assert forward.backward(torch.ones(2), towers=frozenset()) == []


@pytest.mark.parametrize("model", MODELS)
def test_a_misspelt_tower_is_refused(model: str) -> None:
    built = build_model(MODELS[model], PUBLIC, seed=0)
    forward = built.forward(torch.zeros(2, 4).long(), None)
    with pytest.raises(ConfigError, match="did you mean 'public'"):
        forward.backward(torch.ones(2), towers=frozenset({"pubic"}))


def test_every_kind_of_model_is_in_the_list() -> None:
    assert {settings.kind for settings in MODELS.values()} == {
        cls.kind for cls in AnyModel.__args__
    }


def test_the_batches_have_ids_that_one_example_reads_twice() -> None:
    rng = torch.Generator().manual_seed(0)
    ids = random_ids(PUBLIC, "public", 6, rng)
    assert any(len(set(row)) < len(row) for row in ids.tolist())


def without_merging(contribution: TableContribution) -> Tensor:
    return contribution.grads.square().sum((1, 2))


def without_bias(contribution: LinearContribution) -> Tensor:
    return contribution.inputs.square().sum(1) * contribution.output_grads.square().sum(1)


def without_the_first_read(contribution: TableContribution) -> Tensor:
    return contribution.grads[:, 1:].square().sum((1, 2))


def by_column_only(contribution: TableContribution, left: Tensor, right: Tensor) -> Tensor:
    grads = (contribution.grads[left] * contribution.grads[right]).sum(2)
    return (grads * (contribution.ids[left] == contribution.ids[right])).sum(1)


def without_counting_repeats(contribution: FactorContribution, squares: Tensor) -> None:
    pass


def without_own_factors(contribution: FactorContribution, weights: Tensor) -> list[RowGradient]:
    """Takes S for S - v."""
    blank = torch.zeros_like(contribution.row_values)
    return right_sum(dataclasses.replace(contribution, row_values=blank), weights)


right_sum = FactorContribution.weighted_sum


@pytest.mark.parametrize(
    ("model", "kind", "method", "fault"),
    [
        ("semi-sensitive mlp", TableContribution, "squared_norms", without_merging),
        ("factorization machine", FactorContribution, "_add_repeats", without_counting_repeats),
        ("factorization machine", FactorContribution, "weighted_sum", without_own_factors),
        ("logistic regression", TableContribution, "squared_norms", without_merging),
        ("semi-sensitive mlp", LinearContribution, "squared_norms", without_bias),
        ("logistic regression", TableContribution, "squared_norms", without_the_first_read),
        ("factorization machine", TableContribution, "inner_products", by_column_only),
    ],
)
def test_planted_faults_are_caught(
    model: str, kind: type, method: str, fault: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, method, fault)
    with pytest.raises(AssertionError):
        assert_equals_autograd(MODELS[model], DATASETS["shared tables"])


@pytest.mark.parametrize("model", MODELS)
def test_initial_values_depend_on_the_seed_alone(model: str) -> None:
    settings = MODELS[model]
    features = DATASETS["two tables a role"]
    first = build_model(settings, features, seed=3).parameters
    again = build_model(settings, features, seed=3, dtype=torch.float64).parameters
    other = build_model(settings, features, seed=4).parameters
    assert list(first) == list(again) == list(other)
    for name, values in first.items():
        torch.testing.assert_close(values.double(), again[name], rtol=0, atol=0)
    if not isinstance(settings, LogisticRegression):
        assert any(bool((values != other[name]).any()) for name, values in first.items())


@pytest.mark.parametrize("model", MODELS)
def test_names_begin_with_a_tower_and_parameters_are_leaves(model: str) -> None:
    built = build_model(MODELS[model], DATASETS["separate tables"], seed=0)
    for name, values in built.parameters.items():
        assert name.split(".")[0] in TOWERS
        assert values.is_leaf
        assert not values.requires_grad
        assert values.dim() == 2 if "table" in name or "weight" in name else values.dim() == 1


@pytest.mark.parametrize("model", MODELS)
def test_parameters_are_used_when_changed_in_place(model: str) -> None:
    built = build_model(MODELS[model], PUBLIC, seed=0)
    ids = torch.zeros(1, 4).long()
    before = built.forward(ids, None).logits.clone()
    last = "common.bias" if "common.bias" in built.parameters else list(built.parameters)[-1]
    built.parameters[last] += 1
    torch.testing.assert_close(built.forward(ids, None).logits, before + 1)


@pytest.mark.parametrize("model", MODELS)
def test_the_truncated_form_does_not_see_the_sensitive_tower(model: str) -> None:
    built = build_model(MODELS[model], DATASETS["shared tables"], seed=0)
    ids = torch.arange(4).repeat(2, 1)
    before = built.forward(ids, None).logits.clone()
    for name, values in built.parameters.items():
        if name.startswith("sensitive."):
            values.fill_(float("nan"))
    torch.testing.assert_close(built.forward(ids, None).logits, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0, 3), (5, 3), (200_000, 8)])
def test_a_table_is_a_tensor_of_the_stated_kind(shape: tuple[int, int], dtype: torch.dtype) -> None:
    table = table_empty(*shape, dtype)
    zeros = zeros_like_table(table)
    for found in (table, zeros):
        assert found.shape == shape
        assert found.dtype == dtype
        assert found.is_contiguous()
    assert not zeros.any()


def test_a_table_shares_memory_with_no_other() -> None:
    table = table_empty(4, 2, torch.float32).fill_(1.0)
    zeros = zeros_like_table(table)
    zeros.add_(5.0)
    assert bool((table == 1).all())


def test_zeros_are_on_the_device_of_the_table() -> None:
    assert zeros_like_table(torch.empty(3, 2, device="meta")).device.type == "meta"
