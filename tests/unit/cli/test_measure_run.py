"""`tulle measure run`: what a user sees, also when something is wrong."""

import json
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
        assert list((folder / "second").iterdir()) == []

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
        assert not (folder / "out" / "measurement.json").exists()

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


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "plan", "attribute", "reach"):
        assert run_with(["measure", command, "--help"]) == 0
        assert f"Example: tulle measure {command}" in " ".join(capsys.readouterr().out.split())
    assert run_with(["measure", "--help"]) == 0
    assert "attribute" in capsys.readouterr().out
