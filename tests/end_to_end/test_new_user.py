"""What a new user meets: examples that run, and mistakes that lead to the fix.

Every mistake ends with its exit code and one line that says what to do. It leaves no file
behind, and shows no value of a row.
"""

import json
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from command_line_messages import python_words
from end_to_end.help_examples import examples_of, fill_folder, leaf_commands
from tulle.cli.main import run_with

NOT_RUN = {
    **dict.fromkeys(("demo", "studio", "reproduce", "train"), "takes long, or does not end"),
    **dict.fromkeys(("data synth", "select simulate"), "takes long as it is written"),
    "data auctions": "writes the auctions that the other examples read",
    "measure w3c-conformance": "needs the cases of the W3C",
}
Refuse = Callable[[str, int | tuple[int, ...]], str]
OF_A_ROW = "private-value"
GAUSSIAN = '\'{"kind": "Gaussian", "noise_multiplier": 0.5}\''
LABELS = "labels release {} --schema schema.toml --mechanism rr --epsilon 1 --output new.parquet"
OWN = "plan own.csv --label bought --public campaign --sensitive age --epsilon 3"
REACH = "measure reach log/impressions.csv --epsilon 1 --output new --quiet"
DECIDE = "select decide {} auctions.parquet --output new.parquet --quiet"
PREPARE = "data prepare {} --layout search --output new --quiet"

WRONG_PATHS = [
    ("data prepare nowhere.parquet --layout search --output new", 4, "name files that are there"),
    ("data describe nowhere.parquet --layout search", 4, "name files that are there"),
    ("data describe log --layout search", 2, "is a folder and has its own schema"),
    ("plan nowhere --epsilon 3", 4, "name files of a log, the folder of a prepared dataset"),
    ("plan train.txt --epsilon 3", 2, "give --schema FILE; or --label, --public and --sensitive"),
    (LABELS.format("train.txt").replace(" --schema schema.toml", ""), 2, "give --schema FILE, or"),
    ("plan prepared --config nowhere.toml --epsilon 3", 4, "name a settings file"),
    ("plan prepared --config log --epsilon 3", 4, "Is a directory; name a settings file"),
    ("train prepared --plan nowhere.json", 4, "tulle plan --output FILE"),
    ("train half --epsilon 3", 4, "is not whole yet; give its `tulle data prepare` again"),
    ("report nowhere", 4, "name a run folder"),
    ("report runs/monday --compare nowhere", 4, "name the folder of a run"),
    ("account plan nowhere.json", 4, "tulle plan --output FILE"),
    ("account plan plan.json --header nowhere.csv", 4, "give a CSV file with a header"),
    ("budget show nowhere.db", 4, "tulle budget create"),
    ("budget show log", 4, "give the path of a ledger"),
    (f"{REACH} --ledger nowhere.db", 4, "tulle budget create"),
    ("budget spend ledger.db --purpose x --event @nowhere.json", 4, "a file that has one"),
    (LABELS.format("nowhere.parquet"), 4, "check the path"),
    (
        "labels evaluate nowhere.parquet --raw test.parquet --schema schema.toml",
        4,
        "check the path",
    ),
    ("measure run nowhere.toml --output new", 4, "name a settings file"),
    ("measure run log --output new", 4, "name a settings file"),
    ("measure simulate event nowhere.csv log/conversions.csv", 4, "check the path"),
    ("select plan nowhere.parquet --epsilon 3 --private-stddev 1", 4, "check the path"),
    (DECIDE.format("nowhere.toml"), 4, "name a settings file"),
]
WRONG_FILES = [
    (PREPARE.format("bad/empty.parquet"), 4, "empty by its content"),
    (PREPARE.format("bad/text.parquet"), 4, "plain text by its content"),
    (PREPARE.format("bad/line.tsv"), 4, "--skip-bad-lines"),
    (PREPARE.format("bad/no-rows.parquet"), 4, "no row"),
    ("plan prepared --epsilon 3 --config bad/bytes.toml", 4, "not UTF-8 at byte 0"),
    ("budget show bad/empty.db", 4, "no ledger"),
    ("budget show bad/other.db", 4, "not a tulle ledger"),
    ("measure run bad/empty.toml --output new", 2, "needs the setting 'log'"),
    ("measure run bad/text.toml --output new", 2, "is not TOML"),
    ("measure reach bad/empty.csv --epsilon 1 --output new", 4, "is empty"),
    ("measure simulate w3c bad/text.parquet log/conversions.csv", 4, "plain text by its content"),
    ("select plan bad/text.jsonl --epsilon 3 --private-stddev 1", 4, "one JSON object"),
    (DECIDE.format("bad/empty.toml"), 2, "needs the setting 'mechanism'"),
    (
        "labels evaluate bad/text.parquet --raw test.parquet --schema schema.toml",
        4,
        "plain text by",
    ),
    ("account plan bad/text.json", 2, "not JSON"),
    ("account plan runs/monday/card.json", 2, "is a card"),
    ("data describe sales.csv --layout search", 4, "read it with a schema of its own"),
    (
        "labels release bad/line.csv --schema schema.toml --mechanism rr --epsilon 1 --output "
        "new.parquet",
        4,
        "Correct it, or drop such lines first",
    ),
]
WRONG_COLUMNS = [
    (PREPARE.format("bad/no-column.parquet"), 4, "has no column 'product_id'"),
    (PREPARE.format("bad/text-label.parquet"), 4, "column 'Sale' of role label"),
    (LABELS.format("bad/no-column.parquet"), 4, "did you mean 'product_title'?"),
    (LABELS.format("bad/text-label.parquet"), 4, "row 1; mend or drop such rows"),
    (
        "labels release bad/no-user.parquet --schema schema.toml --mechanism joint-rr --epsilon 1 "
        "--unit 'user per day' --output new.parquet",
        4,
        "every row needs a unit",
    ),
    ("data prepare bad/no-user.parquet --schema schema.toml --output new", 4, "has nulls"),
    (f"{REACH} --user usr", 4, "did you mean 'user'?"),
    ("measure attribute campaigns.toml --by campaing", 4, "did you mean 'campaign'?"),
    ("measure clips log/conversions.csv --value valu --epsilon 1", 4, "did you mean 'value'?"),
    ("select plan made-up.parquet --epsilon 3 --private-stddev 1", 4, "--consent everyone"),
    ("select plan sales.csv --epsilon 3", 4, "has no column 'auction_id'"),
    ("select plan bad/text-bid.parquet --epsilon 3 --private-stddev 1", 4, "'bid' holds no number"),
]
STEPS = "plan prepared --unit example --epsilon 3 --method"
WRONG_SETTINGS = [
    (f"{STEPS} hybrid --noise banded --accounting paper", 2, "needs --accounting replace"),
    (f"{STEPS} label-projection --noise lattice", 2, "use --noise independent, or --method dp-sgd"),
    (f"{STEPS} hybrid --correction calibrated", 2, "or --method rr"),
    (f"{STEPS} hybrid --split ratio:2", 2, "--split ratio:2.0 must be from 0 to 1"),
    (f"{STEPS} dp-sgd --noise lattice --lattice-bits 99", 2, "--lattice-bits 99 must be"),
    (f"{PREPARE.format('clicks.parquet')} --min-count-sensitive 2", 2, "give --vocabulary-epsilon"),
    (f"{PREPARE.format('clicks.parquet')} --log product_id", 2, "--log needs column"),
    (f"{REACH} --slice campaign", 2, "needs --max-slices-per-unit"),
    (f"{REACH} --memory-limit much", 2, "DuckDB refuses --memory-limit 'much'"),
    ("account gaussian --delta 1e-6", 2, "give either --epsilon or --noise-multiplier"),
    ("account shuffle --num-reports 9 --delta 1e-6", 2, "give either --epsilon or --local-epsilon"),
    ("data synth search --rows 0 --output new", 2, "--rows 0 must be"),
    ("select plan auctions.parquet --epsilon 3 --private-stddev 1 --pricing fre", 2, "--pricing '"),
]
WRONG_WORDS = [
    ("plan synth:serch --epsilon 3", "search"),
    ("plan prepared --epsilon 3 --method hybird", "hybrid"),
    ("plan prepared --method hybrid --epsilon 3 --model mpl", "mlp"),
    ("plan prepared --method hybrid --epsilon 3 --noise bandet", "banded"),
    ("plan prepared --method hybrid --epsilon 3 --public-tower freez", "freeze"),
    ("plan prepared --method hybrid --epsilon 3 --correction foward", "forward"),
    ("plan prepared --method hybrid --epsilon 3 --split papr", "paper"),
    ("plan prepared --epsilon 3 --unit usr", "user"),
    ("plan prepared --epsilon 3 --unit usr --config run.toml", "user"),
    (f"{OWN} --unit exampel", "example"),
    (f"{OWN} --unit user_idd", "user_id"),
    ("plan own.csv --schema schema.toml --epsilon 3 --unit usr", "user"),
    ("plan synth:search --epsilon 3 --unit usr", "user"),
    ("audit train prepared --epsilon 3 --unit usr", "user"),
    (f"{REACH} --unit usr", "user"),
    ("plan prepared --method hybrid --epsilon 3 --accounting replac", "replace"),
    ("account gaussian --epsilon 1 --delta 1e-6 --adjacency add-remov", "add-remove"),
    ("account gaussian --epsilon 1 --delta 1e-6 --accountant pdl", "pld"),
    ("budget create new.db --name a --unit usr --adjacency replace --epsilon 1 --delta 0", "user"),
    ('budget check ledger.db --purpose x --event \'{"kind": "Gausian"}\'', "Gaussian"),
    ("data prepare clicks.parquet --layout serch --output new", "search"),
    ("data synth serch --rows 5 --output new", "search"),
    (
        "labels plan clicks.parquet --schema schema.toml --mechanism stairca --epsilon 1",
        "staircase",
    ),
    (f"{REACH} --engine duckdbb", "duckdb"),
    (f"{REACH} --format parqet", "parquet"),
    ("measure run campaigns.toml --emit-sql bigqery", "bigquery"),
    ("measure run bad/key.toml --output new", "lookback"),
    ("measure run bad/rule.toml --output new", "last-touch"),
    (DECIDE.format("bad/key-of-selection.toml"), "epsilon"),
    ("select plan auctions.parquet --epsilon 3 --private-stddev 1 --objective welfar", "welfare"),
    ("select plan auctions.parquet --epsilon 3 --private-stddev 1 --consent colum", "column"),
    ("select simulate --market serch", "search"),
    ("reproduce labeldp-unit --output new", "labeldp-units"),
]
EPSILONS = [
    "plan prepared --epsilon {}",
    "account gaussian --delta 1e-6 --epsilon {}",
    "account shuffle --delta 1e-6 --num-reports 1000 --epsilon {}",
    "budget create new.db --name a --unit user --adjacency replace --delta 0 --epsilon {}",
    "labels release clicks.parquet --schema schema.toml --mechanism rr --output new.parquet "
    "--epsilon {}",
    "measure reach log/impressions.csv --output new --epsilon {}",
    "measure clips log/conversions.csv --value value --epsilon {}",
    "measure simulate summary log/impressions.csv log/conversions.csv --epsilon {}",
    "select plan auctions.parquet --private-stddev 1 --epsilon {}",
    "select evaluate other.toml auctions.parquet panel.parquet --clicks clicks.csv "
    "--target other.toml --output new.json --epsilon {}",
]
DELTAS = [
    "plan prepared --epsilon 3 --delta {}",
    "account gaussian --epsilon 1 --delta {}",
    "budget create new.db --name a --unit user --adjacency replace --epsilon 1 --delta {}",
    f"{REACH} --delta {{}}",
    "select plan auctions.parquet --private-stddev 1 --epsilon 3 --delta {}",
]
NO_BUDGET = [
    (f"budget check small.db --purpose measure --event {GAUSSIAN}", "noise_multiplier="),
    (f"budget spend small.db --purpose measure --event {GAUSSIAN}", "noise_multiplier="),
    (f"{REACH} --ledger small.db", "Set --epsilon to"),
    (
        "measure run campaigns.toml --output new --quiet --ledger small.db",
        "Set [privacy] epsilon to",
    ),
    (f"{LABELS.format('clicks.parquet')} --ledger rows.db --quiet", "epsilon="),
    (f"{DECIDE.format('other.toml')} --ledger impressions.db", "epsilon="),
    ("train prepared --method rr --epsilon 1 --ledger rows.db --quiet", "epsilon="),
    (
        f"{PREPARE.format('clicks.parquet')} --min-count-sensitive 2 --vocabulary-epsilon 1 "
        "--vocabulary-delta 1e-9 --ledger rows.db",
        "unit 'example' has",
    ),
]
WRONG_STATES = [
    ("budget show newer.db", "version 99, this tulle reads up to version 3; upgrade tulle"),
    (f"{REACH} --ledger newer.db", "upgrade tulle"),
    (f"{REACH} --ledger weekly.db", "say with --at"),
    (f"{REACH} --ledger misspelt.db", "counted by no budget (purposes: 'mesure')"),
    ("train newer/prepared --epsilon 3", "this tulle reads version"),
    ("train prepared --plan newer/plan.json", "the tulle that wrote it"),
    ("account plan newer/plan-of-a-run.json", "the tulle that wrote it"),
    ("report newer/monday", "use the tulle that wrote it"),
    ("measure plan campaigns.toml --past newer/measurement.json", "the tulle that wrote it"),
    (
        "labels evaluate predictions.parquet --release newer/noisy.parquet",
        "the tulle that wrote it",
    ),
    (
        "train prepared --method rr --epsilon 3 --output runs/monday",
        "--resume, or choose another",
    ),
    (
        "train prepared --method rr --epsilon 2 --output runs/monday --resume",
        "settings of then",
    ),
    ("train prepared --method rr --epsilon 3 --resume", "leave out --resume"),
]
WRONG_OUTPUTS = [
    ("data prepare clicks.parquet --layout search --output log", "choose another output folder"),
    ("data synth display --rows 10 --output train.txt", "choose another name"),
    ("data synth display --rows 10 --output no/folder/x.tsv", "make it first"),
    ("data synth impressions --rows 10 --output train.txt/x", "Not a directory"),
    ("plan prepared --method rr --epsilon 3 --output plan.json", "choose another name"),
    (LABELS.format("clicks.parquet").replace("new.", "test."), "error: test.parquet exists"),
    (LABELS.format("clicks.parquet").replace("new.", "no/folder/x."), "make it first"),
    ("measure attribute campaigns.toml --output c.parquet", "name another file"),
    ("measure run campaigns.toml --output train.txt --quiet", "put that right"),
    (
        "select plan auctions.parquet --epsilon 3 --private-stddev 1 --output other.toml",
        "another file",
    ),
    (DECIDE.format("other.toml").replace("new.", "panel."), "name another output"),
    (DECIDE.format("other.toml").replace("new.parquet", "new.xls"), "end it in"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data and results of a user's first hours, and broken copies of them."""
    place = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        fill_folder(place)
        for line in (
            "small --unit user --adjacency add-remove",
            "rows --unit example --adjacency replace",
            "impressions --unit impression --adjacency replace",
            "weekly --unit 'user per 7 days' --adjacency add-remove",
            "misspelt --unit user --adjacency add-remove --purpose mesure",
            "ledger --unit user --adjacency add-remove",
        ):
            name, *rest = shlex.split(line)
            budget = ["budget", "create", f"{name}.db", "--name", name, *rest]
            assert run_with([*budget, "--epsilon", "0.01", "--delta", "1e-9"]) == 0
    _break_files(place)
    _age_files(place)
    return place


def _break_files(place: Path) -> None:
    bad = place / "bad"
    bad.mkdir()
    (place / "half.partial").mkdir()
    for name in ("empty.parquet", "empty.db", "empty.toml", "empty.csv"):
        (bad / name).write_bytes(b"")
    for name in ("text.parquet", "text.toml", "text.jsonl", "text.json"):
        (bad / name).write_text(f"{OF_A_ROW}, and more\n")
    (bad / "bytes.toml").write_bytes(b"\xff\xfe")
    (bad / "line.tsv").write_text(f"{OF_A_ROW}\tx\n")
    sqlite3.connect(bad / "other.db").execute("create table t (x)").connection.close()
    clicks = pl.read_parquet(place / "clicks.parquet")
    clicks.head(0).write_parquet(bad / "no-rows.parquet")
    (bad / "line.csv").write_text(f"{','.join(clicks.columns)}\n{OF_A_ROW}\n")
    clicks.drop("product_id").write_parquet(bad / "no-column.parquet")
    text = pl.lit(OF_A_ROW)
    clicks.with_columns(text.alias("Sale")).write_parquet(bad / "text-label.parquet")
    nobody = pl.lit(None, dtype=pl.String).alias("user_id")
    clicks.with_columns(nobody).write_parquet(bad / "no-user.parquet")
    auctions = pl.read_parquet(place / "auctions.parquet")
    auctions.with_columns(text.alias("bid")).write_parquet(bad / "text-bid.parquet")
    campaigns = (place / "campaigns.toml").read_text()
    (bad / "key.toml").write_text(campaigns.replace("lookback", "lokback"))
    (bad / "rule.toml").write_text(campaigns.replace("last-touch", "last-tuch"))
    selection = (place / "other.toml").read_text()
    (bad / "key-of-selection.toml").write_text(selection.replace("epsilon", "epsilom"))


def _age_files(place: Path) -> None:
    """Files as a later version might write them: another format, and a key more."""
    newer = place / "newer"
    newer.mkdir()
    shutil.copytree(place / "prepared", newer / "prepared")
    shutil.copytree(place / "runs" / "monday", newer / "monday")
    shutil.copy(place / "test.parquet", newer / "noisy.parquet")
    shutil.copy(place / "plan.json", newer / "plan.json")
    shutil.copy(place / "last-week" / "measurement.json", newer / "measurement.json")
    shutil.copy(place / "runs" / "monday" / "plan.json", newer / "plan-of-a-run.json")
    (newer / "noisy.release.json").write_text('{"format": "tulle label release 1"}')
    for name in ("plan", "plan-of-a-run", "measurement", "noisy.release", "monday/run"):
        path = newer / f"{name}.json"
        stored = json.loads(path.read_text())
        stored |= {"format": stored["format"][:-1] + "99", "what is new": 1}
        path.write_text(json.dumps(stored))
    schema = newer / "prepared" / "schema.json"
    schema.write_text(json.dumps(json.loads(schema.read_text()) | {"version": 99, "new": 1}))
    shutil.copy(place / "small.db", place / "newer.db")
    with sqlite3.connect(place / "newer.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def files_in(folder: Path) -> set[Path]:
    """All but the keys that a ledger gets beside it at its first use."""
    return {path for path in folder.rglob("*") if not path.name.endswith(("-key", "-wal", "-shm"))}


@pytest.fixture
def refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refuse:
    """Runs a mistake: gives its one message, after the checks that hold for all."""
    monkeypatch.chdir(folder)

    def refuse(command: str, code: int | tuple[int, ...]) -> str:
        before = files_in(folder)
        found = run_with(shlex.split(command))
        message = capsys.readouterr().err
        codes = code if isinstance(code, tuple) else (code,)
        assert found in codes, message
        assert message.count("error: ") == 1
        assert not python_words(message, shlex.split(command)), message
        assert not any(word in message for word in ("Traceback", "[Errno", "codec", OF_A_ROW))
        assert files_in(folder) == before
        return message

    return refuse


@pytest.mark.parametrize(
    ("command", "code", "way_out"), [*WRONG_PATHS, *WRONG_FILES, *WRONG_COLUMNS, *WRONG_SETTINGS]
)
def test_wrong_data_lead_to_the_fix(refused: Refuse, command: str, code: int, way_out: str) -> None:
    assert way_out in refused(command, code)


@pytest.mark.parametrize(("command", "meant"), WRONG_WORDS)
def test_a_misspelt_word_is_answered_with_the_right_one(
    refused: Refuse, command: str, meant: str
) -> None:
    assert f"did you mean '{meant}'?" in refused(command, 2)


@pytest.mark.parametrize("command", EPSILONS)
@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "inf"])
def test_no_epsilon_without_a_guarantee_is_taken(
    refused: Refuse, command: str, epsilon: str
) -> None:
    message = refused(command.format(epsilon), 2)
    assert "epsilon" in message
    assert str(float(epsilon)) in message


@pytest.mark.parametrize("command", DELTAS)
@pytest.mark.parametrize("delta", ["1", "-1e-06", "nan"])
def test_no_delta_outside_its_range_is_taken(refused: Refuse, command: str, delta: str) -> None:
    assert f"--delta {float(delta)}" in refused(command.format(delta), 2)


@pytest.mark.parametrize(("command", "way_out"), NO_BUDGET)
def test_without_budget_nothing_is_released(refused: Refuse, command: str, way_out: str) -> None:
    message = refused(command, 3)
    assert "this release needs epsilon=" in message
    assert way_out in message


@pytest.mark.parametrize(("command", "way_out"), WRONG_STATES)
def test_state_that_does_not_fit_leads_to_the_fix(
    refused: Refuse, command: str, way_out: str
) -> None:
    assert way_out in refused(command, (2, 4))


@pytest.mark.parametrize(("command", "way_out"), WRONG_OUTPUTS)
def test_an_output_that_cannot_be_written_is_named(
    refused: Refuse, command: str, way_out: str
) -> None:
    assert way_out in refused(command, (1, 2, 4))


def test_the_words_that_options_had_before_go_on_working(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    plan = tmp_path / "plan.json"
    assert run_with(shlex.split(f"plan --data prepared --epsilon 3 --out {plan}")) == 0
    assert plan.exists()
    reach = REACH.replace("--output new", f"--out {tmp_path / 'new'}")
    assert run_with(shlex.split(reach)) == 0
    assert (tmp_path / "new" / "measurement.json").exists()


def test_data_that_are_named_twice_are_refused(refused: Refuse) -> None:
    assert "leave out --data" in refused("plan prepared --data half --epsilon 3", 2)


def test_a_log_that_was_refused_can_be_prepared_by_the_same_command_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_with(["data", "synth", "search", "--rows", "50", "--output", "log.tsv"]) == 0
    log = tmp_path / "log.tsv"
    log.write_text(log.read_text() + "a line cut off\n")
    prepare = shlex.split(PREPARE.format("log.tsv"))
    assert run_with(prepare) == 4
    assert run_with([*prepare, "--skip-bad-lines"]) == 0


def test_the_first_example_of_every_quick_command_runs_as_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(folder, tmp_path / "user"))
    (tmp_path / "user" / "ledger.db").unlink()
    failed, ran = [], 0
    for name, command in leaf_commands():
        if name not in NOT_RUN and not name.startswith("audit "):
            words = examples_of(command)[0]
            ran += 1
            if (code := run_with(words[1:])) != 0:
                failed.append((shlex.join(words), code))
    assert failed == []
    assert ran > 25
