import math
from fractions import Fraction

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.lab.browser_reports.event_settings import (
    DAY,
    EventSettings,
    SourceReports,
    debias_state_counts,
)
from tulle.lab.browser_reports.source_noise import SourceKind, information_gain

SMALL = SourceReports(
    kind=SourceKind.NAVIGATION, window_ends=(10, 20), num_trigger_data=3, max_reports=2, epsilon=1.5
)


def test_clicks_and_views_have_the_published_noise() -> None:
    click, view = SourceReports.click().noise, SourceReports.view().noise
    assert (click.spec.num_states, view.spec.num_states) == (2925, 3)
    assert click.flip_prob == pytest.approx(0.0024263221679834087, rel=1e-14)
    assert view.flip_prob == pytest.approx(2.494582008677539e-06, rel=1e-14)
    assert SourceReports.view(math.log(3)).noise.flip_prob == pytest.approx(0.6, rel=1e-14)


def test_a_registration_that_tells_too_much_is_refused_with_the_epsilon_that_fits() -> None:
    def reports(epsilon: float) -> SourceReports:
        return SourceReports(
            kind=SourceKind.EVENT,
            window_ends=(DAY, 2 * DAY, 7 * DAY),
            num_trigger_data=8,
            max_reports=3,
            epsilon=epsilon,
        )

    with pytest.raises(ConfigError, match=r"may tell 6\.5; use epsilon <= ") as caught:
        reports(14)
    fitting = float(str(caught.value).split("<= ")[1].split()[0])
    assert information_gain(reports(fitting - 1e-4).noise.spec.num_states, fitting) <= 6.51


@pytest.mark.parametrize("num_data", [1, 2, 3])
def test_moments_of_a_random_state_are_those_of_all_states(num_data: int) -> None:
    spec = SMALL.noise.spec
    states = spec.states_at(np.arange(spec.num_states)).reshape(-1, 3, 2)
    reports = states[:, :num_data].sum(axis=(1, 2)).tolist()
    mean = Fraction(sum(reports), spec.num_states)
    mean_square = Fraction(sum(count**2 for count in reports), spec.num_states)
    assert SMALL.uniform_moments(num_data) == (mean, mean_square)


def test_the_mean_of_all_data_is_the_mean_of_the_spec() -> None:
    click = SourceReports.click()
    assert click.uniform_moments(8)[0] == click.noise.spec.mean_reports


def test_debiased_counts_are_those_of_the_inverse_matrix() -> None:
    noise = SMALL.noise
    size, p = noise.spec.num_states, noise.flip_prob
    matrix = (1 - p) * np.eye(size) + p / size
    counts = np.random.default_rng(1).integers(0, 50, size)
    expected = np.linalg.solve(matrix, counts)
    np.testing.assert_allclose(debias_state_counts(counts, noise), expected, rtol=1e-10, atol=1e-9)
    # The matrix is the channel that the sampler draws from.
    np.testing.assert_allclose(noise.response.channel_matrix(), matrix, rtol=1e-12)
    both = debias_state_counts(np.stack([counts, 2 * counts]), noise)
    np.testing.assert_allclose(both, [expected, 2 * expected], rtol=1e-10, atol=1e-9)


def test_counts_of_other_states_are_refused() -> None:
    with pytest.raises(DataError, match="one a state"):
        debias_state_counts([1, 2, 3], SMALL.noise)


@pytest.mark.parametrize("ends", [(), (5, 5), (7, 3), (0,)])
def test_windows_that_do_not_ascend_are_refused(ends: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="window_ends"):
        SourceReports(kind=SourceKind.EVENT, window_ends=ends, num_trigger_data=2, max_reports=1)


def test_settings_without_slices_or_floor_are_refused() -> None:
    with pytest.raises(ConfigError, match="by"):
        EventSettings(by=())
    with pytest.raises(ConfigError, match="tau"):
        EventSettings(tau=0)
