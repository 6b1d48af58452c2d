"""The verbs of `tulle.measure`: what a command does, the same call in Python does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

import tulle
from tulle import measure
from tulle.cli.main import run_with
from tulle.errors import BudgetExceededError, ConfigError, DataError
from tulle.lab.browser_reports import simulate_event_reports, simulate_summary_reports
from tulle.measure.verbs import MeasureResult
from tulle.privacy.units import Unit
from unit.measure.queries.small_measurements import (
    new_ledger,
    settings,
    small_log,
    write_log,
    write_settings,
)

KEYS = {"campaign": ["a", "b", "c"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_log(tmp_path)
    return write_settings(tmp_path, settings("conversions", "value", "reach"))


def rows(num_users: int = 40) -> pl.DataFrame:
    """Rows of users who are all in campaign a, and one of whom has many rows."""
    users = [*range(num_users), *[0] * 500]
    return pl.DataFrame({"user_id": users, "campaign": ["a"] * len(users)})


def counted(result: MeasureResult) -> dict[str, float]:
    frame = result.to_polars()
    return dict(frame.select("campaign", "value").iter_rows())


def test_the_command_and_the_call_write_the_same(file: Path) -> None:
    by_command, by_call = file.parent / "command", file.parent / "call"
    assert run_with(["measure", "run", str(file), "--out", str(by_command), "--seed", "3"]) == 0
    result = measure.release(file, output=by_call, seed=3)
    assert result.path == by_call / "measurement.json"
    names = sorted(path.name for path in by_command.iterdir())
    assert names == sorted(path.name for path in by_call.iterdir())
    for name in names:
        if not name.startswith("card"):
            assert (by_call / name).read_bytes() == (by_command / name).read_bytes(), name


def test_the_command_and_the_call_count_the_same_reach(file: Path) -> None:
    log = file.parent / "impressions.parquet"
    options = {"epsilon": 1.0, "max_frequency": 4, "kinds": {"timestamp": "timestamp"}}
    result = measure.count_reach(log, **options, output=file.parent / "call", seed=3)  # type: ignore[arg-type]
    command = ["measure", "reach", str(log), "--epsilon", "1", "--max-frequency", "4"]
    command += ["--column-kind", "timestamp=timestamp"]
    assert run_with([*command, "--seed", "3", "--out", str(file.parent / "command")]) == 0
    assert result.path is not None
    stored = file.parent / "command" / "measurement.json"
    assert result.path.read_bytes() == stored.read_bytes()


def test_the_command_prints_the_plan_of_the_call(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(["measure", "plan", str(file), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    made = measure.plan(file)
    assert printed["plan"] == made.plan.to_dict()
    found = [(one.query, one.metric, one.noise_stddev) for one in measure.expected_errors(made)]
    names = ("query", "metric", "noise_stddev")
    assert [tuple(one[name] for name in names) for one in printed["queries"]] == found


def test_the_command_prints_the_script_of_the_call(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(["measure", "run", str(file), "--emit-sql", "bigquery"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == measure.emit_sql(file, "bigquery").rstrip("\n")


def test_the_command_and_the_call_count_the_same_rows(file: Path) -> None:
    log = file.parent / "impressions.parquet"
    (file.parent / "keys.csv").write_text("campaign\na\nb\n")
    result = measure.count(
        [log],
        epsilon=1,
        unit="user",
        user="user",
        by=["campaign"],
        keys=file.parent / "keys.csv",
        max_per_slice=3.0,
        max_slices_per_unit=2,
        output=file.parent / "call",
        form="csv",
        seed=3,
    )
    command = f"measure count {log} --epsilon 1 --unit user --user user --slice campaign --keys "
    command += f"{file.parent / 'keys.csv'} --max-per-slice 3 --max-slices-per-unit 2 --seed 3 "
    command += f"--format csv --output {file.parent / 'command'}"
    assert run_with(command.split()) == 0
    assert result.path is not None
    for name in ("measurement.json", "count.csv"):
        stored = file.parent / "command" / name
        assert result.path.with_name(name).read_bytes() == stored.read_bytes()


def test_the_command_and_the_call_share_the_same_credit(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["measure", "attribute", str(file), "--rule", "first-touch", "--rule", "last-touch"]
    command += ["--by", "campaign", "--output", str(file.parent / "command.parquet"), "--json"]
    assert run_with(command) == 0
    printed = json.loads(capsys.readouterr().out)
    given: Any = {"rules": ["first-touch", measure.LastTouch()]}
    credit = measure.attribute(file, by=["campaign"], output=file.parent / "call.parquet", **given)
    assert credit.totals is not None
    assert credit.to_polars().equals(credit.totals)
    assert printed["totals"] == credit.totals.to_dicts()
    assert printed["output"] == str(file.parent / "command.parquet")
    rows = measure.attribute(file, **given).to_polars()
    order = ["user", "conversion_time", "impression_time"]
    for name in ("command", "call"):
        stored = pl.read_parquet(file.parent / f"{name}.parquet")
        assert stored.sort(order).equals(rows.sort(order)), name
    assert not credit.is_private
    with pytest.raises(ConfigError, match="the rows of credit are in"):
        measure.attribute(file, output=file.parent / "more.parquet").to_polars()


def test_credit_of_two_tables_needs_an_attribution_and_no_settings() -> None:
    day, now = 86_400, 1_768_348_800
    impressions = pl.DataFrame({"user": 1, "timestamp": [now - age * day for age in (9, 4, 2)]})
    conversions = pl.DataFrame({"user": [1, 2], "timestamp": [now, now]})
    attribution = measure.Attribution(rule=measure.Linear(), lookback_seconds=5 * day)
    tables: Any = {"impressions": impressions, "conversions": conversions}
    credit = measure.attribute(attribution, rules=["linear", "last-touch"], **tables)
    rows = credit.to_polars().sort("impression_time").select("age_seconds", "linear", "last-touch")
    assert rows.rows() == [(4.0 * day, 0.5, 0.0), (2.0 * day, 0.5, 1.0)]
    renamed = impressions.rename({"user": "who"}), conversions.rename({"user": "who"})
    columns = measure.LogColumns(user="who")
    given: Any = {"impressions": renamed[0], "conversions": renamed[1], "columns": columns}
    assert measure.attribute(attribution, **given).row_key[0] == "who"
    with pytest.raises(ConfigError, match="give impressions and conversions"):
        measure.attribute(attribution)


@pytest.mark.parametrize("rules", [[], ["linear"]])
def test_weights_that_are_learnt_have_no_exact_credit(tmp_path: Path, rules: list[str]) -> None:
    write_log(tmp_path)
    text = settings("conversions", rule="data-driven").replace(
        'lookback = "3 days"',
        'lookback = "3 days"\nchannel = "kind"\nchannels = ["click", "view"]',
    )
    file = write_settings(tmp_path, text)
    if rules:
        assert measure.attribute(file, rules=rules).to_polars().height > 0
        return
    with pytest.raises(ConfigError, match="learns its weights within a release"):
        measure.attribute(file, rules=rules)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"columns": measure.LogColumns()}, "leave columns out"),
        ({"rules": ["lniear"]}, "did you mean 'linear'"),
        ({"rules": ["data-driven"]}, "needs its weights"),
        ({"by": ["campain"]}, "did you mean 'campaign'"),
        ({"by": ["geo", "geo"]}, "names 'geo' twice"),
        ({"output": "credit.csv"}, "must end in .parquet"),
        ({"output": "impressions.parquet"}, "exists"),
        ({"output": "nowhere/credit.parquet"}, "in no folder"),
    ],
    ids=str,
)
def test_credit_that_cannot_be_shared_is_refused(
    file: Path, given: dict[str, Any], said: str
) -> None:
    if "output" in given:
        given = {"output": file.parent / given["output"]}
    with pytest.raises((ConfigError, DataError), match=said):
        measure.attribute(file, **given)


def test_the_command_and_the_call_choose_the_same_clips(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, conversions = small_log()
    conversions.write_csv(tmp_path / "past.csv")
    command = f"measure clips {tmp_path / 'past.csv'} --value value --value items --slice type "
    assert run_with([*command.split(), "--epsilon", "1", "--max-per-unit", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    given: Any = {"epsilon": 1.0, "by": ["type"], "max_per_unit": 2.0}
    found = measure.choose_clips(conversions, ["value", "items"], **given)
    assert printed == found.to_dict()
    assert run_with([*command.split(), "--epsilon", "1", "--max-per-unit", "2"]) == 0
    assert capsys.readouterr().out == found.to_toml() + "\n"
    with pytest.raises(ConfigError, match="max_per_unit=0"):
        measure.choose_clips(conversions, ["value"], epsilon=1, max_per_unit=0)


SIMULATIONS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "summary": (
        simulate_summary_reports,
        {"epsilon": 5.0, "max_value": 100.0, "value_share": 0.25, "by": ["campaign"]},
        "--epsilon 5 --max-value 100 --value-share 0.25 --slice campaign",
    ),
    "event": (
        simulate_event_reports,
        {"trigger_data": "conversion_type", "window_days": [7], "max_reports": 1},
        "--trigger-data conversion_type --window-days 7 --max-reports 1",
    ),
    "w3c": (
        measure.simulate_w3c,
        {"epsilon": 0.5, "site_budget": 4.0, "credit": [2.0, 1.0], "lookback_days": 7},
        "--epsilon 0.5 --site-budget 4 --credit 2 --credit 1 --lookback-days 7",
    ),
}


@pytest.mark.parametrize("name", SIMULATIONS)
def test_the_command_and_the_call_simulate_the_same(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tulle.data.write_synthetic("impressions", tmp_path / "log", rows=300, seed=1)
    files = [folder / "impressions.csv", folder / "conversions.csv"]
    call, given, options = SIMULATIONS[name]
    words = ["measure", "simulate", name, *map(str, files), *options.split(), "--seed", "4"]
    assert run_with([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    found = call(*files, **given, seed=4)
    assert printed["overall"] == json.loads(json.dumps(found.overall))
    assert printed["slices"] == found.to_polars().to_dicts()
    assert ("trigger_data" in printed) == (found.trigger_data is not None)
    frames = [pl.read_csv(path, infer_schema=False) for path in files]
    assert call(*frames, **given, seed=4).slices.equals(found.slices)


def test_the_command_and_the_call_run_the_same_cases(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cases = Path(__file__).parent / "w3c" / "cases"
    assert run_with(["measure", "w3c-conformance", str(cases), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["cases"]
    assert printed == [result.to_dict() for result in measure.run_w3c_cases(cases)]


def test_old_names_of_options_go_on_working(file: Path) -> None:
    counts = pl.DataFrame({"campaign": ["a", "b"], "count": [40, 900]})
    counts.write_csv(file.parent / "past.csv")
    for option in ("--plot", "--output"):
        path = file.parent / f"{option[2:]}.svg"
        words = ["measure", "plan", str(file), "--past", str(file.parent / "past.csv")]
        assert run_with([*words, option, str(path)]) == 0
        assert path.read_text().lstrip().startswith("<")


def test_tables_in_memory_stand_in_for_files(file: Path) -> None:
    impressions, conversions = small_log()
    stored = measure.release(file, seed=3)
    for path in file.parent.glob("*.parquet"):
        path.unlink()
    given = measure.release(file, impressions=impressions, conversions=conversions, seed=3)
    assert given.record.to_json() == stored.record.to_json()
    assert given.path is None


def test_nothing_is_written_without_an_output(file: Path) -> None:
    before = sorted(file.parent.rglob("*"))
    result = measure.release(file, seed=3)
    assert sorted(file.parent.rglob("*")) == before
    assert result.path is None
    assert "NOT A PRIVATE RELEASE" in repr(result)
    assert isinstance(result.to_pandas("value"), pd.DataFrame)


def test_a_ledger_needs_a_place_to_find_the_numbers_again(file: Path) -> None:
    ledger = new_ledger(file.parent / "ledger.db", epsilon=5)
    with pytest.raises(ConfigError, match="output is missing"):
        measure.release(file, ledger=ledger)
    assert not ledger.spends("all")
    first = measure.release(file, ledger=ledger, output=file.parent / "out")
    again = measure.release(file, ledger=file.parent / "ledger.db", output=file.parent / "out")
    assert (first.is_stored, again.is_stored) == (False, True)
    assert again.record.to_json() == first.record.to_json()
    assert len(ledger.spends("all")) == 1


def test_a_refused_budget_names_the_setting_by_its_word(file: Path) -> None:
    ledger = new_ledger(file.parent / "ledger.db", epsilon=0.5)
    with pytest.raises(BudgetExceededError, match=r"Set \[privacy\] epsilon to 0\.5 or less"):
        measure.release(file, ledger=ledger, output=file.parent / "out")
    config = measure.read_config(file).config
    with pytest.raises(BudgetExceededError, match=r"Set epsilon to 0\.5 or less"):
        measure.release(config, ledger=ledger, output=file.parent / "out")
    assert not (file.parent / "out").exists()


def test_history_may_be_a_table(tmp_path: Path) -> None:
    write_log(tmp_path)
    text = settings("levels").replace(
        "levels =", 'split = "cube-root"\nhistory = "h.csv"\nlevels ='
    )
    file = write_settings(tmp_path, text)
    counts = pl.DataFrame({"geo": ["n", "s"], "campaign": ["a", "b"], "count": [40, 900]})
    counts.write_csv(tmp_path / "h.csv")
    stored = measure.plan(file)
    assert measure.plan(file, history={"levels": counts}).plan == stored.plan
    with pytest.raises(ConfigError, match="history is for 'lovels', which is no query"):
        measure.plan(file, history={"lovels": counts})


class TestCount:
    def test_it_is_one_call_and_bounds_every_user(self) -> None:
        result = tulle.measure.count(
            rows(),
            epsilon=200,
            unit="user",
            user="user_id",
            by=["campaign"],
            keys={"campaign": ["a", "b"]},
            max_per_slice=2,
            max_slices_per_unit=1,
        )
        # 40 users: one row each, but 2 of the one who has 501.
        assert counted(result) == {"a": 41, "b": 0}
        guarantee = result.record.plan.guarantee
        assert (guarantee.epsilon, str(guarantee.unit)) == (200, "user")

    def test_the_noise_is_that_of_the_bounds(self) -> None:
        found = [
            tulle.measure.count(
                rows(), epsilon=1, unit="user", user="user_id", max_per_slice=bound, seed=1
            ).to_polars()["noise_stddev"][0]
            for bound in (1, 2, 8)
        ]
        # Laplace noise of scale b has the standard deviation sqrt(2) b, a little less on whole
        # numbers.
        assert found == pytest.approx([2**0.5, 2 * 2**0.5, 8 * 2**0.5], rel=0.05)

    @pytest.mark.parametrize("unit", ["impression", "row", "example", Unit.example()], ids=str)
    def test_rows_are_counted_by_nothing_but_epsilon_and_their_unit(
        self, tmp_path: Path, unit: str | Unit
    ) -> None:
        rows().write_csv(tmp_path / "log.csv")
        result = tulle.measure.count(tmp_path / "log.csv", epsilon=200, unit=unit)
        assert result.to_polars()["value"].to_list() == [540]
        own_word = "impression" if unit == "impression" else "example"
        assert str(result.record.plan.guarantee.unit) == own_word
        assert result.record.plan.columns.sensitive == ("(all columns)",)
        assert "user id" not in str(result.record.plan.assumptions)

    def test_every_word_for_a_row_has_the_same_noise(self) -> None:
        found = [
            tulle.measure.count(rows(), epsilon=0.5, unit=unit, seed=4).to_polars()
            for unit in ("impression", "row", "example")
        ]
        assert found[0].equals(found[1])
        assert found[0].equals(found[2])

    @pytest.mark.parametrize("slices", [{}, {"by": ["campaign"], "keys": {"campaign": ["a"]}}])
    @pytest.mark.parametrize("kind", ["polars", "lazy", "pandas", "arrow", "duckdb", "csv", "pq"])
    def test_rows_may_be_a_table_or_a_file(
        self, tmp_path: Path, kind: str, slices: dict[str, Any]
    ) -> None:
        frame = rows()
        data: Any = {
            "polars": frame,
            "lazy": frame.lazy(),
            "pandas": pd.DataFrame(frame.to_dict(as_series=False)),
            "arrow": frame.to_arrow(),
        }.get(kind, tmp_path / f"rows.{kind}")
        if kind == "csv":
            frame.write_csv(data)
        if kind == "pq":
            frame.write_parquet(data)
        with duckdb.connect() as connection:
            if kind == "duckdb":
                data = connection.from_arrow(frame.to_arrow())
            result = tulle.measure.count(data, epsilon=200, unit="impression", **slices)
            del data  # a relation must not outlive its connection
        assert result.to_polars()["value"].to_list() == [540]

    def test_several_files_are_one_table(self, tmp_path: Path) -> None:
        paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
        for path, size in zip(paths, (30, 40), strict=True):
            rows(size).write_csv(path)
        result = tulle.measure.count(paths, epsilon=200, unit="row", form="csv")
        assert result.to_polars()["value"].to_list() == [1070]

    def test_a_time_is_needed_for_a_budget_that_renews(self, tmp_path: Path) -> None:
        config = measure.MeasureConfig(
            log=measure.AdLog(
                impressions=measure.FrameTable(frame=rows()),
                conversions=None,
                columns=measure.LogColumns(user=None, impression_time=None),
            ),
            attribution=None,
            unit=Unit.example(),
            epsilon=1,
            queries=(measure.Query(name="all", quantity=measure.Quantity.IMPRESSIONS),),
        )
        assert measure.release(config, seed=1).to_polars().height == 1
        ledger = new_ledger(tmp_path / "ledger.db", epsilon=5, unit=Unit.example())
        with pytest.raises(ConfigError, match="held against the times of the log"):
            measure.release(config, ledger=ledger, at="2026-01-14", output=tmp_path / "out")
        assert not ledger.spends("all")

    def test_days_and_windows_follow_from_the_time(self) -> None:
        frame = pl.DataFrame({"u": [1, 1, 1, 2], "t": [0, 5, 86_400, 86_400]})
        result = tulle.measure.count(
            frame,
            epsilon=200,
            unit="user per day",
            user="u",
            time="t",
            by=["day"],
            keys={"day": ["1970-01-01", "1970-01-02"]},
            max_per_slice=1,
            max_slices_per_unit=1,
            kinds={"t": "timestamp"},
        )
        assert dict(result.to_polars().select("day", "value").iter_rows()) == {
            "1970-01-01": 1,
            "1970-01-02": 2,
        }

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [("integer", {"2026-01-14": 2, "2026-01-15": 1}), ("timestamp", {"1970-01-01": 3})],
    )
    def test_small_numbers_are_days_or_seconds_as_the_kinds_say(
        self, kind: str, expected: dict[str, int]
    ) -> None:
        frame = pl.DataFrame({"t": [20_467, 20_467, 20_468]})
        given: Any = {"unit": "row", "time": "t", "by": ["day"], "keys": {"day": list(expected)}}
        result = tulle.measure.count(frame, epsilon=200, kinds={"t": kind}, **given)
        assert dict(result.to_polars().select("day", "value").iter_rows()) == expected
        with pytest.raises(DataError, match="may count days as well as seconds"):
            tulle.measure.count(frame, epsilon=200, **given)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"unit": "user"}, "user is needed with unit='user'"),
            ({"unit": "user", "user": "user_id"}, "has no bounds"),
            ({"unit": "user", "user": "who", "max_per_slice": 1}, "no column 'who'"),
            ({"unit": "impression", "max_per_slice": 1}, "has bounds"),
            ({"unit": "impression", "by": ["campaign"]}, '"private"'),
            ({"unit": "impression", "keys": KEYS}, "keys and no slices"),
            ({"unit": "impression", "by": ["site"], "keys": {"site": ["x"]}}, "no column 'site'"),
            (
                {"unit": "impression", "by": ["campaign"], "keys": "private"},
                "delta=0 is too",
            ),
            ({"unit": "impression", "by": ["day"], "keys": {"day": ["1970-01-01"]}}, "time is"),
            ({"unit": "user per day", "user": "user_id"}, "time is needed"),
            ({"unit": "impression", "at": "2026-01-14"}, "time is needed"),
            ({"unit": "household"}, "unit='household' is unknown"),
            ({"unit": "conversion"}, "does not protect"),
        ],
        ids=str,
    )
    def test_what_would_promise_too_much_is_refused(self, given: dict[str, Any], said: str) -> None:
        with pytest.raises((ConfigError, DataError)) as caught:
            tulle.measure.count(rows(), epsilon=1, **given)
        assert said in str(caught.value)


def test_the_package_loads_no_table_library_until_a_name_is_used() -> None:
    code = (
        "import sys, tulle.measure; assert 'count' in dir(tulle.measure); "
        "assert not {'polars', 'duckdb', 'numpy'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_listed_name_is_there() -> None:
    for name in measure.__all__:
        assert getattr(measure, name).__name__.rpartition(".")[2] == name
