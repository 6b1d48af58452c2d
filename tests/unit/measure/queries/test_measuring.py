"""One payment, one draw, one file, whatever happens in between."""

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.accounting.refusal import SpendRefusedError
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.measure.ad_log import AdLog, DatabaseTable, FrameTable, log_digest
from tulle.measure.engines.emitted_sql import ExportedTotals, result_name
from tulle.measure.engines.engine import open_engine
from tulle.measure.queries import measuring
from tulle.measure.queries.measure_record import read_measurement
from tulle.measure.queries.measuring import MeasureOptions, measure
from tulle.measure.queries.query import MeasureConfig
from tulle.mechanisms.entropy import release_rng
from tulle.privacy.plan import Status
from tulle.privacy.units import Unit
from tulle.runs.charging import ReleaseCharge, open_payments
from tulle.runs.release_files import ReleaseFiles
from unit.measure.queries.small_measurements import (
    config_of,
    new_ledger,
    paying,
    run_measure,
    settings,
    small_log,
    write_log,
)


@pytest.fixture
def config(tmp_path: Path) -> MeasureConfig:
    write_log(tmp_path)
    return config_of(tmp_path, settings("conversions", "reach"))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return new_ledger(tmp_path / "ledger.db", epsilon=2.5)


def statuses(ledger: Ledger) -> list[SpendStatus]:
    return [spend.status for spend in ledger.spends("all")]


class TestOnePayment:
    def test_a_measurement_is_charged_once_for_all_it_costs(
        self, config: MeasureConfig, ledger: Ledger, tmp_path: Path
    ) -> None:
        result = run_measure(config, tmp_path / "out", paying(ledger))
        assert not result.is_stored
        (spend,) = ledger.spends("all")
        assert spend.status is SpendStatus.RELEASED
        assert spend.request.event == result.record.plan.event
        assert ledger.state("all").left_epsilon == pytest.approx(1.5, rel=1e-4)
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["measurement.json"]

    def test_the_same_again_is_the_stored_file_byte_for_byte(
        self, config: MeasureConfig, ledger: Ledger, tmp_path: Path
    ) -> None:
        first = run_measure(config, tmp_path / "out", paying(ledger))
        content = first.path.read_bytes()
        second = run_measure(config, tmp_path / "out", paying(ledger))
        assert second.is_stored
        assert second.path.read_bytes() == content
        assert second.record.to_json().encode() == content
        assert statuses(ledger) == [SpendStatus.RELEASED]

    def test_another_folder_gets_a_copy(
        self, config: MeasureConfig, ledger: Ledger, tmp_path: Path
    ) -> None:
        first = run_measure(config, tmp_path / "out", paying(ledger))
        second = run_measure(config, tmp_path / "other", paying(ledger))
        assert second.is_stored
        assert second.path == tmp_path / "other" / "measurement.json"
        assert second.path.read_bytes() == first.path.read_bytes()
        assert statuses(ledger) == [SpendStatus.RELEASED]

    def test_again_pays_and_draws_fresh_noise(
        self, config: MeasureConfig, ledger: Ledger, tmp_path: Path
    ) -> None:
        first = run_measure(config, tmp_path / "out", paying(ledger))
        second = run_measure(config, tmp_path / "other", paying(ledger, again=True))
        assert not second.is_stored
        assert len(statuses(ledger)) == 2
        assert not first.record.tables[0].frame.equals(second.record.tables[0].frame)
        # From now on the last one is what is stored.
        third = run_measure(config, tmp_path / "third", paying(ledger))
        assert third.path.read_bytes() == second.path.read_bytes()

    def test_without_a_ledger_nothing_is_remembered(
        self, config: MeasureConfig, tmp_path: Path
    ) -> None:
        first = run_measure(config, tmp_path / "out")
        with pytest.raises(RunStateError, match="exists"):
            run_measure(config, tmp_path / "out")
        second = run_measure(config, tmp_path / "other")
        assert not second.is_stored
        assert not first.record.tables[0].frame.equals(second.record.tables[0].frame)

    def test_changed_data_pay_again(
        self, config: MeasureConfig, ledger: Ledger, tmp_path: Path
    ) -> None:
        run_measure(config, tmp_path / "out", paying(ledger))
        write_log(tmp_path, small_log(seed=2))
        second = run_measure(config, tmp_path / "other", paying(ledger))
        assert not second.is_stored
        assert len(statuses(ledger)) == 2

    def test_tables_in_memory_are_known_again(
        self, config: MeasureConfig, ledger: Ledger, tmp_path: Path
    ) -> None:
        def in_memory() -> MeasureConfig:
            impressions, conversions = small_log()
            log = AdLog(
                impressions=FrameTable(frame=impressions),
                conversions=FrameTable(frame=conversions),
                columns=config.log.columns,
            )
            return dataclasses.replace(config, log=log)

        run_measure(in_memory(), tmp_path / "out", paying(ledger))
        assert run_measure(in_memory(), tmp_path / "out", paying(ledger)).is_stored


class TestOtherPlans:
    BASE = ("conversions", "value levels", "running", "averages", "reach", "found conversions")
    CHANGES = (
        ("epsilon = 1.0", "epsilon = 1.1"),
        ("delta = 1e-6", "delta = 2e-6"),
        ('rule = "last-touch"', 'rule = "first-touch"'),
        ('lookback = "3 days"', 'lookback = "4 days"'),
        ('lookback = "3 days"', 'lookback = "3 days"\nlookback_by_kind = { view = "1 day" }'),
        ('lookback = "3 days"', 'lookback = "3 days"\nmax_touches = 2'),
        ('keys = { campaign = ["a", "b", "c"] }', 'keys = { campaign = ["a", "b", "d"] }'),
        ('keys = { campaign = ["a", "b", "c"] }', 'keys = { campaign = ["c", "b", "a"] }'),
        ("max_per_slice = 2", "max_per_slice = 3"),
        ("max_slices_per_unit = 3", "max_slices_per_unit = 2"),
        (
            'name = "value levels"\nmeasure = "value"\nclip = 20',
            'name = "value levels"\nmeasure = "value"\nclip = 30',
        ),
        ('levels = [[], ["geo"]', 'levels = [["geo"]'),
        ('column = "items", clip = 4', 'column = "items", clip = 5'),
        ("share = 0.25", "share = 0.2"),
        ("running_totals = true", ""),
        ("max_frequency = 4", "max_frequency = 5"),
        ('measure = "reach"', 'measure = "reach"\nkinds = ["click"]'),
        ('measure = "conversions"', 'measure = "conversions"\nunattributed = true'),
        ('slices = ["campaign"]\nkeys = "private"', 'slices = ["geo"]\nkeys = "private"'),
        (
            'slices = ["campaign"]\nkeys = "private"',
            'slices = ["conversion.type"]\nkeys = "private"',
        ),
    )

    @pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[1])
    def test_every_setting_that_changes_numbers_makes_another_measurement(
        self, tmp_path: Path, change: tuple[str, str]
    ) -> None:
        text = settings(*self.BASE)
        assert change[0] in text
        plans = [
            measuring.make_measure_plan(config_of(tmp_path, which)).plan
            for which in (text, text, text.replace(*change))
        ]
        assert plans[0].fingerprint() == plans[1].fingerprint()
        assert plans[0].fingerprint() != plans[2].fingerprint()

    def test_a_window_makes_another_measurement(self, tmp_path: Path) -> None:
        text = settings(*(name for name in self.BASE if name != "reach"))
        whole, window = (
            measuring.make_measure_plan(config_of(tmp_path, which)).plan
            for which in (text, text.replace('unit = "user"', 'unit = "user per 30 days"'))
        )
        assert whole.fingerprint() != window.fingerprint()

    def test_days_of_a_time_are_not_its_values(self, tmp_path: Path) -> None:
        found = settings("found conversions")
        texts = [
            found.replace('["campaign"]', f'["{name}"]')
            for name in ("conversion.day", "conversion.timestamp")
        ]
        plans = [measuring.make_measure_plan(config_of(tmp_path, text)).plan for text in texts]
        assert plans[0].fingerprint() != plans[1].fingerprint()


class TestCrashes:
    @pytest.mark.parametrize("where", ["released", "hide", "mark"])
    def test_a_payment_that_was_not_used_is_used_by_the_next_try(
        self,
        config: MeasureConfig,
        ledger: Ledger,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        where: str,
    ) -> None:
        def die(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            if where == "released":
                patch.setattr(measuring.NumberDraw, "released", die)
            elif where == "hide":
                patch.setattr(ReleaseFiles, "hide_record", die)
            else:
                patch.setattr("tulle.accounting.ledger.OpenSpend.mark_released", die)
            with pytest.raises(KeyboardInterrupt):
                run_measure(config, tmp_path / "out", paying(ledger))
        assert statuses(ledger) == [SpendStatus.OPEN]
        assert not (tmp_path / "out" / "measurement.json").exists()
        result = run_measure(config, tmp_path / "out", paying(ledger))
        assert not result.is_stored
        assert statuses(ledger) == [SpendStatus.RELEASED]
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["measurement.json"]

    def test_numbers_that_are_marked_are_put_in_place_and_not_drawn_again(
        self,
        config: MeasureConfig,
        ledger: Ledger,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def die(_: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(ReleaseFiles, "put_in_place", die)
            with pytest.raises(KeyboardInterrupt):
                run_measure(config, tmp_path / "out", paying(ledger))
        assert statuses(ledger) == [SpendStatus.RELEASED]
        (hidden,) = (tmp_path / "out").iterdir()
        content = hidden.read_bytes()
        result = run_measure(config, tmp_path / "out", paying(ledger))
        assert result.is_stored
        assert result.path.read_bytes() == content
        assert statuses(ledger) == [SpendStatus.RELEASED]

    def test_a_file_that_is_gone_or_changed_is_an_error_and_no_second_draw(
        self, config: MeasureConfig, ledger: Ledger, tmp_path: Path
    ) -> None:
        result = run_measure(config, tmp_path / "out", paying(ledger))
        result.path.write_bytes(result.path.read_bytes() + b" ")
        with pytest.raises(RunStateError, match="--again"):
            run_measure(config, tmp_path / "out", paying(ledger))
        result.path.unlink()
        with pytest.raises(RunStateError, match="gone or changed"):
            run_measure(config, tmp_path / "out", paying(ledger))
        assert statuses(ledger) == [SpendStatus.RELEASED]


class TestNothingIsSpent:
    def test_if_the_budget_does_not_cover_it(self, config: MeasureConfig, tmp_path: Path) -> None:
        ledger = new_ledger(tmp_path / "small.db", epsilon=0.9)
        with pytest.raises(SpendRefusedError):
            run_measure(config, tmp_path / "out", paying(ledger))
        assert statuses(ledger) == []
        assert list((tmp_path / "out").iterdir()) == []

    @pytest.mark.parametrize(
        "fault",
        [
            lambda table: table.with_columns(user=pl.lit(None, pl.Int64)),
            lambda table: table.drop("user"),
            lambda table: table.with_columns(pl.col("timestamp") + 1_700_000_000_000),
            lambda table: table.with_columns(value=-pl.col("value") - 1),
            lambda table: table.with_columns(value=pl.lit(float("nan"))),
            lambda table: table.with_columns(value=pl.lit("much")),
        ],
        ids=["null user", "no user", "milliseconds", "negative value", "NaN value", "text value"],
    )
    def test_if_the_data_cannot_be_measured(
        self, ledger: Ledger, tmp_path: Path, fault: Any
    ) -> None:
        impressions, conversions = small_log()
        write_log(tmp_path, (impressions, fault(conversions)))
        config = config_of(tmp_path, settings("value"))
        with pytest.raises(DataError):
            run_measure(config, tmp_path / "out", paying(ledger))
        assert statuses(ledger) == []
        assert list((tmp_path / "out").iterdir()) == []

    def test_if_a_file_of_that_name_is_there(
        self, config: MeasureConfig, ledger: Ledger, tmp_path: Path
    ) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "measurement.json").write_text("mine")
        with pytest.raises(RunStateError, match="exists"):
            run_measure(config, tmp_path / "out", paying(ledger))
        assert statuses(ledger) == []
        assert (tmp_path / "out" / "measurement.json").read_text() == "mine"

    def test_if_another_process_measures_on_the_ledger(
        self, config: MeasureConfig, ledger: Ledger, tmp_path: Path
    ) -> None:
        charge = ReleaseCharge(ledger=ledger, purpose="measure")
        with (
            open_payments(charge, measuring.MEASUREMENTS),
            pytest.raises(RunStateError, match="another process"),
        ):
            run_measure(config, tmp_path / "out", paying(ledger))
        assert statuses(ledger) == []

    def test_if_the_data_are_of_other_days_than_are_charged(
        self, config: MeasureConfig, tmp_path: Path
    ) -> None:
        ledger = new_ledger(tmp_path / "advertisers.db", epsilon=5, unit=Unit.user(days=1))
        moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        charge = ReleaseCharge(ledger=ledger, purpose="measure", at=moment)
        with pytest.raises(ConfigError, match="--until"):
            run_measure(config, tmp_path / "out", MeasureOptions(charge=charge))
        assert statuses(ledger) == []

    def test_if_a_time_is_charged_for_totals_that_came_without_their_log(
        self, config: MeasureConfig, tmp_path: Path
    ) -> None:
        # Nobody could tell which window the rows of exported totals belong to.
        ledger = new_ledger(tmp_path / "weekly.db", epsilon=5, unit=Unit.user(days=7))
        moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        charge = ReleaseCharge(ledger=ledger, purpose="measure", at=moment)
        config = dataclasses.replace(config, unit=Unit.user(days=7), queries=config.queries[:1])
        with pytest.raises(ConfigError, match="totals without their log"):
            measure(
                config,
                tmp_path,
                ExportedTotals(tmp_path),
                rng=release_rng(),
                options=MeasureOptions(charge=charge),
            )
        assert statuses(ledger) == []

    def test_if_nothing_says_which_state_of_a_table_is_measured(self) -> None:
        # Two states under one name would be taken for one release, and the second cost nothing.
        log = AdLog(impressions=DatabaseTable(table="ads.impressions"), conversions=None)
        with pytest.raises(ConfigError, match="set version"):
            log_digest(log)
        states = [
            log_digest(dataclasses.replace(log, impressions=source))
            for version in ("monday", "tuesday")
            for source in [DatabaseTable(table="ads.impressions", version=version)]
        ]
        assert states[0] != states[1]

    def test_if_the_folder_is_not_there(self, config: MeasureConfig, tmp_path: Path) -> None:
        with open_engine() as engine, pytest.raises(ConfigError, match="no folder"):
            measure(config, tmp_path / "nowhere", engine, rng=release_rng())


class TestTime:
    SPAN = (
        datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
        datetime.datetime(1970, 1, 9, tzinfo=datetime.UTC),
    )

    def test_every_window_of_the_data_is_charged(
        self, config: MeasureConfig, tmp_path: Path
    ) -> None:
        config = dataclasses.replace(config, unit=Unit.user(days=7), queries=config.queries[:1])
        ledger = new_ledger(tmp_path / "weekly.db", epsilon=1.5, unit=config.unit)
        charge = ReleaseCharge(
            ledger=ledger, purpose="measure", at=self.SPAN[0], until=self.SPAN[1]
        )
        run_measure(config, tmp_path / "out", MeasureOptions(charge=charge))
        for day in (0, 8):
            moment = self.SPAN[0] + datetime.timedelta(days=day)
            assert ledger.state("all", moment).left_epsilon == pytest.approx(0.5, rel=1e-3)

    @pytest.mark.parametrize("days", [(1, 8), (0, 3)], ids=["begins late", "ends early"])
    def test_times_outside_of_it_are_refused(
        self, config: MeasureConfig, tmp_path: Path, days: tuple[int, int]
    ) -> None:
        config = dataclasses.replace(config, unit=Unit.user(days=7), queries=config.queries[:1])
        ledger = new_ledger(tmp_path / "weekly.db", epsilon=5, unit=config.unit)
        first, last = (self.SPAN[0] + datetime.timedelta(days=day) for day in days)
        charge = ReleaseCharge(ledger=ledger, purpose="measure", at=first, until=last)
        with pytest.raises(ConfigError, match="times outside"):
            run_measure(config, tmp_path / "out", MeasureOptions(charge=charge))
        assert list(ledger.spends("all")) == []


def test_the_file_says_who_made_the_noise_and_is_complete(
    config: MeasureConfig, tmp_path: Path
) -> None:
    result = run_measure(config, tmp_path / "out")
    read = read_measurement(result.path)
    assert read.is_secure
    assert read.plan == result.record.plan
    assert [table.name for table in read.tables] == ["conversions", "reach"]


class TestExportedTotals:
    def test_totals_of_another_engine_get_noise_and_say_so(
        self, config: MeasureConfig, tmp_path: Path
    ) -> None:
        plan = measuring.make_measure_plan(config)
        folder, out = tmp_path / "exported", tmp_path / "from-totals"
        folder.mkdir()
        out.mkdir()
        for job in plan.jobs:
            totals = dict.fromkeys(job.amount_names, 10**6)
            numbers = {"frequency": 1} if job.is_histogram else totals
            keys = pl.DataFrame() if job.keys is None else job.keys.head(1)
            wanted = pl.DataFrame([numbers | {"num_units": 10**6}])
            frame = pl.concat([keys, wanted], how="horizontal")
            frame.write_parquet(folder / f"{result_name(job)}.parquet")
        result = measure(config, out, ExportedTotals(folder), rng=release_rng())
        for table in result.record.tables:
            value = table.frame["value"].max()
            assert value == pytest.approx(10**6, abs=1000)
        unsure = [a for a in result.record.plan.assumptions if a.status is Status.ASSUMED]
        assert ["emitted script" in a.statement for a in unsure] == [True]

    def test_a_log_that_changes_meanwhile_is_refused(
        self, config: MeasureConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        states = iter(["before", "after"])
        monkeypatch.setattr(measuring, "log_state", lambda _: next(states))
        with pytest.raises(DataError, match="changed while"):
            run_measure(config, tmp_path / "out")
        assert not (tmp_path / "out" / "measurement.json").exists()
