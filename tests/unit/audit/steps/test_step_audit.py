"""Every engine of private steps keeps its plan's curve, and its half-noise twin does not."""

import dataclasses
import json

import pytest

from tulle.audit.steps.engines import ENGINES, AuditedEngine, find_engine
from tulle.audit.steps.neighbours import Background
from tulle.audit.steps.step_audit import StepAuditConfig, audit_step
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise

# What a right engine is called wrong with, over all seeds.
CONFIG = StepAuditConfig(num_runs=20_000, false_alarm_prob=1e-9)
HALF = dataclasses.replace(CONFIG, noise_factor=0.5)
each_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)


@each_engine
def test_an_engine_keeps_its_claim_and_comes_near_it(engine: AuditedEngine) -> None:
    found = audit_step(engine, CONFIG, rng=SeededNoise(1))
    assert not found.is_violated
    assert set(found.profiles) == set(Background)
    assert 0 < found.epsilon_lower_bound < found.worst.claimed_epsilon <= CONFIG.epsilon
    assert found.worst.worst_excess > -0.05


@each_engine
def test_a_twin_with_half_the_noise_is_caught(engine: AuditedEngine) -> None:
    found = audit_step(engine, HALF, rng=SeededNoise(1))
    assert found.is_violated
    assert found.worst.worst_excess > 0.01
    # The claim is the plan's, not the twin's.
    assert found.worst.claimed_epsilon == pytest.approx(CONFIG.epsilon, abs=1e-3)


def test_noise_smaller_by_the_root_of_two_is_caught_where_all_of_it_shows() -> None:
    less = dataclasses.replace(CONFIG, noise_factor=0.7)
    for name in ("dense", "lazy", "lattice"):
        assert audit_step(find_engine(name), less, rng=SeededNoise(2)).is_violated


def test_the_chance_of_a_false_alarm_is_shared_by_the_backgrounds() -> None:
    found = audit_step(find_engine("lazy"), CONFIG, rng=SeededNoise(3))
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
    audit_step(find_engine("dense"), few, rng=SeededNoise(1), say=said.append)
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
