"""Three ways in which dp-accounting 0.6.0 answers too low without a word; tulle must not.

Each test also pins what the peer says, so that a new version shows where it moved.
"""

import math

import dp_accounting
import pytest
from dp_accounting import dp_event, pld, rdp

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.group_privacy import group_epsilon
from tulle.accounting.rdp import rdp_epsilon
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy.events import Gaussian, PoissonSampled, RandomizedResponse, Repeated
from tulle.privacy.units import Adjacency

REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE


def test_ten_randomized_responses_cost_ten_times_one() -> None:
    ours = privacy_curve(
        Repeated(event=RandomizedResponse(epsilon=1.0), count=10), Adjacency.REPLACE
    )
    assert ours.epsilon(1e-6) == pytest.approx(10.0, rel=1e-4)
    assert ours.epsilon(0.0) == 10.0
    event = dp_event.RandomizedResponseDpEvent(noise_parameter=2 / (1 + math.e), num_buckets=2)
    peer = pld.PLDAccountant(REPLACE_ONE).compose(dp_event.SelfComposedDpEvent(event, 10))
    assert peer.get_epsilon(1e-6) == pytest.approx(1.0, rel=1e-3)


def test_replacing_a_unit_moves_a_gaussian_sum_twice_as_far() -> None:
    event = Gaussian(noise_multiplier=1.0)
    assert privacy_curve(event, Adjacency.REPLACE).epsilon(1e-6) == pytest.approx(10.9972, rel=1e-4)
    with pytest.raises(UnsupportedEventError, match="RDP under replace is refused"):
        rdp_epsilon(event, 1e-6, Adjacency.REPLACE)
    peer = rdp.RdpAccountant(neighboring_relation=REPLACE_ONE).compose(
        dp_event.GaussianDpEvent(1.0)
    )
    assert peer.get_epsilon(1e-6) == pytest.approx(5.2215, rel=1e-3)


def test_group_privacy_does_not_read_rounding_noise_as_a_delta() -> None:
    step = PoissonSampled(sampling_prob=1e-3, event=Gaussian(noise_multiplier=0.6))
    curve = privacy_curve(Repeated(event=step, count=1000), Adjacency.REPLACE)
    # The exact answer for 5 units is about 63 and at least 45; double precision says 32.2.
    with pytest.raises(ConfigError, match="max_rows_per_unit"):
        group_epsilon(curve, 5, 1e-6)
    assert group_epsilon(curve, 2, 1e-6) == pytest.approx(6.15, rel=0.01)


def test_a_delta_that_rounding_would_hide_is_refused() -> None:
    step = PoissonSampled(sampling_prob=1e-3, event=Gaussian(noise_multiplier=0.6))
    curve = privacy_curve(Repeated(event=step, count=1000), Adjacency.REPLACE)
    with pytest.raises(ConfigError, match="below"):
        curve.epsilon(1e-17)
