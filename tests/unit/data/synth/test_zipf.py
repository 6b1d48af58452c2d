import numpy as np
import pytest
from scipy import stats

from tulle.data.synth.zipf import CodeTable, ZipfLaw
from tulle.errors import ConfigError

LAWS = [
    ZipfLaw(num_values=3, exponent=0.5),
    ZipfLaw(num_values=1, exponent=0.0, missing_prob=0.3),
    ZipfLaw(num_values=1000, exponent=0.0),
    ZipfLaw(num_values=20, exponent=12.0, shift=7.0, missing_prob=0.7),
    ZipfLaw(num_values=100_000, exponent=1.0, missing_prob=0.1),
    ZipfLaw(num_values=500_000, exponent=0.7, shift=50.0),
    ZipfLaw(num_values=400_000_000, exponent=1.05, missing_prob=0.03),
]


def draw(law: ZipfLaw, size: int, seed: int = 5) -> np.ndarray:
    words = np.random.default_rng(seed).integers(0, 2**32, size, dtype=np.uint32)
    return CodeTable(law).codes(words)


def p_value(codes: np.ndarray, law: ZipfLaw) -> float:
    edges = np.unique(np.geomspace(1, law.num_values + 1, 60).astype(np.int64)) - 1
    edges = np.concatenate([[-1], edges])
    seen = np.histogram(codes, edges + 1)[0]
    expected = np.diff(np.concatenate([[0.0], law.cdf(edges[1:])])) * len(codes)
    kept = expected >= 10
    statistic = np.sum((seen[kept] - expected[kept]) ** 2 / expected[kept])
    return float(stats.chi2.sf(statistic, max(kept.sum() - 1, 1)))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_codes_follow_their_law(law: ZipfLaw) -> None:
    codes = draw(law, 400_000)
    assert codes.min() >= 0
    assert codes.max() <= law.num_values
    assert p_value(codes, law) > 1e-9


def test_the_check_rejects_an_exponent_five_per_cent_off() -> None:
    codes = draw(ZipfLaw(num_values=100_000, exponent=1.0), 400_000)
    assert p_value(codes, ZipfLaw(num_values=100_000, exponent=1.05)) < 1e-9


def test_the_check_rejects_a_missing_share_five_per_cent_off() -> None:
    codes = draw(ZipfLaw(num_values=1000, exponent=1.0, missing_prob=0.30), 400_000)
    assert p_value(codes, ZipfLaw(num_values=1000, exponent=1.0, missing_prob=0.315)) < 1e-9


def test_each_frequent_code_is_as_frequent_as_stated() -> None:
    law = ZipfLaw(num_values=300, exponent=1.1, shift=3.0, missing_prob=0.2)
    size = 1_000_000
    seen = np.bincount(draw(law, size), minlength=301)
    expected = law.prob(np.arange(301)) * size
    assert np.abs((seen - expected) / np.sqrt(expected)).max() < 6.5


def test_the_exponent_can_be_read_off_the_log_log_slope() -> None:
    seen = np.bincount(draw(ZipfLaw(num_values=1_000_000, exponent=1.2), 2_000_000))
    ranks = np.unique(np.geomspace(1, 1000, 40).astype(int))
    slope = np.polyfit(np.log(ranks), np.log(seen[ranks]), 1)[0]
    assert slope == pytest.approx(-1.2, abs=0.02)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_quantile_inverts_the_cumulative_law(law: ZipfLaw) -> None:
    levels = np.linspace(0, 0.9999, 997)
    codes = law.quantile(levels)
    # Far out in the tail the closed forms round by a few parts in 10^12.
    assert np.all(law.cdf(codes) >= levels - 1e-11)
    assert np.all((codes == 0) | (law.cdf(np.maximum(codes - 1, 0)) <= levels + 1e-11))


def test_probabilities_sum_to_one_and_the_tail_is_summed_right() -> None:
    law = ZipfLaw(num_values=300_000, exponent=1.3, shift=2.0, missing_prob=0.25)
    probs = law.prob(np.arange(300_001))
    assert probs.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(law.cdf(np.arange(300_001)), np.cumsum(probs), rtol=0, atol=1e-12)


@pytest.mark.parametrize("min_rows", [1, 10])
def test_the_expected_number_of_values_is_that_of_a_sample(min_rows: int) -> None:
    law = ZipfLaw(num_values=5_000_000, exponent=1.05, missing_prob=0.1)
    seen = np.bincount(draw(law, 500_000))[1:]
    expected = law.expected_values(500_000, min_rows)
    assert np.sum(seen >= min_rows) == pytest.approx(expected, abs=6.5 * expected**0.5)


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_values", 0), ("num_values", 2**31), ("exponent", -1.0), ("shift", -0.1)],
)
def test_a_law_that_cannot_be_is_refused_by_name(field: str, value: float) -> None:
    settings = {"num_values": 10, "exponent": 1.0, field: value}
    with pytest.raises(ConfigError, match=field):
        ZipfLaw(**settings)


def test_a_column_that_is_always_missing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"missing_prob=1\.0"):
        ZipfLaw(num_values=10, exponent=1.0, missing_prob=1.0)
