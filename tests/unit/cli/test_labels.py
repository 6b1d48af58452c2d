"""`tulle labels`: what a user sees, also when something is wrong."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.cli.main import run_with

SCHEMA = """
label = "sale"
public = ["campaign"]
unit = "user"
time = "second"
[kinds]
user = "integer"
second = "timestamp"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(2)
    pl.DataFrame(
        {
            "campaign": rng.integers(0, 9, 2000),
            "user": rng.integers(0, 300, 2000),
            "second": np.sort(rng.integers(0, 14 * 86_400, 2000)),
            "sale": (rng.random(2000) < 0.2).astype(np.int64),
            "amount": rng.integers(0, 21, 2000),
        }
    ).write_parquet(tmp_path / "clicks.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "amounts.toml").write_text('label = "amount"\npublic = ["campaign"]\n')
    return tmp_path


def run(
    folder: Path, action: str, *options: str, schema: str = "schema.toml", epsilon: str = "2"
) -> int:
    table = [str(folder / "clicks.parquet"), "--schema", str(folder / schema)]
    return run_with(["labels", action, *table, "--epsilon", epsilon, *options])


def out(folder: Path) -> list[str]:
    return ["--out", str(folder / "noisy.parquet")]


class TestRelease:
    @pytest.mark.parametrize(
        "mechanism",
        [
            ["rr"],
            ["unit-rr", "--unit", "user per 7 days", "--max-rows-per-unit", "3"],
            ["joint-rr", "--unit", "user", "--max-conversions-per-unit", "2"],
            ["joint-subset", "--unit", "user per day"],
        ],
        ids=lambda options: options[0],
    )
    def test_binary_labels_come_with_targets_record_and_card(
        self, folder: Path, mechanism: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        code = run(folder, "release", "--mechanism", *mechanism, *out(folder), "--json")
        shown = capsys.readouterr()
        assert code == 0, shown.err
        facts = json.loads(shown.out)
        assert facts["verdict"].startswith("Private release: epsilon=2, delta=0 for the labels")
        noisy = pl.read_parquet(folder / "noisy.parquet")
        assert set(noisy["noisy_label"].unique()) == {0, 1}
        assert noisy.height == facts["rows"]
        assert json.loads((folder / "noisy.card.json").read_text())["is_private"]
        assert (folder / "noisy.release.json").exists()

    @pytest.mark.parametrize(
        ("mechanism", "has_target"),
        [
            ("rr-on-bins", True),
            ("unbiased", True),
            ("laplace", True),
            ("discrete-laplace", True),
            ("staircase", True),
            ("laplace-clipped", False),
            ("staircase-clipped", False),
        ],
    )
    def test_numbers_are_released_in_their_range(
        self,
        folder: Path,
        mechanism: str,
        has_target: bool,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        range_options = ["--label-low", "0", "--label-high", "20"]
        code = run(
            folder,
            "release",
            *("--mechanism", mechanism, *range_options, *out(folder)),
            schema="amounts.toml",
        )
        assert code == 0, capsys.readouterr().err
        noisy = pl.read_parquet(folder / "noisy.parquet")
        assert ("target" in noisy.columns) == has_target
        if has_target:
            raw = pl.read_parquet(folder / "clicks.parquet")["amount"]
            spread = noisy["target"].std() / np.sqrt(noisy.height)  # type: ignore[operator]
            slack = 8.0 if mechanism == "rr-on-bins" else 6 * spread
            assert abs(noisy["target"].mean() - raw.mean()) < slack  # type: ignore[operator]

    def test_a_learnt_prior_is_part_of_the_cost(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = ["--label-low", "0", "--label-high", "20", "--prior-epsilon", "0.5"]
        code = run(
            folder,
            "release",
            *("--mechanism", "unbiased", *options, *out(folder)),
            schema="amounts.toml",
        )
        assert code == 0, capsys.readouterr().err
        record = json.loads((folder / "noisy.release.json").read_text())
        kinds = [event["kind"] for event in record["plan"]["event"]["events"]]
        assert kinds == ["DiscreteLaplace", "RandomizedResponse"]
        assert record["plan"]["guarantee"]["epsilon"] == 2.0
        assert record["mechanism"]["epsilon"] == 1.5
        assert len(record["mechanism"]["prior_release"]["noisy_counts"]) == 21

    def test_a_given_prior_is_an_assumption_on_the_card(self, folder: Path) -> None:
        (folder / "prior.json").write_text(json.dumps([0.5, *[0.025] * 20]))
        options = ["--label-low", "0", "--label-high", "20", "--prior", str(folder / "prior.json")]
        code = run(
            folder,
            "release",
            *("--mechanism", "rr-on-bins", *options, *out(folder)),
            schema="amounts.toml",
        )
        assert code == 0
        card = json.loads((folder / "noisy.card.json").read_text())
        assert not card["is_private"]
        assert "prior" in card["reasons"][0]

    def test_a_seed_shows_on_the_card(self, folder: Path) -> None:
        assert run(folder, "release", "--mechanism", "rr", "--seed", "3", *out(folder)) == 0
        card = json.loads((folder / "noisy.card.json").read_text())
        assert card["verdict"] == "NOT A PRIVATE RELEASE"

    @pytest.mark.parametrize(
        ("options", "code", "message"),
        [
            (["--mechanism", "rrr"], 2, "did you mean 'rr'"),
            (["--mechanism", "unbiased"], 2, "--label-low and --label-high"),
            (["--mechanism", "class-rr"], 2, "--num-classes"),
            (["--mechanism", "joint-rr"], 2, "has one row"),
            (["--mechanism", "rr", "--unit", "user"], 2, "may own several"),
            (["--mechanism", "rr", "--unit", "household"], 2, "is unknown"),
            (["--mechanism", "rr", "--prior-epsilon", "1"], 2, "--prior-epsilon is for"),
            (
                ["--mechanism", "rr", "--purpose", "x"],
                2,
                "is for a ledger; give --ledger",
            ),
            (["--mechanism", "rr", "--num-classes", "5"], 2, "--num-classes is for class-rr"),
            (["--mechanism", "rr", "--label-step", "2"], 2, "--label-step is for"),
            (["--mechanism", "unit-rr", "--unit", "user", "--row-share", "equal"], 2, "the cap"),
            (["--mechanism", "rr", "--ledger", "none.db"], 4, "none.db"),
            (["--mechanism", "laplace", "--label-low", "0", "--label-high", "0"], 2, "low < high"),
        ],
    )
    def test_wrong_options_end_with_the_way_out(
        self,
        folder: Path,
        options: list[str],
        code: int,
        message: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        assert run(folder, "release", *options, *out(folder)) == code
        assert message in capsys.readouterr().err
        assert not (folder / "noisy.parquet").exists()

    def test_labels_outside_the_range_are_a_broken_contract(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = ["--mechanism", "laplace", "--label-low", "0", "--label-high", "19"]
        assert run(folder, "release", *options, *out(folder), schema="amounts.toml") == 4
        message = capsys.readouterr().err
        assert "from 0 to 19" in message
        assert "20" not in message

    def test_a_refused_budget_has_its_own_exit_code(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ledger = str(folder / "ledger.db")
        create = ["budget", "create", ledger, "--name", "all", "--unit", "example"]
        assert run_with([*create, "--adjacency", "replace", "--epsilon", "1", "--delta", "0"]) == 0
        code = run(folder, "release", "--mechanism", "rr", "--ledger", ledger, *out(folder))
        assert code == 3
        assert "1 of 1 left" in capsys.readouterr().err


class TestPlan:
    def test_no_label_is_read(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        table = pl.read_parquet(folder / "clicks.parquet")
        broken = table.with_columns(sale=pl.lit(None, dtype=pl.Int64))
        broken.write_parquet(folder / "clicks.parquet")
        assert run(folder, "plan", "--unit", "user per 7 days", "--json") == 0
        plan = json.loads(capsys.readouterr().out)
        variances = [option["effective_variance"] for option in plan["options"]]
        assert plan["recommended"]["effective_variance"] <= min(variances) * 1.001
        assert run(folder, "plan", "--mechanism", "joint-rr", "--unit", "user", "--json") == 0
        assert json.loads(capsys.readouterr().out)["guarantee"]["epsilon"] == 2.0

    def test_one_row_units_get_randomized_response(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(folder, "plan", "--json", epsilon="1") == 0
        (option,) = json.loads(capsys.readouterr().out)["options"]
        assert option["variance"] == pytest.approx(np.e / (np.e - 1) ** 2)

    def test_numbers_are_compared_by_bias_and_variance(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = ["--label-low", "0", "--label-high", "20"]
        assert run(folder, "plan", *options, schema="amounts.toml") == 0
        shown = capsys.readouterr().out
        assert "recommended: unbiased" in shown
        assert "rr-on-bins" in shown

    @pytest.mark.parametrize("epsilon", ["0", "-1", "nan"])
    def test_an_epsilon_that_no_release_has_is_refused(
        self, folder: Path, epsilon: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(folder, "plan", f"--epsilon={epsilon}") == 2
        assert "--epsilon" in capsys.readouterr().err

    def test_a_range_that_its_steps_do_not_fill_names_the_options(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = ["--label-low", "0", "--label-high", "20", "--label-step", "3"]
        assert run(folder, "plan", *options, schema="amounts.toml") == 2
        assert "--label-step" in capsys.readouterr().err

    def test_a_missing_file_is_named(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "clicks.parquet").unlink()
        assert run(folder, "plan") == 4
        assert "clicks.parquet does not exist" in capsys.readouterr().err

    def test_classes_and_numbers_have_no_mechanism_for_users(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(folder, "plan", "--num-classes", "6", "--json") == 0
        (option,) = json.loads(capsys.readouterr().out)["options"]
        keep, lie = np.exp(2) / (np.exp(2) + 5), 1 / (np.exp(2) + 5)
        assert option["variance"] == pytest.approx(lie * (1 - lie) / (keep - lie) ** 2)
        assert run(folder, "plan", "--num-classes", "6", "--unit", "user") == 2
        assert "row by row" in capsys.readouterr().err

    def test_no_clipped_noise_is_recommended_at_any_epsilon(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = ["--label-low", "0", "--label-high", "20"]
        assert run(folder, "plan", *options, schema="amounts.toml", epsilon="50") == 0
        recommended = capsys.readouterr().out.partition("recommended: ")[2]
        assert recommended
        assert "clipped" not in recommended.splitlines()[0]


class TestEvaluate:
    def test_noisy_and_raw_labels_agree(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rng = np.random.default_rng(4)
        chances = rng.beta(1, 4, 40_000)
        labels = (rng.random(40_000) < chances).astype(np.int64)
        table = pl.DataFrame({"campaign": 0, "user": 0, "second": 0, "sale": labels})
        table.write_parquet(folder / "clicks.parquet")
        predictions = pl.DataFrame({"row": np.arange(40_000), "probability": chances})
        predictions.write_parquet(folder / "predictions.parquet")
        assert run(folder, "release", "--mechanism", "rr", *out(folder)) == 0
        capsys.readouterr()
        command = ["labels", "evaluate", str(folder / "predictions.parquet"), "--json"]
        raw_options = ["--raw", str(folder / "clicks.parquet")]
        assert run_with([*command, *raw_options, "--schema", str(folder / "schema.toml")]) == 0
        exact = json.loads(capsys.readouterr().out)
        assert run_with([*command, "--release", str(folder / "noisy.parquet")]) == 0
        estimated = json.loads(capsys.readouterr().out)
        for name in ("auc_loss", "log_loss"):
            error = estimated[name]["standard_error"]
            assert abs(estimated[name]["value"] - exact[name]) < 6 * error
            assert error < 0.1

    def test_a_table_that_is_not_that_of_its_record_is_refused(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(folder, "release", "--mechanism", "rr", *out(folder)) == 0
        noisy = pl.read_parquet(folder / "noisy.parquet")
        noisy.reverse().write_parquet(folder / "noisy.parquet")
        predictions = pl.DataFrame({"row": [0, 1], "probability": [0.5, 0.5]})
        predictions.write_parquet(folder / "predictions.parquet")
        command = ["labels", "evaluate", str(folder / "predictions.parquet")]
        assert run_with([*command, "--release", str(folder / "noisy.parquet")]) == 4
        assert "not the table of its record" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("rows", "problem"), [([0.5, 1.0], "no whole number"), ([3, 3], "each row once")]
    )
    def test_rows_are_whole_and_named_once(
        self, folder: Path, rows: list[float], problem: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        predictions = pl.DataFrame({"row": rows, "probability": [0.5, 0.5]})
        predictions.write_parquet(folder / "predictions.parquet")
        command = ["labels", "evaluate", str(folder / "predictions.parquet")]
        raw_options = ["--raw", str(folder / "clicks.parquet")]
        assert run_with([*command, *raw_options, "--schema", str(folder / "schema.toml")]) == 4
        assert problem in capsys.readouterr().err

    def test_predictions_for_another_table_are_refused(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        predictions = pl.DataFrame({"row": [5000], "probability": [0.5]})
        predictions.write_parquet(folder / "predictions.parquet")
        command = ["labels", "evaluate", str(folder / "predictions.parquet")]
        raw_options = ["--raw", str(folder / "clicks.parquet")]
        code = run_with([*command, *raw_options, "--schema", str(folder / "schema.toml")])
        assert code == 4
        assert "does not have" in capsys.readouterr().err
        assert run_with(command) == 2
