"""`tulle measure simulate`: what a user sees, also when something is wrong."""

import json
from typing import Any

import pytest

from tulle.cli.measure_simulate import simulate_app
from tulle.data.synth.impressions import ImpressionConfig
from tulle.data.synth.writing import write_impression_logs
from tulle.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("log")
    paths = [folder / "impressions.csv", folder / "conversions.csv"]
    write_impression_logs(ImpressionConfig(num_users=3000), *paths, seed=1)
    return [str(path) for path in paths]


def run(*arguments: str) -> None:
    simulate_app(list(arguments), standalone_mode=False)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    run(*arguments, "--json")
    captured = capsys.readouterr()
    assert "keep them with the data" in captured.err
    facts: dict[str, Any] = json.loads(captured.out)
    return facts


class TestSummary:
    def test_errors_fall_with_epsilon(
        self, log: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        errors = [
            printed(capsys, "summary", *log, "--epsilon", epsilon)["overall"]["rmsre"]
            for epsilon in ("1", "10", "64")
        ]
        # Noise is nearly all of the error, and its size is 1 / epsilon.
        assert errors[0] > 9 * errors[1] > 30 * errors[2] > 0

    def test_values_have_rows_of_their_own(
        self, log: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        facts = printed(capsys, "summary", *log, "--max-value", "100", "--value-share", "0.25")
        goals = {row["goal"]: row for row in facts["slices"]}
        assert set(goals) == {"conversions", "value"}
        # Three quarters of the budget for counts; one quarter, for up to 100 each, for values.
        ratio = goals["value"]["noise_stddev"] / goals["conversions"]["noise_stddev"]
        assert ratio == pytest.approx(300, rel=1e-4)
        assert facts["overall"]["rmsre_of_value"] > facts["overall"]["rmsre_of_conversions"]

    def test_the_table_has_the_largest_slices_first(
        self, log: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        run("summary", *log, "--top", "3", "--seed", "1")
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "conversions by campaign"
        counts = [float(line.split()[1]) for line in lines[2:5]]
        assert counts == sorted(counts, reverse=True)
        assert lines[5].startswith("epsilon")

    def test_a_seed_repeats_the_noise_and_none_does_not(
        self, log: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        runs = [
            printed(capsys, "summary", *log, *seed)["slices"][0]["noisy"]
            for seed in (["--seed", "5"], ["--seed", "5"], [], [])
        ]
        assert runs[0] == runs[1]
        assert len(set(runs)) == 3

    def test_slices_of_two_columns_are_named_by_both(
        self, log: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        facts = printed(capsys, "summary", *log, "--slice", "advertiser", "--slice", "geo")
        assert facts["slices"][0]["slice"].startswith("shop")
        assert " / region-" in facts["slices"][0]["slice"]

    def test_mistakes_are_named(self, log: list[str]) -> None:
        with pytest.raises(ConfigError, match=r"epsilon=100\.0"):
            run("summary", *log, "--epsilon", "100")
        with pytest.raises(ConfigError, match=r"value_share=1\.0"):
            run("summary", *log, "--max-value", "9", "--value-share", "1")
        with pytest.raises(ConfigError, match="'geo' is more than once"):
            run("summary", *log, "--slice", "geo", "--slice", "geo")
        with pytest.raises(DataError, match="no column 'region'"):
            run("summary", *log, "--slice", "region")
        with pytest.raises(DataError, match="no column 'sum'"):
            run("summary", *log, "--max-value", "9", "--value-column", "sum")


class TestEvent:
    def test_chances_and_states_are_those_of_the_registration(
        self, log: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        facts = printed(capsys, "event", *log, "--trigger-data", "conversion_type")
        assert facts["overall"]["click_states"] == 2925
        assert facts["overall"]["click_flip_prob"] == pytest.approx(0.0024263221679834087)
        assert {row["trigger_data"] for row in facts["trigger_data"]} == set(range(8))

    def test_one_window_and_one_report_have_less_noise(
        self, log: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        few = ("--window-days", "30", "--max-reports", "1", "--num-trigger-data", "1")
        errors = [
            printed(capsys, "event", *log, *options)["overall"]["rmsre"] for options in ((), few)
        ]
        assert errors[1] < errors[0] / 5

    def test_the_table_has_a_line_for_each_slice(
        self, log: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        run("event", *log, "--top", "2")
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == (
            [
                "slice",
                "conversions",
                "noisy",
                "noise",
                "stddev",
                "relative",
                "error",
                "lost",
                "share",
            ]
        )
        assert lines[3].startswith("epsilon")

    def test_too_much_information_is_refused(self, log: list[str]) -> None:
        windows = [option for day in (1, 2, 3, 4) for option in ("--window-days", str(day))]
        with pytest.raises(ConfigError, match=r"may tell 11\.5"):
            run("event", *log, *windows)


class TestW3c:
    def test_a_smaller_site_budget_loses_more(
        self, log: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        lost = [
            printed(capsys, "w3c", *log, "--slice", "publisher", "--site-budget", budget)[
                "overall"
            ]["share_lost_to_budget"]
            for budget in ("0.2", "100")
        ]
        assert lost[0] > lost[1] == 0

    def test_the_table_names_the_site_of_each_slice(
        self, log: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        run("w3c", *log, "--top", "2", "--credit", "2", "--credit", "1")
        lines = capsys.readouterr().out.splitlines()
        assert lines[1].split()[0].startswith("campaign-")
        assert lines[1].split()[1].startswith("shop")
        assert any(line.startswith("rmsre") for line in lines)


def test_all_simulators_see_the_same_conversions(
    log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    summary, event = (printed(capsys, name, *log)["slices"] for name in ("summary", "event"))
    w3c = printed(capsys, "w3c", *log)["slices"]
    true = {row["slice"]: row["true"] for row in summary}
    assert true == {row["slice"]: row["conversions"] for row in event}
    for row in w3c:
        assert true[row["slice"]] == row["true"]
    assert sum(row["true"] for row in w3c) == sum(true.values()) > 50
