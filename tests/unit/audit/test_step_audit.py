"""Every engine of private steps keeps its plan's curve, and its half-noise twin does not."""

import dataclasses
import json

import numpy as np
import pytest

from tulle.audit.audited_steps import AUDITED_STEPS, AuditedSteps, Background, Turns, find_steps
from tulle.audit.step_audit import StepAuditConfig, audit_step, label_scores
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise

# What a right engine is called wrong with, over all seeds.
CONFIG = StepAuditConfig(num_runs=20_000, false_alarm_prob=1e-9)
HALF = dataclasses.replace(CONFIG, noise_factor=0.5)
each_engine = pytest.mark.parametrize("engine", AUDITED_STEPS, ids=lambda engine: engine.name)


@each_engine
def test_an_engine_keeps_its_claim_and_comes_near_it(engine: AuditedSteps) -> None:
    found = audit_step(engine, CONFIG, rng=SeededNoise(1))
    assert not found.is_violated
    assert set(found.profiles) == set(Background)
    assert 0 < found.epsilon_lower_bound < found.worst.claimed_epsilon <= CONFIG.epsilon
    assert found.worst.worst_excess > -0.05


@each_engine
def test_a_twin_with_half_the_noise_is_caught(engine: AuditedSteps) -> None:
    found = audit_step(engine, HALF, rng=SeededNoise(1))
    assert found.is_violated
    assert found.worst.worst_excess > 0.01
    # The claim is the plan's, not the twin's.
    assert found.worst.claimed_epsilon == pytest.approx(CONFIG.epsilon, abs=1e-3)


def test_noise_smaller_by_the_root_of_two_is_caught_where_all_of_it_shows() -> None:
    less = dataclasses.replace(CONFIG, noise_factor=0.7)
    for name in ("dense", "lazy", "lattice"):
        assert audit_step(find_steps(name), less, rng=SeededNoise(2)).is_violated


def test_the_chance_of_a_false_alarm_is_shared_by_the_backgrounds() -> None:
    found = audit_step(find_steps("lazy"), CONFIG, rng=SeededNoise(3))
    for profile in found.profiles.values():
        assert profile.false_alarm_prob == pytest.approx(CONFIG.false_alarm_prob / 2)
        assert profile.num_runs == 2 * CONFIG.num_runs
    facts = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert facts["engine"] == "lazy"
    assert set(facts["backgrounds"]) == {"apart", "aligned"}
    assert facts["is_violated"] is False


def test_who_listens_is_told_what_is_run() -> None:
    said: list[str] = []
    few = dataclasses.replace(CONFIG, num_runs=1000)
    audit_step(find_steps("dense"), few, rng=SeededNoise(1), say=said.append)
    assert said[0] == "dense: plan"
    assert len(said) == 1 + len(Background)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_runs": 999}, "num_runs"),
        ({"noise_factor": 0.0}, "noise_factor=0.0"),
        ({"noise_factor": 1.5}, "1 audits what is released"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StepAuditConfig(**settings)  # type: ignore[arg-type]


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
