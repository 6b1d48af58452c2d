"""Settings files: what they mean, and what is said when they are wrong."""

from pathlib import Path

import polars as pl
import pytest

from tulle import measure
from tulle.errors import ConfigError, DataError, TulleError
from tulle.measure.ad_log import DatabaseTable, FileTable, Side
from tulle.measure.config_file import read_config, read_history, read_past
from tulle.measure.queries.measure_plan import make_measure_plan
from tulle.measure.queries.query import LevelSplit
from unit.measure.queries.small_measurements import (
    CAMPAIGNS,
    config_of,
    run_measure,
    settings,
    write_log,
    write_settings,
)


def changed(*names: str, old: str, new: str) -> str:
    text = settings(*names)
    assert old in text
    return text.replace(old, new)


class TestSlices:
    @pytest.mark.parametrize(
        ("measure", "name", "side", "column", "is_day"),
        [
            ("conversions", "campaign", Side.IMPRESSION, "campaign", False),
            ("conversions", "impression.campaign", Side.IMPRESSION, "campaign", False),
            ("conversions", "conversion.type", Side.CONVERSION, "type", False),
            ("conversions", "day", Side.CONVERSION, "sold", True),
            ("conversions", "impression.day", Side.IMPRESSION, "seen", True),
            ("conversions", "conversion.day", Side.CONVERSION, "sold", True),
            ("conversions", "geo.city", Side.IMPRESSION, "geo.city", False),
            ("impressions", "day", Side.IMPRESSION, "seen", True),
        ],
    )
    def test_a_name_says_the_table_and_column(
        self, tmp_path: Path, measure: str, name: str, side: Side, column: str, is_day: bool
    ) -> None:
        wanted = "conversions" if measure == "conversions" else "impressions"
        text = settings(wanted).replace('slices = ["campaign"]', f'slices = ["{name}"]')
        text = text.replace('{ campaign = ["a", "b", "c"] }', '"private"')
        text = text.replace("epsilon = 1.0", "epsilon = 1.0\ndelta = 1e-6").replace(
            "[columns]", '[columns]\nimpression_time = "seen"\nconversion_time = "sold"'
        )
        (query,) = config_of(tmp_path, text).queries
        (found,) = query.slices
        assert (found.side, found.column, found.is_day) == (side, column, is_day)
        assert found.name == (name if name == "geo.city" else name.rpartition(".")[2])

    @pytest.mark.parametrize("name", ["value", "number", "level", "k"])
    def test_names_of_result_columns_are_refused(self, tmp_path: Path, name: str) -> None:
        text = changed("conversions", old='["campaign"]', new=f'["{name}"]')
        with pytest.raises(ConfigError, match="result column"):
            config_of(tmp_path, text.replace("campaign =", f"{name} ="))


class TestKeys:
    def keys(self, folder: Path, keys: str, slices: str = '["campaign"]') -> list[tuple[str, ...]]:
        text = settings("conversions").replace(CAMPAIGNS, f"slices = {slices}\nkeys = {keys}\n")
        (query,) = config_of(folder, text).queries
        assert query.keys is not None
        return query.keys.rows()

    def test_lists_are_crossed(self, tmp_path: Path) -> None:
        found = self.keys(tmp_path, '{ campaign = ["a", 7], geo = ["n"] }', '["campaign", "geo"]')
        assert found == [("a", "n"), ("7", "n")]

    def test_days_go_from_the_first_to_the_last(self, tmp_path: Path) -> None:
        days = "{ day = { first = 2024-02-28, last = 2024-03-01 } }"
        found = self.keys(tmp_path, days, '["day"]')
        assert found == [("2024-02-28",), ("2024-02-29",), ("2024-03-01",)]

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_files_list_slices_in_any_order_and_more_columns(
        self, tmp_path: Path, ending: str
    ) -> None:
        table = pl.DataFrame({"geo": [1, 2, 1], "note": [0, 0, 1], "campaign": ["b", "a", "b"]})
        path = tmp_path / f"keys.{ending}"
        table.write_csv(path) if ending == "csv" else table.write_parquet(path)
        found = self.keys(tmp_path, f'"keys.{ending}"', '["campaign", "geo"]')
        assert found == [("b", "1"), ("a", "2")]

    @pytest.mark.parametrize(
        ("keys", "said"),
        [
            ("{}", "'campaign'"),
            ("{ campaign = [] }", "not empty"),
            ('{ campaign = "a" }', "must be a list"),
            ('{ campaign = ["a", "a"] }', "twice"),
            ("{ campaign = [1.5] }", "text, a whole number or a date"),
            ("{ campaign = [[1]] }", "text, a whole number or a date"),
            ('{ campaign = ["a"], geo = ["n"] }', "'geo'"),
            ("{ campaign = { first = 2026-01-02, last = 2026-01-01 } }", "later"),
            ('{ campaign = { first = "soon", last = 2026-01-01 } }', "date"),
            ("{ campaign = { first = 2026-01-02 } }", "last"),
            ("5", "text or a table"),
            ('"gone.csv"', "gone.csv"),
            ('"lacking.csv"', "none of the columns campaign"),
            ('"empty.csv"', "empty.csv"),
        ],
        ids=lambda value: str(value),
    )
    def test_wrong_ones_are_refused(self, tmp_path: Path, keys: str, said: str) -> None:
        (tmp_path / "lacking.csv").write_text("geo\nn\n")
        (tmp_path / "empty.csv").write_text("")
        with pytest.raises((ConfigError, DataError), match=said):
            self.keys(tmp_path, keys)

    def test_they_are_needed_or_private(self, tmp_path: Path) -> None:
        text = settings("conversions").replace('keys = { campaign = ["a", "b", "c"] }\n', "")
        with pytest.raises(ConfigError, match='"private"'):
            config_of(tmp_path, text)


class TestMistakes:
    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("[log]", "[logs]", "did you mean 'log'"),
            ("[privacy]", "[privat]", "did you mean 'privacy'"),
            ("[[query]]", "[query]", "two brackets"),
            ("max_per_slice", "max_per_slices", "did you mean 'max_per_slice'"),
            ('unit = "user"', "", "needs the setting 'unit'"),
            ('unit = "user"', "unit = 5", "unit=5"),
            ("epsilon = 1.0", 'epsilon = "one"', "epsilon='one' must be a number"),
            ("epsilon = 1.0", "epsilon = nan", "finite"),
            ("epsilon = 1.0", "epsilon = true", "epsilon=True must be a number"),
            ("epsilon = 1.0", "epsilon = 1.0\ndelta = 1e-6", "not needed"),
            ("epsilon = 1.0", 'epsilon = 1.0\nnoise = "gaussian"', "delta=0"),
            ("epsilon = 1.0", 'epsilon = 1.0\nnoise = "cauchy"', "laplace or gaussian"),
            ("epsilon = 1.0", "epsilon = 1.0\nconfidence = 1", "confidence"),
            ('impressions = "impressions.parquet"', "", "'impressions'"),
            ('impressions = "impressions.parquet"', 'impressions = "*.orc"', "no file"),
            ('conversions = "conversions.parquet"', "", "name their table"),
            ('value = "value"', "value = 5", "value=5"),
            ('value = "value"', "", "clip"),
            ('rule = "last-touch"', 'rule = "last touch"', "did you mean 'last-touch'"),
            ('rule = "last-touch"', "rule = [1]", "unknown"),
            ('rule = "last-touch"', 'rule = "last-touch"\nweights = [1]', "no setting 'weights'"),
            ('lookback = "3 days"', 'lookback = "3 moons"', "lookback"),
            ('lookback = "3 days"', "lookback = -1", "lookback"),
            ('lookback = "3 days"', "", "needs the setting 'lookback'"),
            ('measure = "value"', 'measure = "worth"', "'value'"),
            ('measure = "value"', 'measure = "conversions"', "(with their clip) are for value"),
            ("clip = 20", "clip = 0", "clip=0"),
            ("max_slices_per_unit = 3", "max_slices_per_unit = 0", "max_slices_per_unit=0"),
            ("max_slices_per_unit = 3", "max_slices_per_unit = 1.5", "whole number"),
            ("max_per_slice = 2", 'max_per_slice = "2"', "max_per_slice='2' must be a number"),
            ("max_per_slice = 2\n", "", "max_per_slice"),
            ("clip = 20", "clip = 20\nshare = -1", "share"),
            ("clip = 20", 'clip = 20\nrunning_totals = "yes"', "true or false"),
            ("clip = 20", "clip = 20\nunattributed = 1", "true or false"),
            ("clip = 20", "clip = 20\nmax_frequency = 3", "max_frequency"),
            ("clip = 20", "clip = 20\nrunning_totals = true", "slice day"),
            ("clip = 20", 'clip = 20\nhistory = "h.csv"', "is for levels"),
            (
                "clip = 20",
                'clip = 20\nlevels = ["campaign"]',
                "levels[0]='campaign' must be a list",
            ),
            ("clip = 20", 'clip = 20\nlevels = [["campaign"]]', "at least two"),
            ("clip = 20", 'clip = 20\nlevels = [[], ["geo"]]', "must have all slices"),
            (
                "clip = 20",
                'clip = 20\nlevels = [[], ["campaign"]]\nsplit = "optimised"',
                "need it: counts",
            ),
            (
                "clip = 20",
                'clip = 20\nlevels = [[], ["campaign"]]\nsplit = "optimised"\nhistory = 5',
                "history=5",
            ),
            (
                "clip = 20",
                'clip = 20\nlevels = [[], ["campaign"]]\nsplit = [0.5, 0.6]',
                "together 1",
            ),
            (
                "clip = 20",
                'clip = 20\nlevels = [[], ["campaign"]]\nsplit = [1, 0]',
                "last level nothing",
            ),
            ('name = "value"', "name = 5", "name=5"),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_each_is_refused_with_a_way_out(
        self, tmp_path: Path, old: str, new: str, said: str
    ) -> None:
        text = settings("value")
        assert old in text
        with pytest.raises(TulleError) as error:
            make_measure_plan(config_of(tmp_path, text.replace(old, new, 1)))
        assert isinstance(error.value, (ConfigError, DataError))
        assert said in str(error.value)

    def test_two_queries_need_two_names(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="same name"):
            config_of(tmp_path, settings("value", "value"))

    def test_running_totals_need_days_in_order(self, tmp_path: Path) -> None:
        days = "{ first = 1970-01-01, last = 1970-01-08 }"
        for given in ('["1970-01-02", "1970-01-01"]', '["1970-01-01", "1970-01-03"]', '["monday"]'):
            with pytest.raises(ConfigError, match="day to day"):
                config_of(tmp_path, changed("running", old=days, new=given))
        config_of(tmp_path, changed("running", old=days, new='["1970-01-31", "1970-02-01"]'))

    def test_a_file_that_is_no_text_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "m.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(DataError, match=r"m\.toml cannot be read"):
            read_config(tmp_path / "m.toml")


class TestLog:
    def test_paths_start_from_the_file_and_may_have_stars(self, tmp_path: Path) -> None:
        for name in ("b", "a"):
            (tmp_path / f"part-{name}.parquet").touch()
        text = changed("conversions", old='"impressions.parquet"', new='"part-*.parquet"')
        source = config_of(tmp_path, text).log.impressions
        assert isinstance(source, FileTable)
        assert source.paths == (tmp_path / "part-a.parquet", tmp_path / "part-b.parquet")

    def test_tables_of_a_database_are_named(self, tmp_path: Path) -> None:
        text = changed("conversions", old="[log]", new='[log]\ndatabase = "ads.duckdb"')
        source = config_of(tmp_path, text).log.impressions
        assert isinstance(source, DatabaseTable)
        assert source.database == tmp_path / "ads.duckdb"

    @pytest.mark.parametrize("name", ["a**", "[", "\\u0000", "../*\\u0000"])
    def test_odd_names_are_no_crash(self, tmp_path: Path, name: str) -> None:
        text = changed("conversions", old='"impressions.parquet"', new=f'"{name}"')
        with pytest.raises((ConfigError, DataError)):
            run_measure(config_of(tmp_path, text), tmp_path / "out")


class TestHistory:
    def test_an_earlier_measurement_has_its_own_counts(self, tmp_path: Path) -> None:
        write_log(tmp_path)
        config = config_of(tmp_path, settings("levels", "value", epsilon=50))
        result = run_measure(config, tmp_path / "out")
        query = config.queries[0]
        history = read_history(result.path, query)
        assert not history.is_public
        leaves = result.record.table("levels").frame.filter(pl.col("level") == 2)
        assert history.counts["count"].to_list() == leaves["value"].to_list()
        past = read_past(result.path, config.queries)
        assert set(past) == {"levels", "value"}

    @pytest.mark.parametrize("split", ["cube-root", "optimised"])
    @pytest.mark.parametrize("name", ["levels", "value levels", "found levels"])
    def test_shares_follow_from_it(self, tmp_path: Path, split: str, name: str) -> None:
        (tmp_path / "h.csv").write_text("geo,campaign,count\nn,a,40\nn,b,2\ns,a,900\n")
        text = changed(name, old="levels =", new=f'split = "{split}"\nhistory = "h.csv"\nlevels =')
        file = read_config(write_settings(tmp_path, text))
        (query,) = file.config.queries
        assert query.levels is not None
        assert query.levels.split is LevelSplit(split)
        history = read_history(file.history_paths[name], query)
        assert history.is_public
        plan = make_measure_plan(file.config, history={name: history.counts})
        uniform = make_measure_plan(config_of(tmp_path, settings(name)))
        assert plan.plan.event != uniform.plan.event
        with pytest.raises(ConfigError, match="give them as history"):
            make_measure_plan(file.config)

    @pytest.mark.parametrize(
        ("table", "said"),
        [
            ("geo,count\nn,4\n", "no column 'campaign'"),
            ("geo,campaign\nn,a\n", "no column 'count'"),
            ("geo,campaign,count\nn,a,many\n", "'count' holds no number in h.csv, row 1"),
            ("geo,campaign,count\nn,a,4\nn,a,5\n", "twice"),
            ("geo,campaign,count\nn,a,NaN\n", "'count' is no finite number in h.csv, row 1"),
            ("geo,campaign,count\nn,a,\n", "'count' is no finite number in h.csv, row 1"),
        ],
    )
    @pytest.mark.parametrize("name", ["levels", "found levels"])
    def test_a_table_that_does_not_fit_is_refused(
        self, tmp_path: Path, name: str, table: str, said: str
    ) -> None:
        (tmp_path / "h.csv").write_text(table)
        text = changed(name, old="levels =", new='split = "cube-root"\nhistory = "h.csv"\nlevels =')
        file = write_settings(tmp_path, text)
        with pytest.raises(DataError, match=said):
            measure.plan(file)


class TestLearntWeights:
    LEARNT = 'lookback = "3 days"\nchannel = "kind"\nchannels = ["click", "view"]\nshare = 0.25'

    def text(self, *changes: tuple[str, str]) -> str:
        text = settings("conversions", rule="data-driven", epsilon=4)
        text = text.replace('lookback = "3 days"', self.LEARNT)
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return text

    def test_they_take_their_share_of_epsilon(self, tmp_path: Path) -> None:
        plan = make_measure_plan(config_of(tmp_path, self.text()))
        assert plan.config.query_epsilon == 3
        assert plan.config.data_driven is not None
        assert plan.config.data_driven.epsilon == 1

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('channels = ["click", "view"]', "", "needs the setting 'channels'"),
            ('channels = ["click", "view"]', "channels = 5", "channels=5 must be a list"),
            ('channels = ["click", "view"]', 'channels = ["click", "click"]', "click"),
            ("share = 0.25", "share = 1", "game_share"),
            ("share = 0.25", 'model = "magic"', "magic"),
            ('unit = "user"', 'unit = "conversion"', "user"),
        ],
    )
    def test_mistakes_are_refused(self, tmp_path: Path, old: str, new: str, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            make_measure_plan(config_of(tmp_path, self.text((old, new))))


@pytest.mark.parametrize("line", ["max_touches = 3", 'lookback_by_kind = { view = "1 day" }'])
def test_weights_are_not_learnt_from_some_impressions_only(line: str, tmp_path: Path) -> None:
    """Else paths with and without a conversion would be of different lengths."""
    text = settings("conversions", rule="data-driven", epsilon=4)
    text = text.replace(
        'rule = "data-driven"',
        f'rule = "data-driven"\nchannel = "kind"\nchannels = ["click", "view"]\n{line}',
    )
    with pytest.raises(ConfigError, match="leave max_touches and lookback_by_kind out"):
        read_config(write_settings(tmp_path, text))
