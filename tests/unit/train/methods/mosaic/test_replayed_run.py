"""A whole run on neighbours: releases are all that counts, and they tell no more than claimed.

A run on one data set is followed on its neighbour: the same code is given the releases of the
first run. If anything but releases decided what comes next, it would ask for something else. And
since both tell what their sums were, the privacy loss of the very run is known exactly. Sums,
noise, shares and charges are whole numbers, so that nothing is compared with a tolerance.
"""

import dataclasses
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic import (
    cell_sums,
    cell_training,
    noise_shares,
    share_allocation,
    unit_weights,
)
from tulle.train.methods.mosaic.cell_model import CellModel
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.methods.mosaic.noise_shares import NoiseShares, RowShares
from tulle.train.methods.mosaic.row_parts import PART_BITS, RowParts, row_parts
from tulle.train.settings.units import ExampleLevel, UnitLevel, UserLevel
from unit.train.methods.mosaic.test_cell_training import context
from unit.train.small_data import make_examples, planned

_ROWS = 3_000
_EACH_ROW = ExampleLevel()


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


_CONFIG = MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=8.0, delta=1e-6)


def run(
    examples: ExampleSet,
    shares: Recorded,
    monkeypatch: pytest.MonkeyPatch,
    unit: UnitLevel = _EACH_ROW,
    config: MosaicConfig = _CONFIG,
) -> CellModel:
    monkeypatch.setattr(cell_training, "NoiseShares", lambda *_args, **_more: shares)
    # The noise is that of the shares; the plan says what is protected together.
    plan = planned(config, _ROWS)
    if unit != _EACH_ROW:
        method = dataclasses.replace(plan.method, unit=unit)
        shape = dataclasses.replace(plan.shape, num_users=len(np.unique(examples.units)))
        plan = dataclasses.replace(plan, method=method, shape=shape)
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


def check_told(one: Recorded, other: Recorded, *, weight: float = 1.0) -> None:
    """Checks exactly that the releases tell these neighbours apart by no more than one Gaussian.

    A row of less weight may be told apart by less: by the square of its weight.
    """
    most = Fraction(weight) ** 2
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
        assert sum(told[start : starts[place + 1]]) <= most * allowance
    assert sum(allowance for _, allowance in one.taken) <= 4**one.weight_bits
    assert 0 < sum(told) <= most * 4**one.weight_bits


def _changed(one: np.ndarray, other: np.ndarray) -> list[tuple[int, int]]:
    places = np.flatnonzero(one != other)
    return list(zip(one.ravel()[places].tolist(), other.ravel()[places].tolist(), strict=True))


def followed(
    examples: ExampleSet,
    neighbour: ExampleSet,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    unit: UnitLevel = _EACH_ROW,
    config: MosaicConfig = _CONFIG,
) -> tuple[Recorded, Recorded]:
    """A run, and the same run on a neighbour with the same releases."""
    shares = Recorded(noise(), rng=SeededNoise(seed))
    model = run(examples, shares, monkeypatch, unit, config)
    again = Replayed(noise(), rng=SeededNoise(seed), of=shares)
    _check_equal(model, run(neighbour, again, monkeypatch, unit, config))
    return shares, again


@pytest.mark.parametrize("seed", range(12))
def test_a_run_tells_neighbours_apart_by_no_more_than_one_gaussian(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = make_examples(_ROWS, seed=1)
    check_told(*followed(examples, replaced(examples, seed), seed, monkeypatch))


def weighted(examples: ExampleSet, *, heaviest: float = 1.0) -> ExampleSet:
    """The rows with weights of their own, most of them far below the largest."""
    rng = np.random.default_rng(7)
    weights = heaviest * rng.choice([0.1, 0.4, 1.0], examples.num_rows).astype(np.float32)
    return dataclasses.replace(examples, weights=weights)


def replaced_row_of(examples: ExampleSet, neighbour: ExampleSet) -> int:
    """The row in which neighbours differ."""
    is_changed = (examples.sensitive_features != neighbour.sensitive_features).any(axis=1)
    return int(np.flatnonzero(is_changed | (examples.labels != neighbour.labels))[0])


@pytest.mark.parametrize("seed", range(1, 13, 2))
def test_a_row_of_less_weight_is_told_apart_by_less(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = weighted(make_examples(_ROWS, seed=1))
    neighbour = replaced(examples, seed)
    assert examples.weights is not None
    weight = float(examples.weights[replaced_row_of(examples, neighbour)])
    check_told(*followed(examples, neighbour, seed, monkeypatch), weight=weight)


@pytest.mark.parametrize("seed", range(3))
def test_weighted_rows_of_a_user_are_told_apart_by_no_more_than_one_gaussian(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = weighted(examples_of_users())
    neighbour = replaced_user(examples, seed, large_user(examples, seed))
    check_told(*followed(examples, neighbour, seed, monkeypatch, UserLevel()))


def unscaled(
    num_rows: int, units: np.ndarray | None, weights: np.ndarray, **_settings: object
) -> RowParts:
    """Weights are used as they are given, here up to 1.4, and not against the largest."""
    assert units is None
    linear = (1.4 * weights.astype(np.float64) * (1 << PART_BITS)).astype(np.int64)
    return RowParts(num_rows=num_rows, linear=linear, squared=(linear * linear) >> PART_BITS)


def rooted(
    num_rows: int, units: np.ndarray | None, weights: np.ndarray, **settings: int
) -> RowParts:
    """What a row may spend is multiplied by its weight, and not by the square of it."""
    return row_parts(num_rows, units, np.sqrt(weights), **settings)


@pytest.mark.parametrize("fault", [unscaled, rooted])
def test_weights_that_let_a_row_count_for_more_are_noticed(
    fault: Callable[..., RowParts], monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = weighted(make_examples(_ROWS, seed=1))
    assert examples.weights is not None
    weights = examples.weights
    monkeypatch.setattr(unit_weights, "row_parts", fault)

    def look() -> None:
        for seed in range(1, 13, 2):
            neighbour = replaced(examples, seed)
            weight = float(weights[replaced_row_of(examples, neighbour)])
            least = 1.0 if fault is unscaled else weight
            check_told(*followed(examples, neighbour, seed, monkeypatch), weight=least)

    with pytest.raises(AssertionError):
        look()


def examples_of_users(*, days: int = 1) -> ExampleSet:
    """Rows of users with one to eight rows, some of them with the same public columns."""
    examples, rng = make_examples(_ROWS, seed=1), np.random.default_rng(4)
    users = np.repeat(np.arange(_ROWS), rng.integers(1, 9, _ROWS))[:_ROWS]
    public = examples.public_features.copy()
    # Every third user always sees the same ad, so that his rows are in the same public cells.
    first = np.flatnonzero(np.diff(users, prepend=-1))[users]
    public[users % 3 == 0] = public[first][users % 3 == 0]
    return dataclasses.replace(
        examples,
        units=users,
        public_features=public,
        days=rng.integers(0, days, _ROWS).astype(np.int32),
    )


def replaced_user(examples: ExampleSet, seed: int, rows: np.ndarray) -> ExampleSet:
    """One unit whose rows all change, from what is likely to what is not and to the same cell."""
    assert examples.labels is not None
    assert examples.sensitive_features is not None
    labels, sensitive = examples.labels.copy(), examples.sensitive_features.copy()
    labels[rows] = 1 - labels[rows[0]]
    sensitive[rows] = [3 if seed % 2 else 0, seed % 5]
    return dataclasses.replace(examples, labels=labels, sensitive_features=sensitive)


def large_user(examples: ExampleSet, seed: int) -> np.ndarray:
    """The rows of a user with many rows."""
    users, numbers = np.unique(examples.units, return_counts=True)
    chosen = users[numbers == 8][seed]
    return np.flatnonzero(examples.units == chosen)


@pytest.mark.parametrize("seed", range(6))
def test_a_run_tells_neighbours_of_whole_users_apart_by_no_more_than_one_gaussian(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = examples_of_users()
    neighbour = replaced_user(examples, seed, large_user(examples, seed))
    check_told(*followed(examples, neighbour, seed, monkeypatch, UserLevel()))


@pytest.mark.parametrize("seed", range(3))
def test_the_rows_of_a_user_in_a_window_are_protected_together(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples, level = examples_of_users(days=4), UserLevel(window_seconds=2 * 86_400)
    assert examples.days is not None
    user = large_user(examples, seed)
    window = examples.days[user] // 2
    in_window = user[window == window[0]]
    check_told(
        *followed(examples, replaced_user(examples, seed, in_window), seed, monkeypatch, level)
    )

    def look() -> None:
        for more in range(6):
            neighbour = replaced_user(examples, more, large_user(examples, more))
            check_told(*followed(examples, neighbour, more, monkeypatch, level))

    # The whole user is not protected as one: the same run tells more of him.
    with pytest.raises(AssertionError):
        look()


def each_row_a_unit(*arguments: object, **settings: object) -> RowParts:
    """Users are counted once for each of their rows."""
    return row_parts(int(str(arguments[0])), None, None, **settings)


def unpaid_company(*arguments: object, **settings: object) -> RowParts:
    """Rows of a user that are in the same cell pay as if they were in different ones."""
    return dataclasses.replace(row_parts(*arguments, **settings), owners=None, shared=None)


def forgotten_cap(*arguments: object, **settings: object) -> RowParts:
    """Rows of users with many rows weigh as much as those of users with few."""
    parts = row_parts(*arguments, **settings)
    assert parts.linear is not None
    assert parts.squared is not None
    most = int(parts.linear.max()) // 4
    return dataclasses.replace(
        parts, linear=np.full_like(parts.linear, most), squared=np.full_like(parts.linear, most)
    )


@pytest.mark.parametrize("fault", [each_row_a_unit, unpaid_company, forgotten_cap])
def test_a_user_who_counts_more_than_one_row_is_noticed(
    fault: Callable[..., RowParts], monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = examples_of_users()
    monkeypatch.setattr(unit_weights, "row_parts", fault)

    def look() -> None:
        for seed in range(12):
            neighbour = replaced_user(examples, seed, large_user(examples, seed))
            check_told(*followed(examples, neighbour, seed, monkeypatch, UserLevel()))

    with pytest.raises(AssertionError):
        look()


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
        self: RowShares,
        raw_sums: Callable[[np.ndarray], np.ndarray],
        *,
        weights: np.ndarray,
        costs: np.ndarray | None = None,
    ) -> np.ndarray:
        del costs
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
    monkeypatch.setattr(cell_sums, "probabilities", lambda *_most: wrong)


def spent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rows have spent is forgotten, and every table gets the whole share."""

    def weights(
        self: RowShares,
        wanted: np.ndarray,
        cells: np.ndarray,
        totals: np.ndarray,
        costs: np.ndarray | None = None,
    ) -> np.ndarray:
        del wanted, cells, totals, costs
        self._spent[:] = 0
        return np.sqrt(self._limits).astype(np.int64) - 1

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
    """One row that looked like a label of 0 and is a 1 becomes one that is the other way round."""
    assert examples.labels is not None
    assert examples.sensitive_features is not None
    labels, sensitive = examples.labels.copy(), examples.sensitive_features.copy()
    unlikely = (examples.public_features[:, 0] >= 4) & (sensitive[:, 0] != 3) & (labels == 1)
    row = int(np.flatnonzero(unlikely)[seed])
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
    original = share_allocation.allocate_shares

    def peeking(tables: list, *, share: float, **settings: float) -> list[float]:
        peeked = current[0].labels.sum() / 1e5
        return original(tables, share=share * (1 - peeked), **settings)

    monkeypatch.setattr(share_allocation, "allocate_shares", peeking)
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
