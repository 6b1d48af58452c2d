"""`tulle audit train` trains on coins, guesses them, and puts what it found on the card."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tulle.audit.training_audit import _coins_source
from tulle.cli.audit import audit_app
from tulle.cli.main import run_with
from tulle.errors import BudgetExceededError, ConfigError, RunInterruptedError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.runs.card import read_card
from tulle.train.steps.host import HostPlace
from unit.train.small_data import make_ledger

DATA = "synth:search --rows 900 --synth-seed 1 --quiet --canaries 300"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def facts_of(text: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert audit_app(f"train {text} --json".split(), standalone_mode=False) in (0, None)
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


def test_a_private_run_has_its_audit_on_the_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = f"{DATA} --method rr --epsilon 2 --output one"
    facts = facts_of(options, capsys)
    assert facts["claimed_epsilon"] == 2
    assert facts["canaries"] == 300
    assert 0 <= facts["curve_lower_bound"] <= 2
    assert not facts["is_violated"]
    card = read_card(tmp_path / "one" / "card.json")
    assert card.audit is not None
    assert card.audit.claim == 2
    assert card.audit.lower_bound == facts["curve_lower_bound"]
    assert card.audit.confidence == 0.95
    assert "300 label canaries" in card.audit.method
    assert "300 label canaries" in (tmp_path / "one" / "card.md").read_text()


def test_a_run_without_privacy_has_no_claim(capsys: pytest.CaptureFixture[str]) -> None:
    facts = facts_of(f"{DATA} --method nonprivate", capsys)
    assert facts["claimed_epsilon"] is None
    assert not facts["is_violated"]
    card = read_card(Path(facts["card"]))
    assert card.audit is not None
    assert not card.audit.refutes_claim
    assert card.verdict.startswith("NOT A PRIVATE RELEASE")


def test_coins_and_noise_of_a_seeded_run_are_different_words() -> None:
    coins, noise = _coins_source(7).words(4), SeededNoise(7).words(4)
    assert not set(coins.tolist()) & set(noise.tolist())
    assert _coins_source(7).words(4).tolist() == coins.tolist()
    assert _coins_source(None).is_secure


def test_what_cannot_be_charged_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="purpose="):
        audit_app(f"train {DATA} --epsilon 2 --purpose x".split(), standalone_mode=False)
    command = f"train {DATA} --method nonprivate --ledger {tmp_path / 'l.db'}"
    with pytest.raises(ConfigError, match="cannot be charged"):
        audit_app(command.split(), standalone_mode=False)
    assert not (tmp_path / "runs" / "audit-nonprivate-search").exists()


def test_the_ledger_pays_for_an_audit_like_for_any_run_and_refuses_the_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ledger.db"
    ledger = make_ledger(tmp_path, epsilon=1.5, delta=1e-6)
    command = f"{DATA} --model lr --method rr --epsilon 1 --ledger {path}"
    facts_of(command, capsys)
    assert len(ledger.spends("all")) == 1
    with pytest.raises(BudgetExceededError):
        facts_of(command, capsys)
    assert len(ledger.spends("all")) == 1


def test_a_false_alarm_that_is_no_chance_is_refused_before_training(tmp_path: Path) -> None:
    command = f"train {DATA} --model lr --method rr --epsilon 1"
    with pytest.raises(ConfigError, match="false_alarm_prob=2"):
        audit_app(f"{command} --false-alarm-prob 2 --output one".split(), standalone_mode=False)
    assert not (tmp_path / "one").exists()


def test_an_interrupted_audit_is_never_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = f"{DATA} --model lr --method dp-sgd --epsilon 2 --batch-size 100 --output one"
    command = f"train {options}".split()
    with monkeypatch.context() as patch:
        patch.setattr(HostPlace, "take", _stopping_after_a_step(HostPlace.take))
        with pytest.raises(RunInterruptedError, match=r"cannot be resumed.*another --output"):
            audit_app(command, standalone_mode=False)
    assert (tmp_path / "one" / "run.json").exists()
    assert not (tmp_path / "one" / "card.json").exists()
    # The same command again is told the way out, and changes nothing.
    before = _contents(tmp_path / "one")
    with pytest.raises(RunStateError, match=r"one holds a run already\. An audit cannot be"):
        audit_app(command, standalone_mode=False)
    # Its labels are partly coins, so a plain run does not go on with it either.
    resumed = options.replace(" --canaries 300", "") + " --resume"
    assert run_with(f"train {resumed}".split()) != 0
    assert "data_fingerprint" in capsys.readouterr().err
    assert _contents(tmp_path / "one") == before
    assert facts_of(options.replace("--output one", "--output two"), capsys)


def _stopping_after_a_step(take: Callable[..., Any]) -> Callable[..., Any]:
    def stop(*args: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return take(*args)

    return stop


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
