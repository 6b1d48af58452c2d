"""The contract of every sampler: batches of the promised form, and an event that fits them."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tulle.data.samplers
from tulle.accounting.accountant import pld_epsilon
from tulle.data.samplers.batch import Batch
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.fixed_size import FixedSize
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.shuffled import ShuffledBatches
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserSampling, group_rows
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.privacy.events import (
    Event,
    FixedSizeSampled,
    Gaussian,
    Grouped,
    PoissonSampled,
    Repeated,
    TruncatedPoissonSampled,
    event_from_json,
    event_to_json,
)
from tulle.privacy.units import Adjacency

NOISE = Gaussian(noise_multiplier=1.0)
NUM_ROWS, STEPS = 120, 12
UNIT_IDS = np.arange(NUM_ROWS) // 3

CASES: list[tuple[Any, type[Event], int]] = [
    (
        TruncatedPoisson.with_headroom(num_rows=NUM_ROWS, max_batch_size=60, steps=STEPS),
        TruncatedPoissonSampled,
        STEPS,
    ),
    (
        TruncatedPoisson(
            num_rows=NUM_ROWS,
            sampling_prob=0.1,
            max_batch_size=12,
            steps=STEPS,
            max_rows_per_unit=2,
            accept_costly_truncation=True,
        ),
        TruncatedPoissonSampled,
        STEPS,
    ),
    (Poisson(num_rows=NUM_ROWS, sampling_prob=0.1, steps=STEPS), PoissonSampled, STEPS),
    (
        CyclicPoisson(num_rows=NUM_ROWS, sampling_prob=0.1, num_groups=5, steps=STEPS),
        FixedSizeSampled,
        3,
    ),
    (FixedSize(num_rows=NUM_ROWS, batch_size=12, steps=STEPS), FixedSizeSampled, STEPS),
    (ShuffledBatches(num_rows=NUM_ROWS, batch_size=50, epochs=4), FixedSizeSampled, 4),
    (
        UserSampling(num_users=40, sampling_prob=0.1, steps=STEPS, max_rows_per_user=3),
        PoissonSampled,
        STEPS,
    ),
]
each_case = pytest.mark.parametrize(
    ("sampler", "step_event", "count"), CASES, ids=[type(case[0]).__name__ for case in CASES]
)
ROW_SAMPLERS = [case[0] for case in CASES if not isinstance(case[0], UserSampling)]
each_row_sampler = pytest.mark.parametrize("sampler", ROW_SAMPLERS, ids=lambda s: type(s).__name__)


def draw(sampler: Any, rng: NoiseSource, first_step: int = 0) -> Iterator[Any]:
    if isinstance(sampler, UserSampling):
        user_rows = group_rows(UNIT_IDS)
        return sampler.batches(rng, user_rows=user_rows, first_step=first_step)
    return sampler.batches(rng, first_step=first_step)  # type: ignore[no-any-return]


def sampled_rows(batch: Any) -> list[int]:
    return batch.indices[batch.weights > 0].tolist()  # type: ignore[no-any-return]


def test_every_sampler_is_listed_here() -> None:
    found = set()
    for module_info in pkgutil.iter_modules(tulle.data.samplers.__path__):
        module = importlib.import_module(f"tulle.data.samplers.{module_info.name}")
        found |= {
            kind
            for _, kind in inspect.getmembers(module, inspect.isclass)
            if hasattr(kind, "batches")
        }
    assert found == {type(case[0]) for case in CASES}


def innermost(event: Event) -> Event:
    return innermost(event.event) if hasattr(event, "event") else event


@each_case
def test_the_event_is_the_step_as_often_as_a_row_can_take_part(
    sampler: Any, step_event: type[Event], count: int
) -> None:
    event = sampler.event(NOISE)
    assert isinstance(event, Repeated)
    assert event.count == count
    assert isinstance(event.event, step_event)
    assert innermost(event) == NOISE
    assert event_from_json(event_to_json(event)) == event


@each_case
def test_the_accountant_accepts_the_event_under_replace(
    sampler: Any, step_event: type[Event], count: int
) -> None:
    del step_event, count
    epsilon = pld_epsilon(sampler.event(NOISE), 1e-6, Adjacency.REPLACE)
    unamplified = pld_epsilon(Repeated(event=NOISE, count=60), 1e-6, Adjacency.REPLACE)
    assert 0 < epsilon < unamplified


@each_case
def test_there_are_as_many_batches_as_steps_and_the_rest_can_be_drawn(
    sampler: Any, step_event: type[Event], count: int
) -> None:
    del step_event, count
    for first_step in (0, 5, sampler.steps):
        batches = list(draw(sampler, SeededNoise(0), first_step))
        assert len(batches) == sampler.steps - first_step


@each_case
def test_a_first_step_past_the_end_is_refused_before_the_first_batch(
    sampler: Any, step_event: type[Event], count: int
) -> None:
    del step_event, count
    for first_step in (-1, sampler.steps + 1):
        with pytest.raises(ConfigError, match="first_step="):
            draw(sampler, SeededNoise(0), first_step)


@each_case
def test_rows_are_in_range_and_none_is_twice_in_a_batch(
    sampler: Any, step_event: type[Event], count: int
) -> None:
    del step_event, count
    for batch in draw(sampler, SeededNoise(1)):
        assert batch.indices.dtype == np.int64
        assert batch.weights.dtype == np.float32
        assert ((batch.indices >= 0) & (batch.indices < NUM_ROWS)).all()
        rows = sampled_rows(batch)
        assert len(rows) == len(set(rows))


@each_case
def test_batches_follow_the_seed_and_the_operating_system_does_not_repeat(
    sampler: Any, step_event: type[Event], count: int
) -> None:
    del step_event, count
    first, again = (
        [sampled_rows(batch) for batch in draw(sampler, SeededNoise(3))] for _ in range(2)
    )
    assert first == again
    one, two = ([sampled_rows(batch) for batch in draw(sampler, release_rng())] for _ in range(2))
    # Batches of a public order come again; all others are drawn anew.
    assert (one != two) == (not isinstance(sampler, ShuffledBatches))


@each_case
def test_noise_that_is_sampled_already_is_refused(
    sampler: Any, step_event: type[Event], count: int
) -> None:
    del step_event, count
    with pytest.raises(ConfigError, match="sampled already"):
        sampler.event(PoissonSampled(sampling_prob=0.1, event=NOISE))
    with pytest.raises(ConfigError, match="grouped"):
        sampler.event(Grouped(event=NOISE, group_size=2))


@each_row_sampler
def test_batches_have_the_promised_physical_size(sampler: Any) -> None:
    lengths = {batch.indices.size for batch in sampler.batches(SeededNoise(2))}
    if sampler.physical_size is None:
        assert len(lengths) > 1
    else:
        assert lengths == {sampler.physical_size}


@each_row_sampler
def test_weights_are_one_for_rows_and_zero_for_padding(sampler: Any) -> None:
    for batch in sampler.batches(SeededNoise(2)):
        size = batch.num_sampled
        assert (batch.weights[:size] == 1).all()
        assert (batch.weights[size:] == 0).all()
        assert (batch.indices[size:] == 0).all()
        assert (np.diff(batch.indices[:size]) > 0).all()


@each_row_sampler
def test_the_divisor_is_public_and_the_same_in_every_step(sampler: Any) -> None:
    divisors = {batch.expected_size for batch in sampler.batches(SeededNoise(2))}
    assert divisors == {sampler.expected_size}
    assert isinstance(sampler.expected_size, float)


@each_case
def test_settings_and_batches_print_nothing_secret(
    sampler: Any, step_event: type[Event], count: int
) -> None:
    del step_event, count
    batch = next(draw(sampler, release_rng()))
    assert "indices" not in repr(batch)
    assert "Philox" not in repr(sampler)


@each_row_sampler
def test_samplers_draw_batches_and_say_how_long_they_are(sampler: Any) -> None:
    batch = next(sampler.batches(SeededNoise(0)))
    assert isinstance(batch, Batch)
    assert sampler.physical_size in (None, batch.indices.size)


def test_samplers_bounds_and_splits_need_numpy_alone() -> None:
    modules = [
        f"tulle.data.samplers.{m.name}" for m in pkgutil.iter_modules(tulle.data.samplers.__path__)
    ]
    modules += ["tulle.data.contribution", "tulle.data.splits"]
    heavy = {"scipy", "polars", "pyarrow", "torch", "dp_accounting", "tulle.accounting"}
    code = f"import sys, {', '.join(modules)}; print(*(set(sys.modules) & {heavy!r}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
