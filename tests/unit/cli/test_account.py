import dataclasses
import json
import math
import pathlib

import pytest

from tulle.accounting.accountant import guarantee, privacy_curve
from tulle.cli.main import run_with
from tulle.privacy.events import DiscreteLaplace, event_from_dict
from tulle.privacy.fields import parse_json
from tulle.privacy.plan import ColumnRoles, Plan
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit

TWO_PHASE = (
    "account hybrid --delta 1e-7 --label-epsilon 3 --num-examples 12800000 "
    "--batch-size 16384 --steps 781"
)
DPSGD = "account dpsgd --delta 1e-6 --num-examples 1000000 --batch-size 1000"


def answer(capsys: pytest.CaptureFixture[str], command: str) -> dict:
    code = run_with([*command.split(), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert captured.err == ""
    return json.loads(captured.out)


def test_two_phases_find_the_noise_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    facts = answer(capsys, f"{TWO_PHASE} --epsilon 5")
    assert facts["noise_multiplier"] == pytest.approx(0.6693, rel=1e-3)
    assert 4.99 < facts["epsilon"] <= 5
    assert facts["adjacency"] == "replace"
    assert facts["delta"] == 1e-7
    assert facts["sensitive_columns_epsilon"] < facts["epsilon"] <= facts["basic_epsilon"]


def test_two_phases_are_priced_at_the_noise_that_was_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answer(capsys, f"{TWO_PHASE} --epsilon 5")
    priced = answer(capsys, f"{TWO_PHASE} --noise-multiplier {found['noise_multiplier']}")
    assert priced["epsilon"] == pytest.approx(found["epsilon"], rel=1e-9)


def test_the_printed_event_costs_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    facts = answer(capsys, f"{TWO_PHASE} --epsilon 5 --max-batch-size 17200")
    event = event_from_dict(facts["event"])
    assert privacy_curve(event, Adjacency.REPLACE).epsilon(1e-7) == facts["epsilon"]


def test_papers_are_reproduced_by_renyi_accounting(capsys: pytest.CaptureFixture[str]) -> None:
    facts = answer(capsys, f"{TWO_PHASE} --epsilon 5 --adjacency add-remove --accountant rdp")
    assert facts["noise_multiplier"] == pytest.approx(0.7759, rel=2e-3)
    assert facts["accountant"] == "rdp"


def test_gaussian_in_both_directions(capsys: pytest.CaptureFixture[str]) -> None:
    priced = answer(capsys, "account gaussian --noise-multiplier 1 --delta 1e-6")
    assert priced["epsilon"] == pytest.approx(10.9972, rel=1e-4)
    found = answer(capsys, f"account gaussian --epsilon {priced['epsilon']} --delta 1e-6")
    assert found["noise_multiplier"] == pytest.approx(1.0, rel=2e-4)


def test_pure_mechanisms_are_found_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "account laplace --epsilon 1")["noise_multiplier"] == 2.0
    removed = answer(capsys, "account laplace --epsilon 1 --adjacency add-remove --discrete")
    assert removed["noise_multiplier"] == 1.0
    responses = answer(capsys, "account rr --epsilon 2 --count 4")
    assert responses["response_epsilon"] == pytest.approx(0.5)


def test_fifty_responses_compose_better_than_their_sum(capsys: pytest.CaptureFixture[str]) -> None:
    facts = answer(
        capsys, "account rr --response-epsilon 1 --num-values 15 --count 50 --delta 1e-6"
    )
    assert facts["epsilon"] == pytest.approx(20.77, rel=1e-3)


def test_shuffle_prices_and_finds(capsys: pytest.CaptureFixture[str]) -> None:
    command = "account shuffle --num-values 15 --num-reports 10000 --delta 1e-6"
    priced = answer(capsys, f"{command} --local-epsilon 3")
    assert priced["epsilon"] == pytest.approx(0.174, rel=5e-3)
    found = answer(capsys, f"{command} --epsilon {priced['epsilon']}")
    assert found["local_epsilon"] == pytest.approx(3.0, rel=1e-3)
    any_randomizer = answer(
        capsys, "account shuffle --num-reports 10000 --delta 1e-6 --local-epsilon 3"
    )
    assert any_randomizer["epsilon"] == pytest.approx(0.321, rel=5e-3)


def test_user_level_is_tighter_than_group_privacy(capsys: pytest.CaptureFixture[str]) -> None:
    facts = answer(
        capsys,
        "account user --noise-multiplier 1 --delta 1e-6 --num-examples 1000000 "
        "--batch-size 1000 --steps 1000 --max-rows-per-user 5",
    )
    assert facts["epsilon"] == pytest.approx(1.528, rel=1e-3)
    assert facts["group_privacy_epsilon"] == pytest.approx(1.564, rel=1e-3)
    assert facts["example_epsilon"] == pytest.approx(0.2713, rel=1e-3)


@pytest.mark.parametrize("kind", ["user", "dpsgd", "two-phase"])
def test_a_batch_with_little_room_says_what_it_costs_and_how_much_room_does_not(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "user": "--max-rows-per-user 5 --noise-multiplier 1.36",
        "dpsgd": "--noise-multiplier 0.8",
        "two-phase": "--label-epsilon 1 --noise-multiplier 0.8",
    }[kind]
    command = (
        f"account {kind} {options} --delta 1e-6 --num-examples 10000 --batch-size 25 --steps 500"
    )
    free = answer(capsys, command)
    tight = answer(capsys, f"{command} --max-batch-size 40")
    assert tight["epsilon"] > 1.5 * free["epsilon"]
    assert tight["epsilon_if_never_cut"] == free["epsilon"]
    roomy = answer(capsys, f"{command} --max-batch-size {tight['max_batch_size_hardly_cut']}")
    assert roomy["epsilon"] <= 1.02 * free["epsilon"]
    assert "max_batch_size_hardly_cut" not in roomy
    assert "epsilon_if_never_cut" not in free


def test_dpsgd_finds_the_steps_that_fit(capsys: pytest.CaptureFixture[str]) -> None:
    facts = answer(capsys, f"{DPSGD} --epsilon 1 --noise-multiplier 1")
    more = answer(capsys, f"{DPSGD} --noise-multiplier 1 --steps {facts['steps'] + 1}")
    assert facts["epsilon"] <= 1 < more["epsilon"]


def test_steps_that_fit_are_found_by_the_accountant_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    renyi = f"{DPSGD} --noise-multiplier 1 --adjacency add-remove --accountant rdp"
    facts = answer(capsys, f"{renyi} --epsilon 1")
    more = answer(capsys, f"{renyi} --steps {facts['steps'] + 1}")
    assert facts["epsilon"] <= 1 < more["epsilon"]


def test_epochs_are_rounded_up_to_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, f"{DPSGD} --noise-multiplier 1 --epochs 1.0001")["steps"] == 1001


TWO_PHASES_WITHOUT_NOISE = f"{TWO_PHASE} --noise-multiplier 1e-9"


@pytest.mark.parametrize(
    ("command", "way_out"),
    [
        ("account gaussian --noise-multiplier 1 --delta 0", "give a --delta above 0"),
        ("account gaussian --noise-multiplier 1e308 --delta 0", "give a --delta above 0"),
        ("account gaussian --noise-multiplier 1e-9 --delta 1e-7", "add noise"),
        (TWO_PHASES_WITHOUT_NOISE, "add noise"),
        (f"{DPSGD} --noise-multiplier 1 --steps 9 --delta 0", "give a --delta above 0"),
    ],
)
def test_no_finite_epsilon_is_said_plainly_and_is_an_error(
    command: str, way_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """null, or none, would read as nothing spent."""
    assert run_with(command.split()) == 1
    shown = capsys.readouterr()
    assert "epsilon: inf" in shown.out.splitlines()
    assert "none" not in shown.out
    assert shown.err.startswith("error: no guarantee: the epsilon is infinite")
    assert way_out in shown.err
    assert run_with([*command.split(), "--json"]) == 1
    shown = capsys.readouterr()
    assert parse_json("answer", shown.out)["epsilon"] == "Infinity"
    assert way_out in shown.err


def test_group_privacy_that_promises_nothing_is_infinite(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = answer(
        capsys,
        "account user --noise-multiplier 1 --delta 1e-6 --num-examples 1000000 "
        "--batch-size 1000 --steps 1000 --max-rows-per-user 500",
    )
    assert facts["group_privacy_epsilon"] == "Infinity"


EXTREMES = ("5e-324", "1e-320", "1e-300", "1e-160", "1e160", "1e300", "1.7e308")


SHUFFLE_FOR = "shuffle --epsilon {} --num-reports 1000 --delta 0.999 --num-values 15"


# A search over shuffles takes longest, and the same way to every epsilon that is next to nothing.
@pytest.mark.parametrize("number", ["5e-324", "1.7e308"])
def test_extreme_epsilons_of_a_shuffle_are_answered_or_refused_in_a_line(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    test_extreme_numbers_are_answered_or_refused_in_a_line(SHUFFLE_FOR, number, capsys)


@pytest.mark.parametrize("number", EXTREMES)
@pytest.mark.parametrize(
    "command",
    [
        "gaussian --noise-multiplier {} --delta 1e-7",
        "gaussian --noise-multiplier {} --delta 0 --count 3",
        "gaussian --epsilon {} --delta 1e-7",
        "gaussian --noise-multiplier {} --delta 1e-7 --accountant rdp --adjacency add-remove",
        "laplace --noise-multiplier {}",
        "laplace --noise-multiplier {} --count 3 --delta 1e-7 --discrete",
        "laplace --epsilon {}",
        "rr --response-epsilon {} --count 3 --delta 1e-7",
        "rr --epsilon {}",
        "dpsgd --noise-multiplier {} --delta 1e-7 --num-examples 9999 --batch-size 9 --steps 3",
        "dpsgd --noise-multiplier {} --delta 0 --num-examples 9999 --batch-size 9 --steps 3 "
        "--max-batch-size 20",
        "dpsgd --noise-multiplier 1 --delta 1e-7 --num-examples 9999 --batch-size 9 --epochs {}",
        "two-phase --noise-multiplier 1 --label-epsilon {} --delta 1e-7 --num-examples 9999 "
        "--batch-size 9 --steps 3",
        "user --noise-multiplier {} --delta 1e-7 --num-examples 9999 --batch-size 9 --steps 3 "
        "--max-rows-per-user 3",
        "shuffle --local-epsilon {} --num-reports 99 --delta 1e-7",
        "shuffle --local-epsilon {} --num-reports 99 --delta 1e-7 --num-values 2",
    ],
)
def test_extreme_numbers_are_answered_or_refused_in_a_line(
    command: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_with(["account", *command.format(number).split(), "--json"])
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == (0 if code == 0 else 1)
    assert code in {0, 1, 2}
    if code != 2:
        epsilon = parse_json("answer", captured.out)["epsilon"]
        assert (epsilon == "Infinity") == (code == 1)
        assert code == 1 or 0 <= epsilon < math.inf


@pytest.mark.parametrize(
    ("command", "setting"),
    [
        ("gaussian --noise-multiplier 1 --delta 1e-7 --count {}", "count"),
        ("rr --response-epsilon 1 --num-values {}", "num-values"),
        ("shuffle --local-epsilon 1 --delta 1e-7 --num-reports {}", "num-reports"),
        (f"{DPSGD.removeprefix('account ')} --noise-multiplier 1 --steps {{}}", "steps"),
        (
            "dpsgd --noise-multiplier 1 --delta 1e-7 --num-examples {} --batch-size 1 --steps 1",
            "num-examples",
        ),
        (f"{DPSGD.removeprefix('account ')} --noise-multiplier 1 --epochs 1e300", "epochs"),
    ],
)
def test_counts_beyond_all_counting_are_refused_by_name(
    command: str, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(["account", *command.format("1" + "0" * 320).split()]) == 2
    said = capsys.readouterr().err
    assert setting in said.replace("_", "-")
    assert str(2**63 - 1) in said


@pytest.mark.parametrize("epsilon", [0.9, 1.0, 1.1, 1.3, 1.7])
def test_text_never_promises_more_than_json(
    capsys: pytest.CaptureFixture[str], epsilon: float
) -> None:
    for command in (
        f"account gaussian --epsilon {epsilon} --delta 1e-6",
        f"account rr --epsilon {epsilon} --count 3 --delta 1e-6",
        f"account gaussian --noise-multiplier {epsilon} --delta 1e-6",
    ):
        exact = answer(capsys, command)
        assert run_with(command.split()) == 0
        shown = dict(line.split(": ") for line in capsys.readouterr().out.splitlines())
        assert float(shown["epsilon"]) >= exact["epsilon"] * (1 - 1e-11)
        for name, side in (("noise_multiplier", 1), ("response_epsilon", -1), ("truth_prob", -1)):
            if name in shown:
                excess = side * (float(shown[name]) / exact[name] - 1)
                assert -1e-11 <= excess <= 1e-5


def test_text_is_one_fact_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(["account", "laplace", "--noise-multiplier", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "epsilon: 0.5" in lines
    assert all(": " in line for line in lines)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("account gaussian --epsilon 0 --delta 1e-6", "--epsilon 0.0"),
        ("account gaussian --epsilon -1 --delta 1e-6", "--epsilon -1.0"),
        ("account gaussian --epsilon nan --delta 1e-6", "--epsilon nan"),
        ("account gaussian --epsilon inf --delta 1e-6", "--epsilon inf"),
        ("account gaussian --epsilon 1 --delta 1", "--delta 1.0"),
        ("account gaussian --epsilon 1 --delta nan", "--delta nan"),
        ("account gaussian --delta 1e-6", "either --epsilon or --noise-multiplier"),
        ("account gaussian --epsilon 1 --noise-multiplier 1 --delta 1e-6", "either --epsilon"),
        ("account gaussian --epsilon 1 --delta 0", "--delta 0.0"),
        ("account gaussian --epsilon 1 --delta 1e-6 --adjacency swap", "--adjacency 'swap'"),
        ("account gaussian --epsilon 1 --delta 1e-6 --accountant moments", "--accountant 'mom"),
        ("account gaussian --epsilon 1 --delta 1e-6 --accountant rdp", "RDP under replace"),
        ("account gaussian --epsilon 1 --delta 1e-6 --replace-factor 3", "--replace-factor 3.0"),
        ("account rr --response-epsilon 1 --count 1000000000000 --delta 1e-6", "too far to be"),
        (f"{DPSGD} --noise-multiplier 1 --steps {10**18}", "too far to be resolved"),
        (f"{DPSGD} --epsilon 1", "--steps or --epochs"),
        (f"{DPSGD} --epsilon 1 --steps 3 --epochs 2", "--steps or --epochs"),
        (f"{DPSGD} --epsilon 1 --epochs nan", "--epochs nan"),
        (f"{DPSGD} --epsilon 1 --steps 3 --max-batch-size 900", "--max-batch-size 900"),
        (f"{DPSGD} --epsilon 1 --steps 3 --sampler shuffle", "--sampler 'shuffle'"),
        (
            "account dpsgd --epsilon 1 --delta 1e-6 --num-examples 10 --batch-size 11 --steps 1",
            "--batch-size 11",
        ),
        (
            f"{DPSGD} --epsilon 1 --steps 3 --sampler fixed-size --adjacency add-remove",
            "FixedSizeSampled under add-remove",
        ),
        (f"{TWO_PHASE} --epsilon 2", "--label-epsilon 3.0"),
        ("account rr --response-epsilon 0", "--response-epsilon 0.0"),
        ("account rr --response-epsilon 1 --num-values 1", "num-values"),
        ("account shuffle --local-epsilon 1 --num-reports 0 --delta 1e-6", "num-reports"),
        ("account gaussian --delta 1e-6 --epsilon one", "--epsilon"),
        ("account gaussian --epsilon 1", "--delta"),
        ("account nothing", "nothing"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    command: str, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(command.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert names in captured.err


def test_more_noise_never_costs_more(capsys: pytest.CaptureFixture[str]) -> None:
    prices = [
        answer(capsys, f"{DPSGD} --steps 100 --noise-multiplier {noise}")["epsilon"]
        for noise in (0.5, 1, 2, 4)
    ]
    assert prices == sorted(prices, reverse=True)
    assert all(math.isfinite(price) for price in prices)


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
