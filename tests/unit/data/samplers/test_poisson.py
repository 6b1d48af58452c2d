"""Poisson batches of any size, by geometric skips that give independent coins."""

import collections
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tulle.data.samplers import poisson
from tulle.data.samplers.poisson import (
    Poisson,
    accounted_prob,
    rows_of_gaps,
    sample_rows,
    skip_scale,
)
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.thresholds import exponential_bounds
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


PROBS = [2.0**-38, 4.5e-4, 1 / 3, 0.5, 0.999, 1 - 2.0**-53]


@pytest.mark.parametrize("prob", [Fraction(1, 3), Fraction(7, 10)])
def test_gaps_give_every_subset_the_chance_of_independent_coins(prob: Fraction) -> None:
    num_rows = 4
    chances = [prob * (1 - prob) ** gap for gap in range(num_rows)]
    chances.append(1 - sum(chances))  # all longer gaps together: they leave the rows
    found: dict[tuple[int, ...], Fraction] = collections.defaultdict(Fraction)
    for gaps in itertools.product(range(num_rows + 1), repeat=num_rows):
        rows = rows_of_gaps(np.array(gaps), 0, num_rows)
        chance = math.prod((chances[gap] for gap in gaps), start=Fraction(1))
        found[tuple(rows[rows < num_rows].tolist())] += chance
    assert len(found) == 2**num_rows
    for subset, chance in found.items():
        assert chance == prob ** len(subset) * (1 - prob) ** (num_rows - len(subset))


@pytest.mark.parametrize("prob", PROBS)
def test_the_accounted_chance_is_the_realised_one_rounded_up(prob: float) -> None:
    low, high = exponential_bounds(-1 / Fraction(skip_scale(prob)), num_digits=200)
    accounted = Fraction(accounted_prob(prob))
    assert 1 - low <= accounted
    assert Fraction(math.nextafter(float(accounted), 0.0)) < 1 - high
    # The logarithm of a chance next to one has few digits to tell it from one.
    assert float(accounted) == pytest.approx(prob, rel=1e-14)


def test_a_chance_of_one_takes_every_row() -> None:
    assert sample_rows(5, 1.0, rng=SeededNoise(0)).tolist() == [0, 1, 2, 3, 4]
    assert accounted_prob(1.0) == 1.0


@pytest.mark.parametrize("prob", PROBS)
def test_rows_are_in_range_and_strictly_ascending(prob: float) -> None:
    for seed in range(20):
        rows = sample_rows(1000, prob, rng=SeededNoise(seed))
        assert rows.dtype == np.int64
        assert (np.diff(rows) > 0).all()
        assert ((rows >= 0) & (rows < 1000)).all()


def test_every_subset_of_two_rows_comes() -> None:
    draws = [sample_rows(2, 0.9, rng=SeededNoise(seed)).tolist() for seed in range(400)]
    assert {tuple(rows) for rows in draws} == {(), (0,), (1,), (0, 1)}


def test_more_gaps_are_drawn_where_the_first_ones_end_before_the_last_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_gaps = [2, 0, 0, 3, 1, 0, 7]
    gaps = iter(all_gaps)
    monkeypatch.setattr(poisson, "sample_geometric", lambda *_, **__: np.array([next(gaps)]))
    rows = sample_rows(12, 0.5, rng=SeededNoise(0))
    assert rows.tolist() == [2, 3, 4, 8, 10, 11]
    assert list(gaps) == [7]


def test_gaps_past_the_end_cannot_overflow() -> None:
    rows = rows_of_gaps(np.full(1000, 2**62), 0, 36_000_000)
    assert (np.diff(rows) > 0).all()
