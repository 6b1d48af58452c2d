import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, DeviceClicks
from tulle.select.planner.click_prior import LogitNormalPrior, private_stddev_of_sample
from unit.select.planner.small_markets import drawn_click_probs, ragged_auctions

STDDEVS = (0.01, 0.4, 1.0, 2.5)


@pytest.mark.parametrize("stddev", STDDEVS)
@pytest.mark.parametrize("logit", [-12.0, -3.5, 0.0, 4.0])
def test_means_agree_with_adaptive_integration(stddev: float, logit: float) -> None:
    prior = LogitNormalPrior(private_stddev=stddev)

    def at(part: float) -> float:
        return float(stats.norm.pdf(part)) / (1 + math.exp(-(logit + stddev * part)))

    exact = integrate.quad(at, -12, 12, epsabs=0, epsrel=1e-11, limit=400)[0]
    assert prior.mean_click_probs(np.array([logit]))[0] == pytest.approx(exact, rel=1e-9)


@given(st.floats(-14, 9), st.floats(0.01, 2.5))
def test_public_logits_are_found_back(logit: float, stddev: float) -> None:
    prior = LogitNormalPrior(private_stddev=stddev)
    found = prior.public_logits(prior.mean_click_probs(np.array([logit])))
    assert abs(found[0] - logit) < 1e-5


def test_a_wrong_inverse_would_be_seen() -> None:
    # The logit of the mean is not the mean of the logit.
    prior = LogitNormalPrior(private_stddev=1.0)
    probs = prior.mean_click_probs(np.array([-3.5]))
    assert abs(np.log(probs / (1 - probs))[0] - -3.5) > 0.3


def test_chances_of_zero_and_one_have_a_law() -> None:
    prior = LogitNormalPrior(private_stddev=0.5)
    logits = prior.public_logits(np.array([0.0, 1.0, 1 - 1e-16]))
    assert logits[0] == -np.inf
    assert np.all(logits[1:] <= 30)
    bids = np.full(3, 2.0)
    assert prior.score_cdf(np.full(3, 1.999), bids, logits).tolist() == pytest.approx([1, 0, 0])
    assert prior.score_cdf(bids, bids, logits).tolist() == pytest.approx([1, 1, 1])


@given(st.floats(-4, 4), st.floats(-6, 1), st.floats(0.1, 20), st.floats(0.05, 2.5))
def test_quantiles_invert_the_distribution(
    deviate: float, logit: float, bid: float, stddev: float
) -> None:
    prior = LogitNormalPrior(private_stddev=stddev)
    bids, logits = np.array([bid]), np.array([logit])
    scores = prior.score_quantiles(deviate, bids, logits)
    assert prior.score_cdf(scores, bids, logits)[0] == pytest.approx(stats.norm.cdf(deviate))


def test_the_stddev_of_a_sample_is_found() -> None:
    # A likelihood estimate errs by less than stddev / sqrt(2 n); 6.2 of them are 1e-9.
    auctions = ragged_auctions(4_000, seed=1, private_stddev=0.7)
    device = DeviceClicks(click_probs=drawn_click_probs(auctions, 0.7, seed=2))
    found = private_stddev_of_sample(auctions, device)
    allowed = 6.2 / math.sqrt(2 * auctions.num_candidates)
    assert abs(found / 0.7 - 1) < allowed
    for wrong in (0.95, 1.05):
        assert abs(found / (0.7 * wrong) - 1) > 0.05 - allowed > 0


def test_a_sample_without_logits_is_refused_without_showing_it() -> None:
    auctions = Auctions(
        offsets=np.array([0, 2]),
        ads=np.array([1, 2]),
        bids=np.ones(2),
        server_click_probs=np.array([0.1, 0.2]),
    )
    with pytest.raises(DataError, match="0 or 1 has no logit"):
        private_stddev_of_sample(auctions, DeviceClicks(click_probs=np.array([0.125, 1.0])))
    with pytest.raises(ConfigError, match="same candidates"):
        private_stddev_of_sample(auctions, DeviceClicks(click_probs=np.array([0.125])))


@pytest.mark.parametrize("stddev", [0.0, -1.0, 2.6, math.nan, math.inf])
def test_a_stddev_out_of_range_is_refused(stddev: float) -> None:
    with pytest.raises(ConfigError, match="private_stddev"):
        LogitNormalPrior(private_stddev=stddev)
