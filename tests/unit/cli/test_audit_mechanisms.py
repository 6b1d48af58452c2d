"""`tulle audit mechanisms` prints a line for each randomizer and fails on a planted fault."""

import json

import pytest

from tulle.audit.verbs import RANDOMIZERS
from tulle.cli.audit import audit_app
from tulle.errors import ConfigError
from tulle.lab.audited_randomizers import LAB_RANDOMIZERS


def run(text: str) -> int:
    code = audit_app(text.split(), standalone_mode=False)
    return code if isinstance(code, int) else 0


def test_each_randomizer_has_a_line_with_claim_bound_and_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("mechanisms --draws 2000 --seed 1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        each.name for each in (*RANDOMIZERS, *LAB_RANDOMIZERS)
    ]
    for line in lines:
        _, claim, bound, _, verdict = line.split()
        assert float(bound) <= float(claim)
        assert verdict == "holds"


def test_a_planted_fault_is_shown_and_ends_with_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = "--only laplace --only rappor --noise-factor 0.5 --seed 1 --json"
    assert run(f"mechanisms {options}") == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["randomizer"] for each in found] == ["laplace", "rappor"]
    assert all(each["is_violated"] for each in found)
    assert all(each["epsilon_lower_bound"] > each["claimed_epsilon"] for each in found)
    assert all(each["num_draws"] == 20_000 for each in found)


def test_an_unknown_name_and_more_noise_than_claimed_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'rappor'"):
        run("mechanisms --only rapor")
    with pytest.raises(ConfigError, match="noise_factor=2"):
        run("mechanisms --noise-factor 2")
