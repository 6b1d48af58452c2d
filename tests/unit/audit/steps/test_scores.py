"""Scores are the log likelihood ratio of the mixture over all batches."""

import numpy as np
import pytest

from tulle.audit.steps.engines import Turns
from tulle.audit.steps.scores import label_scores


def turns(*steps: int, prob: float) -> Turns:
    return Turns(steps=steps, prob=prob, is_audited=None)


def density(seen: float, mean: float, stddev: float) -> float:
    return float(np.exp(-((seen - mean) ** 2) / (2 * stddev**2)))


def test_a_row_that_is_always_there_has_the_ratio_of_two_normals() -> None:
    seen = np.array([[-1.0, 0.0, 2.0]])
    found = label_scores(seen, np.eye(1), turns(0, prob=1.0), 0.5)
    assert found == pytest.approx(2 * seen[0] / 0.5**2)


def test_a_sampled_row_has_the_ratio_of_two_mixtures() -> None:
    seen, prob, stddev = 0.7, 0.3, 0.8
    mixtures = [
        (1 - prob) * density(seen, 0.0, stddev) + prob * density(seen, sign, stddev)
        for sign in (1.0, -1.0)
    ]
    found = label_scores(np.array([[seen]]), np.eye(1), turns(0, prob=prob), stddev)
    assert found[0] == pytest.approx(np.log(mixtures[0] / mixtures[1]))


def test_steps_seen_one_by_one_add_up_and_a_single_look_at_both_is_another_mixture() -> None:
    seen, both = np.array([[0.4], [1.1]]), turns(0, 1, prob=0.5)
    one_by_one = label_scores(seen, np.eye(2), both, 1.0)
    parts = [label_scores(each[None], np.eye(1), turns(0, prob=0.5), 1.0) for each in seen]
    assert one_by_one == pytest.approx(sum(parts))
    whitening = np.full((1, 2), 0.5**0.5)
    together = label_scores(whitening @ seen, whitening, both, 1.0)
    means, chances = np.array([0.0, 0.5**0.5, 2**0.5]), np.array([0.25, 0.5, 0.25])
    (look,) = (whitening @ seen).ravel()
    ratio = [sum(chances * np.exp(-((look - s * means) ** 2) / 2)) for s in (1, -1)]
    assert together[0] == pytest.approx(np.log(ratio[0] / ratio[1]))


def test_labels_change_the_sign_alone() -> None:
    seen = np.random.default_rng(1).normal(size=(2, 50))
    score = label_scores(seen, np.eye(2), turns(0, 1, prob=0.4), 1.2)
    assert label_scores(-seen, np.eye(2), turns(0, 1, prob=0.4), 1.2) == pytest.approx(-score)
