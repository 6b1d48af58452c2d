"""A whole run with classes on neighbours: it tells no more than one Gaussian, and nearly that.

See `test_replayed_run`, whose recorders of releases are used here.
"""

import dataclasses
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tulle.mechanisms.entropy import SeededNoise
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic import cell_releases, cell_sums
from tulle.train.methods.mosaic.cell_sums import PredictedRows, most_predicted
from tulle.train.methods.mosaic.label_law import LabelLaw
from tulle.train.methods.mosaic.method import CellSettings, MosaicConfig, StageShares
from tulle.train.methods.mosaic.noise_shares import ClassShares, NoiseShares
from tulle.train.settings.units import ExampleLevel, UnitLevel, UserLevel
from unit.train.methods.mosaic.test_replayed_run import Recorded, Replayed, noise, run
from unit.train.small_data import make_examples

_ROWS = 1_500
_EACH_ROW = ExampleLevel()


def config_of(num_classes: int, cells: CellSettings | None = None) -> MosaicConfig:
    classes = tuple(f"class {number}" for number in range(num_classes))
    config = MosaicConfig(unit=_EACH_ROW, classes=classes, cells=cells or CellSettings())
    return config.calibrate(epsilon=8.0, delta=1e-6)


def examples_of_classes(num_classes: int, *, rows_per_user: int = 1) -> ExampleSet:
    """Rows whose class depends on a public and a sensitive column."""
    examples = make_examples(_ROWS, seed=1, rows_per_user=rows_per_user)
    assert examples.sensitive_features is not None
    rng = np.random.default_rng(2)
    site, age = examples.public_features[:, 0], examples.sensitive_features[:, 0]
    likely = np.where(rng.random(_ROWS) < 0.5, site, num_classes - 1 - age)
    is_told = rng.random(_ROWS) < 0.9
    labels = np.where(is_told, likely, rng.integers(0, 99, _ROWS)) % num_classes
    return dataclasses.replace(examples, labels=labels.astype(np.float32), num_classes=num_classes)


def replaced(examples: ExampleSet, rows: np.ndarray, label: int, seed: int) -> ExampleSet:
    """Some rows with another class and other sensitive columns; their public ones stay."""
    assert examples.labels is not None
    assert examples.sensitive_features is not None
    labels, sensitive = examples.labels.copy(), examples.sensitive_features.copy()
    labels[rows] = label
    sensitive[rows] = (sensitive[rows] + [1 + seed % 3, 1 + seed % 4]) % [4, 5]
    return dataclasses.replace(examples, labels=labels, sensitive_features=sensitive)


def told(
    examples: ExampleSet,
    neighbour: ExampleSet,
    monkeypatch: pytest.MonkeyPatch,
    unit: UnitLevel = _EACH_ROW,
    cells: CellSettings | None = None,
) -> Fraction:
    """How much a run tells neighbours apart, exactly, where one Gaussian tells 1."""
    config = config_of(examples.num_classes or 0, cells)
    one = Recorded(noise(), rng=SeededNoise(5))
    model = run(examples, one, monkeypatch, unit, config)
    other = Replayed(noise(), rng=SeededNoise(5), of=one)
    again = run(neighbour, other, monkeypatch, unit, config)
    assert [head.bias for head in model.heads] == [head.bias for head in again.heads]
    for table, same in zip(model.tables, again.tables, strict=True):
        assert np.array_equal(table.weights, same.weights)
    assert len(one.releases) == len(other.releases) > 20
    moved = Fraction(0)
    for release, same in zip(one.releases, other.releases, strict=True):
        change = [a - b for a, b in zip(release.raw.flat, same.raw.flat, strict=True) if a != b]
        moved += Fraction(sum(int(one) ** 2 for one in change), round(release.sensitivity**2))
    assert sum(allowance for _, allowance in one.taken) <= 4**one.weight_bits
    return moved / 4**one.weight_bits


@pytest.mark.parametrize("seed", range(6))
def test_a_run_tells_neighbours_of_any_two_classes_apart_by_no_more_than_one_gaussian(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = examples_of_classes(3)
    row = np.array([int(np.random.default_rng(seed).integers(_ROWS))])
    assert 0 < told(examples, replaced(examples, row, seed % 3, seed), monkeypatch) <= 1


@pytest.mark.parametrize("seed", range(3))
def test_whole_users_with_rows_of_several_classes_are_told_apart_by_no_more(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = examples_of_classes(4, rows_per_user=6)
    rows = np.flatnonzero(examples.units == 7 + seed)
    neighbour = replaced(examples, rows, seed, seed)
    assert 0 < told(examples, neighbour, monkeypatch, UserLevel()) <= 1


def without_sensitive(examples: ExampleSet) -> ExampleSet:
    return dataclasses.replace(examples.without_sensitive(examples.labels))


def test_what_labels_cost_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A label is told by the tables of two classes, which have half of the budget each."""
    examples = without_sensitive(examples_of_classes(4))
    assert examples.labels is not None
    labels = examples.labels.copy()
    labels[3] = (labels[3] + 1) % 4
    neighbour = dataclasses.replace(examples, labels=labels)
    assert 0.98 < told(examples, neighbour, monkeypatch) <= 1


def likely_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is thought to be of every class: what is predicted must not matter."""
    monkeypatch.setattr(cell_releases, "law_of_class", lambda *_known: LabelLaw(rate=0.5))
    right = PredictedRows.add

    def biases_alone(
        self: PredictedRows, steps: np.ndarray | int, cells: np.ndarray | None = None
    ) -> None:
        del cells
        if isinstance(steps, int):
            right(self, steps)

    monkeypatch.setattr(PredictedRows, "add", biases_alone)


def unreduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class has the whole budget."""
    right = NoiseShares.of_classes

    def wrong(self: NoiseShares, number: int, **shares: float) -> list[ClassShares]:
        made = right(self, number, **shares)
        for own in made:
            own._left, own._rows_left = 2 * own._left, 2 * own._rows_left
        return made

    monkeypatch.setattr(NoiseShares, "of_classes", wrong)


def free_third_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes from the third on are charged nothing for what they spend."""
    right = NoiseShares.of_classes

    def wrong(self: NoiseShares, number: int, **shares: float) -> list[ClassShares]:
        made = right(self, number, **shares)
        for own in made[2:]:
            own._left, own._rows_left = 3 * own._left, 3 * own._rows_left
        return made

    monkeypatch.setattr(NoiseShares, "of_classes", wrong)


def number_of_two_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions count up to the c of two classes, however many there are."""
    monkeypatch.setattr(cell_releases, "most_predicted", lambda _number: most_predicted(2))


_MANY = 12
"""Classes of a run in which those that a row is not of would tell too much by the c of two."""
_OF_ROWS = CellSettings(
    stages=StageShares(
        public_values=0, public_pairs=0, sensitive_values=1, sensitive_pairs=0, triples=0
    )
)


def told_of_likely_classes(monkeypatch: pytest.MonkeyPatch) -> Fraction:
    examples = examples_of_classes(_MANY)
    likely_classes(monkeypatch)
    neighbour = replaced(examples, np.array([11]), 5, 1)
    return told(examples, neighbour, monkeypatch, cells=_OF_ROWS)


def test_what_is_predicted_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.3 < told_of_likely_classes(monkeypatch) <= 1


def test_the_c_of_two_classes_is_noticed_where_there_are_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number_of_two_classes(monkeypatch)
    assert told_of_likely_classes(monkeypatch) > 1


@pytest.mark.parametrize("fault", [unreduced, free_third_class])
def test_a_planted_fault_of_classes_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    examples = examples_of_classes(3)
    assert examples.labels is not None
    row = np.flatnonzero(examples.labels == 0)[:1]
    assert told(examples, replaced(examples, row, 2, 1), monkeypatch) > 1


def test_the_same_releases_of_two_classes_are_those_of_labels_of_0_and_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examples = make_examples(_ROWS, seed=1)
    shares = [Recorded(noise(), rng=SeededNoise(5)) for _ in range(2)]
    plain = MosaicConfig(unit=_EACH_ROW).calibrate(epsilon=8.0, delta=1e-6)
    binary = run(examples, shares[0], monkeypatch, _EACH_ROW, plain)
    named = run(examples, shares[1], monkeypatch, _EACH_ROW, config_of(2))
    for one, same in zip(shares[0].releases, shares[1].releases, strict=True):
        assert np.array_equal(one.noisy, same.noisy)
    ids = (examples.public_features, examples.sensitive_features)
    assert np.allclose(named.predicted(*ids)[:, 1], binary.predicted(*ids), atol=1e-15, rtol=0)
    assert cell_sums.probabilities().capped.max() == cell_sums.MOST_PREDICTED
