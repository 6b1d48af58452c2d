"""The convolutions against brute force on shapes small enough to enumerate."""

import itertools

import numpy as np
import pytest

from tulle.data.synth.clicks import World
from tulle.data.synth.shapes import SynthFeature, SynthKind, SynthShape, TimeLaw
from tulle.data.synth.zipf import ZipfLaw

SHAPE = SynthShape(
    name="tiny",
    features=(
        SynthFeature(name="a", law=ZipfLaw(num_values=4, exponent=1.0, missing_prob=0.2)),
        SynthFeature(name="b", law=ZipfLaw(num_values=9, exponent=0.7), kind=SynthKind.COUNT),
        SynthFeature(name="c", law=ZipfLaw(num_values=3, exponent=0.5), sensitive=True),
        SynthFeature(name="d", law=ZipfLaw(num_values=5, exponent=1.5), sensitive=True),
    ),
    label_rate=0.1,
    public_stddev=1.2,
    sensitive_stddev=0.9,
    time=TimeLaw(num_days=1, daily_swing=0.0),
)
WORLD = World(SHAPE)


def combinations(names: str) -> tuple[np.ndarray, np.ndarray]:
    parts = []
    for name in names:
        table = WORLD.effects[name]
        parts.append(list(zip(table.effects.tolist(), table.probs.tolist(), strict=True)))
    rows = list(itertools.product(*parts))
    logits = np.array([sum(effect for effect, _ in row) for row in rows])
    return logits, np.array([np.prod([prob for _, prob in row]) for row in rows])


def auc_loss(probs: np.ndarray, weights: np.ndarray) -> float:
    positive, negative = weights * probs, weights * (1 - probs)
    above = probs[:, None] > probs[None, :]
    tied = np.isclose(probs[:, None], probs[None, :], atol=1e-12)
    won = positive @ (np.where(tied, 0.5, above) @ negative)
    return float(1 - won / (positive.sum() * negative.sum()))


def test_the_intercept_gives_the_label_rate() -> None:
    logits, weights = combinations("abcd")
    probs = 1 / (1 + np.exp(-WORLD.truth.intercept - logits))
    assert weights @ probs == pytest.approx(0.1, rel=1e-4)


def test_the_public_probability_averages_over_the_sensitive_part() -> None:
    public, _ = combinations("ab")
    private, weights = combinations("cd")
    logits = WORLD.truth.intercept + public[:, None] + private[None, :]
    expected = (1 / (1 + np.exp(-logits))) @ weights
    found = WORLD.truth.public_prob(public.astype(np.float32))
    np.testing.assert_allclose(found, expected, rtol=2e-4)


def test_auc_losses_are_those_of_all_pairs() -> None:
    logits, weights = combinations("abcd")
    probs = 1 / (1 + np.exp(-WORLD.truth.intercept - logits))
    assert WORLD.truth.auc_loss == pytest.approx(auc_loss(probs, weights), abs=2e-4)
    public, weights = combinations("ab")
    probs = WORLD.truth.public_prob(public.astype(np.float32)).astype(np.float64)
    assert WORLD.truth.public_auc_loss == pytest.approx(auc_loss(probs, weights), abs=1e-3)


def test_effects_have_the_stated_spread() -> None:
    for sensitive, stddev in ((False, 1.2), (True, 0.9)):
        total = 0.0
        for feature in SHAPE.group(sensitive=sensitive):
            table = WORLD.effects[feature.name]
            assert table.probs @ table.effects == pytest.approx(0, abs=1e-6)
            total += float(table.probs @ table.effects.astype(np.float64) ** 2)
        assert total == pytest.approx(stddev**2, rel=1e-5)
