"""Rounding to atoms: no bias, the stated variance, exact thresholds, sensible atoms."""

import numpy as np
import pytest

from statistical.randomizer_checks import ScriptedNoise, assert_follows
from tulle.errors import ConfigError
from tulle.labels.mechanisms.rounding import Rounding, choose_atoms
from tulle.mechanisms.entropy import SeededNoise

ATOMS = np.array([-2.0, 0.0, 0.5, 7.0])
LABELS = np.array([-2.0, -1.9, -0.7, 0.0, 0.1, 0.5, 3.3, 6.999, 7.0])


def test_the_mean_is_the_label() -> None:
    rounding = Rounding(atoms=ATOMS)
    np.testing.assert_allclose(rounding.mixed(ATOMS, LABELS), LABELS, rtol=1e-15, atol=1e-15)


def test_the_variance_is_that_of_two_atoms() -> None:
    rounding = Rounding(atoms=ATOMS)
    squares = rounding.mixed(ATOMS**2, LABELS)
    np.testing.assert_allclose(rounding.variance(LABELS), squares - LABELS**2, atol=1e-13)
    assert rounding.variance(3.3) == pytest.approx((3.3 - 0.5) * (7 - 3.3))


def test_labels_on_atoms_stay() -> None:
    rounding = Rounding(atoms=ATOMS)
    np.testing.assert_array_equal(rounding.variance(ATOMS), 0.0)
    for word in (0, 2**64 - 1):
        drawn = rounding.draw(ATOMS, rng=ScriptedNoise([word] * 4))
        assert drawn.tolist() == [0, 1, 2, 3]


def test_a_label_goes_up_for_words_below_its_threshold_only() -> None:
    rounding = Rounding(atoms=np.array([0.0, 1.0, 3.0]))
    label = np.array([1.5])
    assert rounding.thresholds(label).tolist() == [2**62]
    below = rounding.draw(label, rng=ScriptedNoise([2**62 - 1]))
    at = rounding.draw(label, rng=ScriptedNoise([2**62]))
    assert below.tolist() == [2]
    assert at.tolist() == [1]


def test_draws_follow_the_shares() -> None:
    rounding = Rounding(atoms=ATOMS)
    drawn = rounding.draw(np.full(200_000, 3.3), rng=SeededNoise(1))
    share = (3.3 - 0.5) / 6.5
    assert_follows(np.bincount(drawn, minlength=4)[2:], [1 - share, share])
    assert drawn.min() == 2


def test_a_prior_pushed_onto_atoms_keeps_its_sum_and_mean() -> None:
    prior = np.random.default_rng(0).dirichlet(np.ones(LABELS.size))
    pushed = Rounding(atoms=ATOMS).pushed(LABELS, prior)
    assert pushed.sum() == pytest.approx(1.0)
    assert pushed @ ATOMS == pytest.approx(prior @ LABELS)


def test_few_values_are_all_atoms() -> None:
    values = np.arange(30.0)
    np.testing.assert_array_equal(choose_atoms(values, np.full(30, 1 / 30), 30), values)


@pytest.mark.parametrize("max_atoms", [2, 3, 20, 50])
def test_atoms_have_both_ends_and_are_at_most_as_many_as_asked(max_atoms: int) -> None:
    values = np.linspace(0, 400, 401)
    prior = np.exp(-values / 20)
    atoms = choose_atoms(values, prior / prior.sum(), max_atoms)
    assert atoms[0] == 0
    assert atoms[-1] == 400
    assert 2 <= atoms.size <= max_atoms
    assert np.isin(atoms, values).all()


def test_atoms_are_denser_where_labels_are_likely_and_nowhere_far_apart() -> None:
    values = np.linspace(0, 400, 401)
    prior = np.exp(-values / 20)
    gaps = np.diff(choose_atoms(values, prior / prior.sum(), 40))
    assert gaps[:5].mean() < gaps[-5:].mean()
    assert gaps.max() <= 2.5 * 400 / 39


def test_atoms_near_likely_labels_round_with_less_variance_than_even_ones() -> None:
    values = np.linspace(0, 400, 401)
    prior = np.exp(-values / 20)
    prior /= prior.sum()
    chosen = Rounding(atoms=choose_atoms(values, prior, 21)).variance(values) @ prior
    even = Rounding(atoms=np.linspace(0, 400, 21)).variance(values) @ prior
    assert chosen < even


@pytest.mark.parametrize("atoms", [[1.0], [1.0, 1.0], [2.0, 1.0]])
def test_atoms_without_meaning_are_refused(atoms: list[float]) -> None:
    with pytest.raises(ConfigError):
        Rounding(atoms=np.array(atoms))


def test_less_than_two_atoms_are_refused() -> None:
    with pytest.raises(ConfigError):
        choose_atoms(np.arange(5.0), np.full(5, 0.2), 1)
