"""What labels switch is clipped, summed where public rows look, and noised once."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.train.methods.label_projection.label_sums import (
    LOGIT_BOUND,
    LabelSums,
    LogitPass,
    NoisySums,
    empty_sums,
    fitting_settings,
    logit_pass,
)
from tulle.train.models.batches import ExampleBatch
from tulle.train.settings.models import TOWERS
from tulle.train.steps.step_settings import CLIP_SLACK, StepSettings
from unit.train.models.reference_models import Batch, reference_gradients
from unit.train.models.test_tower_model import DATASETS, MODELS, assert_close
from unit.train.steps.step_reference import Case, NoNoise, make_case, step_settings

EACH_MODEL = pytest.mark.parametrize("model", MODELS)


def of_rows(case: Case, rows: slice) -> ExampleBatch:
    """Rows with labels; their sensitive ids are there, and must not matter."""
    sensitive = case.batch.sensitive_ids
    assert sensitive is not None
    return ExampleBatch(
        public_ids=case.batch.public_ids[rows],
        sensitive_ids=sensitive[rows],
        labels=case.labels[rows],
    )


def gradients_of_logits(case: Case, batch: ExampleBatch) -> tuple[Tensor, Tensor]:
    probe = Batch(batch.public_ids, None, torch.ones(len(batch.public_ids)))
    raw = reference_gradients(case.settings, case.features, case.model.parameters, probe, TOWERS)
    return raw.gradients, raw.logits


def released(
    case: Case, private: ExampleBatch, public: LogitPass, settings: StepSettings
) -> NoisySums:
    weights = torch.ones(len(private.public_ids), dtype=torch.float64)
    weights[-1] = 0
    return LabelSums(case.model, NoNoise()).release(private, weights, public, settings)


def flat(case: Case, sums: NoisySums) -> Tensor:
    """The sums as one vector over all parameters; zero where nobody looks."""
    parts = []
    for name, parameter in case.model.parameters.items():
        values = torch.zeros_like(parameter)
        if name in sums.rows:
            values[sums.rows[name]] = sums.values[name]
        elif name in sums.values:
            values = sums.values[name]
        parts.append(values.flatten())
    return torch.cat(parts)


def seen(case: Case, public: LogitPass) -> Tensor:
    """Which numbers the gradients of the public batch can touch."""
    sums, rows = empty_sums(public)
    ones = {name: torch.ones_like(values) for name, values in sums.items()}
    return flat(case, NoisySums(values=ones, rows=rows, logit_mean=None)) > 0


@EACH_MODEL
@pytest.mark.parametrize("rows_at_a_time", [3, 16384])
def test_the_sum_is_that_of_clipped_gradients_with_label_1(model: str, rows_at_a_time: int) -> None:
    case = make_case(MODELS[model], DATASETS["two tables a role"], size=16)
    private, other = of_rows(case, slice(0, 10)), of_rows(case, slice(10, 16))
    stated = step_settings(clip_norm=0.9, rows_at_a_time=rows_at_a_time)
    public = logit_pass(case.model, other, TOWERS)
    found = released(case, private, public, stated)
    gradients, logits = gradients_of_logits(case, private)
    assert private.labels is not None
    switched = private.labels.double().clone()
    switched[-1] = 0
    limit = 0.9 * math.sqrt(1 - 0.1**2) * (1 - CLIP_SLACK)
    factors = torch.clamp(limit / gradients.norm(dim=1), max=1) * switched
    assert float(factors.min()) == 0
    assert 0 < float(factors.max()) < 1
    assert_close(flat(case, found), (factors @ gradients) * seen(case, public), 1e-10)
    bounded = logits.clamp(-LOGIT_BOUND, LOGIT_BOUND)
    expected = float((bounded * switched).sum()) / stated.expected_size
    assert found.logit_mean == pytest.approx(expected, rel=1e-9)


@EACH_MODEL
@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000), row=st.integers(0, 6), clip_norm=st.sampled_from([0.1, 1.0, 9.0])
)
def test_one_label_moves_all_sums_together_by_the_clip_norm_at_most(
    model: str, seed: int, row: int, clip_norm: float
) -> None:
    case = make_case(MODELS[model], DATASETS["shared tables"], size=12, seed=seed, scale=1.5)
    private, other = of_rows(case, slice(0, 8)), of_rows(case, slice(8, 12))
    public = logit_pass(case.model, other, TOWERS)
    stated = fitting_settings(step_settings(clip_norm=clip_norm, monitor_share=0.3), public)
    found = []
    for label in (0.0, 1.0):
        assert private.labels is not None
        labels = private.labels.clone()
        labels[row] = label
        replaced = dataclasses.replace(private, labels=labels)
        sums = released(case, replaced, public, stated)
        assert sums.logit_mean is not None
        monitor = sums.logit_mean * stated.expected_size * stated.clip_norm * 0.3 / LOGIT_BOUND
        found.append(torch.cat([flat(case, sums), torch.tensor([monitor]).double()]))
    assert float((found[1] - found[0]).norm()) <= stated.clip_norm


@EACH_MODEL
def test_every_number_that_is_seen_gets_noise_once_and_no_other(model: str) -> None:
    case = make_case(MODELS[model], DATASETS["separate tables"], size=9)
    private, other = of_rows(case, slice(0, 6)), of_rows(case, slice(6, 9))
    noise = NoNoise()
    public = logit_pass(case.model, other, TOWERS)
    stated = step_settings(clip_norm=0.8, noise_multiplier=2.5)
    weights = torch.ones(6, dtype=torch.float64)
    found = LabelSums(case.model, noise).release(private, weights, public, stated)
    places = [place for place, _ in noise.asked]
    assert len(set(places)) == len(places) == len(found.values) + 1
    assert {values.data_ptr() for values in found.values.values()} < set(places)
    assert all(stddev == pytest.approx(2.0) for _, stddev in noise.asked)
    for name, rows in found.rows.items():
        assert len(rows) < len(case.model.parameters[name])


def test_without_a_monitor_nothing_else_is_released() -> None:
    case = make_case(MODELS["logistic regression"], DATASETS["shared tables"], size=9)
    private, other = of_rows(case, slice(0, 6)), of_rows(case, slice(6, 9))
    public = logit_pass(case.model, other, TOWERS)
    found = released(case, private, public, step_settings(monitor_share=0.0))
    assert found.logit_mean is None


def test_an_empty_batch_adds_nothing() -> None:
    case = make_case(MODELS["hybrid mlp"], DATASETS["shared tables"], size=6)
    public = logit_pass(case.model, of_rows(case, slice(0, 6)), TOWERS)
    nothing = of_rows(case, slice(0, 0))
    found = LabelSums(case.model, NoNoise()).release(
        nothing, torch.zeros(0), public, step_settings()
    )
    assert float(flat(case, found).abs().max()) == 0


def test_a_batch_without_labels_is_refused() -> None:
    case = make_case(MODELS["logistic regression"], DATASETS["shared tables"], size=6)
    batch = dataclasses.replace(of_rows(case, slice(0, 6)), labels=None)
    public = logit_pass(case.model, batch, TOWERS)
    with pytest.raises(ConfigError, match="labels"):
        LabelSums(case.model, NoNoise()).release(batch, torch.ones(6), public, step_settings())


@EACH_MODEL
def test_the_clip_norm_is_no_larger_than_public_rows_have_use_for(model: str) -> None:
    case = make_case(MODELS[model], DATASETS["shared tables"], size=9)
    public = logit_pass(case.model, case.batch, TOWERS)
    wide = fitting_settings(step_settings(clip_norm=1000.0), public)
    assert wide.gradient_limit(0) == pytest.approx(float(public.norms.max()))
    assert float(public.factors(wide.gradient_limit(0)).min()) == pytest.approx(1)
    narrow = step_settings(clip_norm=1e-3)
    assert fitting_settings(narrow, public) == narrow


def test_rows_whose_gradient_overflows_are_left_out() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], DATASETS["shared tables"], size=9)
    private, other = of_rows(case, slice(0, 6)), of_rows(case, slice(6, 9))
    public = logit_pass(case.model, other, TOWERS)
    table = case.model.parameters["public.table.0"]
    first = int(private.public_ids[0, 0])
    has_first = (private.public_ids == first).any(1)
    assert not bool(has_first.all())
    table[first] = math.inf
    weights = torch.ones(6, dtype=torch.float64)
    ones = dataclasses.replace(private, labels=torch.ones(6))
    found = LabelSums(case.model, NoNoise()).release(ones, weights, public, step_settings())
    kept = dataclasses.replace(
        ones, public_ids=ones.public_ids[~has_first], labels=ones.labels[~has_first]
    )
    expected = LabelSums(case.model, NoNoise()).release(
        kept, weights[~has_first], public, step_settings()
    )
    assert bool(torch.isfinite(flat(case, found)).all())
    assert_close(flat(case, found), flat(case, expected), 1e-10)


def test_a_public_gradient_that_is_not_finite_stops_the_run() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], DATASETS["shared tables"], size=9)
    case.model.parameters["public.table.0"].fill_(math.inf)
    public = logit_pass(case.model, case.batch, TOWERS)
    with pytest.raises(RunStateError, match="diverged"):
        fitting_settings(step_settings(), public)
