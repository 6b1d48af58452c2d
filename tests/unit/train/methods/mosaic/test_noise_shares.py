"""One Gaussian budget, given out in shares."""

import copy
import os
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from statistical.noise_checks import assert_gaussian
from tulle.accounting.accountant import privacy_curve
from tulle.audit.profile import audit_profile
from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.privacy.events import Gaussian
from tulle.privacy.units import Adjacency
from tulle.train.methods.mosaic.noise_shares import NoiseShares


def test_noise_has_the_stated_scale() -> None:
    def draws(rng: NoiseSource, size: int) -> np.ndarray:
        shares = NoiseShares(2.0, rng=rng)
        return shares.release(np.zeros(size), sensitivity=3.0, share=0.25)

    assert_gaussian(draws, stddev=2.0 * 3.0 / 0.5)


def test_all_of_the_budget_is_there_and_no_more() -> None:
    shares = NoiseShares(1.0, rng=SeededNoise(1))
    shares.release(np.zeros(3), sensitivity=1.0, share=0.75)
    shares.release(np.zeros(3), sensitivity=1.0, share=0.25)
    with pytest.raises(ConfigError, match="left of the noise budget"):
        shares.release(np.zeros(3), sensitivity=1.0, share=1e-12)


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_a_share_is_a_part(share: float) -> None:
    with pytest.raises(ConfigError, match="share="):
        NoiseShares(1.0, rng=SeededNoise(1)).release(np.zeros(1), sensitivity=1.0, share=share)


def ones(weights: np.ndarray) -> np.ndarray:
    return np.array([weights.sum()])


def test_a_share_of_rows_has_the_noise_of_the_whole_budget_and_weights_that_hold_it() -> None:
    def draws(rng: NoiseSource, size: int) -> np.ndarray:
        rows = NoiseShares(2.0, rng=rng).for_rows(0.25, 3, sensitivity=3.0)
        parts = np.array([1.0, 0.5, 0.0])
        noisy = rows.release(lambda weights: np.full(size, weights.sum()), parts=parts)
        return noisy - (0.5 + np.sqrt(0.125))

    assert_gaussian(draws, stddev=6.0)


def test_no_row_spends_more_than_its_share() -> None:
    rows = NoiseShares(1.0, rng=SeededNoise(1)).for_rows(0.5, 2, sensitivity=1.0)
    rows.release(ones, parts=np.array([1.0, 0.25]))
    rows.release(ones, parts=np.array([0.0, 0.75]))
    with pytest.raises(ConfigError, match="spend more than its share"):
        rows.release(ones, parts=np.array([0.0, 1e-6]))


@pytest.mark.parametrize("part", [-0.1, float("nan"), float("inf"), 1.1])
def test_a_part_of_a_row_is_a_part(part: float) -> None:
    rows = NoiseShares(1.0, rng=SeededNoise(1)).for_rows(0.5, 2, sensitivity=1.0)
    with pytest.raises(ConfigError, match="spend more than its share"):
        rows.release(ones, parts=np.array([0.5, part]))


def test_a_share_of_rows_is_taken_from_the_budget() -> None:
    shares = NoiseShares(1.0, rng=SeededNoise(1))
    shares.for_rows(0.75, 2, sensitivity=1.0)
    assert shares.left < 0.25
    with pytest.raises(ConfigError, match="left of the noise budget"):
        shares.for_rows(0.25, 2, sensitivity=1.0)
    with pytest.raises(ConfigError, match="share="):
        shares.for_rows(0.0, 2, sensitivity=1.0)


@pytest.mark.parametrize("spread", [copy.copy, copy.deepcopy, pickle.dumps])
def test_shares_can_be_neither_copied_nor_saved(spread: Callable[[object], object]) -> None:
    shares = NoiseShares(1.0, rng=release_rng())
    for guarded in (shares, shares.for_rows(0.5, 2, sensitivity=1.0)):
        with pytest.raises(RunStateError, match="must not be copied or saved"):
            spread(guarded)


def test_printing_shares_says_nothing() -> None:
    shares = NoiseShares(1.0, rng=SeededNoise(5))
    assert repr(shares) == "NoiseShares()"
    assert repr(shares.for_rows(0.5, 2, sensitivity=1.0)) == "RowShares()"


def test_a_forked_process_cannot_add_the_same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = NoiseShares(1.0, rng=release_rng())
    rows = shares.for_rows(0.25, 2, sensitivity=1.0)
    left, parent = shares.left, os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    for release in (
        lambda: shares.release(np.zeros(3), sensitivity=1.0, share=0.5),
        lambda: shares.for_rows(0.5, 2, sensitivity=1.0),
        lambda: rows.release(ones, parts=np.array([0.5, 0.5])),
    ):
        with pytest.raises(RunStateError, match="another process"):
            release()
    assert shares.left == left


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, float("inf"), float("nan")])
def test_there_is_always_noise(noise_multiplier: float) -> None:
    with pytest.raises(ConfigError, match="noise_multiplier="):
        NoiseShares(noise_multiplier, rng=SeededNoise(1))


@pytest.mark.parametrize(("noise_factor", "is_violated"), [(1.0, False), (0.5, True)])
def test_shares_that_follow_results_cost_one_gaussian(
    noise_factor: float, is_violated: bool
) -> None:
    """The second share is larger where the first sum is near the decision: adaptive on purpose."""
    claimed = 1.0

    def score(raw: float, shares: NoiseShares) -> float:
        """The log-likelihood ratio of sums around 1 and around 0, over all releases."""
        first = shares.release(np.array([raw]), sensitivity=1.0, share=0.3)[0]
        second_share = 0.7 if abs(first - 0.5) < 1 else 0.1
        total = 0.3 * (first - 0.5)
        second = shares.release(np.array([raw]), sensitivity=1.0, share=second_share)[0]
        total += second_share * (second - 0.5)
        if second_share == 0.1:
            rest = shares.release(np.array([raw]), sensitivity=1.0, share=0.6)[0]
            total += 0.6 * (rest - 0.5)
        return float(total)

    def scores(raw: float, seed: int) -> np.ndarray:
        seeds = range(seed, seed + 20_000)
        return np.array(
            [score(raw, NoiseShares(noise_factor * claimed, rng=SeededNoise(s))) for s in seeds]
        )

    event = Gaussian(noise_multiplier=claimed, replace_factor=1.0)
    claim = privacy_curve(event, Adjacency.REPLACE)
    result = audit_profile(scores(1.0, 0), scores(0.0, 1_000_000), claim)
    assert result.is_violated is is_violated
