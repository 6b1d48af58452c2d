import dataclasses
import json
import pathlib

import pytest

from tulle.accounting.accountant import guarantee
from tulle.cli.main import run_with
from tulle.privacy.events import DiscreteLaplace
from tulle.privacy.plan import ColumnRoles, Plan
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit

EVENT = DiscreteLaplace(scale=4.0)
PLAN = Plan(
    name="weekly conversions",
    mechanism="Counts per campaign with discrete Laplace noise.",
    settings={"noise_scale": 4.0},
    event=EVENT,
    guarantee=guarantee(
        EVENT,
        delta=0.0,
        unit=Unit.user(days=7),
        adjacency=Adjacency.REPLACE,
        scope=Scope.LABELS,
    ),
    trust=TrustModel.CENTRAL,
    columns=ColumnRoles(label="converted", public=("campaign",), unit="user_id", time="day"),
)


@pytest.fixture
def plan_file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "plan.json"
    path.write_text(PLAN.to_json())
    return path


def test_a_sound_plan_is_recomputed(
    plan_file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(["account", "plan", str(plan_file), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["claims"][0]["epsilon"] == 0.5
    assert facts["fingerprint"] == PLAN.fingerprint()


def test_a_plan_that_claims_too_little_is_refused(
    plan_file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bold = dataclasses.replace(PLAN, guarantee=dataclasses.replace(PLAN.guarantee, epsilon=0.4))
    plan_file.write_text(bold.to_json())
    assert run_with(["account", "plan", str(plan_file)]) == 2
    assert "epsilon=0.4" in capsys.readouterr().err


def test_an_unknown_column_is_exit_code_four_and_names_the_closest(
    plan_file: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = tmp_path / "log.csv"
    header.write_text("user_id,day,campain,converted\n1,2026-01-14,a,0\n")
    assert run_with(["account", "plan", str(plan_file), "--header", str(header)]) == 4
    message = capsys.readouterr().err
    assert "campaign" in message
    assert "campain" in message
    assert len(message.splitlines()) == 1


def test_a_header_with_every_column_passes(plan_file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    header = tmp_path / "log.csv"
    header.write_text("user_id,day,campaign,converted,other\n")
    assert run_with(["account", "plan", str(plan_file), "--header", str(header)]) == 0


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, 4), (b"\xff\xfe", 4), (b"{", 2), (b'{"kind": "plan"}', 2), (b"[1]", 2)],
)
def test_what_is_not_a_plan_is_refused_in_one_line(
    content: bytes | None,
    code: int,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_bytes(content)
    assert run_with(["account", "plan", str(path)]) == code
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"\xff\xfe,\n"])
def test_a_broken_header_is_refused(
    content: bytes, plan_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    header = tmp_path / "log.csv"
    header.write_bytes(content)
    assert run_with(["account", "plan", str(plan_file), "--header", str(header)]) == 4
