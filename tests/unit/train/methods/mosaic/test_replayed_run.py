"""A whole run on neighbours: releases are all that counts, and they tell no more than claimed.

A run on one data set is followed on its neighbour: the same code is given the releases of the
first run. If anything but releases decided what comes next, it would ask for something else. And
since both tell what their sums were, the privacy loss of the very run is known exactly.
"""

import dataclasses

import numpy as np
import pytest

from tulle.mechanisms.entropy import SeededNoise
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic import cell_training
from tulle.train.methods.mosaic.cell_model import CellModel
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.methods.mosaic.noise_shares import NoiseShares, RowShares
from tulle.train.settings.units import ExampleLevel
from unit.train.methods.mosaic.test_cell_training import context
from unit.train.small_data import make_examples, planned

_ROWS = 3_000


@dataclasses.dataclass
class Release:
    """What was asked for, and what came out."""

    raw: np.ndarray
    sensitivity: float
    share: float
    noisy: np.ndarray


class Recorded(NoiseShares):
    """Keeps all releases, and where a share that rows spend on their own begins."""

    def __init__(self, noise_multiplier: float, *, rng: SeededNoise) -> None:
        super().__init__(noise_multiplier, rng=rng)
        self.releases: list[Release] = []
        self.rounds: list[tuple[int, float]] = []

    def for_rows(self, share: float, num_rows: int, *, sensitivity: float) -> RowShares:
        self.rounds.append((len(self.releases), share))
        return super().for_rows(share, num_rows, sensitivity=sensitivity)

    def _noisy(self, raw: np.ndarray, sensitivity: float, share: float) -> np.ndarray:
        noisy = super()._noisy(raw, sensitivity, share)
        self.releases.append(Release(raw.copy(), sensitivity, share, noisy.copy()))
        return noisy


class Replayed(Recorded):
    """Answers with the releases of another run, as long as the same is asked."""

    def __init__(self, noise_multiplier: float, *, rng: SeededNoise, of: Recorded) -> None:
        super().__init__(noise_multiplier, rng=rng)
        self._answers, self._shares_of_rounds = iter(of.releases), iter(of.rounds)

    def for_rows(self, share: float, num_rows: int, *, sensitivity: float) -> RowShares:
        assert next(self._shares_of_rounds) == (len(self.releases), share)
        return super().for_rows(share, num_rows, sensitivity=sensitivity)

    def _noisy(self, raw: np.ndarray, sensitivity: float, share: float) -> np.ndarray:
        super()._noisy(raw, sensitivity, share)
        answer = next(self._answers)
        assert answer.raw.shape == raw.shape
        assert (answer.sensitivity, answer.share) == (sensitivity, share)
        return answer.noisy.copy()


def run(examples: ExampleSet, shares: Recorded, monkeypatch: pytest.MonkeyPatch) -> CellModel:
    monkeypatch.setattr(cell_training, "NoiseShares", lambda *_args, **_more: shares)
    plan = planned(MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=8.0, delta=1e-6), _ROWS)
    return cell_training.train_on_cells(examples, plan, context())


def replaced(examples: ExampleSet, seed: int) -> ExampleSet:
    """One row with another label and other sensitive columns; its public ones stay."""
    assert examples.labels is not None
    assert examples.sensitive_features is not None
    rng = np.random.default_rng(seed)
    labels, sensitive = examples.labels.copy(), examples.sensitive_features.copy()
    row = int(rng.integers(len(labels)))
    labels[row] = 1 - labels[row] if seed % 2 else labels[row]
    sensitive[row] = [rng.integers(4), rng.integers(5)]
    return dataclasses.replace(examples, labels=labels, sensitive_features=sensitive)


def noise() -> float:
    multiplier = planned(
        MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=8.0, delta=1e-6), _ROWS
    ).noise_multiplier
    assert multiplier is not None
    return multiplier


@pytest.mark.parametrize("seed", range(12))
def test_a_run_tells_neighbours_apart_by_no_more_than_one_gaussian(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = make_examples(_ROWS, seed=1)
    shares = Recorded(noise(), rng=SeededNoise(seed))
    model = run(examples, shares, monkeypatch)
    followed = Replayed(noise(), rng=SeededNoise(seed), of=shares)
    same = run(replaced(examples, seed), followed, monkeypatch)
    assert len(followed.releases) == len(shares.releases) > 10
    _check_equal(model, same)
    told = [
        one.share * float(np.sum((one.raw - other.raw) ** 2)) / one.sensitivity**2
        for one, other in zip(shares.releases, followed.releases, strict=True)
    ]
    assert 0 < sum(told) <= 1 + 1e-9
    assert all(
        part <= one.share * (1 + 1e-9) for part, one in zip(told, shares.releases, strict=True)
    )
    for place, (start, share) in enumerate(shares.rounds):
        end = shares.rounds[place + 1][0] if place + 1 < len(shares.rounds) else len(told)
        # Counts and levels, which are between rounds, have a share of their own.
        of_round = [told[i] for i in range(start, end) if shares.releases[i].share == 1]
        assert len(of_round) > 0
        assert sum(of_round) <= share * (1 + 1e-8)


def test_a_run_that_looks_at_labels_beside_its_releases_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planted fault: how much a table is worth is taken from the data."""
    examples = make_examples(_ROWS, seed=1)
    original = cell_training.allocate_shares

    def peeking(tables: list, *, share: float, **settings: float) -> list[float]:
        peeked = current[0].labels.sum() / 1e5
        return original(tables, share=share * (1 - peeked), **settings)

    monkeypatch.setattr(cell_training, "allocate_shares", peeking)
    shares = Recorded(noise(), rng=SeededNoise(0))
    current = [examples]
    run(examples, shares, monkeypatch)
    current[0] = replaced(examples, 1)
    with pytest.raises(AssertionError):
        run(current[0], Replayed(noise(), rng=SeededNoise(0), of=shares), monkeypatch)


def _check_equal(one: CellModel, other: CellModel) -> None:
    assert one.bias == other.bias
    assert len(one.tables) == len(other.tables) >= 2
    for table, same in zip(one.tables, other.tables, strict=True):
        assert np.array_equal(table.weights, same.weights)
        for part, again in zip(table.parts, same.parts, strict=True):
            assert np.array_equal(part.lookup, again.lookup)
