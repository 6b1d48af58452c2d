"""The commands of data, training, exact measurement and reports beside their calls in Python.

See test_same_words.py for the others.
"""

import dataclasses
import inspect
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer.main
from polars.testing import assert_frame_equal

import tulle
from end_to_end.test_same_words import SEED, command, options_of
from tulle.cli.main import app, run_with
from tulle.errors import DataError
from tulle.lab.browser_reports import simulate_event_reports, simulate_summary_reports
from tulle.train import DpSgdConfig, PrivatePhase
from unit.data.small_log import SCHEMA, lines, write_log
from unit.measure.queries import small_measurements
from unit.report.html.sample_releases import KINDS, metrics, write_releases, write_run

CASES = Path(__file__).parents[1] / "unit" / "measure" / "w3c" / "cases"
SALT = "00" * 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("same-words-data")
    write_log(folder / "clicks.csv", lines(120))
    write_log(folder / "broken.csv", ["no row", *lines(40)])
    (folder / "roles.json").write_text(json.dumps(SCHEMA.to_dict()))
    tulle.data.write_synthetic("impressions", folder / "log", rows=400, seed=1)
    return folder


@pytest.mark.parametrize("name", ["clicks", "broken"])
def test_data_describe(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    data, roles = folder / f"{name}.csv", folder / "roles.json"
    words = ["data", "describe", data, "--schema", roles, "--quiet"]
    if name == "broken":
        assert run_with([*map(str, words)]) == 4
        capsys.readouterr()
        with pytest.raises(DataError):
            tulle.data.describe(data, roles)
    shown = command(capsys, *words, "--skip-bad-lines")
    assert shown == plain(tulle.data.describe(data, SCHEMA, skip_bad_lines=True).to_dict())
    if name == "clicks":
        assert command(capsys, *words) == plain(tulle.data.describe(data, roles).to_dict())


def test_data_describe_reads_prepared_datasets(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tulle.data.prepare(folder / "clicks.csv", SCHEMA, output=tmp_path / "made")
    shown = command(capsys, "data", "describe", tmp_path / "made", "--quiet")
    assert shown == plain(tulle.data.describe(tmp_path / "made").to_dict())
    assert shown == plain(tulle.data.describe(made.dataset).to_dict())
    table = pl.read_csv(folder / "clicks.csv")
    assert tulle.data.describe(table, SCHEMA).num_rows.value == 120


PREPARED: list[dict[str, Any]] = [
    {},
    {"hash_bins_public": 64, "hash_bins_sensitive": 32, "num_classes": 3},
    {"min_count_public": 3, "log": ["price"], "hour": True, "day_of_week": True},
]


def prepare_options(given: dict[str, Any]) -> list[str]:
    flags = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is True]
    texts = {name: value for name, value in given.items() if value is not True}
    return flags + options_of(
        {k: v[0] if isinstance(v, list) else v for k, v in texts.items()},
    )


@pytest.mark.parametrize("given", PREPARED, ids=str)
def test_data_prepare(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: dict[str, Any]
) -> None:
    data, roles = folder / "clicks.csv", folder / "roles.json"
    by_command, by_call = tmp_path / "command", tmp_path / "call"
    words = ["data", "prepare", data, "--schema", roles, "--quiet"]
    shown = command(capsys, *words, *prepare_options(given), "--salt", SALT, "--output", by_command)
    result = tulle.data.prepare(data, roles, **given, salt=SALT, output=by_call)
    assert shown["fingerprint"] == result.dataset.fingerprint
    assert (shown["rows"], shown["bad_lines_left_out"]) == (120, result.num_bad_lines)
    assert files_of(by_command) == files_of(by_call)

    like = {"like": by_command}
    command(capsys, *words, *options_of(like), "--num-classes", 3, "--output", tmp_path / "c")
    tested = tulle.data.prepare(data, SCHEMA, like=by_call, num_classes=3, output=tmp_path / "d")
    assert tulle.data.PreparedDataset.open(tmp_path / "c").fingerprint == tested.dataset.fingerprint


def test_data_prepare_reads_amounts_as_labels(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    amounts, roles = tmp_path / "amounts.csv", folder / "roles.json"
    write_log(amounts, [line.replace("1,", "7.25,", 1) for line in lines(120)])
    words = ["data", "prepare", amounts, "--schema", roles, "--salt", SALT, "--quiet"]
    assert run_with([*map(str, words), "--output", str(tmp_path / "a")]) == 4
    assert "give --values" in capsys.readouterr().err
    shown = command(capsys, *words, "--values", "--output", tmp_path / "b")
    made = tulle.data.prepare(amounts, SCHEMA, values=True, salt=SALT, output=tmp_path / "c")
    assert shown["fingerprint"] == made.dataset.fingerprint
    assert set(made.dataset.labels) == {0.0, 7.25}
    assert made.dataset.num_classes is None


def test_data_prepare_pays_for_private_quantiles(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = dataclasses.replace(SCHEMA, kinds={**SCHEMA.kinds, "age": "integer"})
    roles, data = tmp_path / "numbers.json", folder / "clicks.csv"
    roles.write_text(json.dumps(numbers.to_dict()), encoding="utf-8")
    given = {"private_quantiles": ["age"], "vocabulary_epsilon": 4.0, "salt": SALT}
    for name in ("command", "call"):
        ledger = tulle.Ledger.create(tmp_path / f"{name}.db")
        ledger.create_budget(
            tulle.Budget(name="rows", unit="example", adjacency="replace", epsilon=9.0, delta=1e-3)
        )
    words = ["data", "prepare", data, "--schema", roles, "--quiet", *prepare_options(given)]
    command(capsys, *words, "--ledger", tmp_path / "command.db", "--output", tmp_path / "command")
    called = tulle.data.prepare(
        data, roles, **given, ledger=tmp_path / "call.db", output=tmp_path / "call"
    )
    by_command = tulle.data.PreparedDataset.open(tmp_path / "command")
    assert by_command.vocabulary_event == called.dataset.vocabulary_event
    assert called.dataset.vocabulary_event is not None
    for name in ("command", "call"):
        assert len(tulle.Ledger.open(tmp_path / f"{name}.db").spends("rows")) == 1
    with pytest.raises(tulle.TulleError, match="is a public column, whose quantiles"):
        tulle.data.prepare(data, roles, private_quantiles=["site"], output=tmp_path / "other")


def test_data_prepare_draws_a_salt_and_takes_features(folder: Path, tmp_path: Path) -> None:
    data = folder / "clicks.csv"
    first, second = (
        tulle.data.prepare(data, SCHEMA, output=tmp_path / name).dataset for name in "ab"
    )
    assert first.features == second.features
    assert first.fingerprint != second.fingerprint
    plan = tulle.data.default_features(SCHEMA, num_rows=120, salt=bytes(16))
    made = tulle.data.prepare(data, SCHEMA, features=plan, output=tmp_path / "c").dataset
    assert [feature.name for feature in made.features] == [f.name for f in plan.features]
    with pytest.raises(tulle.TulleError, match="leave out the other feature settings"):
        tulle.data.prepare(data, SCHEMA, features=plan, hour=True, output=tmp_path / "d")
    with pytest.raises(tulle.TulleError, match="a table in memory needs no preparation"):
        tulle.data.prepare(pl.read_csv(data), SCHEMA, output=tmp_path / "d")


def test_data_prepare_charges_a_ledger(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {
        "min_count_sensitive": 4,
        "vocabulary_epsilon": 4.0,
        "vocabulary_delta": 1e-4,
        "salt": SALT,
    }
    data, roles = folder / "clicks.csv", folder / "roles.json"
    for name in ("command", "call"):
        ledger = tulle.Ledger.create(tmp_path / f"{name}.db")
        ledger.create_budget(
            tulle.Budget(name="rows", unit="example", adjacency="replace", epsilon=9.0, delta=1e-3)
        )
    words = ["data", "prepare", data, "--schema", roles, "--quiet", *options_of(given)]
    command(capsys, *words, "--ledger", tmp_path / "command.db", "--output", tmp_path / "command")
    result = tulle.data.prepare(
        data, roles, **given, ledger=tmp_path / "call.db", output=tmp_path / "call"
    )
    stored = tulle.data.PreparedDataset.open(tmp_path / "command")
    assert stored.vocabulary_event == result.dataset.vocabulary_event is not None
    paid = [
        tulle.Ledger.open(tmp_path / f"{name}.db").spends("rows") for name in ("command", "call")
    ]
    requests = [[(spend.request.purpose, spend.request.event) for spend in each] for each in paid]
    assert requests[0] == requests[1]
    assert len(requests[0]) == 1


@pytest.mark.parametrize("shape", ["search", "impressions", "auctions"])
@pytest.mark.parametrize("seed", [{}, {"seed": SEED}], ids=str)
def test_data_synth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shape: str, seed: dict[str, int]
) -> None:
    by_command, by_call = tmp_path / "command.csv", tmp_path / "call.csv"
    words = ["data", "synth", shape, "--rows", 60, "--output", by_command, "--quiet"]
    shown = command(capsys, *words, *options_of(seed))
    assert tulle.data.write_synthetic(shape, by_call, rows=60, **seed) == by_call
    assert shown["seed"] == seed.get("seed", 0)
    assert files_of(by_command) == files_of(by_call)


def assert_alike(one: Any, other: Any) -> None:
    """Compares plain data; floats up to the order in which threads of an engine add."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_alike(one[name], other[name])
    elif isinstance(one, list):
        for left, right in zip(one, other, strict=True):
            assert_alike(left, right)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-12, abs=1e-12, nan_ok=True)
    else:
        assert one == other


def test_the_comparison_of_plain_data_notices_a_number_and_a_name() -> None:
    assert_alike({"a": [1.0, "x"]}, {"a": [1.0 + 1e-15, "x"]})
    for wrong in ({"a": [1.0 + 1e-9, "x"]}, {"a": [1.0, "y"]}, {"a": [1.0]}, {"b": [1.0, "x"]}):
        with pytest.raises((AssertionError, ValueError)):
            assert_alike({"a": [1.0, "x"]}, wrong)


@pytest.mark.parametrize("rules", [[], ["linear", "time-decay"]], ids=str)
def test_measure_attribute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rules: list[str]
) -> None:
    small_measurements.write_log(tmp_path)
    small_measurements.write_settings(tmp_path, small_measurements.settings("conversions"))
    settings = tmp_path / "campaigns.toml"
    by_command, by_call = tmp_path / "command.parquet", tmp_path / "call.parquet"
    words = ["measure", "attribute", settings, "--output", by_command, "--by", "campaign"]
    shown = command(capsys, *words, *(w for rule in rules for w in ("--rule", rule)), "--quiet")
    credit = tulle.measure.attribute(settings, rules=rules, by=["campaign"], output=by_call)
    assert credit.totals is not None
    assert_alike(shown["totals"], plain(credit.totals.to_dicts()))
    assert_frame_equal(pl.read_parquet(by_command), pl.read_parquet(by_call), check_row_order=False)


@pytest.mark.parametrize("given", [{}, {"max_per_unit": 3.0}], ids=str)
def test_measure_clips(
    folder: Path, capsys: pytest.CaptureFixture[str], given: dict[str, float]
) -> None:
    history = folder / "log" / "conversions.csv"
    words = ["measure", "clips", history, "--value", "value", "--epsilon", 1]
    for by in ([], ["advertiser"]):
        slices = [word for column in by for word in ("--slice", column)]
        shown = command(capsys, *words, *slices, *options_of(given))
        made = tulle.measure.choose_clips(history, ["value"], epsilon=1, by=by, **given)
        assert_alike(shown, plain(made.to_dict()))


SIMULATED: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("event", simulate_event_reports, {}),
    ("event", simulate_event_reports, {"epsilon": 3.0, "max_reports": 1, "window_days": [7]}),
    ("summary", simulate_summary_reports, {}),
    ("summary", simulate_summary_reports, {"max_value": 100.0, "conversions_per_source": 2}),
    ("w3c", tulle.measure.simulate_w3c, {}),
    ("w3c", tulle.measure.simulate_w3c, {"site_budget": 4.0, "lookback_days": 7, "by": ["geo"]}),
]


@pytest.mark.parametrize(("word", "verb", "given"), SIMULATED, ids=lambda value: str(value)[:12])
def test_measure_simulate(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    word: str,
    verb: Callable[..., Any],
    given: dict[str, Any],
) -> None:
    log = folder / "log" / "impressions.csv", folder / "log" / "conversions.csv"
    named = {("slice" if name == "by" else name): value for name, value in given.items()}
    words = {name: v[0] if isinstance(v, list) else v for name, v in named.items()}
    shown = command(capsys, "measure", "simulate", word, *log, "--seed", SEED, *options_of(words))
    found = verb(*log, **given, seed=SEED)
    expected = {"overall": found.overall, "slices": found.slices.to_dicts()}
    if found.trigger_data is not None:
        expected["trigger_data"] = found.trigger_data.to_dicts()
    assert_alike(shown, plain(expected))


def test_measure_w3c_conformance(capsys: pytest.CaptureFixture[str]) -> None:
    shown = command(capsys, "measure", "w3c-conformance", CASES)
    results = tulle.measure.run_w3c_cases(CASES)
    assert shown["cases"] == plain([result.to_dict() for result in results])
    assert shown["num_passed"] == len(results)


DATA: dict[str, Any] = {"rows": 2000}
METHODS = ["mosaic", "hybrid", "dp-sgd", "rr", "label-projection"]


@pytest.mark.parametrize("method", [None, *METHODS])
def test_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str | None) -> None:
    by_command, by_call = tmp_path / "command.json", tmp_path / "call.json"
    given = DATA | {"epsilon": 3.0} | ({} if method is None else {"method": method})
    words = ["plan", "synth:search", *options_of(given), "--output", by_command, "--quiet"]
    shown = command(capsys, *words)
    made = tulle.train.plan("synth:search", **given, output=by_call)
    assert shown == json.loads(made.privacy.to_json())
    assert by_command.read_bytes() == by_call.read_bytes()


def test_plan_of_a_file_with_its_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = folder / "clicks.csv"
    columns = ["--label", "click", "--public", "site", "--sensitive", "age", "--kind", "age=real"]
    shown = command(capsys, "plan", data, *columns, "--epsilon", 3, "--delta", 1e-6, "--quiet")
    schema = tulle.Schema(label="click", public=["site"], sensitive=["age"], kinds={"age": "real"})
    made = tulle.train.plan(data, schema, epsilon=3, delta=1e-6)
    assert shown == json.loads(made.privacy.to_json())


TRAINED: list[tuple[dict[str, Any], Any]] = [
    ({}, "mosaic"),
    ({"method": "dp-sgd", "epochs": 1}, DpSgdConfig(private_phase=PrivatePhase(epochs=1))),
]
VOLATILE = {"created_at", "seconds", "run", "card", "examples_per_second"}


@pytest.mark.parametrize(("options", "method"), TRAINED, ids=["mosaic", "dp-sgd"])
def test_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any], method: Any
) -> None:
    by_command, by_call = tmp_path / "command", tmp_path / "call"
    given = DATA | {"epsilon": 3.0, "seed": SEED}
    kept = ["--output", by_command, "--predictions", tmp_path / "command.parquet", "--quiet"]
    shown = command(capsys, "train", "synth:search", *options_of(given | options), *kept)
    result = tulle.train.fit(
        "synth:search",
        **given,
        method=method,
        output=by_call,
        predictions=tmp_path / "call.parquet",
    )
    assert (by_command / "plan.json").read_bytes() == (by_call / "plan.json").read_bytes()
    assert (by_command / "settings.toml").read_bytes() == (by_call / "settings.toml").read_bytes()
    assert files_of(by_command / "model") == files_of(by_call / "model")
    tables = [pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("command", "call")]
    assert_frame_equal(*tables)
    for name in ("card.json", "result.json"):
        both = [json.loads((run / name).read_text()) for run in (by_command, by_call)]
        assert lasting(both[0]) == lasting(both[1])
    steps = [
        [lasting(json.loads(line)) for line in (run / "records.jsonl").read_text().splitlines()]
        for run in (by_command, by_call)
    ]
    assert steps[0] == steps[1]
    assert result.metrics is not None
    assert shown["auc_loss"] == result.metrics.auc_loss
    assert shown["verdict"] == result.card.verdict


@pytest.mark.parametrize("kind", KINDS)
def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    (tmp_path / "command").mkdir()
    path = write_releases(tmp_path / "command")[kind].relative_to(tmp_path / "command")
    if kind == "labels":
        (tmp_path / "command" / path).write_bytes(b"pages never read the table")
    shutil.copytree(tmp_path / "command", tmp_path / "call")
    shown = command(capsys, "report", tmp_path / "command" / path)
    written = tulle.report.write(tmp_path / "call" / path)
    for name, file in (("report", written.html), ("markdown", written.markdown)):
        found = Path(shown[name])
        assert found.relative_to(tmp_path / "command") == file.relative_to(tmp_path / "call")
        assert found.read_bytes() == file.read_bytes()
    assert (shown["figures"], shown["verdict"]) == (written.num_figures, written.verdict)


def test_report_compares_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", epsilon=0.5, metrics=metrics(0.4))
    write_run(tmp_path / "raw", method="nonprivate", metrics=metrics(0.2))
    by_command, by_call = tmp_path / "command.html", tmp_path / "call.html"
    words = ["--compare", tmp_path / "b", "--baseline", tmp_path / "raw", "--output", by_command]
    shown = command(capsys, "report", tmp_path / "a", *words)
    compared = {"compare": [tmp_path / "b"], "baseline": tmp_path / "raw"}
    written = tulle.report.write(tmp_path / "a", **compared, output=by_call)
    assert by_command.read_bytes() == by_call.read_bytes()
    assert by_command.with_suffix(".md").read_bytes() == written.markdown.read_bytes()
    assert shown["verdict"] == written.verdict == "NOT A PRIVATE RELEASE"
    alone = tulle.report.write(tmp_path / "a", **compared)
    assert alone.html == tmp_path / "a" / "report-with-baseline.html"


CALLS: dict[str, Callable[..., Any]] = {
    "data describe": tulle.data.describe,
    "data prepare": tulle.data.prepare,
    "data synth": tulle.data.write_synthetic,
    "measure attribute": tulle.measure.attribute,
    "measure clips": tulle.measure.choose_clips,
    "measure simulate event": simulate_event_reports,
    "measure simulate summary": simulate_summary_reports,
    "measure simulate w3c": tulle.measure.simulate_w3c,
    "measure w3c-conformance": tulle.measure.run_w3c_cases,
    "plan": tulle.train.plan,
    "report": tulle.report.write,
    "train": tulle.train.fit,
}


@pytest.mark.parametrize("words", CALLS)
def test_an_option_has_the_default_of_its_keyword(words: str) -> None:
    found: Any = typer.main.get_command(app)
    for word in words.split():
        found = found.commands[word]
    keywords = inspect.signature(CALLS[words]).parameters
    shared = [option for option in found.params if option.name in keywords]
    assert shared or words == "measure w3c-conformance"
    for option in shared:
        # An option that was not given is None, and then the keyword's own default holds.
        if not option.required and option.default is not None:
            assert option.default == keywords[option.name].default, option.name


def plain(data: object) -> Any:
    """Data as they are after being printed and read again."""
    return json.loads(json.dumps(data, allow_nan=False))


def files_of(path: Path) -> dict[str, bytes]:
    """A file, or all files of a folder, by their names."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def lasting(data: Any) -> Any:
    """Plain data without what differs between two runs that do the same."""
    if isinstance(data, dict):
        return {name: lasting(value) for name, value in data.items() if name not in VOLATILE}
    return [lasting(value) for value in data] if isinstance(data, list) else data
