"""Reach that would count a user twice, and bounds that do not go with the unit."""

from pathlib import Path

import polars as pl
import pytest

from tulle.errors import ConfigError
from unit.measure.queries.small_measurements import (
    CAMPAIGNS,
    config_of,
    plan_of,
    run_measure,
    settings,
    small_log,
    write_log,
)

DAYS = 'slices = ["day"]\nkeys = { day = { first = 1970-01-01, last = 1970-01-08 } }\n'


def reach(unit: str, slices: str = CAMPAIGNS) -> str:
    text = settings("reach", epsilon=200).replace('unit = "user"', f'unit = "{unit}"')
    text = text.replace('conversions = "conversions.parquet"\n', "")
    text = text.replace(CAMPAIGNS, slices).replace("unit = 2\n", "unit = 8\n")
    return text.replace("[columns]", '[columns]\nadvertiser = "campaign"\npublisher = "geo"')


class TestReach:
    @pytest.mark.parametrize(
        ("unit", "slices", "way_out"),
        [
            ("user per 7 days", CAMPAIGNS, "one window at a time"),
            ("user per day", CAMPAIGNS, "slice by day"),
            ("user per 12 hours", DAYS, "'user per day'"),
            ("user x advertiser", DAYS, "'campaign' to its slices"),
            ("user x publisher", CAMPAIGNS, "'geo' to its slices"),
            ("user x advertiser per day", CAMPAIGNS, "slice by day"),
        ],
    )
    def test_a_unit_that_counts_a_user_twice_is_refused(
        self, tmp_path: Path, unit: str, slices: str, way_out: str
    ) -> None:
        with pytest.raises(ConfigError, match=f"'reach': reach counts users.*{way_out}"):
            plan_of(tmp_path, reach(unit, slices))

    @pytest.mark.parametrize(
        ("unit", "slices", "by"),
        [
            ("user per day", DAYS, "day"),
            ("user per 2 days", DAYS, "day"),
            ("user x advertiser", CAMPAIGNS, "campaign"),
            ("user x publisher", 'slices = ["geo"]\nkeys = { geo = ["n", "s"] }\n', "geo"),
        ],
    )
    def test_where_each_is_one_unit_of_a_slice_the_users_are_counted(
        self, tmp_path: Path, unit: str, slices: str, by: str
    ) -> None:
        write_log(tmp_path)
        table = run_measure(config_of(tmp_path, reach(unit, slices)), tmp_path / "out").record
        found = table.tables[0].frame.filter(pl.col("metric") == "reach")
        day = pl.from_epoch("timestamp").dt.date().cast(pl.String).alias("day")
        users = small_log()[0].with_columns(day).group_by(by).agg(pl.col("user").n_unique())
        joined = found.join(users, on=by, how="left")
        assert joined.height == found.height > 0
        assert (joined["value"] - joined["user"]).abs().max() < 0.5


class TestBounds:
    @pytest.mark.parametrize(
        ("name", "old", "said"),
        [
            ("conversions", "max_per_slice = 2\nmax_slices_per_unit = 3\n", "max_per_slice and"),
            (
                "rate",
                "base = { max_per_slice = 5, max_slices_per_unit = 2 }\n",
                "impressions.*base = {",
            ),
        ],
    )
    def test_missing_ones_name_the_query_and_the_setting(
        self, tmp_path: Path, name: str, old: str, said: str
    ) -> None:
        text = settings(name)
        assert old in text
        with pytest.raises(ConfigError, match=f"query '{name}' has no bounds.*{said}"):
            plan_of(tmp_path, text.replace(old, ""))

    @pytest.mark.parametrize("unit", ["impression", "conversion"])
    def test_a_unit_of_one_row_has_none(self, tmp_path: Path, unit: str) -> None:
        text = settings("conversions").replace('unit = "user"', f'unit = "{unit}"')
        with pytest.raises(ConfigError, match=r"query 'conversions' has bounds.*max_per_slice"):
            plan_of(tmp_path, text)

    @pytest.mark.parametrize("name", ["impressions", "rate"])
    def test_impressions_are_not_measured_for_conversions(self, tmp_path: Path, name: str) -> None:
        text = settings(name).replace('unit = "user"', 'unit = "conversion"')
        with pytest.raises(ConfigError, match=f"query '{name}' counts impressions"):
            plan_of(tmp_path, text)


class TestWording:
    @pytest.mark.parametrize(
        ("names", "said", "unsaid"),
        [
            (
                ("impressions", "reach"),
                "2 tables of totals: what one unit adds is bounded, ",
                "credit",
            ),
            (("conversions", "reach"), "totals: conversions are credited by last-touch, what", "?"),
        ],
    )
    def test_the_mechanism_speaks_of_credit_only_where_there_is_some(
        self, tmp_path: Path, names: tuple[str, ...], said: str, unsaid: str
    ) -> None:
        sentence = plan_of(tmp_path, settings(*names)).plan.mechanism
        assert said in sentence
        assert unsaid not in sentence

    def test_nothing_is_assumed_about_who_is_behind_an_id(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, settings("conversions")).plan
        assert "Rows without a user id are refused." in [a.statement for a in plan.assumptions]
        assert not any("one id" in assumption.statement for assumption in plan.assumptions)

    def test_plans_of_two_games_differ_and_read_well(self, tmp_path: Path) -> None:
        channels = 'lookback = "3 days"\nchannel = "kind"\nchannels = ["click", "view"]\n'
        text = settings("conversions", rule="data-driven", epsilon=2)
        plans = [
            plan_of(tmp_path, text.replace('lookback = "3 days"', channels + more)).plan
            for more in ("", "max_set_size = 2", 'model = "removal"', "baseline_rate = 0.01")
        ]
        assert len({plan.fingerprint() for plan in plans}) == len(plans)
        assert len({plan.settings["attribution"] for plan in plans}) == len(plans)
        for plan in plans:
            assert "learnt" in plan.mechanism
            assert "<" not in str(plan.settings["attribution"])
