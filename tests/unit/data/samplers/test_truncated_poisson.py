"""Truncated Poisson batches leave enough room, or say what it costs not to."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.accounting.accountant import pld_epsilon
from tulle.accounting.sampling import truncation_profile
from tulle.data.samplers.batch import SamplingStream
from tulle.data.samplers.poisson import accounted_prob
from tulle.data.samplers.truncated_poisson import TruncatedPoisson, truncate
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import Gaussian, Repeated, TruncatedPoissonSampled
from tulle.privacy.units import Adjacency

NOISE = Gaussian(noise_multiplier=0.7)


@given(
    max_batch_size=st.integers(1, 100_000),
    extra_rows=st.integers(0, 10**8),
    deviations=st.floats(6, 40),
)
def test_headroom_is_what_was_asked_for(
    max_batch_size: int, extra_rows: int, deviations: float
) -> None:
    sampler = TruncatedPoisson.with_headroom(
        num_rows=max_batch_size + extra_rows + 1,
        max_batch_size=max_batch_size,
        steps=1,
        deviations=deviations,
    )
    assert sampler.headroom_deviations == pytest.approx(deviations, rel=1e-9)


def test_six_deviations_cost_under_five_percent_of_padding_at_16384_rows() -> None:
    sampler = TruncatedPoisson.with_headroom(num_rows=36_000_000, max_batch_size=16384, steps=1)
    assert 1 - sampler.expected_size / sampler.max_batch_size == pytest.approx(0.0458, abs=2e-3)
    assert sampler.headroom_deviations == pytest.approx(6.0)


def test_several_rows_a_unit_get_seven_deviations_and_room_for_all_of_them() -> None:
    sampler = TruncatedPoisson.with_headroom(
        num_rows=10_000, max_batch_size=500, steps=1, max_rows_per_unit=3
    )
    room = sampler.max_batch_size - 2 - sampler.expected_size
    assert room / math.sqrt(sampler.expected_size) == pytest.approx(7.0)
    with pytest.raises(ConfigError, match="max_batch_size=2 must be >= max_rows_per_unit=3"):
        TruncatedPoisson.with_headroom(
            num_rows=10_000, max_batch_size=2, steps=1, max_rows_per_unit=3
        )
    with pytest.raises(ConfigError, match="deviations=6"):
        TruncatedPoisson.with_headroom(
            num_rows=10_000, max_batch_size=500, steps=1, max_rows_per_unit=3, deviations=6
        )


@pytest.mark.parametrize("max_batch_size", [32, 64, 128, 1024, 16384])
@pytest.mark.parametrize("max_rows", [2, 5, 20])
@pytest.mark.parametrize("max_cut_prob", [None, 5e-8, 1e-12])
def test_several_rows_a_unit_get_room_that_hardly_ever_runs_out(
    max_batch_size: int, max_rows: int, max_cut_prob: float | None
) -> None:
    """Few rows come in large numbers more often than seven deviations say."""
    sampler = TruncatedPoisson.with_headroom(
        num_rows=1_000_000,
        max_batch_size=max_batch_size,
        steps=5000,
        max_rows_per_unit=max_rows,
        max_cut_prob=max_cut_prob,
    )
    cut_prob, _ = truncation_profile(
        1_000_000, sampler.sampling_prob, max_batch_size, 1.0, max_rows
    )
    assert 5000 * cut_prob <= (max_cut_prob or 1e-9)
    assert sampler.headroom_deviations >= 7 * (1 - 1e-9)


def test_large_batches_of_several_rows_a_unit_need_no_more_than_seven_deviations() -> None:
    sampler = TruncatedPoisson.with_headroom(
        num_rows=10_000_000, max_batch_size=16384, steps=640, max_rows_per_unit=5, max_cut_prob=5e-8
    )
    assert sampler.headroom_deviations == pytest.approx(7.0)


def test_the_rows_of_a_unit_take_room() -> None:
    settings = {"num_rows": 10_000, "sampling_prob": 0.01, "max_batch_size": 171, "steps": 1}
    assert TruncatedPoisson(**settings, max_rows_per_unit=2).headroom_deviations == 7.0
    with pytest.raises(ConfigError, match=r"leaves 6\.90 standard .* must leave 7"):
        TruncatedPoisson(**settings, max_rows_per_unit=3)


@pytest.mark.parametrize("max_cut_prob", [0.0, -1.0, 1.1, math.nan])
def test_a_chance_of_cuts_is_a_chance(max_cut_prob: float) -> None:
    with pytest.raises(ConfigError, match="max_cut_prob="):
        TruncatedPoisson.with_headroom(
            num_rows=10_000, max_batch_size=500, steps=1, max_cut_prob=max_cut_prob
        )


@pytest.mark.parametrize("deviations", [5.99, 0.0, -1.0, math.nan, math.inf])
def test_with_headroom_never_picks_too_little_room(deviations: float) -> None:
    with pytest.raises(ConfigError, match="accept_costly_truncation=True"):
        TruncatedPoisson.with_headroom(
            num_rows=10_000, max_batch_size=500, steps=1, deviations=deviations
        )


def test_too_little_room_is_refused_unless_it_is_accepted_by_name() -> None:
    with pytest.raises(ConfigError, match=r"leaves 4\.95 standard .*with_headroom\(\)"):
        TruncatedPoisson(num_rows=10_000, sampling_prob=0.04, max_batch_size=499, steps=1)
    accepted = TruncatedPoisson(
        num_rows=10_000,
        sampling_prob=0.04,
        max_batch_size=499,
        steps=1,
        accept_costly_truncation=True,
    )
    assert accepted.headroom_deviations == pytest.approx(99 / 20)


def test_batches_that_hold_all_rows_are_never_truncated() -> None:
    sampler = TruncatedPoisson(num_rows=20, sampling_prob=1.0, max_batch_size=20, steps=2)
    assert sampler.headroom_deviations == math.inf
    for batch in sampler.batches(SeededNoise(0)):
        assert batch.indices.tolist() == list(range(20))


def test_the_event_has_the_settings_of_the_sampler() -> None:
    sampler = TruncatedPoisson.with_headroom(
        num_rows=10_000, max_batch_size=500, steps=70, max_rows_per_unit=2
    )
    step = TruncatedPoissonSampled(
        sampling_prob=accounted_prob(sampler.sampling_prob),
        num_rows=10_000,
        max_batch_size=500,
        event=NOISE,
        max_rows_per_unit=2,
    )
    assert sampler.event(NOISE) == Repeated(event=step, count=70)


def test_little_room_costs_more_and_the_event_says_so() -> None:
    roomy = TruncatedPoisson.with_headroom(num_rows=100_000, max_batch_size=500, steps=100)
    tight = dataclasses.replace(roomy, max_batch_size=400, accept_costly_truncation=True)
    costs = [pld_epsilon(s.event(NOISE), 1e-6, Adjacency.REPLACE) for s in (roomy, tight)]
    assert costs[1] > 2 * costs[0]


def test_rows_that_fit_stay_as_they_are_and_others_are_cut_to_size() -> None:
    stream = SamplingStream(SeededNoise(0))
    rows = np.arange(10, 20)
    assert truncate(rows, 10, stream) is rows
    cut = truncate(rows, 4, stream)
    assert cut.size == 4
    assert np.isin(cut, rows).all()
    assert (np.diff(cut) > 0).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_rows": 0},
        {"sampling_prob": 0.0},
        {"sampling_prob": 1.5},
        {"max_batch_size": 0},
        {"max_batch_size": 10_001},
        {"steps": 0},
        {"steps": 2.0},
        {"max_rows_per_unit": 0},
        {"max_rows_per_unit": 10_001},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, float]) -> None:
    right = {"num_rows": 10_000, "sampling_prob": 0.01, "max_batch_size": 500, "steps": 3}
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        TruncatedPoisson(**right | wrong)  # type: ignore[arg-type]
