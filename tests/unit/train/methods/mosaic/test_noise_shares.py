"""One Gaussian budget, given out in shares."""

import copy
import math
import os
import pickle
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from statistical.noise_checks import assert_discrete, assert_gaussian
from tulle.accounting.accountant import privacy_curve
from tulle.audit.profile import audit_profile
from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.privacy.events import Gaussian
from tulle.privacy.units import Adjacency
from tulle.train.methods.mosaic.noise_shares import NoiseShares
from tulle.train.methods.mosaic.row_parts import row_parts


def whole(raw: np.ndarray) -> Callable[[np.int64], np.ndarray]:
    """Sums of rows of label 1, as many as `raw` says, at any weight."""
    return lambda weight: weight * raw


def test_noise_has_the_stated_scale() -> None:
    def draws(rng: NoiseSource, size: int) -> np.ndarray:
        shares = NoiseShares(2.0, rng=rng)
        return shares.release(whole(np.zeros(size, np.int64)), sensitivity=3.0, share=0.25)

    assert_gaussian(draws, stddev=2.0 * 3.0 / 0.5)
    # What the posterior of a cell is told of its noise must be the noise that it has.
    assert NoiseShares(2.0, rng=SeededNoise(1)).stddev(0.25, 3.0) == 2.0 * 3.0 / 0.5


def rounded_pmf(scale: float) -> Callable[[np.ndarray], np.ndarray]:
    law = stats.norm(scale=scale)
    return lambda values: law.cdf(values + 0.5) - law.cdf(values - 0.5)


def tiny_noise(rng: NoiseSource, size: int) -> np.ndarray:
    """Noise of so few steps that the probability of each step can be seen."""
    rows = NoiseShares(2.0**-28, rng=rng).for_rows(1.0, row_parts(1).limits, sensitivity=1.0)
    return rows.release(lambda _: np.zeros(size, np.int64), weights=np.ones(1, np.int64))


def test_noise_on_sums_is_the_rounded_gaussian_on_the_lattice() -> None:
    """4 steps, once a weight of 1 has the most steps; a scale that is 5% wrong is refused."""
    assert NoiseShares(2.0**-28, rng=SeededNoise(1)).weight_bits == 30
    assert_discrete(tiny_noise, rounded_pmf, scale=4.0)


def off_the_lattice(rng: NoiseSource, size: int) -> np.ndarray:
    """A planted fault: normals that are not rounded."""
    return np.random.default_rng(int(rng.words(1)[0])).normal(0, 4, size)


def rounded_down(rng: NoiseSource, size: int) -> np.ndarray:
    """A planted fault: normals that are rounded down."""
    return np.floor(off_the_lattice(rng, size))


def too_little(rng: NoiseSource, size: int) -> np.ndarray:
    """A planted fault: 5% less noise."""
    return np.rint(0.95 * off_the_lattice(rng, size))


@pytest.mark.parametrize("fault", [off_the_lattice, rounded_down, too_little])
def test_other_noise_than_the_rounded_gaussian_is_noticed(
    fault: Callable[[NoiseSource, int], np.ndarray],
) -> None:
    with pytest.raises(AssertionError):
        assert_discrete(fault, rounded_pmf, scale=4.0)


@given(noise=st.floats(1e-6, 1e6), sensitivity=st.sampled_from([1.0, math.sqrt(2)]))
def test_noise_in_steps_is_never_below_what_was_asked_for(noise: float, sensitivity: float) -> None:
    shares = NoiseShares(noise, rng=SeededNoise(1))
    wanted = Fraction(noise) * 2**shares.weight_bits
    squared = 2 if sensitivity > 1 else 1
    steps = Fraction(shares._noise_steps(sensitivity))
    assert steps**2 >= squared * wanted**2
    assert float(steps) == pytest.approx(sensitivity * float(wanted), rel=1e-12)


def test_all_noise_is_drawn_from_the_source_that_was_given() -> None:
    """From entropy of the operating system there are no two releases alike."""

    def drawn(rng: NoiseSource) -> list[float]:
        shares = NoiseShares(1.0, rng=rng)
        return shares.release(whole(np.zeros(50, int)), sensitivity=1.0, share=0.5).tolist()

    assert drawn(SeededNoise(3)) == drawn(SeededNoise(3)) != drawn(SeededNoise(4))
    assert drawn(release_rng()) != drawn(release_rng())


def test_all_of_the_budget_is_there_and_no_more() -> None:
    shares = NoiseShares(1.0, rng=SeededNoise(1))
    nothing = whole(np.zeros(3, np.int64))
    shares.release(nothing, sensitivity=1.0, share=0.75)
    shares.release(nothing, sensitivity=1.0, share=0.25)
    assert shares.left == 0
    with pytest.raises(ConfigError, match="left of the noise budget"):
        shares.release(nothing, sensitivity=1.0, share=1e-12)


@given(parts=st.lists(st.floats(1e-9, 1), min_size=1, max_size=30))
def test_shares_are_counted_in_whole_numbers_and_never_exceed_the_budget(
    parts: list[float],
) -> None:
    shares = NoiseShares(1.0, rng=SeededNoise(1))
    taken = 0
    for part in parts:
        try:
            taken += shares._take(part)
        except ConfigError:
            assert taken + math.floor(part * 4**shares.weight_bits) > 4**shares.weight_bits
    assert taken + shares._left == 4**shares.weight_bits
    assert shares._left >= 0


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_a_share_is_a_part(share: float) -> None:
    with pytest.raises(ConfigError, match="share="):
        NoiseShares(1.0, rng=SeededNoise(1)).release(
            whole(np.zeros(1, np.int64)), sensitivity=1.0, share=share
        )


def test_a_share_that_leaves_no_weight_is_refused() -> None:
    with pytest.raises(ConfigError, match="leaves rows no weight"):
        NoiseShares(1.0, rng=SeededNoise(1)).release(
            whole(np.zeros(1, np.int64)), sensitivity=1.0, share=1e-30
        )


@pytest.mark.parametrize(
    "raw", [np.zeros(2), np.zeros(2, np.int32), np.array([0, (1 << 62) + 1]), np.array([-(2**63)])]
)
def test_noise_is_added_to_exact_sums_alone(raw: np.ndarray) -> None:
    """A planted fault among them: sums of floats, whose low bits the noise would not hide."""
    shares = NoiseShares(1.0, rng=SeededNoise(1))
    with pytest.raises(ConfigError, match="whole numbers"):
        shares.release(lambda _: raw, sensitivity=1.0, share=0.5)
    rows = shares.for_rows(0.25, row_parts(1).limits, sensitivity=1.0)
    with pytest.raises(ConfigError, match="whole numbers"):
        rows.release(lambda _: raw, weights=np.ones(1, np.int64))


def ones(weights: np.ndarray) -> np.ndarray:
    return np.array([weights.sum()])


def test_a_share_of_rows_has_the_noise_of_the_whole_budget_and_weights_that_hold_it() -> None:
    def draws(rng: NoiseSource, size: int) -> np.ndarray:
        shares = NoiseShares(2.0, rng=rng)
        rows = shares.for_rows(0.25, row_parts(3).limits, sensitivity=3.0)
        weights = rows.weights(np.array([2, 1]), np.array([0, 1, 1]), np.array([2, 2, 1 << 50]))
        found = shares.step * weights
        assert found == pytest.approx([0.5, math.sqrt(0.125), 0.0], abs=3 * shares.step)
        noisy = rows.release(lambda own: np.full(size, own.sum()), weights=weights)
        return shares.step * (noisy - weights.sum())

    assert_gaussian(draws, stddev=6.0)


def test_no_row_spends_more_than_its_share() -> None:
    """Squares of whole weights are what is charged, to the last one."""
    shares = NoiseShares(1.0, rng=SeededNoise(1))
    rows = shares.for_rows(0.25, row_parts(2).limits, sensitivity=1.0)
    most = 1 << shares.weight_bits - 1
    rows.release(ones, weights=np.array([most, most // 2]))
    rows.release(ones, weights=np.array([0, most // 2]))
    rows.release(ones, weights=np.array([0, math.isqrt(most**2 // 2)]))
    with pytest.raises(ConfigError, match="spend more than its share"):
        rows.release(ones, weights=np.array([1, 0]))


def test_a_share_that_was_closed_is_spent_by_no_row() -> None:
    shares = NoiseShares(1.0, rng=SeededNoise(1))
    rows, other = (shares.for_rows(0.25, row_parts(2).limits, sensitivity=1.0) for _ in range(2))
    cells, totals = np.zeros(2, np.int64), np.ones(2, np.int64)
    weights = rows.weights(totals[:1], cells, totals)
    rows.close()
    with pytest.raises(RunStateError, match="no more"):
        rows.release(ones, weights=np.zeros(2, np.int64))
    # What rows weighed is still asked for, where releases of several rounds are averaged.
    assert np.array_equal(rows.weights(totals[:1], cells, totals), weights)
    other.release(ones, weights=weights)


@pytest.mark.parametrize("weight", [-1, 1 << 40, 1 << 62])
def test_a_weight_of_a_row_is_within_its_share(weight: int) -> None:
    rows = NoiseShares(1.0, rng=SeededNoise(1)).for_rows(0.5, row_parts(2).limits, sensitivity=1.0)
    with pytest.raises(ConfigError, match="spend more than its share"):
        rows.release(ones, weights=np.array([1, weight]))


def test_weights_that_are_not_whole_are_refused() -> None:
    """A planted fault: a charge for other weights than those that are summed."""
    rows = NoiseShares(1.0, rng=SeededNoise(1)).for_rows(0.5, row_parts(2).limits, sensitivity=1.0)
    with pytest.raises(ConfigError, match="spend more than its share"):
        rows.release(ones, weights=np.array([0.5, 0.5]))


@given(
    share=st.floats(1e-12, 1),
    noise=st.sampled_from([1e-4, 1.0, 4.68, 1e5]),
    wanted=st.lists(
        st.one_of(st.integers(1, 50), st.integers(1, 1 << 44)), min_size=1, max_size=60
    ),
)
@settings(max_examples=300)
def test_the_weights_of_a_row_never_cost_more_than_its_share(
    share: float, noise: float, wanted: list[int]
) -> None:
    """As whole numbers after rounding, and hardly less than it."""
    shares = NoiseShares(noise, rng=SeededNoise(1))
    allowance = math.floor(Fraction(share) * 4**shares.weight_bits)
    rows = shares.for_rows(share, row_parts(1).limits, sensitivity=1.0)
    total = np.array([sum(wanted)])
    spent = 0
    for some in wanted:
        weight = int(rows.weights(np.array([some]), np.zeros(1, int), total)[0])
        exact = math.isqrt(allowance * some // int(total[0]))
        assert max(0, exact - 2) <= weight <= exact
        spent += weight**2
    assert spent <= allowance


def test_weights_are_the_same_in_every_engine_that_has_ieee_floats() -> None:
    """Product, quotient, square root and floor of doubles, in this order."""
    shares = NoiseShares(1.69, rng=SeededNoise(1))
    rows = shares.for_rows(0.0371, row_parts(1_000).limits, sensitivity=1.0)
    rng = np.random.default_rng(1)
    wanted, more = rng.integers(1, 1 << 40, (2, 1_000))
    allowance = float(int(0.0371 * 4.0**shares.weight_bits))
    expected = [
        max(math.floor(math.sqrt(float(one) * allowance / float(total))) - 1, 0)
        for one, total in zip(wanted.tolist(), (wanted + more).tolist(), strict=True)
    ]
    assert rows.weights(wanted, np.arange(1_000), wanted + more).tolist() == expected


def test_a_share_of_rows_is_taken_from_the_budget() -> None:
    shares = NoiseShares(1.0, rng=SeededNoise(1))
    shares.for_rows(0.75, row_parts(2).limits, sensitivity=1.0)
    assert shares.left == 0.25
    with pytest.raises(ConfigError, match="left of the noise budget"):
        shares.for_rows(0.25 + 1e-12, row_parts(2).limits, sensitivity=1.0)
    with pytest.raises(ConfigError, match="share="):
        shares.for_rows(0.0, row_parts(2).limits, sensitivity=1.0)


@pytest.mark.parametrize("spread", [copy.copy, copy.deepcopy, pickle.dumps])
def test_shares_can_be_neither_copied_nor_saved(spread: Callable[[object], object]) -> None:
    shares = NoiseShares(1.0, rng=release_rng())
    for guarded in (shares, shares.for_rows(0.5, row_parts(2).limits, sensitivity=1.0)):
        with pytest.raises(RunStateError, match="must not be copied or saved"):
            spread(guarded)


def test_printing_shares_says_nothing() -> None:
    shares = NoiseShares(1.0, rng=SeededNoise(5))
    assert repr(shares) == "NoiseShares()"
    assert repr(shares.for_rows(0.5, row_parts(2).limits, sensitivity=1.0)) == "RowShares()"


def test_a_forked_process_cannot_add_the_same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = NoiseShares(1.0, rng=release_rng())
    rows = shares.for_rows(0.25, row_parts(2).limits, sensitivity=1.0)
    left, parent = shares.left, os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    for release in (
        lambda: shares.release(whole(np.zeros(3, int)), sensitivity=1.0, share=0.5),
        lambda: shares.for_rows(0.5, row_parts(2).limits, sensitivity=1.0),
        lambda: rows.release(ones, weights=np.array([1, 1])),
    ):
        with pytest.raises(RunStateError, match="another process"):
            release()
    assert shares.left == left


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, float("inf"), float("nan")])
def test_there_is_always_noise(noise_multiplier: float) -> None:
    with pytest.raises(ConfigError, match="noise_multiplier="):
        NoiseShares(noise_multiplier, rng=SeededNoise(1))


@pytest.mark.parametrize(
    ("noise_factor", "num_runs", "is_violated"), [(1.0, 20_000, False), (0.5, 5_000, True)]
)
def test_shares_that_follow_results_cost_one_gaussian(
    noise_factor: float, num_runs: int, is_violated: bool
) -> None:
    """The second share is larger where the first sum is near the decision: adaptive on purpose.

    Half the noise shows in a quarter of the runs that the right noise has to pass.
    """
    claimed = 1.0

    def score(number: int, shares: NoiseShares) -> float:
        """The log-likelihood ratio of sums around 1 and around 0, over all releases."""
        raw = whole(np.array([number]))
        first = shares.release(raw, sensitivity=1.0, share=0.3)[0]
        second_share = 0.7 if abs(first - 0.5) < 1 else 0.1
        total = 0.3 * (first - 0.5)
        second = shares.release(raw, sensitivity=1.0, share=second_share)[0]
        total += second_share * (second - 0.5)
        if second_share == 0.1:
            rest = shares.release(raw, sensitivity=1.0, share=0.6)[0]
            total += 0.6 * (rest - 0.5)
        return float(total)

    def scores(number: int, seed: int) -> np.ndarray:
        seeds = range(seed, seed + num_runs)
        return np.array(
            [score(number, NoiseShares(noise_factor * claimed, rng=SeededNoise(s))) for s in seeds]
        )

    event = Gaussian(noise_multiplier=claimed, replace_factor=1.0)
    claim = privacy_curve(event, Adjacency.REPLACE)
    result = audit_profile(scores(1, 0), scores(0, 1_000_000), claim)
    assert result.is_violated is is_violated
