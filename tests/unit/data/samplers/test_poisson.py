"""Poisson batches have the event of their settings and batches of any size."""

import pytest

from tulle.data.samplers.bernoulli_rows import accounted_prob
from tulle.data.samplers.poisson import Poisson
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import Gaussian, PoissonSampled, Repeated

NOISE = Gaussian(noise_multiplier=1.0)


def test_the_event_has_the_settings_of_the_sampler() -> None:
    sampler = Poisson(num_rows=100, sampling_prob=0.2, steps=7, max_rows_per_unit=3)
    step = PoissonSampled(sampling_prob=accounted_prob(0.2), event=NOISE, max_rows_per_unit=3)
    assert sampler.event(NOISE) == Repeated(event=step, count=7)


def test_a_batch_may_be_empty_or_hold_all_rows() -> None:
    sampler = Poisson(num_rows=3, sampling_prob=0.5, steps=300)
    sizes = {batch.num_sampled for batch in sampler.batches(SeededNoise(0))}
    assert sizes == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "wrong",
    [{"num_rows": 0}, {"sampling_prob": 0.0}, {"steps": 0}, {"max_rows_per_unit": 101}],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, float]) -> None:
    right = {"num_rows": 100, "sampling_prob": 0.2, "steps": 7}
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Poisson(**right | wrong)  # type: ignore[arg-type]
