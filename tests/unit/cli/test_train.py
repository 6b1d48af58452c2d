import dataclasses
import errno
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.cli.terminal import stopping_cleanly
from tulle.data.prepared.writer import DatasetWriter, hold_partial
from tulle.errors import RunInterruptedError
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.card import read_card
from tulle.runs.folder import RunFolder
from unit.cli.train_commands import SYNTH, error_of, facts_of, run, write_prepared
from unit.data.prepared.small_dataset import CONTENTS, SETTINGS, block

pytestmark = pytest.mark.usefixtures("folder")

KEYS = {
    *(
        "auc",
        "auc_loss",
        "auc_loss_interval",
        "log_loss",
        "calibration",
        "normalised_cross_entropy",
    ),
    *("relative_log_likelihood", "bidding_over_constant"),
    *("relative_auc_loss", "epsilon", "delta", "label_epsilon", "noise_multiplier", "steps"),
    "row_weights",
    *("steps_lost", "method", "model", "remark", "seconds", "run", "card", "verdict"),
}
SETTINGS_FILE = """
method = "hybrid"

[data]
source = "synth:search"
rows = 600
test_fraction = 0.3

[model]
kind = "mlp"
embedding_dim = 2
public_hidden = [4]
common_hidden = [4]

[target]
epsilon = 2.0

[private_phase]
epochs = 1.0
clip_norm = 3.0

[label_phase]
batch_size = 100
"""


@pytest.mark.parametrize("command", ["train", "plan"])
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{command} --help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Example: tulle {command} synth:search --rows 20000 --method mosaic" in shown
    assert "--max-rows-per-user" in shown


@pytest.mark.parametrize(
    ("method", "epsilon", "label_epsilon", "is_private"),
    [
        ("hybrid --epsilon 1", 1.0, 0.6, True),
        ("rr --epsilon 1", 1.0, 1.0, True),
        ("dp-sgd --epsilon 1", 1.0, None, True),
        ("nonprivate", None, None, False),
    ],
)
def test_every_method_leaves_a_run_with_a_card(
    method: str,
    epsilon: float | None,
    label_epsilon: float | None,
    is_private: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = facts_of(f"train {SYNTH} --model lr --method {method}", capsys)
    assert facts.keys() == KEYS
    name = method.split()[0]
    assert (facts["method"], facts["model"]) == (name, "logistic regression")
    assert (facts["epsilon"], facts["label_epsilon"]) == (epsilon, label_epsilon)
    assert facts["delta"] == (1e-7 if name in ("hybrid", "dp-sgd") else 0)
    has_steps = name in ("hybrid", "dp-sgd")
    assert (facts["steps"] > 0) is (facts["noise_multiplier"] is not None) is has_steps
    assert facts["run"] == f"runs/{name}-search"
    card = read_card(Path(facts["card"]))
    assert card.verdict == facts["verdict"]
    assert facts["verdict"].startswith("Private release") is is_private
    figures = {figure.name: figure.value for figure in card.utility}
    assert (figures["AUC"], figures["AUC loss"]) == (facts["auc"], facts["auc_loss"])
    assert facts["auc"] == 1 - facts["auc_loss"]


def test_a_seed_is_no_private_release(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"train {SYNTH} --model lr --method rr --epsilon 1 --seed 4"
    first, second = facts_of(command, capsys), facts_of(command, capsys)
    assert first["verdict"] == "NOT A PRIVATE RELEASE"
    assert (first["run"], second["run"]) == ("runs/rr-search", "runs/rr-search-2")
    assert first["auc_loss"] == second["auc_loss"]


def test_results_go_to_stdout_and_the_plan_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    loud = SYNTH.replace(" --quiet", "")
    assert run(f"train {loud} --model lr --method dp-sgd --epsilon 1 --epochs 1") == 0
    shown = capsys.readouterr()
    lines = [line for line in shown.err.splitlines() if not line.startswith("making up")]
    assert lines[0].startswith("plan: epsilon=1, delta=1e-07 (example, replace")
    assert "noise multiplier" in lines[0]
    assert "steps" in lines[0]
    assert lines[-1].startswith("private: step ")
    assert "examples/s, noisy loss " in lines[-1]
    assert lines[-1].endswith("epsilon 1")
    assert shown.out.startswith("method                    dp-sgd\n")
    assert "run                       runs/dp-sgd-search\n" in shown.out


def test_quiet_prints_nothing_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"train {SYNTH} --model lr --method rr --epsilon 1") == 0
    assert capsys.readouterr().err == ""


def test_a_settings_file_is_read_and_options_win(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.toml").write_text(SETTINGS_FILE)
    facts = facts_of("train --config run.toml --quiet --output runs/a", capsys)
    settings = RunFolder.open("runs/a").settings
    assert (facts["epsilon"], facts["delta"], facts["model"]) == (2.0, 1e-7, "mlp")
    assert settings["model"]["public_hidden"] == [4]
    assert settings["private_phase"]["clip_norm"] == 3.0
    assert settings["label_phase"]["batch_size"] == 100
    options = "--epsilon 1 --clip-norm 7 --learning-rate 0.5 --split ratio:0.25 --early-stopping"
    facts = facts_of(f"train --config run.toml --quiet --output runs/b {options}", capsys)
    settings = RunFolder.open("runs/b").settings
    assert (facts["epsilon"], facts["label_epsilon"]) == (1.0, 0.25)
    assert settings["private_phase"]["clip_norm"] == 7.0
    assert settings["private_phase"]["optimizer"]["learning_rate"] == 0.5
    assert settings["label_phase"]["early_stopping"]["patience"] == 1
    assert settings["model"]["public_hidden"] == [4]


def test_a_settings_file_serves_several_methods(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.toml").write_text(SETTINGS_FILE)
    facts = facts_of("train --config run.toml --quiet --method nonprivate", capsys)
    assert facts["epsilon"] is None
    assert RunFolder.open(facts["run"]).settings["model"]["embedding_dim"] == 2
    strict = SETTINGS_FILE.replace('"hybrid"', '"nonprivate"')
    (folder / "run.toml").write_text(strict)
    assert "has no setting 'private_phase'" in error_of(
        "train --config run.toml --quiet", 2, capsys
    )


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("[private_phase]", "[privat_phase]", "did you mean 'private_phase'?"),
        ("clip_norm", "clip_nrm", "did you mean 'clip_norm'?"),
        ("test_fraction", "test_fracton", "did you mean 'test_fraction'?"),
        ("embedding_dim", "embeding_dim", "did you mean 'embedding_dim'?"),
        ('"hybrid"', '"hybird"', "did you mean 'hybrid'?"),
        ("rows = 600", "rows = 0", "rows=0"),
        ('"hybrid"\n', '"hybrid"\nunit = 3\n', "unit=3 must be a table"),
        ('"hybrid"', '"mosaic"', "which is of hybrid"),
        ('method = "hybrid"', "", "which is of hybrid"),
        ("[target]", "[target", "is not TOML"),
    ],
)
def test_mistakes_in_a_settings_file_are_named(
    old: str, new: str, what: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in SETTINGS_FILE
    (folder / "run.toml").write_text(SETTINGS_FILE.replace(old, new))
    assert what in error_of("train --config run.toml --quiet", 2, capsys)
    assert not [*folder.glob("runs/*")]


@pytest.mark.parametrize(
    ("options", "code", "what"),
    [
        ("--method mosaic", 2, "needs an epsilon, e.g. --epsilon 3"),
        ("--method hybird --epsilon 1", 2, "did you mean 'hybrid'?"),
        (
            "--method nonprivate --epsilon 1",
            2,
            "--epsilon 1.0 is given, but method nonprivate has no guarantee",
        ),
        ("--method rr --epsilon 1 --epochs 2", 2, "give --label-epochs"),
        ("--epsilon 1 --epochs 4", 2, "or use --method hybrid or dp-sgd"),
        ("--method cells --epsilon 1", 2, "--method 'cells' is unknown"),
        ("--method dp-sgd --epsilon 1 --split paper", 2, "--split has no meaning"),
        ("--method hybrid --epsilon 1 --model tree", 2, "--model tree is unknown"),
        ("--method hybrid --epsilon 1 --split half", 2, "--split half is unknown"),
        ("--method dp-sgd --epsilon 1 --optimizer sgd", 2, "needs --learning-rate"),
        ("--method dp-sgd --epsilon 1 --optimizer sdg --learning-rate 1", 2, "did you mean 'sgd'?"),
        ("--method hybrid --epsilon 1 --accounting rdp", 2, "--accounting rdp is unknown"),
        ("--method hybrid --epsilon 1 --max-rows-per-user 2", 2, "is for --unit user"),
        ("--method hybrid --epsilon 1 --unit user", 4, "needs data with a unit column"),
        ("--method hybrid --epsilon 1 --batch-size 100000", 2, "--batch-size 100000 must be <="),
        ("--epsilon -1", 2, "--epsilon -1.0 must be > 0"),
        ("--epsilon 1 --clip 0", 2, "--clip 0.0 must be a number above 0"),
        ("--method dp-sgd --epsilon 1 --epochs 0", 2, "--epochs 0.0 must be"),
        ("--method dp-sgd --epsilon 1 --noise banded --bands 0", 2, "--bands 0 must be"),
        ("--epsilon 1 --test-fraction 1", 2, "must be in [0, 1)"),
        ("--epsilon 1 --test other --test-fraction 0.1", 2, "exclude each other"),
        ("--method rr --epsilon 1 --device tpu", 2, "--device 'tpu' is unknown"),
        ("--epsilon 1 --device tpu", 2, "--device 'tpu' has no meaning for method mosaic"),
        ("--epsilon 1 --purpose x", 2, "give --ledger too"),
        ("--method rr --epsilon 1 --predictions no/file.parquet", 2, "in no folder that exists"),
        ("--method rr --epsilon 1 --resume", 4, "no unfinished run called rr-search"),
        ("--method rr --epsilon 1 --resume --output runs/x", 4, "x is no run"),
        ("--method rr --epsilon 1 --baseline x", 4, "x is no run"),
        ("--method nonprivate --ledger ledger.db", 2, "leave out the ledger (--ledger)"),
        ("--method rr --epsilon 1 --allow-public device_typ", 2, "not public in the schema"),
    ],
)
def test_wrong_options_say_what_is_wrong_and_begin_nothing(
    options: str, code: int, what: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert what in error_of(f"train {SYNTH} {options}", code, capsys)
    assert not [*folder.glob("runs/*")]


@pytest.mark.parametrize(
    ("source", "code", "what"),
    [
        ("", 2, "the data are missing"),
        ("nowhere", 4, "nowhere does not exist"),
        ("mine.csv", 2, "the roles of columns are missing: give --schema FILE; or --label"),
        ("mine.csv --label clik", 4, "no column 'clik' (did you mean 'click'?)"),
        ("mine.csv --public click", 2, "--public is given without --label"),
        ("mine.csv --label click --schema s.toml", 2, "--schema and --label exclude each other"),
        ("synth:serch", 2, "did you mean 'search'?"),
        ("synth:search --layout search", 2, "has its own schema"),
        (".", 4, "is not a prepared dataset"),
        (". --rows 5", 2, "--rows 5 is for synthetic logs"),
    ],
)
def test_wrong_data_are_named(
    folder: Path, source: str, code: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.csv").write_text("click\n1\n")
    assert what in error_of(f"train {source} --epsilon 1", code, capsys)


def test_a_synthetic_log_is_made_and_prepared_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"train {SYNTH} --model lr --method nonprivate --cache cache"
    first = facts_of(command, capsys)
    kept = sorted(path.name for path in folder.glob("cache/[!.]*"))
    assert len(kept) == 2  # the log and its arrays
    changed = {name: (folder / "cache" / name / "schema.json") for name in kept}
    times = [path.stat().st_mtime_ns for path in changed.values() if path.exists()]
    second = facts_of(command, capsys)
    assert sorted(path.name for path in folder.glob("cache/[!.]*")) == kept
    assert [path.stat().st_mtime_ns for path in changed.values() if path.exists()] == times
    assert first["auc_loss"] == second["auc_loss"]
    facts_of(f"{command} --synth-seed 1", capsys)
    assert len([*folder.glob("cache/[!.]*")]) == 4


def test_a_place_where_no_log_can_be_made_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"train {SYNTH} --method rr --epsilon 1"
    (folder / "file").write_text("")
    assert "file cannot be used" in error_of(f"{command} --cache file", 4, capsys)
    full = pl.exceptions.ComputeError("no space left")

    def fail(*_arguments: object, **_named: object) -> None:
        raise full

    monkeypatch.setattr("tulle.data.synth.table_files.sink_tables", fail)
    error = error_of(f"{command} --cache new", 4, capsys)
    assert "cannot be written: no space left; make room" in error


def test_a_card_that_finds_no_room_is_named_and_written_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    command = f"train {SYNTH} --model lr --method rr --epsilon 1"
    with monkeypatch.context() as patch:
        patch.setattr("tulle.runs.card.write_card", full)
        assert "card.json cannot be used: No space left" in error_of(command, 4, capsys)
    assert Path(facts_of(f"{command} --resume", capsys)["card"]).exists()


def test_a_result_that_cannot_be_printed_is_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.StringIO):
        def write(self, _text: str, /) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Full())
        code = run(f"train {SYNTH} --model lr --method rr --epsilon 1 --json")
    assert code == 1
    expected = "error: the result cannot be printed: No space left on device; the run is whole, "
    assert capsys.readouterr().err.startswith(expected)


@pytest.mark.parametrize("log", ["display", "attribution", "taobao"])
def test_every_made_up_log_can_be_trained_on(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"train --data synth:{log} --rows 900 --quiet --model fm --method rr --epsilon 5"
    assert 0 < facts_of(f"{command} --unit example", capsys)["auc_loss"] < 1


def test_users_are_protected_and_never_both_trained_and_tested_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = "--unit user --max-rows-per-user 2 --user-accounting clipped-users"
    command = "--data synth:taobao --rows 900 --quiet --model lr --method dp-sgd --epsilon 1"
    facts = facts_of(f"train {command} {options}", capsys)
    assert "of one user (replace)" in facts["verdict"]
    card = json.loads(Path(facts["card"]).read_text())
    assert card["utility"][0]["measured_on"] == "0.2 of the users, held out by a public key"


def test_the_papers_accounting_is_not_a_private_release(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = f"train {SYNTH} --model lr --method dp-sgd --epsilon 2 --accounting paper"
    facts = facts_of(command, capsys)
    assert facts["verdict"] == "NOT A PRIVATE RELEASE"
    assert "Renyi" in Path(facts["card"]).read_text()


def test_a_baseline_gives_the_relative_loss(capsys: pytest.CaptureFixture[str]) -> None:
    raw = facts_of(f"train {SYNTH} --model lr --method nonprivate", capsys)
    command = f"train {SYNTH} --model lr --method rr --epsilon 1"
    facts = facts_of(f"{command} --baseline nonprivate-search", capsys)
    expected = 100 * (facts["auc_loss"] - raw["auc_loss"]) / raw["auc_loss"]
    assert facts["relative_auc_loss"] == pytest.approx(expected)
    # A baseline is raw: what it tells must not be on the card of a private run.
    assert facts["verdict"].startswith("Private release")
    card = json.loads(Path(facts["card"]).read_text())
    assert all(figure["baseline"] is None for figure in card["utility"])
    assert not any("relative" in figure["name"] for figure in card["utility"])
    by_path = facts_of(f"{command} --baseline {raw['run']}", capsys)
    assert by_path["relative_auc_loss"] is not None
    assert "of method rr" in error_of(f"{command} --baseline rr-search", 2, capsys)
    other = f"{command} --baseline nonprivate-search --test-fraction 0.4"
    assert "tested on other rows" in error_of(other, 4, capsys)


def test_predictions_are_those_of_the_test_rows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"train {SYNTH} --model lr --method rr --epsilon 1 --predictions p.parquet"
    facts_of(command, capsys)
    table = pl.read_parquet(folder / "p.parquet")
    assert table.columns == ["row", "probability"]
    assert 60 < table.height < 180
    assert table["row"].is_sorted()
    assert table["row"].max() < 600
    assert "'p.parquet' exists" in error_of(command, 2, capsys)
    resumed = f"{command} --resume --output runs/rr-search"
    assert "'p.parquet' exists" in error_of(resumed, 2, capsys)
    other = resumed.replace("p.parquet", "q.parquet")
    assert facts_of(other, capsys)["run"] == "runs/rr-search"
    assert pl.read_parquet(folder / "q.parquet").equals(table)


def test_a_test_set_needs_the_ids_of_the_training_set(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prepared(folder / "rows")
    write_prepared(folder / "others", num_rows=60)
    command = "train --data rows --unit example --model lr --method rr --epsilon 1 --quiet"
    facts = facts_of(f"{command} --test others", capsys)
    assert RunFolder.open(facts["run"]).facts["num_rows"] == 120
    with (
        hold_partial(folder / "strange", SETTINGS, resume=True) as partial,
        DatasetWriter(
            partial, dataclasses.replace(CONTENTS, encoder_fingerprint="sha256:other")
        ) as writer,
    ):
        writer.append(block(0, 40), position={"row": 40}, num_bad_lines=0)
        writer.finish({})
    assert "other ids" in error_of(f"{command} --test strange", 4, capsys)


def test_a_file_is_not_both_trained_and_tested_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "schema.toml").write_text('label = "click"\npublic = ["site"]\n')
    for name in ("a", "b", "c"):
        rows = [f"{name}{row % 5},{row % 2}\n" for row in range(60)]
        (folder / f"{name}.csv").write_text("site,click\n" + "".join(rows))
    (folder / "copy.csv").write_bytes((folder / "b.csv").read_bytes())
    prepare = "data prepare --schema schema.toml --quiet"
    assert run(f"{prepare} a.csv b.csv --output rows") == 0
    assert run(f"{prepare} c.csv --output other --like rows") == 0
    assert run(f"{prepare} c.csv copy.csv --output both --like rows") == 0
    capsys.readouterr()
    command = "train --data rows --unit example --model lr --method rr --epsilon 1 --quiet"
    error = error_of(f"{command} --test both", 4, capsys)
    assert "the test rows of both are from copy.csv, which is a file of the training rows" in error
    assert not (folder / "runs").exists()
    facts_of(f"{command} --test other", capsys)


def test_no_test_rows_means_no_figures(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"train {SYNTH} --model lr --method rr --epsilon 1 --test-fraction 0"
    facts = facts_of(command, capsys)
    assert (facts["auc_loss"], facts["log_loss"]) == (None, None)
    assert "needs test rows" in error_of(f"{command} --predictions p.parquet", 2, capsys)


def test_a_known_log_keeps_its_roles(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("data synth search --rows 600 --output log.parquet --quiet") == 0
    schema = {
        "label": "Sale",
        "public": ["device_type", "product_age_group", "product_gender", "product_brand"],
        "sensitive": ["audience_id", "user_id"],
        "time": "click_timestamp",
    }
    (folder / "schema.json").write_text(json.dumps(schema))
    prepare = "data prepare log.parquet --layout search --schema schema.json --output rows"
    assert run(f"{prepare} --allow-public device_type --quiet") == 0
    capsys.readouterr()
    command = "train --data rows --unit example --model lr --method rr --epsilon 1 --quiet"
    assert "'device_type' is public in the schema" in error_of(command, 2, capsys)
    assert run(f"{command} --allow-public device_type") == 0


def budget(epsilon: float) -> Ledger:
    ledger = Ledger.create("ledger.db")
    ledger.create_budget(
        Budget(
            name="all",
            unit=Unit.example(),
            adjacency=Adjacency.REPLACE,
            epsilon=epsilon,
            delta=1e-6,
            purpose="training",
        )
    )
    return ledger


def test_the_ledger_pays_once_and_refuses_the_second_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = budget(1.5)
    command = f"train {SYNTH} --model lr --method rr --epsilon 1 --ledger ledger.db"
    facts_of(command, capsys)
    facts_of(f"{command} --resume --output runs/rr-search", capsys)
    assert len(ledger.spends("all")) == 1
    assert "needs epsilon=" in error_of(command, 3, capsys)
    assert len(ledger.spends("all")) == 1
    assert not (folder / "runs" / "rr-search-2").exists()


def test_a_run_goes_on_only_with_its_own_settings_and_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = f"train {SYNTH} --model lr --method rr --epsilon 1 --output runs/a"
    facts_of(command, capsys)
    assert "runs/a holds a run already" in error_of(command, 4, capsys)
    assert "epsilon=1.0, not 2.0" in error_of(
        f"{command} --resume".replace("--epsilon 1", "--epsilon 2"), 4, capsys
    )
    other = f"{command} --resume --synth-seed 5"
    assert "another data_fingerprint" in error_of(other, 4, capsys)
    assert "another seed" in error_of(f"{command} --resume --seed 1", 4, capsys)


def test_sigterm_before_the_first_step_ends_with_the_code_of_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("tulle.train.verbs.TrainingData", stop)
    assert "stopped as asked" in error_of(f"train {SYNTH} --method rr --epsilon 1", 130, capsys)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_handler_of_sigterm_is_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RunInterruptedError), stopping_cleanly("stopped as asked"):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_without_pytorch_mosaic_trains_and_other_methods_say_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    error = error_of(f"train {SYNTH} --method rr --epsilon 1", 1, capsys)
    assert "method rr needs PyTorch, which is not installed: pip install 'tulle[train]'" in error
    assert facts_of(f"train {SYNTH} --epsilon 3", capsys)["method"] == "mosaic"


def test_mosaic_plans_trains_and_predicts_in_a_process_without_pytorch(folder: Path) -> None:
    code = """
        import sys
        sys.modules["torch"] = None
        import tulle
        schema = {"label": "y", "public": ["a"], "sensitive": ["b"]}
        rows = {"a": ["u", "v"] * 300, "b": ["s", "t", "t"] * 200, "y": [0, 1, 0, 0] * 150}
        import polars as pl
        table = pl.DataFrame(rows)
        tulle.train.plan(table, schema, epsilon=3)
        tulle.train.fit(table, schema, epsilon=3, output="model")
        assert tulle.load("model").predict_proba(table).shape == (600, 2)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr


def test_a_baseline_prints_that_it_has_no_privacy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"train {SYNTH} --model lr --method nonprivate") == 0
    shown = capsys.readouterr().out
    assert "epsilon                   none: no privacy\n" in shown
    assert "verdict                   NOT A PRIVATE RELEASE\n" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--device cuda", "--device 'cuda' is not there: torch finds no GPU; use 'cpu'."),
        ("--device cuda --processes 2", "torch finds no GPU"),
        ("--device mps", "--device 'mps' is unknown; use 'cpu', 'cuda' or e.g. 'cuda:1'."),
    ],
)
def test_a_missing_device_costs_nothing_and_leaves_nothing(
    options: str,
    words: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    ledger = budget(1.5)
    command = f"train {SYNTH} --model lr --method rr --epsilon 1 --ledger ledger.db {options}"
    assert words in error_of(command, 2, capsys)
    assert ledger.spends("all") == ()
    assert not (folder / "runs").exists()
