"""The factorization machine against formulas of the paper."""

import torch

from tulle.data.prepared.format import PreparedFeature
from tulle.train.models.embeddings import TableSharing
from tulle.train.models.factorization_machine import FactorizationMachine
from tulle.train.models.tower_model import TOWERS

FEATURES = [
    PreparedFeature(name=f"{role}{i}", role=role, num_ids=6, table=role)
    for role in ("public", "sensitive")
    for i in range(3)
]
PUBLIC_IDS = torch.tensor([[0, 1, 2], [3, 4, 5]])
SENSITIVE_IDS = torch.tensor([[5, 4, 3], [0, 2, 4]])


def test_the_squared_norm_has_a_closed_form() -> None:
    settings = FactorizationMachine(factor_dim=4, tables=TableSharing.PER_FEATURE)
    model = settings.build(FEATURES, seed=0, dtype=torch.float64)
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
    model = FactorizationMachine(factor_dim=3, initial_stddev=1.0).build(
        FEATURES, seed=0, dtype=torch.float64
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
