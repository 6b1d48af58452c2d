"""The factorization machine against formulas of the paper, in both ways to read its rows."""

import pytest
import torch
from torch import Tensor

from tulle.data.prepared.feature import PreparedFeature
from tulle.train.models import linear_models as factor_reads
from tulle.train.models.contributions import TableContribution
from tulle.train.models.linear_models import FactorContribution
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import TOWERS, FactorizationMachine, TableSharing
from unit.train.models.reference_models import total_squared_norms
from unit.train.models.test_tower_model import DATASETS, MODELS, assert_equals_autograd

FEATURES = [
    PreparedFeature(name=f"{role}{i}", role=role, num_ids=6, table=role)
    for role in ("public", "sensitive")
    for i in range(3)
]
PUBLIC_IDS = torch.tensor([[0, 1, 2], [3, 4, 5]])
SENSITIVE_IDS = torch.tensor([[5, 4, 3], [0, 2, 4]])


def test_the_squared_norm_has_a_closed_form() -> None:
    settings = FactorizationMachine(factor_dim=4, tables=TableSharing.PER_FEATURE)
    model = build_model(settings, FEATURES, seed=0, dtype=torch.float64)
    for values in model.parameters.values():
        values.mul_(80)
    forward = model.forward(PUBLIC_IDS, SENSITIVE_IDS)
    logit_grads = torch.tensor([0.3, -0.9], dtype=torch.float64)
    found = sum(c.squared_norms() for c in forward.backward(logit_grads, towers=TOWERS))
    offsets = torch.tensor([0, 6, 12])
    factors = torch.cat(
        [
            model.parameters["public.table.0"][PUBLIC_IDS + offsets],
            model.parameters["sensitive.table.0"][SENSITIVE_IDS + offsets],
        ],
        dim=1,
    )[:, :, 1:]
    # dl^2 (1 + F + (F - 2) |S|^2 + sum |v_f|^2): bias, linear terms, factors.
    total = factors.sum(1).square().sum(1)
    wanted = logit_grads**2 * (1 + 6 + 4 * total + factors.square().sum((1, 2)))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)


def test_the_logit_is_that_of_the_papers_towers() -> None:
    model = build_model(
        FactorizationMachine(factor_dim=3, initial_stddev=1.0),
        FEATURES,
        seed=0,
        dtype=torch.float64,
    )
    model.parameters["common.bias"].fill_(0.25)
    towers = []
    for table, ids in (("public", PUBLIC_IDS), ("sensitive", SENSITIVE_IDS)):
        rows = model.parameters[f"{table}.table.0"][ids]
        linear, factors = rows[:, :, 0].sum(1), rows[:, :, 1:]
        pairs = sum((factors[:, i] * factors[:, j]).sum(1) for i in range(3) for j in range(i))
        towers.append((linear + pairs, factors.sum(1)))
    (g1, g2), (h1, h2) = towers
    full = model.forward(PUBLIC_IDS, SENSITIVE_IDS).logits
    torch.testing.assert_close(full, 0.25 + g1 + h1 + (g2 * h2).sum(1))
    torch.testing.assert_close(model.forward(PUBLIC_IDS, None).logits, 0.25 + g1)


@pytest.mark.parametrize("is_truncated", [False, True], ids=["full", "truncated"])
@pytest.mark.parametrize("size", [0, 6])
@pytest.mark.parametrize("dataset", DATASETS)
def test_the_way_of_other_devices_equals_autograd_too(
    dataset: str, size: int, is_truncated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factor_reads, "_summed", factor_reads._written_out)
    features = DATASETS[dataset]
    for name in ("factorization machine", "factorization machine per feature"):
        assert_equals_autograd(MODELS[name], features, size=size, is_truncated=is_truncated)


def test_other_devices_wait_for_no_value() -> None:
    """Tensors of the meta device have a device and no values, so asking for one fails."""
    model = build_model(FactorizationMachine(factor_dim=3), FEATURES, seed=0, device="meta")
    ids = torch.zeros(5, 3, dtype=torch.int64, device="meta")
    forward = model.forward(ids, ids)
    contributions = forward.backward(torch.zeros(5, device="meta"), towers=TOWERS)
    tables = [part for part in contributions if isinstance(part, TableContribution)]
    assert [part.grads.shape for part in tables] == [(5, 3, 4)] * 2
    with pytest.raises(RuntimeError, match="meta"):
        bool(forward.logits.sum() > 0)


def contributions_of(ids: Tensor, scale: float = 1.0, dtype: torch.dtype = torch.float64):
    """Of a model with one shared public table, and of its float64 twin."""
    features = [f for f in FEATURES if f.role == "public"]
    model = build_model(
        FactorizationMachine(factor_dim=4, initial_stddev=scale), features, seed=3, dtype=dtype
    )
    logit_grads = torch.linspace(-0.9, 0.9, len(ids), dtype=dtype)
    table, _ = model.forward(ids, None).backward(logit_grads, towers=TOWERS)
    assert isinstance(table, FactorContribution)
    return table


@pytest.mark.parametrize("ids", [[[0, 1, 2], [3, 3, 5]], [[4, 4, 4], [4, 4, 1]]])
def test_gradients_written_out_have_the_same_norms_and_sums(ids: list[list[int]]) -> None:
    short = contributions_of(torch.tensor(ids))
    long = short.as_table()
    torch.testing.assert_close(short.squared_norms(), long.squared_norms())
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    (found,), (wanted,) = short.weighted_sum(weights), long.weighted_sum(weights)
    torch.testing.assert_close(found.values, wanted.values)
    assert torch.equal(found.rows, wanted.rows)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_no_norm_is_understated_where_terms_cancel_out(scale: float) -> None:
    """One public factor is S up to a small rest: S - v has lost nearly all of its digits."""
    features = [FEATURES[0], FEATURES[3]]
    built = [
        build_model(
            FactorizationMachine(factor_dim=8, initial_stddev=1.0), features, seed=1, dtype=dtype
        )
        for dtype in (torch.float32, torch.float64)
    ]
    ids = torch.arange(6).unsqueeze(1)
    norms = []
    for model in built:
        model.parameters["public.table.0"].mul_(scale)
        model.parameters["sensitive.table.0"].mul_(1e-3)
        grads = torch.ones(6, dtype=model.output_bias.dtype)
        parts = model.forward(ids, ids).backward(grads, towers=frozenset({"public"}))
        norms.append(total_squared_norms(parts, 6))
    assert bool((norms[0] >= norms[1] * (1 - 1e-6)).all())
    torch.testing.assert_close(norms[0], norms[1], rtol=1e-5, atol=1e-4 * scale**2)
