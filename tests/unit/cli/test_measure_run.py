"""`tulle measure run`: what a user sees, also when something is wrong."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tulle.cli.main import run_with
from unit.measure.queries.small_measurements import (
    PRIVATE_QUERIES,
    QUERIES,
    new_ledger,
    settings,
    small_log,
    write_log,
    write_settings,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_log(tmp_path)
    write_settings(tmp_path, settings("conversions", "rate"))
    return tmp_path


def run(folder: Path, *options: str, out: str | None = "out") -> int:
    place = [] if out is None else ["--out", str(folder / out)]
    return run_with(["measure", "run", str(folder / "campaigns.toml"), *place, *options])


def facts(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(folder, *options, "--json", "--quiet") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


class TestResults:
    def test_numbers_come_with_tables_record_and_card(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(folder) == 0
        printed = capsys.readouterr()
        assert "conversions (95% intervals)" in printed.out
        assert "epsilon" in printed.out
        assert "adding noise" in printed.err
        assert sorted(path.name for path in (folder / "out").iterdir()) == [
            "card.json",
            "card.md",
            "conversions.parquet",
            "measurement.json",
            "rate.parquet",
        ]
        table = pl.read_parquet(folder / "out" / "conversions.parquet")
        stored = json.loads((folder / "out" / "measurement.json").read_text())
        assert table["value"].to_list() == [row[2] for row in stored["tables"][0]["values"]]
        card = json.loads((folder / "out" / "card.json").read_text())
        assert "NOT A PRIVATE RELEASE" not in json.dumps(card)

    def test_every_kind_of_query_prints_and_is_json(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_settings(folder, settings(*QUERIES, *PRIVATE_QUERIES, epsilon=3))
        found = facts(folder, capsys)
        assert list(found["answers"]) == [*QUERIES, *PRIVATE_QUERIES]
        assert found["epsilon"] == 3
        assert found["stored_before"] is False
        assert all(Path(path).exists() for path in (*found["tables"], found["card"]))
        shutil.rmtree(folder / "out")
        assert run(folder, "--format", "csv") == 0
        assert (folder / "out" / "value-levels.csv").exists()

    def test_a_seed_repeats_the_noise_and_shows_on_the_card(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first = facts(folder, capsys, "--seed", "3")
        shutil.rmtree(folder / "out")
        second = facts(folder, capsys, "--seed", "3")
        assert first["answers"]["conversions"] == second["answers"]["conversions"]
        assert "NOT A PRIVATE RELEASE" in first["verdict"]

    def test_a_seed_repeats_the_random_choices_too(self, folder: Path) -> None:
        # One slice of four for each user: another salt keeps others.
        text = settings("conversions", epsilon=500)
        write_settings(folder, text.replace("max_slices_per_unit = 3", "max_slices_per_unit = 1"))
        files = []
        for out in ("a", "b"):
            assert run(folder, "--seed", "3", "--quiet", out=out) == 0
            files.append((folder / out / "measurement.json").read_bytes())
        assert files[0] == files[1]
        assert b"MD5 keyed with fixed seed 3" in files[0]
        values = set()
        for out in ("c", "d", "e"):
            assert run(folder, "--quiet", out=out) == 0
            table = pl.read_parquet(folder / out / "conversions.parquet")
            values.add(tuple(table["value"].round().to_list()))
        assert len(values) > 1

    def test_numbers_of_one_kind_have_the_same_decimals(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_settings(folder, settings("rate", epsilon=100))
        assert run(folder, "--quiet") == 0
        printed = capsys.readouterr().out
        rows = [cells for line in printed.splitlines() if len(cells := line.split()) == 5]
        for number in ("rate", "conversions", "impressions"):
            shown = [c for row in rows if row[1] == number for c in row[2:] if c != "-"]
            assert len(shown) > 3
            assert len({len(cell.partition(".")[2]) for cell in shown}) == 1, number
        assert "-0.0 " not in printed

    def test_sums_of_given_slices_are_not_called_all(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_settings(folder, settings("levels", "found levels", epsilon=200))
        found = facts(folder, capsys)
        assert found["answers"]["levels"][0]["geo"] is None
        assert run(folder, "--quiet", out="more") == 0
        given, private = capsys.readouterr().out.split("found levels")
        assert "(listed)" in given
        assert "(found)" not in given
        assert "(found)" in private
        assert "(all)" not in given + private

    def test_a_table_without_slices_says_why(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_settings(folder, settings("found conversions", "found levels", epsilon=0.1))
        assert run(folder, "--quiet") == 0
        assert capsys.readouterr().out.count("no slice had enough units") == 2

    def test_the_card_shows_settings_of_learnt_weights_in_words(self, folder: Path) -> None:
        text = settings("conversions", rule="data-driven", epsilon=20).replace(
            'lookback = "3 days"',
            'lookback = "3 days"\nchannel = "kind"\nchannels = ["click", "view"]',
        )
        write_settings(folder, text)
        assert run(folder, "--quiet") == 0
        card = (folder / "out" / "card.md").read_text()
        assert "weights of kind by shapley values, learnt for 0.2 of epsilon" in card
        assert "channels: click, view" in card
        assert "CoalitionValue" not in card

    def test_channels_are_learnt_and_shown(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = settings("conversions", rule="data-driven", epsilon=20).replace(
            'lookback = "3 days"',
            'lookback = "3 days"\nchannel = "kind"\nchannels = ["click", "view"]',
        )
        write_settings(folder, text)
        found = facts(folder, capsys)
        assert list(found["answers"]) == ["weights of channels", "conversions"]
        assert {row["channel"] for row in found["answers"]["weights of channels"]} == {
            "click",
            "view",
        }


class TestLedger:
    def test_the_same_command_says_that_nothing_was_spent(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ledger = new_ledger(folder / "ledger.db", epsilon=1.5)
        charged = ["--ledger", str(folder / "ledger.db")]
        first = facts(folder, capsys, *charged)
        second = facts(folder, capsys, *charged)
        assert (first["stored_before"], second["stored_before"]) == (False, True)
        assert first["answers"] == second["answers"]
        assert run(folder, *charged) == 0
        assert "nothing was spent" in capsys.readouterr().err
        assert run(folder, *charged, out="copy") == 0
        assert (folder / "copy" / "conversions.parquet").exists()
        assert len(ledger.spends("all")) == 1

    def test_a_refused_budget_has_its_own_exit_code(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ledger = new_ledger(folder / "ledger.db", epsilon=1.5)
        charged = ["--ledger", str(folder / "ledger.db")]
        assert run(folder, *charged) == 0
        assert run(folder, *charged, "--again", out="second") == 3
        assert "epsilon" in capsys.readouterr().err
        assert len(ledger.spends("all")) == 1
        assert not (folder / "second").exists()

    def test_a_refused_budget_names_the_epsilon_that_fits(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ledger = new_ledger(folder / "ledger.db", epsilon=1.5)
        charged = ["--ledger", str(folder / "ledger.db")]
        assert run(folder, *charged) == 0
        write_settings(folder, settings("value"))
        capsys.readouterr()
        assert run(folder, *charged, out="second") == 3
        message = capsys.readouterr().err
        assert "has 0.5 of 1.5 left" in message  # what the ledger says stays
        (epsilon,) = re.findall(r"Set \[privacy\] epsilon to (\S+) or less", message)
        assert 0.49 < float(epsilon) <= 0.5
        write_settings(folder, settings("value", epsilon=float(epsilon)))
        assert run(folder, *charged, out="second") == 0
        assert len(ledger.spends("all")) == 2

    def test_again_pays_for_fresh_noise(self, folder: Path) -> None:
        ledger = new_ledger(folder / "ledger.db", epsilon=3)
        charged = ["--ledger", str(folder / "ledger.db"), "--purpose", "weekly report"]
        assert run(folder, *charged) == 0
        assert run(folder, *charged, "--again", out="second") == 0
        purposes = [spend.request.purpose for spend in ledger.spends("all")]
        assert purposes == ["weekly report"] * 2
        first, second = (folder / name / "measurement.json" for name in ("out", "second"))
        assert first.read_bytes() != second.read_bytes()

    @pytest.mark.parametrize("option", [["--again"], ["--purpose", "x"], ["--at", "2026-01-01"]])
    def test_its_options_need_a_ledger(
        self, folder: Path, capsys: pytest.CaptureFixture[str], option: list[str]
    ) -> None:
        assert run(folder, *option) == 2
        assert "ledger" in capsys.readouterr().err

    def test_a_spoilt_log_costs_nothing(self, folder: Path) -> None:
        ledger = new_ledger(folder / "ledger.db", epsilon=3)
        impressions, conversions = small_log()
        write_log(folder, (impressions.with_columns(user=pl.lit(None, pl.Int64)), conversions))
        assert run(folder, "--ledger", str(folder / "ledger.db")) == 4
        assert ledger.spends("all") == ()


class TestErrors:
    @pytest.mark.parametrize(
        ("change", "options", "code", "said"),
        [
            (("epsilon =", "epsilom ="), [], 2, "did you mean 'epsilon'"),
            (("epsilon = 1.0", "epsilon = 0"), [], 2, "epsilon"),
            (("[privacy]", "[privacy"), [], 2, "not TOML"),
            (('unit = "user"', 'unit = "person"'), [], 2, "person"),
            (('"impressions.parquet"', '"nothing.parquet"'), [], 4, "nothing.parquet"),
            (('"campaign"', '"kampagne"'), [], 2, "keys"),
            (("", ""), ["--format", "xlsx"], 2, "xlsx"),
            (("", ""), ["--engine", "abacus"], 2, "abacus"),
            (("", ""), ["--memory-limit", "plenty"], 2, "memory"),
            (("", ""), ["--ledger", "nowhere.db"], 4, "nowhere.db"),
            (("", ""), ["--emit-sql", "cobol"], 2, "cobol"),
            (("", ""), ["--nothing"], 2, "--nothing"),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_each_is_one_line_with_an_exit_code(
        self,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        change: tuple[str, str],
        options: list[str],
        code: int,
        said: str,
    ) -> None:
        text = settings("conversions", "rate")
        write_settings(folder, text.replace(*change) if change[0] else text)
        assert run(folder, *options) == code
        printed = capsys.readouterr()
        assert said in printed.err
        assert printed.err.splitlines()[-1].startswith("error: ")
        assert not (folder / "out").exists()

    def test_only_folders_that_it_made_are_taken_away(self, folder: Path) -> None:
        (folder / "mine").mkdir()
        (folder / "impressions.parquet").unlink()
        assert run(folder, out="mine/new/newer") == 4
        assert list((folder / "mine").iterdir()) == []
        assert run(folder, out="mine") == 4
        assert (folder / "mine").is_dir()

    def test_wrong_bounds_name_their_query(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for old, new, said in (
            ("max_per_slice = 2", "max_per_slice = 0", "query 'rate': max_per_slice=0"),
            ("{ max_per_slice = 5,", "{ max_per_slice = -5,", "query 'rate': base: max_per_slice"),
        ):
            write_settings(folder, settings("rate").replace(old, new))
            assert run(folder) == 2
            assert said in capsys.readouterr().err

    def test_a_folder_is_needed(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(folder, out=None) == 2
        assert "--out" in capsys.readouterr().err

    def test_a_settings_file_that_is_not_there_is_named(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(tmp_path) == 4
        assert "campaigns.toml does not exist" in capsys.readouterr().err

    def test_results_are_not_written_over(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(folder) == 0
        content = (folder / "out" / "measurement.json").read_bytes()
        assert run(folder) == 4
        assert "exists" in capsys.readouterr().err
        assert (folder / "out" / "measurement.json").read_bytes() == content


class TestHistory:
    TREE = settings("levels").replace("levels =", 'split = "cube-root"\nhistory = "FILE"\nlevels =')

    def test_an_earlier_measurement_needs_nobody_to_vouch(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_settings(folder, settings("levels"))
        assert run(folder, out="before") == 0
        write_settings(folder, self.TREE.replace("FILE", "before/measurement.json"))
        found = facts(folder, capsys)
        assert "NOT A PRIVATE RELEASE" not in found["verdict"]

    def test_a_public_table_is_an_assumption_on_the_card(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "before.csv").write_text("geo,campaign,count\nn,a,40\ns,b,7\n")
        write_settings(folder, self.TREE.replace("FILE", "before.csv"))
        found = facts(folder, capsys)
        assert "NOT A PRIVATE RELEASE" in found["verdict"]
        assert "public" in (folder / "out" / "card.md").read_text()

    def test_a_missing_one_is_named(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write_settings(folder, self.TREE.replace("FILE", "gone.csv"))
        assert run(folder) == 4
        assert "gone.csv" in capsys.readouterr().err


class TestSql:
    @pytest.mark.parametrize("dialect", ["bigquery", "snowflake", "trino", "spark"])
    def test_it_is_printed_for_other_engines_and_nothing_is_read(
        self, folder: Path, capsys: pytest.CaptureFixture[str], dialect: str
    ) -> None:
        (folder / "impressions.parquet").unlink()
        (folder / "conversions.parquet").unlink()
        assert run(folder, "--emit-sql", dialect, out=None) == 0
        printed = capsys.readouterr().out
        assert "SELECT" in printed
        assert "campaign" in printed
        assert not (folder / "out").exists()

    def test_learnt_weights_cannot_be_emitted(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = settings("conversions", rule="data-driven").replace(
            'lookback = "3 days"',
            'lookback = "3 days"\nchannel = "kind"\nchannels = ["click", "view"]',
        )
        write_settings(folder, text)
        assert run(folder, "--emit-sql", "duckdb", out=None) == 2
        assert "learnt between two passes over the log" in capsys.readouterr().err


def test_the_help_of_emitted_sql_names_every_dialect(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(["measure", "run", "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "bigquery, snowflake, trino, spark or duckdb" in printed
    assert "[default: the name of the command, e.g. measure]" in printed


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "plan", "attribute", "reach"):
        assert run_with(["measure", command, "--help"]) == 0
        assert f"Example: tulle measure {command}" in " ".join(capsys.readouterr().out.split())
    assert run_with(["measure", "--help"]) == 0
    assert "attribute" in capsys.readouterr().out
