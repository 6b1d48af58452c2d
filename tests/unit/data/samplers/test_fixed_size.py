"""Batches of fixed size have exactly that many rows, and cost accordingly."""

import pytest

from tulle.accounting.accountant import pld_epsilon
from tulle.data.samplers.fixed_size import FixedSize
from tulle.data.samplers.poisson import Poisson
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import FixedSizeSampled, Gaussian, Repeated
from tulle.privacy.units import Adjacency

NOISE = Gaussian(noise_multiplier=1.0)
FIXED = FixedSize(num_rows=1000, batch_size=10, steps=50)


def test_the_event_has_the_settings_of_the_sampler() -> None:
    step = FixedSizeSampled(batch_size=10, num_rows=1000, event=NOISE)
    assert FIXED.event(NOISE) == Repeated(event=step, count=50)


def test_every_batch_is_full() -> None:
    assert {batch.num_sampled for batch in FIXED.batches(SeededNoise(0))} == {10}


def test_fixed_size_costs_more_than_poisson_and_is_refused_where_rows_come_and_go() -> None:
    poisson = Poisson(num_rows=1000, sampling_prob=0.01, steps=50)
    fixed_cost, poisson_cost = (
        pld_epsilon(sampler.event(NOISE), 1e-6, Adjacency.REPLACE) for sampler in (FIXED, poisson)
    )
    assert fixed_cost > 2 * poisson_cost
    with pytest.raises(UnsupportedEventError, match="no room for an added row"):
        pld_epsilon(FIXED.event(NOISE), 1e-6, Adjacency.ADD_OR_REMOVE)


@pytest.mark.parametrize("wrong", [{"batch_size": 1001}, {"batch_size": 0}, {"steps": 0}])
def test_settings_without_meaning_are_refused(wrong: dict[str, int]) -> None:
    right = {"num_rows": 1000, "batch_size": 10, "steps": 50}
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        FixedSize(**right | wrong)
