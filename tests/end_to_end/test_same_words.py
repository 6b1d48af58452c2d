"""Every command beside the call in Python that it makes: the same words give the same records.

Both have the same seed, so that also the draws can be compared. What differs between them is a
default or a decision that lives in the command line alone.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tulle
from tulle.cli.main import run_with
from tulle.data.synth.auctions import AuctionConfig, write_auction_log
from tulle.lab.markets import simulate

SCHEMA = {
    "label": "sale",
    "public": ["campaign"],
    "unit": "user",
    "time": "second",
    "kinds": {"user": "integer", "second": "timestamp"},
}
SEED = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("same-words")
    rng = np.random.default_rng(2)
    pl.DataFrame(
        {
            "campaign": rng.integers(0, 9, 500),
            "user": rng.integers(0, 80, 500),
            "second": np.sort(rng.integers(0, 14 * 86_400, 500)),
            "sale": (rng.random(500) < 0.2).astype(np.int64),
            "amount": rng.integers(0, 21, 500),
        }
    ).write_parquet(folder / "clicks.parquet")
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "amounts.json").write_text('{"label": "amount", "public": ["campaign"]}')
    write_auction_log(AuctionConfig(num_auctions=60), folder / "auctions.parquet", seed=1)
    return folder


def command(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """What a command prints as JSON."""
    code = run_with([*map(str, words), "--json"])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    return json.loads(shown.out)


def record_of(released: Path) -> dict[str, Any]:
    """The record beside a file, without the name of the file."""
    found = json.loads(released.with_name(f"{released.stem}.release.json").read_text())
    del found["table"]
    return dict(found)


UNITS = {"unit": "user per 7 days"}
NUMBERS = {"label_low": 0, "label_high": 20}
LABELS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("rr", "schema", {}, {}),
    ("unit-rr", "schema", UNITS, {"max_rows_per_unit": 3, "row_share": "equal"}),
    ("joint-rr", "schema", UNITS, {"max_conversions_per_unit": 2, "base_rate": 0.1}),
    ("joint-subset", "schema", UNITS, {}),
    ("class-rr", "amounts", {}, {"num_classes": 21}),
    ("prior-rr", "amounts", {}, {"num_classes": 21, "prior_epsilon": 0.3}),
    ("unbiased", "amounts", {}, {**NUMBERS, "prior_epsilon": 0.3, "atoms": 8}),
    ("rr-on-bins", "amounts", {}, {**NUMBERS, "prior_epsilon": 0.3, "prior_cells": 4}),
    ("discrete-laplace-clipped", "amounts", {}, NUMBERS),
]


def options_of(settings: dict[str, Any]) -> list[str]:
    return [
        word
        for name, value in settings.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


@pytest.mark.parametrize(("word", "schema", "unit", "settings"), LABELS, ids=lambda v: str(v)[:12])
def test_labels_release(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    word: str,
    schema: str,
    unit: dict[str, str],
    settings: dict[str, Any],
) -> None:
    data, roles = folder / "clicks.parquet", folder / f"{schema}.json"
    by_command, by_call = tmp_path / "command.parquet", tmp_path / "call.parquet"
    facts = command(
        capsys,
        *("labels", "release", data, "--schema", roles, "--epsilon", 2, "--mechanism", word),
        *(*options_of(unit | settings), "--seed", SEED, "--output", by_command),
    )
    make = tulle.labels.LABEL_MECHANISMS[word]
    result = tulle.labels.release(
        data, roles, epsilon=2, mechanism=make(**settings), **unit, seed=SEED, output=by_call
    )
    if not word.startswith("joint") and word != "unit-rr":  # these draw a key that no seed has
        assert by_command.read_bytes() == by_call.read_bytes()
        assert record_of(by_command) == record_of(by_call)
    assert record_of(by_command)["plan"] == result.plan.to_dict() == record_of(by_call)["plan"]
    assert facts["verdict"] == result.card.verdict == "NOT A PRIVATE RELEASE"
    assert (tmp_path / "call.card.json").exists()


BEST: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("schema", {}, {}),
    ("schema", UNITS, {"base_rate": 0.2}),
    ("amounts", {}, {"num_classes": 21}),
    ("amounts", {}, {**NUMBERS, "prior_epsilon": 0.3}),
]


@pytest.mark.parametrize(("schema", "unit", "settings"), BEST)
def test_labels_release_without_a_mechanism_takes_the_best(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    schema: str,
    unit: dict[str, str],
    settings: dict[str, Any],
) -> None:
    data, roles = folder / "clicks.parquet", folder / f"{schema}.json"
    by_command, by_call = tmp_path / "command.parquet", tmp_path / "call.parquet"
    command(
        capsys,
        *("labels", "release", data, "--schema", roles, "--epsilon", 2),
        *(*options_of(unit | settings), "--seed", SEED, "--output", by_command),
    )
    best = tulle.labels.BestMechanism(**settings)
    result = tulle.labels.release(
        data, roles, epsilon=2, mechanism=best, **unit, seed=SEED, output=by_call
    )
    assert record_of(by_command)["plan"] == result.plan.to_dict()
    planned = tulle.labels.plan(data, roles, epsilon=2, mechanism=best, **unit)
    assert result.plan.settings["mechanism"] == planned.plan.settings["mechanism"]
    shown = command(
        capsys,
        *("labels", "plan", data, "--schema", roles, "--epsilon", 2),
        *options_of(unit | settings),
    )
    assert planned.comparison is not None
    assert shown == planned.comparison.describe()


def test_the_recommended_words_of_labels_are_a_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, roles = folder / "clicks.parquet", folder / "schema.json"
    given = ["--schema", roles, "--epsilon", 2, "--unit", "user"]
    assert run_with([*map(str, ["labels", "plan", data, *given])]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("recommended: "))
    words = line.removeprefix("recommended: ").split()
    shown = command(capsys, "labels", "plan", data, *given, "--mechanism", *words)
    planned = tulle.labels.plan(data, roles, epsilon=2, unit="user")
    assert shown == json.loads(planned.plan.to_json())


def test_the_schema_of_label_mechanisms_is_that_of_the_codec(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_with(["labels", "plan", "--json-schema"]) == 0
    shown = json.loads(capsys.readouterr().out)
    kinds = [each["properties"]["kind"]["const"] for each in shown["anyOf"]]
    assert kinds == [*tulle.labels.LABEL_MECHANISMS, "best"]


@pytest.mark.parametrize("word", ["rr", "unit-rr"])
def test_labels_plan_of_one_mechanism(
    folder: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    unit = "example" if word == "rr" else "user"
    data, roles = folder / "clicks.parquet", folder / "schema.json"
    words = ["labels", "plan", data, "--schema", roles, "--epsilon", 2, "--unit", unit]
    shown = command(capsys, *words, "--mechanism", word)
    made = tulle.labels.plan(data, roles, epsilon=2, unit=unit, mechanism=word)
    assert shown == json.loads(made.plan.to_json())


def test_labels_evaluate(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, roles = folder / "clicks.parquet", folder / "schema.json"
    chances = np.random.default_rng(1).random(500)
    predictions = tmp_path / "predictions.parquet"
    pl.DataFrame({"row": np.arange(500), "probability": chances}).write_parquet(predictions)
    words = ["labels", "evaluate", predictions]
    exact = tulle.labels.evaluate_raw(predictions, data, roles).to_dict()
    shown = command(capsys, *words, "--raw", data, "--schema", roles)
    assert shown == {name: value for name, value in exact.items() if name != "deciles"}
    noisy = tmp_path / "noisy.parquet"
    released = tulle.labels.release(data, roles, epsilon=2, mechanism="rr", seed=SEED, output=noisy)
    shown = command(capsys, *words, "--release", noisy)
    assert shown == tulle.labels.evaluate(predictions, released).to_dict()


PLAN = {"epsilon": 3, "private_stddev": 0.6, "reserve": 0.01, "consent": "everyone"}


def test_select_plan(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    auctions = folder / "auctions.parquet"
    words = ["select", "plan", auctions, *options_of(PLAN)]
    shown = command(capsys, *words, "--output", tmp_path / "selection.toml")
    made = tulle.select.plan(auctions, **PLAN)
    named = dataclasses.replace(made.config, name="selection")
    assert tulle.select.selection_of(tmp_path / "selection.toml") == named
    for name in ("options", "recommended", "incentives", "personalised_share"):
        assert shown[name] == json.loads(json.dumps(made.to_dict()))[name]


def test_select_decide_bill_and_evaluate(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    auctions, settings = folder / "auctions.parquet", tmp_path / "selection.toml"
    selection = tulle.select.plan(auctions, **PLAN, output=settings)
    by_command, by_call = tmp_path / "command.parquet", tmp_path / "call.parquet"
    drawn = ["select", "decide", settings, auctions, "--seed", SEED, "--output", by_command]
    facts = command(capsys, *drawn)
    choices = tulle.select.decide(selection, auctions, seed=SEED, output=by_call)
    assert by_command.read_bytes() == by_call.read_bytes()
    assert record_of(by_command) == record_of(by_call)
    assert facts["personalised"] == choices.record.num_personalised

    shown = command(capsys, "select", "bill", settings, auctions, by_command)
    made = tulle.select.bill(selection, auctions, choices)
    assert shown == {"pricing": "second-price", **made.to_dict()}

    clicks = tmp_path / "clicks.csv"
    pl.read_parquet(by_call).head(40).select("auction_id").write_csv(clicks)
    target = tmp_path / "target.toml"
    tulle.select.plan(auctions, **PLAN | {"epsilon": 1}, output=target)
    shown = command(
        capsys,
        *("select", "evaluate", settings, auctions, by_command, "--clicks", clicks),
        *("--target", target, "--epsilon", 1, "--seed", SEED),
        *("--output", tmp_path / "estimate.json"),
    )
    estimate = tulle.select.evaluate(
        selection, auctions, choices, clicks=clicks, target=target, epsilon=1, seed=SEED
    )
    assert {name: shown[name] for name in estimate.numbers} == dict(estimate.numbers)
    assert shown["verdict"] == estimate.card.verdict


RUN: dict[str, Any] = {"delta": 1e-6, "num_examples": 1000, "batch_size": 20, "steps": 30}
QUESTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("gaussian", "ask_gaussian", {"epsilon": 1, "delta": 1e-6, "replace_factor": 1}),
    ("gaussian", "ask_gaussian", {"noise_multiplier": 2, "delta": 1e-6, "count": 3}),
    ("laplace", "ask_laplace", {"epsilon": 1, "adjacency": "add-remove"}),
    ("rr", "ask_randomized_response", {"response_epsilon": 1, "num_values": 5, "count": 2}),
    ("dpsgd", "ask_dpsgd", {**RUN, "epsilon": 2}),
    ("dpsgd", "ask_dpsgd", {**RUN, "noise_multiplier": 1, "max_batch_size": 40}),
    ("hybrid", "ask_hybrid", {**RUN, "epsilon": 3, "adjacency": "add-remove"}),
    ("user", "ask_user", {**RUN, "noise_multiplier": 2, "max_rows_per_user": 2}),
    ("shuffle", "ask_shuffle", {"delta": 1e-6, "num_reports": 500, "local_epsilon": 1}),
]


@pytest.mark.parametrize(("word", "verb", "given"), QUESTIONS)
def test_account(
    capsys: pytest.CaptureFixture[str], word: str, verb: str, given: dict[str, Any]
) -> None:
    shown = command(capsys, "account", word, *options_of(given))
    answer = getattr(tulle.accounting, verb)(**given)
    assert shown == json.loads(json.dumps(answer.to_dict()))


def test_account_finds_the_most_steps(capsys: pytest.CaptureFixture[str]) -> None:
    given = {name: value for name, value in RUN.items() if name != "steps"}
    given |= {"epsilon": 1, "noise_multiplier": 1}
    shown = command(capsys, "account", "dpsgd", *options_of(given))
    assert shown["steps"] == tulle.accounting.ask_dpsgd(**given).details["steps"]


def test_account_plan(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tulle.labels.plan(folder / "clicks.parquet", folder / "schema.json", epsilon=2).plan
    (tmp_path / "plan.json").write_text(plan.to_json())
    shown = command(capsys, "account", "plan", tmp_path / "plan.json")
    found = [claim["epsilon"] for claim in shown["claims"]]
    assert found == list(tulle.accounting.verify_plan(plan))
    assert shown["fingerprint"] == plan.fingerprint()


def test_budgets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_command, by_call = tmp_path / "command.db", tmp_path / "call.db"
    given: dict[str, Any] = {
        "name": "weekly",
        "unit": "user per 7 days",
        "adjacency": "add-remove",
        "epsilon": 2.0,
        "delta": 1e-6,
    }
    cost = '{"kind": "Laplace", "noise_multiplier": 2.0}'
    spent = {"purpose": "measure", "at": "2026-01-14", "until": "2026-01-15"}
    event = tulle.privacy.events.event_from_json(cost)

    shown = command(capsys, "budget", "create", by_command, *options_of(given))
    ledger = tulle.Ledger.open_or_create(by_call)
    budget = tulle.Budget(**given)
    ledger.create_budget(budget)
    assert shown["budget"] == budget.to_dict()

    shown = command(capsys, "budget", "check", by_command, "--event", cost, *options_of(spent))
    assert shown["budgets"] == [state.to_dict() for state in ledger.check(event, **spent)]

    shown = command(capsys, "budget", "spend", by_command, "--event", cost, *options_of(spent))
    with ledger.spend(event, **spent) as done:
        pass
    assert shown["budgets"] == [state.to_dict() for state in done.states()]

    shown = command(capsys, "budget", "show", by_command, "--at", "2026-01-14")
    states = tulle.Ledger.open_to_read(by_call).states("2026-01-14")
    assert shown["budgets"] == [state.to_dict() for state in states]


def test_audit_mechanisms(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--only", "laplace", "--only", "gaussian", "--draws", 2000, "--seed", SEED]
    shown = command(capsys, "audit", "mechanisms", *words)
    found = tulle.audit.audit_mechanisms(["laplace", "gaussian"], draws=2000, seed=SEED)
    assert shown == json.loads(json.dumps([audit.to_dict() for audit in found]))


def test_audit_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"draws": 2000, "epsilon": 2.0, "seed": SEED}
    by_command, by_call = tmp_path / "command.json", tmp_path / "call.json"
    words = ["--only", "dense", *options_of(given), "--output", by_command, "--quiet"]
    shown = command(capsys, "audit", "step", *words)
    found = tulle.audit.audit_steps(["dense"], **given, output=by_call)
    assert shown == json.loads(json.dumps(found.to_dict()))
    assert by_command.read_bytes() == by_call.read_bytes()


def test_audit_attacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tulle.lab.attacks.verbs import run_attacks

    by_command, by_call = tmp_path / "command", tmp_path / "call"
    words = ["linkage", "--seed", SEED, "--output", by_command, "--quiet"]
    shown = command(capsys, "audit", "attacks", *words)
    found = run_attacks("linkage", seed=SEED, output=by_call)
    assert shown == json.loads(json.dumps({"linkage": found["linkage"].to_dict()}))
    for name in ("linkage.json", "linkage.svg"):
        assert (by_command / name).read_bytes() == (by_call / name).read_bytes()


def test_select_simulate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["select", "simulate", folder / "auctions.parquet", "--num-auctions", 60, "--quiet"]
    shown = command(capsys, *words, "--reserve", 0.01)
    made = simulate(folder / "auctions.parquet", num_auctions=60, reserve=0.01)
    assert shown == json.loads(json.dumps(made.to_dict()))


def test_data_auctions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(4)
    log = pl.DataFrame(
        {
            "user": rng.integers(0, 20, 400),
            "timestamp": rng.integers(0, 5, 400),
            "ad_id": rng.integers(0, 9, 400),
            "price": rng.uniform(1, 2, 400),
            "seen": rng.random(400),
            "known": rng.random(400),
        }
    )
    log.write_parquet(tmp_path / "log.parquet")
    by_command, by_call = tmp_path / "command.parquet", tmp_path / "call.parquet"
    words = ["data", "auctions", tmp_path / "log.parquet", "--output", by_command, "--quiet"]
    shown = command(
        capsys,
        *(*words, "--user", "user", "--server-column", "seen", "--device-column", "known"),
        *("--bid-factor", 0.1),
    )
    columns = {"user": "user", "server_prob": "seen", "device_prob": "known"}
    facts = tulle.select.auctions_from_log(log, by_call, columns=columns, bid_factor=0.1)
    assert by_command.read_bytes() == by_call.read_bytes()
    assert shown == {"output": str(by_command)} | facts.to_dict()


@pytest.mark.parametrize("word", ["count", "reach"])
def test_measure_one_question(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    data = folder / "clicks.parquet"
    by_command, by_call = tmp_path / "command", tmp_path / "call"
    given: dict[str, Any] = {"epsilon": 2.0, "unit": "user", "user": "user", "time": "second"}
    if word == "count":
        given |= {"max_per_slice": 5.0}
    words = ["measure", word, data, *options_of(given), "--column-kind", "second=timestamp"]
    command(capsys, *words, "--seed", SEED, "--output", by_command)
    verb = tulle.measure.count if word == "count" else tulle.measure.count_reach
    kinds = {"second": "timestamp"}
    result = verb(data, **given, kinds=kinds, seed=SEED, output=by_call)
    stored = json.loads((by_command / "measurement.json").read_text())
    assert stored == json.loads((by_call / "measurement.json").read_text())
    assert stored["plan"] == result.plan.to_dict()
    assert (by_command / "card.json").exists()
    assert (by_call / "card.json").exists()


def test_measure_plan_and_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "campaigns.toml"
    settings.write_text(f"""
        [log]
        impressions = "{folder / "clicks.parquet"}"

        [columns]
        user = "user"
        impression_time = "second"
        kinds = {{ second = "timestamp" }}

        [privacy]
        unit = "user"
        epsilon = 2.0

        [[query]]
        name = "shown"
        measure = "impressions"
        max_per_slice = 5
        max_slices_per_unit = 1
    """)
    planned = tulle.measure.plan(settings)
    shown = command(capsys, "measure", "plan", settings)
    assert shown["plan"] == planned.plan.to_dict()
    by_command, by_call = tmp_path / "command", tmp_path / "call"
    command(capsys, "measure", "run", settings, "--seed", SEED, "--output", by_command)
    result = tulle.measure.release(settings, seed=SEED, output=by_call)
    stored = json.loads((by_command / "measurement.json").read_text())
    assert stored == json.loads((by_call / "measurement.json").read_text())
    assert stored["plan"] == result.plan.to_dict()


def test_audit_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"rows": 2000, "method": "rr", "epsilon": 3.0, "canaries": 200, "seed": SEED}
    by_command, by_call = tmp_path / "command", tmp_path / "call"
    words = ["audit", "train", "synth:search", *options_of(given), "--output", by_command]
    shown = command(capsys, *words, "--quiet")
    audit = tulle.audit.audit_run("synth:search", **given, output=by_call)
    found = json.loads(json.dumps(audit.to_dict()))
    assert {name: shown[name] for name in found} == found
    cards = [json.loads((run / "card.json").read_text()) for run in (by_command, by_call)]
    assert cards[0]["audit"] == cards[1]["audit"]
    assert cards[0]["audit"]["lower_bound"] == audit.evidence.lower_bound


def test_explain(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, model = folder / "clicks.parquet", tmp_path / "model"
    public = {"label": "sale", "public": ["campaign"]}
    # So few rows show something only where noise is small.
    tulle.Classifier(public, epsilon=100, seed=SEED).fit(pl.read_parquet(data)).save(model)
    by_command, by_call, row = tmp_path / "command.html", tmp_path / "call.html", {"campaign": 3}
    words = ["explain", model, "--values", data, "--row", json.dumps(row), "--output", by_command]
    shown = command(capsys, *words)
    explanation = tulle.load(model).explain(values=data)
    assert shown.pop("output") == str(by_command)
    assert shown == json.loads(json.dumps(explanation.to_dict(row=row)))
    tulle.report.write_explanation(explanation, by_call, row=row)
    assert by_command.read_bytes() == by_call.read_bytes()
