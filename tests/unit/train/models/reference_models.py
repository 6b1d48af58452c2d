"""Every model once more, one example at a time, in plain torch with autograd.

Nothing of the package's forward or backward passes is used here, and rows are
found by a layout that is worked out anew.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tulle.data.prepared.feature import PreparedFeature
from tulle.train.models.contributions import Contribution, RowGradient
from tulle.train.settings.models import MLP, FactorizationMachine, LogisticRegression, TableSharing

Settings = MLP | FactorizationMachine | LogisticRegression


def table_dim(settings: Settings, num_rows: int) -> int:
    if isinstance(settings, LogisticRegression):
        return 1
    if isinstance(settings, FactorizationMachine):
        return settings.factor_dim + 1
    if settings.embedding_dim == "fourth root":
        return int(2 * num_rows**0.25)
    return int(settings.embedding_dim)


def places(
    settings: Settings, features: Sequence[PreparedFeature], role: str
) -> list[tuple[str, int, int]]:
    """Column, tensor and first row of each feature, in the order of concatenation."""
    of_role = [f for f in features if f.role == role]
    shares = settings.tables is TableSharing.AS_PREPARED
    dims: list[int] = []
    next_row: dict[int, int] = {}
    first_row: dict[object, int] = {}
    found = []
    for column, feature in enumerate(of_role):
        space: object = feature.table if shares else column
        dim = table_dim(settings, feature.num_ids)
        if dim not in dims:
            dims.append(dim)
        if space not in first_row:
            first_row[space] = next_row.get(dim, 0)
            next_row[dim] = first_row[space] + feature.num_ids
        found.append((dims.index(dim), column, first_row[space]))
    return [(f"{role}.table.{table}", column, row) for table, column, row in sorted(found)]


def reference_logit(
    settings: Settings,
    features: Sequence[PreparedFeature],
    parameters: Mapping[str, Tensor],
    public_ids: Sequence[int],
    sensitive_ids: Sequence[int] | None,
) -> Tensor:
    """The logit of one example."""
    read: dict[str, list[Tensor]] = {"public": [], "sensitive": []}
    for role, ids in (("public", public_ids), ("sensitive", sensitive_ids)):
        if ids is not None:
            for table, column, row in places(settings, features, role):
                read[role].append(parameters[table][row + ids[column]])
    if isinstance(settings, MLP):
        return _mlp_logit(settings, features, parameters, read, sensitive_ids is None)
    logit = parameters["common.bias"][0]
    rows = read["public"] + read["sensitive"]
    for index, row in enumerate(rows):
        logit = logit + row[0]
        if isinstance(settings, FactorizationMachine):
            for other in rows[:index]:
                logit = logit + (row[1:] * other[1:]).sum()
    return logit


def _mlp_logit(
    settings: MLP,
    features: Sequence[PreparedFeature],
    parameters: Mapping[str, Tensor],
    read: Mapping[str, list[Tensor]],
    is_truncated: bool,
) -> Tensor:
    outputs = []
    any_parameter = parameters["common.layer.0.weight"]
    for role, sizes in (
        ("public", settings.public_hidden),
        ("sensitive", settings.sensitive_hidden),
    ):
        there = places(settings, features, role)
        if not there:
            continue
        if role == "sensitive" and is_truncated:
            width = sum(parameters[table].shape[1] for table, _, _ in there)
            outputs.append(any_parameter.new_zeros(sizes[-1] if sizes else width))
            continue
        values = torch.cat(read[role])
        for layer in range(len(sizes)):
            values = _linear(parameters, f"{role}.layer.{layer}", values).clamp(min=0)
        outputs.append(values)
    values = torch.cat(outputs)
    for layer in range(len(settings.common_hidden)):
        values = _linear(parameters, f"common.layer.{layer}", values).clamp(min=0)
    return _linear(parameters, f"common.layer.{len(settings.common_hidden)}", values)[0]


def _linear(parameters: Mapping[str, Tensor], name: str, values: Tensor) -> Tensor:
    return parameters[f"{name}.weight"] @ values + parameters[f"{name}.bias"]


@dataclasses.dataclass
class Batch:
    public_ids: Tensor
    sensitive_ids: Tensor | None
    logit_grads: Tensor


@dataclasses.dataclass
class Reference:
    """Per-example gradients of all parameters side by side, zero for untrained towers."""

    logits: Tensor
    gradients: Tensor


def reference_gradients(
    settings: Settings,
    features: Sequence[PreparedFeature],
    parameters: Mapping[str, Tensor],
    batch: Batch,
    towers: frozenset[str],
) -> Reference:
    """A loop of single-example autograd in float64."""
    leaves = {n: p.detach().double().cpu().clone().requires_grad_() for n, p in parameters.items()}
    size = sum(p.numel() for p in leaves.values())
    logits, rows = [], []
    for index in range(len(batch.public_ids)):
        sensitive = None if batch.sensitive_ids is None else batch.sensitive_ids[index].tolist()
        public = batch.public_ids[index].tolist()
        logit = reference_logit(settings, features, leaves, public, sensitive)
        found = torch.autograd.grad(logit, list(leaves.values()), allow_unused=True)
        parts = [
            torch.zeros_like(p).flatten()
            if g is None or n.split(".")[0] not in towers
            else g.flatten()
            for (n, p), g in zip(leaves.items(), found, strict=True)
        ]
        logits.append(logit.detach())
        rows.append(torch.cat(parts) * float(batch.logit_grads[index]))
    if not rows:
        return Reference(torch.zeros(0).double(), torch.zeros(0, size).double())
    return Reference(torch.stack(logits), torch.stack(rows))


def total_squared_norms(contributions: Sequence[Contribution], batch_size: int) -> Tensor:
    total = torch.zeros(batch_size, dtype=torch.float64)
    for contribution in contributions:
        total += contribution.squared_norms().double().cpu()
    return total


def total_inner_products(
    contributions: Sequence[Contribution], left: Tensor, right: Tensor
) -> Tensor:
    total = torch.zeros(len(left), dtype=torch.float64)
    for contribution in contributions:
        total += contribution.inner_products(left, right).double().cpu()
    return total


def flat_weighted_sum(
    contributions: Sequence[Contribution], weights: Tensor, parameters: Mapping[str, Tensor]
) -> Tensor:
    """All gradients as one vector. Each parameter may come once only."""
    dense = {n: torch.zeros(p.shape, dtype=torch.float64) for n, p in parameters.items()}
    seen: set[str] = set()
    for contribution in contributions:
        for gradient in contribution.weighted_sum(weights):
            assert gradient.name not in seen
            seen.add(gradient.name)
            values = gradient.values.double().cpu()
            if isinstance(gradient, RowGradient):
                rows = gradient.rows.cpu()
                assert bool((rows[1:] > rows[:-1]).all())
                dense[gradient.name][rows] = values
            else:
                assert values.shape == dense[gradient.name].shape
                dense[gradient.name] = values
    return torch.cat([values.flatten() for values in dense.values()])
