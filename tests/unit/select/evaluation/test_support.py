"""A target that the log cannot tell about is refused, from public data alone."""

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.select.evaluation.support import check_support, weight_limits
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import Greedy, NonPersonalised, SelectionMechanism
from tulle.select.mechanisms.noisy_max import NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.shortlists import TopCandidates
from unit.select.evaluation.logged_decisions import ShowRank, same_auctions

AUCTIONS = same_auctions(3, np.array([0.2, 0.5, 0.4, 0.1]))
ALL = np.ones(3, np.bool_)


def top(num_finalists: int) -> FloorMechanism:
    return FloorMechanism(epsilon=1.0, shortlist=TopCandidates(num_finalists=num_finalists))


@pytest.mark.parametrize("target", [top(4), Greedy(), ShowRank(rank=0), FloorMechanism(epsilon=2)])
def test_ads_that_were_never_shown_tell_nothing(target: SelectionMechanism) -> None:
    with pytest.raises(ConfigError, match=r"may show ads that .* never shows, in 3 auctions"):
        check_support(top(3), target, AUCTIONS, ALL)
    check_support(top(4), target, AUCTIONS, ALL)


@pytest.mark.parametrize("target", [top(3), top(1), NonPersonalised()])
def test_a_shorter_shortlist_is_supported(target: SelectionMechanism) -> None:
    check_support(top(3), target, AUCTIONS, ALL)


def test_only_decisions_that_count_need_support() -> None:
    with pytest.raises(ConfigError, match="in 1 auctions"):
        check_support(top(3), top(4), AUCTIONS, np.array([False, True, False]))
    check_support(top(3), top(4), AUCTIONS, ~ALL)


@pytest.mark.parametrize("logging", [Greedy(), NonPersonalised(), ShowRank(rank=None)])
def test_a_log_without_public_finalists_is_refused(logging: SelectionMechanism) -> None:
    with pytest.raises(ConfigError, match="gives no public probability to every finalist"):
        check_support(logging, top(1), AUCTIONS, ALL)


def test_weights_of_a_noisy_maximum_have_no_known_limit() -> None:
    noisy_max = NoisyMax(epsilon=1.0, noise=NoiseKind.EXPONENTIAL, score_bound=ScaledScores())
    check_support(noisy_max, top(2), AUCTIONS, ALL)
    assert weight_limits(noisy_max, top(2), AUCTIONS) is None


def test_the_limit_of_any_target_is_one_over_the_floor() -> None:
    limits = weight_limits(top(3), NonPersonalised(), AUCTIONS)
    assert limits is not None
    assert limits == pytest.approx(np.full(3, np.e + 2), rel=1e-12)
