"""Canaries are rows of the data with labels by fair coins, one of a unit at most."""

import numpy as np
import pytest
from scipy import stats

from tulle.audit.canary_labels import plant_label_canaries
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from unit.train.small_data import make_examples


def test_coins_are_the_labels_of_canaries_and_no_other_label_changes() -> None:
    examples = make_examples(400)
    before = np.array(examples.labels)
    planted = plant_label_canaries(examples, 100, rng=SeededNoise(1))
    assert len(set(planted.rows.tolist())) == 100
    assert np.array_equal(planted.rows, np.sort(planted.rows))
    assert planted.examples.labels is not None
    assert np.array_equal(planted.examples.labels[planted.rows], planted.coins)
    others = np.delete(np.arange(400), planted.rows)
    assert np.array_equal(planted.examples.labels[others], before[others])
    assert np.array_equal(np.array(examples.labels), before)
    assert planted.examples.public_features is examples.public_features


def test_coins_are_fair_and_say_nothing_of_the_labels_they_replace() -> None:
    examples = make_examples(40_000)
    planted = plant_label_canaries(examples, 40_000, rng=SeededNoise(2))
    assert examples.labels is not None
    agrees = int(np.count_nonzero(examples.labels == planted.coins))
    for count in (int(planted.coins.sum()), agrees):
        assert stats.binomtest(count, 40_000, 0.5).pvalue > 1e-9
        assert stats.binomtest(count, 40_000, 0.525).pvalue < 1e-9


def test_every_row_is_as_likely_a_canary_as_every_other() -> None:
    examples = make_examples(40)
    chosen = [plant_label_canaries(examples, 10, rng=SeededNoise(s)).rows for s in range(2000)]
    counts = np.bincount(np.concatenate(chosen), minlength=40)
    assert stats.chisquare(counts).pvalue > 1e-9
    # The same counts reject rows of the first half that are a quarter likelier.
    wrong = np.repeat([1.25, 1.0], 20)
    assert stats.chisquare(counts, wrong / wrong.sum() * counts.sum()).pvalue < 1e-9


def test_no_unit_has_two_canaries() -> None:
    examples = make_examples(400, rows_per_user=4)
    planted = plant_label_canaries(examples, 100, rng=SeededNoise(3))
    assert examples.units is not None
    assert len(np.unique(examples.units[planted.rows])) == 100
    assert len(np.unique(planted.rows % 4)) == 4
    with pytest.raises(ConfigError, match="num_canaries=101 must be <= 100"):
        plant_label_canaries(examples, 101, rng=SeededNoise(3))


def test_rows_without_labels_are_refused() -> None:
    with pytest.raises(DataError, match="no label"):
        plant_label_canaries(make_examples(40).without_sensitive(), 10, rng=SeededNoise(1))
