"""What every mechanism of single labels keeps to."""

import json
from typing import Any

import numpy as np
import pytest

from tulle.accounting.event_rules import pure_epsilon
from tulle.labels.label_grid import LabelGrid
from tulle.labels.label_mechanism import RowMechanism
from tulle.labels.mechanisms.added_noise import LaplaceLabels
from tulle.labels.mechanisms.bin_response import BinResponse
from tulle.labels.mechanisms.class_response import BinaryResponse, ClassResponse
from tulle.labels.mechanisms.prior_response import PriorResponse
from tulle.labels.mechanisms.stepped_noise import DiscreteLaplaceLabels, StaircaseLabels
from tulle.labels.mechanisms.unbiased_response import UnbiasedResponse
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.privacy.events import event_from_json, event_to_json
from tulle.privacy.units import Adjacency

GRID = LabelGrid(low=0, high=2)
MECHANISMS: list[RowMechanism] = [
    BinaryResponse(epsilon=1.0),
    ClassResponse(epsilon=1.0, num_classes=2),
    ClassResponse(epsilon=1.0, num_classes=3),
    PriorResponse(epsilon=1.0, prior=np.array([0.5, 0.3, 0.2])),
    PriorResponse(epsilon=1.0, prior=np.tile([0.5, 0.3, 0.2], (4000, 1))),
    LaplaceLabels(epsilon=1.0, grid=GRID),
    LaplaceLabels(epsilon=1.0, grid=GRID, clip=True),
    DiscreteLaplaceLabels(epsilon=1.0, grid=GRID),
    DiscreteLaplaceLabels(epsilon=1.0, grid=GRID, clip=True),
    StaircaseLabels(epsilon=1.0, grid=GRID),
    StaircaseLabels(epsilon=1.0, grid=GRID, clip=True),
    UnbiasedResponse(epsilon=1.0, grid=GRID, prior=np.full(3, 1 / 3)),
    # Enough epsilon for a bin of its own for every label: wider bins have a bias.
    BinResponse(epsilon=5.0, grid=GRID, prior=np.full(3, 1 / 3)),
]
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.name)
RAW = np.arange(4000) % 2


@each_mechanism
def test_a_release_has_one_entry_a_row(mechanism: RowMechanism) -> None:
    mechanism.check_labels(RAW)
    noisy = mechanism.release(RAW, rng=SeededNoise(1))
    assert noisy.labels.shape == RAW.shape
    assert (noisy.targets is None) == (noisy.noise_variance is None)
    if noisy.targets is not None:
        assert noisy.targets.shape == RAW.shape
        assert np.shape(noisy.noise_variance) in {(), RAW.shape}


@each_mechanism
def test_targets_have_the_label_as_mean_and_the_stated_variance(mechanism: RowMechanism) -> None:
    noisy = mechanism.release(RAW, rng=SeededNoise(2))
    if noisy.targets is not None and noisy.noise_variance is not None:
        errors = noisy.targets - RAW
        stddev = float(np.sqrt(noisy.noise_variance))
        assert abs(errors.mean()) < 6.5 * stddev / np.sqrt(RAW.size)
        assert errors.std() == pytest.approx(stddev, rel=0.15)


@each_mechanism
def test_the_event_costs_the_stated_epsilon_and_keeps_as_json(mechanism: RowMechanism) -> None:
    event = mechanism.event()
    cost = pure_epsilon(event, Adjacency.REPLACE)
    assert cost is not None
    assert 0.999999 * mechanism.epsilon < cost <= mechanism.epsilon
    assert event_from_json(event_to_json(event)) == event


@each_mechanism
def test_the_description_is_plain_data(mechanism: RowMechanism) -> None:
    facts: dict[str, Any] = mechanism.describe()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["mechanism"] == mechanism.name
    assert facts["epsilon"] == mechanism.epsilon


@each_mechanism
def test_a_seeded_source_repeats_and_the_operating_system_does_not(
    mechanism: RowMechanism,
) -> None:
    one, again = (mechanism.release(RAW, rng=SeededNoise(3)).labels for _ in range(2))
    assert np.array_equal(one, again)
    first, second = (mechanism.release(RAW, rng=release_rng()).labels for _ in range(2))
    assert not np.array_equal(first, second)
