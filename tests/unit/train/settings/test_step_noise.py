import dataclasses
import math
import tomllib

import pytest

from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.fields import toml_text
from tulle.train.settings.phases import PrivatePhase
from tulle.train.settings.step_noise import (
    BandedNoise,
    IndependentNoise,
    LatticeNoise,
    SelectedRows,
    StepNoise,
)

NOISES: list[StepNoise] = [
    *(kind() for kind in StepNoise.__args__),
    LatticeNoise(bits=30),
    BandedNoise(num_bands=4),
    SelectedRows(selection_share=0.25, threshold=2),
]


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_settings_survive_plain_data_and_toml(noise: StepNoise) -> None:
    data = plain_data(noise)
    assert data["kind"] == noise.kind
    assert settings_from(StepNoise, data, what="noise") == noise
    written = tomllib.loads(toml_text({"noise": data}))["noise"]
    assert settings_from(StepNoise, written, what="noise") == noise


def test_every_noise_has_a_kind_of_its_own() -> None:
    assert len({kind.kind for kind in StepNoise.__args__}) == len(StepNoise.__args__)


@pytest.mark.parametrize("kind", StepNoise.__args__)
def test_what_is_left_out_has_its_default(kind: type[StepNoise]) -> None:
    assert settings_from(StepNoise, {"kind": kind.kind}, what="noise") == kind()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "must be a table"),
        ({}, "setting 'kind'"),
        ({"kind": "bandet"}, "did you mean 'banded'"),
        ({"kind": "banded", "bands": 3}, "did you mean 'num_bands'"),
        ({"kind": "independent", "num_bands": 3}, "num_bands"),
        ({"kind": "lattice", "bits": "many"}, "bits"),
    ],
)
def test_data_that_mean_nothing_are_refused(data: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from(StepNoise, data, what="noise")


@pytest.mark.parametrize("bits", [0, 15, 41, 24.0, True])
def test_bits_are_in_range(bits: object) -> None:
    with pytest.raises(ConfigError, match="bits"):
        LatticeNoise(bits=bits)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_bands", [0, -1, 5000, 2.0])
def test_bands_are_in_range(num_bands: object) -> None:
    with pytest.raises(ConfigError, match="num_bands"):
        BandedNoise(num_bands=num_bands)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.0, -0.1, 0.51, 1.0, math.nan, "0.1"])
def test_the_share_of_the_selection_is_in_range(share: object) -> None:
    with pytest.raises(ConfigError, match="selection_share"):
        SelectedRows(selection_share=share)  # type: ignore[arg-type]


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.inf, math.nan])
def test_the_threshold_is_in_range(threshold: float) -> None:
    with pytest.raises(ConfigError, match="threshold"):
        SelectedRows(threshold=threshold)


@pytest.mark.parametrize("clip_norm", [1e-6, 0.3, 1.0, 1.5, 10.0, 1e4])
@pytest.mark.parametrize("bits", [16, 24, 32])
def test_the_grid_is_the_largest_power_of_two_that_is_fine_enough(
    clip_norm: float, bits: int
) -> None:
    grid = LatticeNoise(bits=bits).grid(clip_norm)
    assert math.frexp(grid)[0] == 0.5
    assert clip_norm * 2.0**-bits / 2 < grid <= clip_norm * 2.0**-bits


def test_a_phase_has_independent_noise_unless_told_otherwise() -> None:
    assert PrivatePhase().noise == IndependentNoise()
    phase = PrivatePhase(noise=BandedNoise())
    assert dataclasses.replace(phase, epochs=2).noise == BandedNoise()


@pytest.mark.parametrize("noise", ["banded", None, BandedNoise])
def test_other_noise_is_refused(noise: object) -> None:
    with pytest.raises(ConfigError, match="noise="):
        PrivatePhase(noise=noise)  # type: ignore[arg-type]
