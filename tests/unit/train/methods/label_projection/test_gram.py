"""Inner products of logit gradients equal those of single-example autograd in float64."""

import itertools

import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.train.methods.label_projection import gram as gram_module
from tulle.train.methods.label_projection.gram import gram_matrix, inner_products
from tulle.train.methods.label_projection.label_sums import LogitPass, empty_sums, logit_pass
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import Gradient, TableContribution
from tulle.train.settings.models import TOWERS
from unit.train.models.reference_models import Batch, reference_gradients
from unit.train.models.test_tower_model import DATASETS, MODELS, assert_close
from unit.train.steps.step_reference import Case, make_case

SETS = [name for name in DATASETS if name != "no public features"]
CASES = list(itertools.product(MODELS, SETS))
each_case = pytest.mark.parametrize(("model", "dataset"), CASES)


def public_case(model: str, dataset: str, *, size: int = 14) -> tuple[Case, LogitPass, Tensor]:
    """A model, its pass, and the gradient of every row's logit by autograd."""
    case = make_case(MODELS[model], DATASETS[dataset], size=size)
    batch = ExampleBatch(public_ids=case.batch.public_ids, sensitive_ids=None, labels=None)
    found = logit_pass(case.model, batch, TOWERS)
    probe = Batch(case.batch.public_ids, None, torch.ones(size))
    raw = reference_gradients(case.settings, case.features, case.model.parameters, probe, TOWERS)
    assert_close(found.logits, raw.logits, 1e-12)
    return case, found, raw.gradients


@each_case
def test_norms_are_those_of_the_gradients_of_logits(model: str, dataset: str) -> None:
    _, found, gradients = public_case(model, dataset)
    assert_close(found.norms, gradients.norm(dim=1), 1e-11)


@each_case
def test_the_gram_matrix_equals_autograd(model: str, dataset: str) -> None:
    _, found, gradients = public_case(model, dataset)
    assert_close(gram_matrix(found.contributions), gradients @ gradients.t(), 1e-11)


@each_case
def test_products_with_sums_equal_autograd(model: str, dataset: str) -> None:
    case, found, gradients = public_case(model, dataset)
    sums, rows = empty_sums(found)
    rng = torch.Generator().manual_seed(3)
    whole = {}
    for name, parameter in case.model.parameters.items():
        whole[name] = torch.randn(parameter.shape, generator=rng, dtype=torch.float64)
        if name in sums:
            sums[name] = whole[name][rows[name]] if name in rows else whole[name]
    flat = torch.cat([values.flatten() for values in whole.values()])
    assert_close(inner_products(found.contributions, sums, rows), gradients @ flat, 1e-11)


@pytest.mark.parametrize("share", [1, 3, 10**9])
@pytest.mark.parametrize("model", ["factorization machine", "hybrid mlp"])
@pytest.mark.parametrize("dataset", ["shared tables", "separate tables"])
def test_rare_and_frequent_rows_give_one_matrix(
    model: str, dataset: str, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found, gradients = public_case(model, dataset)
    monkeypatch.setattr(gram_module, "_DENSE_SHARE", share)
    monkeypatch.setattr(gram_module, "_NUMBERS_AT_A_TIME", 64)
    assert_close(gram_matrix(found.contributions), gradients @ gradients.t(), 1e-11)


def test_rows_that_an_example_reads_twice_are_added_before_they_are_multiplied() -> None:
    grads = torch.tensor([[[1.0], [2.0]], [[5.0], [7.0]]]).double()
    ids = torch.tensor([[4, 4], [4, 1]])
    table = TableContribution(table="t", ids=ids, grads=grads)
    assert gram_matrix([table]).tolist() == [[9.0, 15.0], [15.0, 74.0]]


class _Strange:
    def squared_norms(self) -> Tensor:
        raise NotImplementedError

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        raise NotImplementedError

    def weighted_sum(self, weights: Tensor) -> list[Gradient]:
        raise NotImplementedError


def test_an_unknown_kind_of_gradient_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="_Strange"):
        gram_matrix([_Strange()])
    with pytest.raises(ConfigError, match="_Strange"):
        inner_products([_Strange()], {}, {})
