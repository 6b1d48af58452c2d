import json
from pathlib import Path

import pytest
import typer

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.cli import main
from tulle.cli.data import data_app
from tulle.data.prepared.dataset import PreparedDataset
from tulle.privacy.units import Adjacency, Unit
from unit.data.small_log import lines, write_log

SCHEMA = """
label = "click"
public = ["site", "price"]
sensitive = ["age", "city"]
unit = "user"
time = "at"
ignored = ["note"]

[kinds]
price = "real"
at = "timestamp"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "small.csv", lines(90))
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def run(text: str) -> int:
    return main.run_with(["data", *text.split()])


PREPARE = "prepare small.csv --schema schema.toml --output out"


def test_the_group_has_its_commands() -> None:
    names = {command.name or command.callback.__name__ for command in data_app.registered_commands}
    assert names == {"prepare", "describe", "synth", "auctions"}
    assert isinstance(data_app, typer.Typer)


@pytest.mark.parametrize("command", ["prepare", "describe", "synth", "auctions"])
def test_every_command_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{command} --help") == 0
    assert f"Example: tulle data {command}" in " ".join(capsys.readouterr().out.split())


def test_prepare_prints_what_it_made(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{PREPARE} --json") == 0
    facts = json.loads(capsys.readouterr().out)
    dataset = PreparedDataset.open(folder / "out")
    assert facts == {
        "folder": "out",
        "rows": 90,
        "public_features": 2,
        "sensitive_features": 2,
        "bad_lines_left_out": 0,
        "rows_resumed": 0,
        "fingerprint": dataset.fingerprint,
    }
    # Hashed values, and behind them the bins of one public number and the id of its missing values.
    num_bins = dataset.features[1].num_bins
    assert [f.num_ids for f in dataset.features] == [*[100_001 + num_bins] * 2, 50_000, 50_000]


def test_results_go_to_stdout_and_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{PREPARE} --quiet") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("folder              out\nrows                90\n")
    assert str(folder) not in shown.out


def test_options_choose_the_features(folder: Path) -> None:
    options = "--hash-bins-public 64 --min-count-public 5"
    assert run(f"{PREPARE} {options}") == 2
    options = "--min-count-public 5 --hash-bins-sensitive 64 --log price --hour --day-of-week"
    assert run(f"{PREPARE} {options}") == 0
    features = PreparedDataset.open(folder / "out").features
    assert [(feature.name, feature.role) for feature in features] == [
        ("site", "public"),
        ("price", "public"),
        ("at hour", "public"),
        ("at day of week", "public"),
        ("age", "sensitive"),
        ("city", "sensitive"),
    ]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("--log colour", "--log 'colour' must name"),
        ("--salt xyz", "--salt 'xyz' must be hexadecimal"),
        (
            "--ledger ledger.db",
            "--vocabulary-epsilon, --vocabulary-delta and --ledger belong together",
        ),
        ("--like out --hour", "leave out the other feature options"),
        (f"--like out --salt {'00' * 16}", "leave out the other feature options"),
        ("--layout dispaly", "did you mean 'display'?"),
        ("--layout taobao-tables", "needs three files"),
        ("--num-classes 1", "--num-classes 1"),
    ],
)
def test_wrong_options_are_usage_errors(
    folder: Path, capsys: pytest.CaptureFixture[str], options: str, what: str
) -> None:
    assert run(f"{PREPARE} {options}") == 2
    assert what in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_a_log_needs_a_layout_or_a_schema(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prepare small.csv --output out") == 2
    assert "--layout NAME" in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_data_that_break_the_contract_have_their_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(folder / "small.csv", ["bad", *lines(9)])
    assert run(PREPARE) == 4
    assert "small.csv line 2" in capsys.readouterr().err
    assert not (folder / "out.partial").exists()
    assert run(f"{PREPARE} --skip-bad-lines --json") == 0
    assert json.loads(capsys.readouterr().out)["bad_lines_left_out"] == 1
    assert run(PREPARE) == 4
    assert "out exists already" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_an_interrupted_run_continues_with_its_own_salt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tulle.data.prepared.writer.DatasetWriter.append", interrupt)
        assert run(PREPARE) == 130
    assert run(f"{PREPARE} --salt {'00' * 16}") == 4
    assert "begun with another feature plan" in capsys.readouterr().err
    assert run(PREPARE) == 0


def test_a_test_set_is_prepared_like_its_training_set(folder: Path) -> None:
    assert run(f"{PREPARE} --hash-bins-public 64") == 0
    write_log(folder / "test.csv", lines(30))
    assert run("prepare test.csv --schema schema.toml --output test --like out") == 0
    train, test = PreparedDataset.open(folder / "out"), PreparedDataset.open(folder / "test")
    assert test.features == train.features
    assert (test.public_features == train.public_features[:30]).all()


def test_a_mix_of_two_datasets_is_not_imitated(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("out", "other"):
        assert run(f"prepare small.csv --schema schema.toml --output {name} --quiet") == 0
    (folder / "other" / "encoder.json").replace(folder / "out" / "encoder.json")
    assert run("prepare small.csv --schema schema.toml --output test --like out") == 4
    assert "is not the one its arrays were made with" in capsys.readouterr().err


def test_noisy_vocabularies_are_charged(folder: Path) -> None:
    ledger = Ledger.create(folder / "ledger.db")
    ledger.create_budget(
        Budget(
            name="rows", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=9.0, delta=1e-3
        )
    )
    options = "--min-count-sensitive 4 --vocabulary-delta 1e-4 --ledger ledger.db"
    assert run(f"{PREPARE} {options} --vocabulary-epsilon 4") == 0
    assert len(ledger.spends("rows")) == 1


SEARCH_SCHEMA = """
label = "Sale"
public = ["nb_clicks_1week", "product_age_group", "product_gender", "partner_id", "user_id"]
sensitive = ["device_type", "audience_id"]
time = "click_timestamp"
"""


def test_a_schema_cannot_make_a_protected_column_of_a_known_log_public_unawares(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "search.toml").write_text(SEARCH_SCHEMA)
    assert run("synth search --rows 50 --output clicks.tsv --quiet") == 0
    for how in ("--layout search --schema search.toml", "--schema search.toml"):
        assert run(f"prepare clicks.tsv {how} --output out") == 2
        shown = " ".join(capsys.readouterr().err.split())
        assert "'user_id'" in shown
        assert "'search'" in shown
        assert "--allow-public user_id" in shown
    search = "prepare clicks.tsv --layout search --schema search.toml --output out"
    assert run(f"{search} --allow-public user_idd") == 2
    assert run(f"{search} --allow-public user_id --allow-public partner_id --quiet") == 0
    assert "user_id" in PreparedDataset.open(folder / "out").schema.public


@pytest.mark.usefixtures("folder")
def test_describe_marks_what_must_not_be_released(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("describe small.csv --schema schema.toml") == 0
    shown = capsys.readouterr().out
    table = {line.split("  ")[0]: line.split() for line in shown.splitlines() if line}
    assert table["rows"][-1] == "yes"
    assert table["label rate"][-2:] == ["0.3333", "never"]
    assert table["rows per unit, most"][-2:] == ["3", "never"]
    assert table["site"] == ["site", "public", "categorical", "7", "0.0%", "yes"]
    assert table["age"] == ["age", "sensitive", "categorical", "72", "20.0%", "never"]
    assert shown.splitlines()[-1].startswith("Release 'never': an exact statistic")


@pytest.mark.usefixtures("folder")
def test_describe_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("describe small.csv --schema schema.toml --json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["num_rows"]["value"] == 90


def test_describe_reads_a_prepared_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{PREPARE} --quiet") == 0
    assert run("describe out") == 0
    assert "never" in capsys.readouterr().out
    assert run("describe out --layout display") == 2
    assert run(f"describe {folder}") == 4


@pytest.mark.parametrize(
    ("shape", "files"),
    [
        ("taobao-tables", ["ad_feature.csv", "raw_sample.csv", "user_profile.csv"]),
        ("impressions", ["conversions.csv", "impressions.csv"]),
    ],
)
def test_synth_writes_logs_of_several_files(folder: Path, shape: str, files: list[str]) -> None:
    assert run(f"synth {shape} --rows 50 --output made") == 0
    assert sorted(path.name for path in (folder / "made").iterdir()) == files


@pytest.mark.parametrize(
    ("shape", "said"),
    [("search", "50 rows"), ("impressions", "50 users"), ("auctions", "50 auctions")],
)
@pytest.mark.usefixtures("folder")
def test_synth_says_what_it_made_so_many_of(
    capsys: pytest.CaptureFixture[str], shape: str, said: str
) -> None:
    assert run(f"synth {shape} --rows 50 --output made.csv --quiet") == 0
    assert f"{shape} of {said}, seed 0" in capsys.readouterr().out


def test_synth_tells_how_far_it_is_unless_it_is_quiet(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tulle.cli.terminal._SECONDS_BETWEEN_LINES", 0.0)
    assert run("synth search --rows 300 --output told.tsv") == 0
    assert "100%, 300 rows" in capsys.readouterr().err
    assert run("synth search --rows 300 --output untold.tsv --quiet") == 0
    assert capsys.readouterr().err == ""
    assert (folder / "told.tsv").read_bytes() == (folder / "untold.tsv").read_bytes()


def test_synth_writes_auctions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("synth auctions --rows 5 --seed 2 --output auctions.csv --json") == 0
    facts = {"shape": "auctions", "rows": 5, "seed": 2, "output": "auctions.csv"}
    assert json.loads(capsys.readouterr().out) == facts
    assert (folder / "auctions.csv").read_text().startswith("auction_id,")


def test_the_tables_of_taobao_are_prepared_together(folder: Path) -> None:
    assert run("synth taobao-tables --rows 60 --output made") == 0
    tables = "made/raw_sample.csv made/ad_feature.csv made/user_profile.csv"
    assert run(f"prepare {tables} --layout taobao-tables --output joined") == 0
    assert PreparedDataset.open(folder / "joined").num_rows == 60


def test_synth_writes_a_log_that_prepare_reads(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("synth display --rows 200 --seed 3 --output made.tsv") == 0
    assert run("prepare made.tsv --layout display --output made --quiet") == 0
    assert PreparedDataset.open(folder / "made").num_rows == 200
    capsys.readouterr()
    assert run("synth display --rows 200 --seed 3 --output made.tsv") == 2
    assert "exists" in capsys.readouterr().err
    assert run("synth dispaly --rows 200 --output other.tsv") == 2
    assert "did you mean 'display'" in capsys.readouterr().err
