"""A whole run on neighbours: releases are all that counts, and they tell no more than claimed.

A run on one data set is followed on its neighbour: the same code is given the releases of the
first run. If anything but releases decided what comes next, it would ask for something else. And
since both tell what their sums were, the privacy loss of the very run is known exactly. Sums,
noise, shares and charges are whole numbers, so that nothing is compared with a tolerance.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic import cell_sums, cell_training, noise_shares
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
    noisy: np.ndarray


class Recorded(NoiseShares):
    """Keeps all releases, and what was taken from the budget before each."""

    def __init__(self, noise_multiplier: float, *, rng: SeededNoise) -> None:
        super().__init__(noise_multiplier, rng=rng)
        self.releases: list[Release] = []
        self.taken: list[tuple[int, int]] = []
        """Number of releases before, and what was taken in squared steps."""

    def _take(self, share: float) -> int:
        allowance = super()._take(share)
        self.taken.append((len(self.releases), allowance))
        return allowance

    def _noisy(self, raw: np.ndarray, sensitivity: float) -> np.ndarray:
        noisy = super()._noisy(raw, sensitivity)
        self.releases.append(Release(raw.copy(), sensitivity, noisy.copy()))
        return noisy


class Replayed(Recorded):
    """Answers with the releases of another run, as long as the same is asked."""

    def __init__(self, noise_multiplier: float, *, rng: SeededNoise, of: Recorded) -> None:
        super().__init__(noise_multiplier, rng=rng)
        self._answers, self._taken_before = iter(of.releases), iter(of.taken)

    def _take(self, share: float) -> int:
        allowance = super()._take(share)
        assert next(self._taken_before) == self.taken[-1]
        return allowance

    def _noisy(self, raw: np.ndarray, sensitivity: float) -> np.ndarray:
        super()._noisy(raw, sensitivity)
        answer = next(self._answers)
        assert answer.raw.shape == raw.shape
        assert answer.sensitivity == sensitivity
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


def check_told(one: Recorded, other: Recorded) -> None:
    """Checks exactly that the releases tell these neighbours apart by no more than one Gaussian."""
    assert len(other.releases) == len(one.releases) > 10
    told = []
    for release, same in zip(one.releases, other.releases, strict=True):
        for part in (release.raw, same.raw, release.noisy):
            assert part.dtype == np.int64
        squared_sensitivity = round(release.sensitivity**2)
        assert squared_sensitivity in (1, 2)
        moved = sum((int(a) - int(b)) ** 2 for a, b in _changed(release.raw, same.raw))
        # In squared steps, as what was taken is. Half a squared step is not rounded away.
        told.append(moved / squared_sensitivity)
    starts = [start for start, _ in one.taken] + [len(told)]
    for place, (start, allowance) in enumerate(one.taken):
        # All releases until something is taken again have this share together: a level, the
        # counts of a column, or all tables of a round.
        assert sum(told[start : starts[place + 1]]) <= allowance
    assert sum(allowance for _, allowance in one.taken) <= 4**one.weight_bits
    assert 0 < sum(told) <= 4**one.weight_bits


def _changed(one: np.ndarray, other: np.ndarray) -> list[tuple[int, int]]:
    places = np.flatnonzero(one != other)
    return list(zip(one.ravel()[places].tolist(), other.ravel()[places].tolist(), strict=True))


def followed(
    examples: ExampleSet, neighbour: ExampleSet, seed: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Recorded, Recorded]:
    """A run, and the same run on a neighbour with the same releases."""
    shares = Recorded(noise(), rng=SeededNoise(seed))
    model = run(examples, shares, monkeypatch)
    again = Replayed(noise(), rng=SeededNoise(seed), of=shares)
    _check_equal(model, run(neighbour, again, monkeypatch))
    return shares, again


@pytest.mark.parametrize("seed", range(12))
def test_a_run_tells_neighbours_apart_by_no_more_than_one_gaussian(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = make_examples(_ROWS, seed=1)
    check_told(*followed(examples, replaced(examples, seed), seed, monkeypatch))


def test_the_order_of_rows_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one bit of a sum: the same noise then makes the same model."""
    examples = make_examples(_ROWS, seed=1)
    order = np.random.default_rng(2).permutation(_ROWS)
    one, other = (Recorded(noise(), rng=SeededNoise(3)) for _ in range(2))
    model = run(examples, one, monkeypatch)
    _check_equal(model, run(examples.select(order), other, monkeypatch))
    for release, same in zip(one.releases, other.releases, strict=True):
        assert np.array_equal(release.raw, same.raw)


def test_the_model_is_made_of_whole_steps_of_log_odds(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bit below a step is left of any sum, in the bias or in a weight."""
    shares = Recorded(noise(), rng=SeededNoise(3))
    model = run(make_examples(_ROWS, seed=1), shares, monkeypatch)
    for numbers in (np.array([model.heads[0].bias]), *(table.weights for table in model.tables)):
        steps = np.ldexp(numbers.astype(np.float64), cell_sums.LOG_ODDS_BITS)
        assert np.array_equal(steps, np.rint(steps))


def float_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of floats instead of whole numbers."""
    for name in ("label_sums", "row_sums"):
        right = getattr(cell_sums, name)

        def summed(*data: object, right: Callable[..., np.ndarray] = right) -> np.ndarray:
            return right(*data).astype(np.float64)

        monkeypatch.setattr(cell_sums, name, summed)


def unrounded_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are charged for the weights before they are rounded, here up to coarse steps."""

    def release(
        self: RowShares, raw_sums: Callable[[np.ndarray], np.ndarray], *, weights: np.ndarray
    ) -> np.ndarray:
        coarse = 1 << 23
        return self._noisy(raw_sums(-(-weights // coarse) * coarse))

    monkeypatch.setattr(RowShares, "release", release)


def noise_off_the_lattice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float noise."""

    def drawn(stddev: float, size: tuple[int, ...], *, rng: SeededNoise) -> np.ndarray:
        return np.random.default_rng(int(rng.words(1)[0])).normal(0, stddev, size)

    monkeypatch.setattr(noise_shares, "sample_rounded_normal", drawn)


def unbounded_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Likely rows count as much as the others, beyond the norm that is stated."""
    right = cell_sums.probabilities()
    every = np.full_like(right.factors, 1 << cell_sums.PROBABILITY_BITS)
    wrong = right._replace(capped=right.predicted, factors=every)
    monkeypatch.setattr(cell_sums, "probabilities", lambda: wrong)


def spent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rows have spent is forgotten, and every table gets the whole share."""

    def weights(
        self: RowShares, wanted: np.ndarray, cells: np.ndarray, totals: np.ndarray
    ) -> np.ndarray:
        del wanted, totals
        self._spent[:] = 0
        return np.full(len(cells), int(np.sqrt(float(self._allowance))) - 1)

    monkeypatch.setattr(RowShares, "weights", weights)


@pytest.mark.parametrize(
    "fault", [float_sums, unrounded_charge, noise_off_the_lattice, unbounded_rows, spent_twice]
)
def test_a_planted_fault_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = make_examples(_ROWS, seed=1)
    fault(monkeypatch)

    def look() -> None:
        for seed in range(12):
            neighbour = worst_neighbour(examples, seed)
            check_told(*followed(examples, neighbour, seed, monkeypatch))

    with pytest.raises((AssertionError, ConfigError)):
        look()


def worst_neighbour(examples: ExampleSet, seed: int) -> ExampleSet:
    """One row that looked like a label of 1 and is none, or the other way round."""
    assert examples.labels is not None
    assert examples.sensitive_features is not None
    labels, sensitive = examples.labels.copy(), examples.sensitive_features.copy()
    likely = (examples.public_features[:, 0] >= 4) & (sensitive[:, 0] == 3) & (labels == 1)
    row = int(np.flatnonzero(likely)[seed])
    labels[row], sensitive[row] = 0, [3, 4 - sensitive[row, 1]]
    return dataclasses.replace(examples, labels=labels, sensitive_features=sensitive)


@pytest.mark.parametrize("seed", range(3))
def test_without_a_fault_the_worst_neighbours_are_within_the_claim(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = make_examples(_ROWS, seed=1)
    check_told(*followed(examples, worst_neighbour(examples, seed), seed, monkeypatch))


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
    assert one.heads[0].bias == other.heads[0].bias
    assert len(one.tables) == len(other.tables) >= 2
    for table, same in zip(one.tables, other.tables, strict=True):
        assert np.array_equal(table.weights, same.weights)
        assert np.array_equal(table.stddevs, same.stddevs)
        assert table.share == same.share
        for part, again in zip(table.parts, same.parts, strict=True):
            assert np.array_equal(part.lookup, again.lookup)
