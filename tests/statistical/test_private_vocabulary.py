"""Noise on sensitive values has the stated law, and wrong ways to draw it are caught."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from statistical.noise_checks import assert_discrete
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.features.column_features import VocabularyFeature
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.private_vocabulary import PrivateVocabularyConfig, RowCountNoise
from tulle.data.features.vocabulary import fit_vocabularies
from tulle.data.schema import Schema
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.key_thresholds import release_key_counts
from tulle.privacy.units import Adjacency, Unit

SALT = bytes(range(16))


def noise(**settings: Any) -> RowCountNoise:
    defaults = {"noise_multiplier": None, "epsilon": None, "delta": 1e-2}
    return RowCountNoise(**(defaults | {"num_columns": 2, "max_rows_per_unit": 3} | settings))


def laplace_pmf(scale: float) -> Callable[[np.ndarray], np.ndarray]:
    return DiscreteLaplaceConfig(scale=scale).pmf


def rounded_normal_pmf(stddev: float) -> Callable[[np.ndarray], np.ndarray]:
    def pmf(values: np.ndarray) -> np.ndarray:
        sizes = np.abs(values)
        law = stats.norm(scale=stddev)
        return law.sf(sizes - 0.5) - law.sf(sizes + 0.5)

    return pmf


def test_laplace_noise_has_the_stated_scale() -> None:
    made = noise(epsilon=0.5)
    assert_discrete(
        lambda rng, size: made.sample_noise(size, rng=rng), laplace_pmf, scale=2 * 3 / 0.5
    )


def test_gaussian_noise_has_the_stated_scale() -> None:
    made = noise(noise_multiplier=2.0)
    assert_discrete(
        lambda rng, size: made.sample_noise(size, rng=rng),
        rounded_normal_pmf,
        scale=2.0 * 3 * math.sqrt(2),
    )


def test_noise_for_a_unit_counted_once_a_value_is_too_small_and_caught() -> None:
    """Planted fault: sqrt(C R) in place of R sqrt(C)."""
    faulty = noise(noise_multiplier=2.0, num_columns=6, max_rows_per_unit=1)
    with pytest.raises(AssertionError, match="wrong"):
        assert_discrete(
            lambda rng, size: faulty.sample_noise(size, rng=rng),
            rounded_normal_pmf,
            scale=2.0 * 3 * math.sqrt(2),
        )


@pytest.mark.parametrize("settings", [{"epsilon": 0.9}, {"noise_multiplier": 1.2}])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_value_that_one_unit_alone_has_is_kept_with_chance_delta_at_most(
    settings: dict[str, float], rows: int
) -> None:
    num_units = 100_000
    made = noise(num_columns=1, max_rows_per_unit=rows, **settings)
    rng = SeededNoise(2)
    shown_together = release_key_counts(np.full(num_units, rows), made, rng=rng).is_published
    apart = release_key_counts(np.ones(rows * num_units, np.int64), made, rng=rng).is_published
    for shown in (shown_together, apart.reshape(num_units, rows).any(axis=1)):
        assert shown.sum() <= stats.binom(num_units, made.delta).isf(1e-9)
    # The same numbers would notice a threshold that takes no account of several rows.
    too_low = made.threshold - (rows - 1) - math.ceil(made.noise_scale)
    noisy = rows + made.sample_noise(num_units, rng=rng)
    assert (noisy >= too_low).sum() > stats.binom(num_units, made.delta).isf(1e-9)


def test_kept_sets_of_neighbours_are_as_close_as_the_event_says() -> None:
    """Brute force over all outputs of a small case: a unit moves from one value to another."""
    made = noise(epsilon=0.8, delta=0.05, num_columns=1, max_rows_per_unit=2)
    # Rows of three values; the moved unit has two rows and is alone in the last.
    for left, right in (((5, 2, 0), (3, 4, 0)), ((5, 2, 0), (3, 2, 2)), ((5, 2, 0), (3, 3, 1))):
        chances = [joint_law(made, counts) for counts in (left, right)]
        for one, other in itertools.permutations(chances):
            excess = sum(
                max(0.0, chance - math.exp(2 * 0.8) * other[output])
                for output, chance in one.items()
            )
            assert excess <= 0.05


def joint_law(made: RowCountNoise, counts: tuple[int, ...]) -> dict[tuple[int | None, ...], float]:
    """Chances of all noisy counts, None for a value that is not kept."""
    laws = []
    for count in counts:
        noisy = np.arange(made.threshold, made.threshold + 40)
        chances = laplace_pmf(made.noise_scale)(noisy - count) * (count > 0)
        law: dict[int | None, float] = dict(zip(noisy.tolist(), chances.tolist(), strict=True))
        laws.append(law | {None: 1 - sum(law.values())})
    return {
        output: math.prod(law[value] for law, value in zip(laws, output, strict=True))
        for output in itertools.product(*laws)
    }


class CountedNoise(SeededNoise):
    """Counts the words that were drawn."""

    num_words = 0

    def words(self, num_words: int) -> Any:
        self.num_words += num_words
        return super().words(num_words)


def fitted_sizes(folder: Path, counts: list[int], min_count: int, rng: NoiseSource) -> int:
    """How many values with these raw counts are kept, through the whole of the fitting."""
    folder.mkdir()
    ledger = Ledger.create(folder / "ledger.db")
    ledger.create_budget(
        Budget(name="all", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=9, delta=0.05)
    )
    plan = FeaturePlan(
        schema=Schema(label="y", sensitive=("s",)),
        features=(VocabularyFeature(column="s", min_count=min_count),),
        salt=SALT,
    )
    table = pl.DataFrame({"s": np.repeat(np.arange(len(counts)), counts)})
    private = PrivateVocabularyConfig(unit=Unit.example(), epsilon=1.0, delta=1e-2)
    fitted = fit_vocabularies(lambda: iter([table]), plan, private=private, ledger=ledger, rng=rng)
    return fitted.num_kept["s"]


def test_values_pass_their_threshold_as_often_as_noise_says(tmp_path: Path) -> None:
    num_values, threshold = 10_000, 20
    for count in (18, 22):
        kept = fitted_sizes(
            tmp_path / str(count), [count] * num_values, threshold, SeededNoise(count)
        )
        support = np.arange(threshold - count, 200)
        chance = float(laplace_pmf(1.0)(support).sum())
        assert stats.binomtest(kept, num_values, chance).pvalue > 1e-9
        # Exact counts in place of noisy ones would keep all of them or none.
        for exact in (0, num_values):
            assert stats.binomtest(exact, num_values, chance).pvalue < 1e-9


def test_every_value_gets_noise_of_its_own(tmp_path: Path) -> None:
    rng = CountedNoise(3)
    fitted_sizes(tmp_path / "a", [25] * 500, 20, rng)
    assert rng.num_words >= 500
