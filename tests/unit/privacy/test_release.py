import dataclasses
import math

import pytest

from tulle.errors import ConfigError
from tulle.privacy.events import Laplace
from tulle.privacy.guarantee import Interval, Release

INTERVAL = Interval(low=90.0, high=110.0)
EVENT = Laplace(noise_multiplier=1.0)


def test_a_release_knows_its_noise_its_interval_and_its_cost() -> None:
    release = Release(value=100.0, noise_stddev=5.1, interval=INTERVAL, event=EVENT)
    assert str(release) == "100 (noise stddev 5.1, 95% interval 90 to 110)"
    assert release.event == EVENT


@pytest.mark.parametrize("stddev", [0.0, -1.0, math.nan])
def test_a_number_without_noise_is_no_release(stddev: float) -> None:
    with pytest.raises(ConfigError, match="noise_stddev"):
        Release(value=1.0, noise_stddev=stddev, interval=INTERVAL, event=EVENT)


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (math.nan, 1.0), (0.0, math.nan)])
def test_an_interval_goes_upwards(low: float, high: float) -> None:
    with pytest.raises(ConfigError, match="low"):
        Interval(low=low, high=high)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, -0.5, math.nan])
def test_a_confidence_is_a_chance(confidence: float) -> None:
    with pytest.raises(ConfigError, match="confidence"):
        Interval(low=0.0, high=1.0, confidence=confidence)


def test_an_interval_may_be_one_point_or_without_end() -> None:
    assert Interval(low=1.0, high=1.0).confidence == 0.95
    assert Interval(low=-math.inf, high=math.inf).high == math.inf


def test_a_release_cannot_be_changed() -> None:
    release = Release(value=1.0, noise_stddev=1.0, interval=INTERVAL, event=EVENT)
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.value = 2.0  # type: ignore[misc]
