"""Cyclic Poisson batches: a row takes part in every b-th step at most."""

import numpy as np
import pytest

from tulle.accounting.accountant import pld_epsilon
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson, accounted_prob
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import FixedSizeSampled, Gaussian, PoissonSampled, Repeated
from tulle.privacy.units import Adjacency

NOISE = Gaussian(noise_multiplier=1.0)
CYCLIC = CyclicPoisson(num_rows=100, sampling_prob=0.1, num_groups=4, steps=18)


def test_step_t_draws_from_group_t_modulo_b_only() -> None:
    for step, batch in enumerate(CYCLIC.batches(SeededNoise(0))):
        assert (CYCLIC.groups.groups_of(batch.indices) == step % 4).all()


def test_no_row_takes_part_more_often_than_the_event_counts() -> None:
    always = CyclicPoisson(num_rows=10, sampling_prob=0.25, num_groups=4, steps=18)
    counts = np.zeros(10, int)
    for batch in always.batches(SeededNoise(0)):
        counts[batch.indices] += 1
    assert always.group_sampling_prob == 1
    assert counts.max() == always.max_participations == 5
    assert counts.min() == 4


def test_a_run_that_goes_on_keeps_the_groups() -> None:
    resumed = CYCLIC.batches(SeededNoise(99), first_step=7)
    for step, batch in enumerate(resumed, start=7):
        assert (CYCLIC.groups.groups_of(batch.indices) == step % 4).all()


def test_the_event_is_one_sampled_gaussian_for_each_turn_of_a_group() -> None:
    turn = PoissonSampled(sampling_prob=accounted_prob(0.4), event=NOISE)
    in_place = FixedSizeSampled(batch_size=CYCLIC.num_rows, num_rows=CYCLIC.num_rows, event=turn)
    assert CYCLIC.event(NOISE) == Repeated(event=in_place, count=5)
    cost, of_turns = (
        pld_epsilon(event, 1e-6, Adjacency.REPLACE)
        for event in (CYCLIC.event(NOISE), Repeated(event=turn, count=5))
    )
    assert cost == of_turns
    with pytest.raises(UnsupportedEventError, match="FixedSizeSampled under add-remove"):
        pld_epsilon(CYCLIC.event(NOISE), 1e-6, Adjacency.ADD_OR_REMOVE)
    assert CYCLIC.event(NOISE, num_bands=4) == CYCLIC.event(NOISE)


def test_one_group_is_plain_poisson_sampling() -> None:
    one = CyclicPoisson(num_rows=100, sampling_prob=0.1, num_groups=1, steps=18)
    assert one.event(NOISE) == Poisson(num_rows=100, sampling_prob=0.1, steps=18).event(NOISE)


def test_without_sampling_the_cost_is_that_of_single_participation() -> None:
    single = CyclicPoisson(num_rows=36, sampling_prob=1 / 18, num_groups=18, steps=18)
    found = pld_epsilon(single.event(NOISE), 1e-6, Adjacency.REPLACE)
    assert found == pytest.approx(pld_epsilon(NOISE, 1e-6, Adjacency.REPLACE), rel=1e-3)


def test_steps_of_one_row_touch_separate_parts_of_banded_noise() -> None:
    num_bands, steps = CYCLIC.num_groups, CYCLIC.steps
    lags = np.subtract.outer(np.arange(steps), np.arange(steps))
    matrix = np.where((lags >= 0) & (lags < num_bands), 1 / (1 + np.abs(lags)), 0.0)
    for group in range(num_bands):
        columns = matrix[:, group::num_bands]
        products = columns.T @ columns
        assert np.count_nonzero(products - np.diag(np.diag(products))) == 0


def test_more_bands_than_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_bands=5 must be <= num_groups=4"):
        CYCLIC.event(NOISE, num_bands=5)


def test_a_chance_that_groups_cannot_give_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sampling_prob=0\.3 must be <= 1 / num_groups=0\.25"):
        CyclicPoisson(num_rows=100, sampling_prob=0.3, num_groups=4, steps=1)


@pytest.mark.parametrize(
    "wrong",
    [{"num_groups": 0}, {"num_groups": 101}, {"steps": 0}, {"group_seed": -1}, {"num_rows": 1.5}],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, float]) -> None:
    right = {"num_rows": 100, "sampling_prob": 0.001, "num_groups": 4, "steps": 3}
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        CyclicPoisson(**right | wrong)  # type: ignore[arg-type]
