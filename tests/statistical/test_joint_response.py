"""Samples of joint response follow its exact law, and what is wrong on purpose is caught."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from statistical import faulty_joint_response as faulty
from statistical.randomizer_checks import (
    ScriptedNoise,
    assert_follows,
    assert_private,
    assert_rejects,
    exact_chances,
    largest_ratio,
)
from tulle.labels.mechanisms.unit_response import JointResponse, PerRowResponse, UnitResponse
from tulle.labels.unit_rows import group_rows, row_covariance
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.joint_response import (
    ConversionChoice,
    JointResponseConfig,
    JointSubsetConfig,
    cap_conversions,
    release_joint_response,
)
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.privacy.units import Unit

Respond = Callable[..., NDArray[np.uint8]]

NUM_UNITS = 100_000
CONFIG = JointResponseConfig(epsilon=1.0, num_rows=4, max_conversions=2)
SUBSET = JointSubsetConfig(epsilon=0.5, num_rows=5)
# Two-sided 1e-9 of a normal deviate.
DEVIATIONS = 6.11


def count_outputs(reports: NDArray[np.uint8], outputs: list[tuple[int, ...]]) -> list[int]:
    """How often each output came; anything else is a fault."""
    vectors, counts = np.unique(reports, axis=0, return_counts=True)
    found = {tuple(v): c for v, c in zip(vectors.tolist(), counts.tolist(), strict=True)}
    assert set(found) <= set(outputs), "a report is no label vector within the cap"
    return [found.get(output, 0) for output in outputs]


def law_with(config: JointResponseConfig, state: int, factor: float) -> list[float]:
    """The law of the report of a state, with every lie `factor` times as likely."""
    lie = float(config.response.support_probs.if_not_held) * factor
    law = [lie] * config.num_states
    law[state] = 1 - lie * (config.num_states - 1)
    return law


def check_law(respond: Respond) -> None:
    """Reports for no conversion, for two, and for more than the cap."""
    outputs = CONFIG.outputs()
    for vector, capped in [
        ((0, 0, 0, 0), (0, 0, 0, 0)),
        ((0, 1, 0, 1), (0, 1, 0, 1)),
        ((0, 1, 1, 1), (0, 1, 1, 0)),
    ]:
        reports = respond(np.tile(vector, (NUM_UNITS, 1)), CONFIG, rng=SeededNoise(8))
        counts = count_outputs(reports, outputs)
        state = outputs.index(capped)
        assert_follows(counts, law_with(CONFIG, state, 1.0))
        assert_rejects(counts, law_with(CONFIG, state, 1.05))
        assert_rejects(counts, law_with(CONFIG, state, 0.95))


def check_exactly(respond: Respond) -> None:
    """No two label vectors can be told apart by more than epsilon; one word decides."""
    config = JointResponseConfig(epsilon=1.0, num_rows=3)
    laws = [
        exact_chances(
            lambda word, vector=vector: tuple(
                respond([vector], config, rng=ScriptedNoise([word]))[0].tolist()
            )
        )
        for vector in itertools.product((0, 1), repeat=3)
    ]
    outputs = config.outputs()
    assert_private([[law.get(output, 0) for output in outputs] for law in laws], config.epsilon)


def check_units_apart(respond: Respond) -> None:
    """Other labels of one unit leave the reports of all others as they were."""
    vectors = np.array(list(itertools.product((0, 1), repeat=4)))
    before = respond(vectors, CONFIG, rng=SeededNoise(9))
    for changed_unit in range(len(vectors)):
        changed = vectors.copy()
        changed[changed_unit] = 1 - changed[changed_unit]
        after = respond(changed, CONFIG, rng=SeededNoise(9))
        is_same = (before == after).all(axis=1)
        assert np.delete(is_same, changed_unit).all()


CHECKS = [check_law, check_exactly, check_units_apart]


@pytest.mark.parametrize("check", CHECKS)
def test_the_right_response_passes_every_check(check: Callable[[Respond], None]) -> None:
    check(release_joint_response)


@pytest.mark.parametrize(
    ("respond", "check"),
    [
        (faulty.one_state_too_few, check_exactly),
        (faulty.one_state_too_few, check_law),
        (faulty.last_state_never_reported, check_exactly),
        (faulty.last_state_never_reported, check_law),
        (faulty.noise_redrawn_for_each_row, check_law),
        (faulty.noise_redrawn_until_two_agree, check_law),
        (faulty.conversions_capped_across_units, check_law),
        (faulty.conversions_capped_across_units, check_units_apart),
        (faulty.cap_after_the_noise, check_law),
    ],
)
def test_planted_faults_are_caught(respond: Respond, check: Callable[[Respond], None]) -> None:
    with pytest.raises(AssertionError):
        check(respond)


def test_every_planted_fault_is_checked_above() -> None:
    planted = {
        name
        for name, value in vars(faulty).items()
        if callable(value) and getattr(value, "__module__", "") == faulty.__name__
    }
    listed = {
        param[0].__name__
        for mark in test_planted_faults_are_caught.pytestmark  # type: ignore[attr-defined]
        for param in mark.args[1]
    }
    assert {name for name in planted if not name.startswith("_")} == listed


def test_capping_after_the_noise_breaks_the_guarantee_exactly() -> None:
    probs = RandomizedResponseConfig(epsilon=CONFIG.epsilon).support_probs
    vectors = list(itertools.product((0, 1), repeat=CONFIG.num_rows))
    channel = []
    for held in vectors:
        law = dict.fromkeys(CONFIG.outputs(), Fraction(0))
        for noisy in vectors:
            is_kept = [a == b for a, b in zip(held, noisy, strict=True)]
            capped = cap_conversions(
                np.array([noisy], bool), 2, ConversionChoice.FIRST, rng=SeededNoise(0)
            )
            law[tuple(capped[0].astype(int).tolist())] += math.prod(
                probs.if_held if kept else probs.if_not_held for kept in is_kept
            )
        channel.append(list(law.values()))
    assert all(sum(law) == 1 for law in channel)
    # A report of no conversion tells four labels of 0 from four of 1.
    assert math.log(largest_ratio(channel)) == pytest.approx(4 * CONFIG.epsilon, rel=1e-9)


@pytest.mark.parametrize("vector", [(0, 0, 0, 0, 0), (0, 0, 1, 0, 0), (0, 1, 0, 1, 1)])
def test_subsets_follow_their_exact_law(vector: tuple[int, ...]) -> None:
    reports = release_joint_response(np.tile(vector, (NUM_UNITS, 1)), SUBSET, rng=SeededNoise(4))
    held = vector.index(1) + 1 if any(vector) else 0
    counts = count_outputs(reports, SUBSET.outputs())
    assert_follows(counts, [float(c) for c in SUBSET.realised_channel()[held]])
    other = 3 if held != 3 else 1
    assert_rejects(counts, [float(c) for c in SUBSET.realised_channel()[other]])


def test_random_conversions_follow_the_mixture_of_their_laws() -> None:
    config = JointResponseConfig(epsilon=2.0, num_rows=4, choice=ConversionChoice.RANDOM)
    reports = release_joint_response(
        np.tile([1, 0, 1, 1], (NUM_UNITS, 1)), config, rng=SeededNoise(6)
    )
    counts = count_outputs(reports, config.outputs())
    laws = np.array([law_with(config, state, 1.0) for state in (1, 3, 4)])
    assert_follows(counts, laws.mean(axis=0).tolist())
    assert_rejects(counts, law_with(config, 1, 1.0))


WAYS: list[UnitResponse] = [
    PerRowResponse(epsilon=2.0, max_rows_per_unit=None),
    JointResponse(epsilon=1.0),
    JointResponse(epsilon=1.0, max_conversions_per_unit=2),
    JointResponse(epsilon=1.0, subset=True),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda w: str(w.describe()))
def test_targets_have_the_label_as_their_mean_and_the_stated_covariance(
    way: UnitResponse,
) -> None:
    # Units of three rows, of which the second converts.
    num_units = 400_000
    labels = np.tile(np.array([0, 1, 0], np.uint8), num_units)
    rows = group_rows(Unit.user(), owner_ids=np.repeat(np.arange(num_units), 3))
    targets = way.release(labels, rows, rng=SeededNoise(12)).targets.reshape(num_units, 3)
    channel = way.row_channel(3)
    for row, label in enumerate([0, 1, 0]):
        error = DEVIATIONS * math.sqrt(float(channel.target_variance(label)) / num_units)
        mean = targets[:, row].mean()
        assert abs(mean - label) < error
        assert abs(mean - (label + 0.05)) > error
    for row, label in [(1, 1), (2, 0)]:
        products = targets[:, 0] * (targets[:, row] - label)
        error = DEVIATIONS * float(products.std()) / math.sqrt(num_units)
        if isinstance(way, JointResponse):
            stated = float(row_covariance(way.vector_config(3), 0, label))
            assert stated < -1.5 * error
        else:
            stated = 0.0
        assert abs(products.mean() - stated) < error
