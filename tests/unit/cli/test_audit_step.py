"""`tulle audit step` prints a verdict for each engine and fails on a planted twin."""

import json
from pathlib import Path

import pytest

from tulle.audit.audited_steps import AUDITED_STEPS
from tulle.cli.audit import audit_app
from tulle.errors import ConfigError, RunStateError


def run(text: str) -> int:
    code = audit_app(f"step {text}".split(), standalone_mode=False)
    return code if isinstance(code, int) else 0


def test_each_engine_has_a_line_with_claim_bound_and_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--draws 2000 --seed 1") == 0
    printed = capsys.readouterr()
    heading, *lines = printed.out.splitlines()
    assert heading.split()[0] == "engine"
    assert [line.split()[0] for line in lines] == [engine.name for engine in AUDITED_STEPS]
    for line in lines:
        _, claim, bound, excess, _, verdict = line.split()
        assert float(bound) <= float(claim) <= 4
        assert float(excess) <= 0
        assert verdict == "holds"
    for engine in AUDITED_STEPS:
        assert f"{engine.name}: plan (" in printed.err


def test_a_twin_is_shown_written_and_ends_with_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found" / "twin.json"
    options = f"--twin half-noise --draws 10000 --seed 1 --output {out} --json --quiet"
    assert run(options) == 1
    printed = capsys.readouterr()
    assert printed.err == ""
    facts = json.loads(printed.out)
    assert facts == json.loads(out.read_text())
    assert facts["twin"] == "half-noise"
    assert facts["noise_factor"] == 0.5
    assert facts["is_violated"] is True
    found = {each["engine"]: each["is_violated"] for each in facts["engines"]}
    assert set(found) == {engine.name for engine in AUDITED_STEPS}
    assert all(found[name] for name in ("dense", "lazy", "lattice", "banded"))
    with pytest.raises(RunStateError, match=r"twin\.json exists already"):
        run(options)


def test_a_twin_that_is_not_caught_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    few = "--draws 1000 --seed 1 --epsilon 0.1 --quiet"
    assert run(f"--only dense --twin half-noise {few}") == 0
    assert "The twin of dense was not caught: take more --draws." in capsys.readouterr().out
    assert run(f"--only dense {few}") == 0
    assert "was not caught" not in capsys.readouterr().out


def test_one_engine_and_another_plan_can_be_audited(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--only lazy --epsilon 2 --delta 1e-6 --draws 2000 --seed 1 --quiet --json") == 0
    facts = json.loads(capsys.readouterr().out)
    (engine,) = facts["engines"]
    assert engine["engine"] == "lazy"
    assert engine["delta"] == 1e-6
    assert engine["claimed_epsilon"] == pytest.approx(2, abs=1e-3)
    assert facts["twin"] is None


def test_a_seed_decides_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for seed in (3, 3, 4):
        run(f"--only dense --draws 1000 --seed {seed} --quiet")
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


def test_mistakes_are_explained_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'lattice'"):
        run("--only latice")
    with pytest.raises(ConfigError, match=r"twin=.half. is unknown.*half-noise"):
        run(f"--twin half --output {tmp_path / 'new.json'}")
    with pytest.raises(ConfigError, match="epsilon"):
        run("--epsilon 0 --only dense --draws 1000 --quiet")
    assert list(tmp_path.iterdir()) == []
