"""What a release is for: units, seeds, times, files, plans and learnt priors."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.accounting.refusal import SpendRefusedError
from tulle.data.schema import Schema
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.labels import noisy_table
from tulle.labels.label_grid import LabelGrid
from tulle.labels.label_noise import RowNoise
from tulle.labels.label_release import make_release_plan, release_labels
from tulle.labels.label_table import LabelTable
from tulle.labels.mechanisms.added_noise import LaplaceLabels
from tulle.labels.mechanisms.bin_response import BinResponse
from tulle.labels.mechanisms.class_response import BinaryResponse, ClassResponse
from tulle.labels.mechanisms.label_prior import LabelPriorConfig, LearntPriorNoise
from tulle.labels.mechanisms.prior_response import PriorResponse
from tulle.labels.mechanisms.unit_noise import UnitNoise
from tulle.labels.mechanisms.unit_response import JointResponse, PerRowResponse
from tulle.labels.unit_rows import UnitRows
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.privacy.plan import Status
from tulle.privacy.units import Unit
from tulle.runs.charging import ReleaseCharge, ReleaseTerms
from tulle.runs.release_once import ReleaseOptions
from unit.labels.label_files import (
    ROWS,
    clicks_table,
    ledger_with,
    raising,
    release,
    statuses,
    write_clicks,
)


class TestUnits:
    @pytest.mark.parametrize(
        "mechanism",
        [
            PerRowResponse(epsilon=2.0, max_rows_per_unit=3),
            JointResponse(epsilon=2.0),
            JointResponse(epsilon=2.0, max_conversions_per_unit=2, max_rows_per_unit=4),
            JointResponse(epsilon=1.0, subset=True),
        ],
        ids=["per row", "joint", "joint with caps", "subset"],
    )
    def test_kept_rows_have_their_own_columns_and_chances(
        self, clicks: Path, tmp_path: Path, mechanism: PerRowResponse | JointResponse
    ) -> None:
        table = clicks_table(clicks, unit=Unit.user(days=7))
        noise = UnitNoise(mechanism=mechanism)
        result = release_labels(table, noise, tmp_path / "noisy.parquet", rng=release_rng())
        raw, noisy = pl.read_parquet(clicks), pl.read_parquet(result.path)
        week = pl.col("second") // (7 * 86_400)
        lengths = raw.with_columns(week=week).group_by(["user", "week"]).len()
        cap = mechanism.max_rows_per_unit or 10**9
        assert noisy.height == lengths["len"].clip(upper_bound=cap).sum()
        with_length = noisy.with_columns(week=week).join(lengths, on=["user", "week"])
        for length, positive in with_length.select("len", "prob_if_positive").unique().rows():
            expected = float(mechanism.row_channel(length).prob_if_positive)
            assert positive == pytest.approx(expected, rel=1e-12)
        assert noisy["weight"].max() == 1.0

    def test_the_guarantee_names_the_unit_and_its_whole_epsilon(
        self, clicks: Path, tmp_path: Path
    ) -> None:
        ledger = ledger_with(tmp_path / "u.db", epsilon=2.0, unit=Unit.user())
        noise = UnitNoise(mechanism=PerRowResponse(epsilon=2.0, max_rows_per_unit=None))
        result = release_labels(
            clicks_table(clicks, unit=Unit.user()),
            noise,
            tmp_path / "noisy.parquet",
            rng=release_rng(),
            options=ReleaseOptions(charge=ReleaseCharge(ledger=ledger, purpose="labels")),
        )
        assert result.record.plan.guarantee.unit == Unit.user()
        assert result.record.plan.guarantee.epsilon == 2.0
        assert ledger.state("all").left_epsilon == pytest.approx(0.0, abs=1e-9)

    def test_noise_on_single_rows_cannot_claim_a_user(self, clicks: Path, tmp_path: Path) -> None:
        table = clicks_table(clicks, unit=Unit.user())
        with pytest.raises(ConfigError, match="may own several"):
            release_labels(table, ROWS, tmp_path / "noisy.parquet", rng=release_rng())
        noise = UnitNoise(mechanism=JointResponse(epsilon=1.0))
        with pytest.raises(ConfigError, match="has one row"):
            release_labels(
                clicks_table(clicks), noise, tmp_path / "noisy.parquet", rng=release_rng()
            )

    def test_a_budget_of_examples_does_not_pay_less_for_users(
        self, clicks: Path, tmp_path: Path, ledger: Ledger
    ) -> None:
        user_ledger = ledger_with(tmp_path / "u.db", epsilon=5.0, unit=Unit.user())
        with pytest.raises(ConfigError, match="does not cover unit"):
            release(clicks, tmp_path / "noisy.parquet", user_ledger)
        assert statuses(ledger) == []


class TestSeeds:
    def test_a_seeded_release_does_not_stand_for_a_private_one(
        self, clicks: Path, tmp_path: Path
    ) -> None:
        ledger = ledger_with(tmp_path / "rich.db", epsilon=2.0)
        options = ReleaseOptions(charge=ReleaseCharge(ledger=ledger, purpose="labels"))
        table = clicks_table(clicks)
        seeded, real = tmp_path / "seeded.parquet", tmp_path / "real.parquet"
        release_labels(table, ROWS, seeded, rng=SeededNoise(5), options=options)
        result = release_labels(table, ROWS, real, rng=release_rng(), options=options)
        assert not result.is_stored
        assert result.record.is_secure


class TestTime:
    START = datetime(1970, 1, 1, tzinfo=UTC)

    def release(self, clicks: Path, ledger: Ledger, start: datetime, days: int) -> None:
        charge = ReleaseCharge(
            ledger=ledger, purpose="labels", at=start, until=start + timedelta(days=days)
        )
        release_labels(
            clicks_table(clicks, unit=Unit.user(days=7)),
            UnitNoise(mechanism=JointResponse(epsilon=2.0)),
            clicks.with_name("noisy.parquet"),
            rng=release_rng(),
            options=ReleaseOptions(charge=charge),
        )

    def weekly(self, folder: Path) -> Ledger:
        return ledger_with(folder / "weekly.db", epsilon=2.0, unit=Unit.user(days=7))

    def test_every_window_of_the_data_is_charged(self, clicks: Path, tmp_path: Path) -> None:
        ledger = self.weekly(tmp_path)
        self.release(clicks, ledger, self.START, 14)
        for day in (1, 10):
            state = ledger.state("all", at=self.START + timedelta(days=day))
            assert state.left_epsilon == pytest.approx(0.0, abs=1e-9)

    @pytest.mark.parametrize(
        ("start", "days"),
        [
            (START, 13),
            (START + timedelta(days=1), 20),
            (datetime(2026, 1, 14, tzinfo=UTC), 21),
        ],
        ids=["too short", "too late", "another year"],
    )
    def test_another_time_than_that_of_the_data_is_refused(
        self, clicks: Path, tmp_path: Path, start: datetime, days: int
    ) -> None:
        ledger = self.weekly(tmp_path)
        with pytest.raises(ConfigError, match="every window is charged"):
            self.release(clicks, ledger, start, days)
        assert statuses(ledger) == []

    def test_a_table_without_times_cannot_be_charged_to_a_window(
        self, clicks: Path, tmp_path: Path
    ) -> None:
        ledger = ledger_with(tmp_path / "daily.db", epsilon=2.0, unit=Unit.example(days=1))
        table = clicks_table(clicks, schema=Schema(label="sale", public=("campaign",)))
        charge = ReleaseCharge(ledger=ledger, purpose="labels", at=self.START)
        with pytest.raises(ConfigError, match="no time column"):
            release_labels(
                table,
                ROWS,
                tmp_path / "noisy.parquet",
                rng=release_rng(),
                options=ReleaseOptions(charge=charge),
            )

    def test_an_open_spend_of_another_time_is_not_taken_up(
        self, clicks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ledger = self.weekly(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(noisy_table, "sink_tables", raising(OSError("no room")))
            with pytest.raises(RunStateError):
                self.release(clicks, ledger, self.START, 28)
        with pytest.raises(SpendRefusedError):
            self.release(clicks, ledger, self.START, 14)


class TestFiles:
    def test_files_that_differ_in_a_type_are_refused_before_anything_is_spent(
        self, clicks: Path, tmp_path: Path, ledger: Ledger
    ) -> None:
        other = tmp_path / "other.parquet"
        rows = write_clicks(other, seed=1)
        rows.with_columns(pl.col("advertiser").cast(pl.Int32)).write_parquet(other)
        table = dataclasses.replace(clicks_table(clicks), paths=(clicks, other))
        options = ReleaseOptions(charge=ReleaseCharge(ledger=ledger, purpose="labels"))
        with pytest.raises(DataError, match=r"'advertiser' is Int64 in clicks.* and Int32 in"):
            release_labels(
                table, ROWS, tmp_path / "noisy.parquet", rng=release_rng(), options=options
            )
        assert statuses(ledger) == []

    def test_what_a_killed_try_left_hidden_is_removed(self, clicks: Path, tmp_path: Path) -> None:
        left = tmp_path / ".noisy.parquet.0123456789abcdef.unreleased"
        left.write_bytes(b"half a draw")
        release(clicks, tmp_path / "noisy.parquet", None)
        assert not left.exists()

    def test_a_file_that_is_named_twice_is_refused(self, clicks: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.parquet"
        other.symlink_to(clicks)
        table = dataclasses.replace(clicks_table(clicks), paths=(clicks, other))
        with pytest.raises(DataError, match="named twice"):
            release_labels(table, ROWS, tmp_path / "noisy.parquet", rng=release_rng())

    @pytest.mark.parametrize("is_charged", [False, True], ids=["no ledger", "ledger"])
    def test_a_copy_of_a_file_is_refused_before_anything_is_charged_or_drawn(
        self, clicks: Path, tmp_path: Path, ledger: Ledger, is_charged: bool
    ) -> None:
        other = tmp_path / "other.parquet"
        other.write_bytes(clicks.read_bytes())
        table = dataclasses.replace(clicks_table(clicks), paths=(clicks, other))
        charge = ReleaseCharge(ledger=ledger, purpose="labels") if is_charged else None
        with pytest.raises(DataError, match="byte by byte"):
            release_labels(
                table,
                ROWS,
                tmp_path / "noisy.parquet",
                rng=release_rng(),
                options=ReleaseOptions(charge=charge),
            )
        assert statuses(ledger) == []
        assert not list(tmp_path.glob("*noisy*"))

    def test_a_file_that_changes_after_its_units_were_read_is_refused(
        self, clicks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read_units = LabelTable.unit_rows

        def change_after(table: LabelTable) -> UnitRows:
            unit_rows = read_units(table)
            rows = pl.read_parquet(clicks).with_columns(user=pl.lit(1, dtype=pl.Int64))
            rows.write_parquet(clicks)
            return unit_rows

        monkeypatch.setattr(LabelTable, "unit_rows", change_after)
        noise = UnitNoise(mechanism=JointResponse(epsilon=1.0))
        with pytest.raises(DataError, match="changed while"):
            release_labels(
                clicks_table(clicks, unit=Unit.user()),
                noise,
                tmp_path / "noisy.parquet",
                rng=release_rng(),
            )
        assert not list(tmp_path.glob("*noisy*"))


class TestPlan:
    def test_the_declared_range_is_part_of_the_release(self, clicks: Path) -> None:
        def settings_of(low: float, high: float) -> Mapping[str, object]:
            grid = LabelGrid(low=low, high=high)
            noise = RowNoise(mechanism=LaplaceLabels(epsilon=1.0, grid=grid))
            return make_release_plan(clicks_table(clicks), noise).settings

        assert settings_of(0, 10)["grid_high"] == 10.0
        assert settings_of(0, 10) != settings_of(-5, 5)

    def test_only_a_ledger_keeps_a_release_from_being_drawn_again(self, clicks: Path) -> None:
        with_ledger = make_release_plan(
            clicks_table(clicks), ROWS, terms=ReleaseTerms(has_ledger=True)
        )
        without = make_release_plan(clicks_table(clicks), ROWS)
        assert any("second time" in a.statement for a in with_ledger.assumptions)
        assert not any("second time" in a.statement for a in without.assumptions)

    def test_a_prior_that_was_given_is_assumed_to_be_public(self, clicks: Path) -> None:
        grid = LabelGrid(low=0, high=2)
        for prior, is_assumed in (([1 / 3] * 3, False), ([0.5, 0.3, 0.2], True)):
            noise = RowNoise(mechanism=BinResponse(epsilon=2.0, grid=grid, prior=np.array(prior)))
            plan = make_release_plan(clicks_table(clicks), noise)
            statuses_found = {a.status for a in plan.assumptions}
            assert (Status.ASSUMED in statuses_found) == is_assumed

    def test_one_prior_a_row_is_refused(self) -> None:
        priors = np.tile([0.5, 0.3, 0.2], (10, 1))
        with pytest.raises(ConfigError, match="one prior for each row"):
            RowNoise(mechanism=PriorResponse(epsilon=3.0, prior=priors))


class TestLearntPrior:
    @pytest.mark.parametrize("error", [ConfigError("no bins"), RunStateError("no optimum")])
    def test_a_prior_without_a_mechanism_does_not_stop_a_release_that_is_paid(
        self, clicks: Path, tmp_path: Path, ledger: Ledger, error: Exception
    ) -> None:
        noise = LearntPriorNoise(
            prior=LabelPriorConfig(epsilon=0.5, labels=2),
            build=raising(error),
            fallback=ClassResponse(epsilon=1.0, num_classes=2),
            word="prior-rr",
        )
        result = release(clicks, tmp_path / "noisy.parquet", ledger, noise=noise)
        assert result.record.plan.guarantee.epsilon == 1.5
        assert statuses(ledger) == [SpendStatus.RELEASED]
        assert set(pl.read_parquet(result.path)["noisy_label"].unique()) == {0, 1}

    def test_a_mechanism_that_costs_more_than_planned_is_not_used(
        self, clicks: Path, tmp_path: Path
    ) -> None:
        noise = LearntPriorNoise(
            prior=LabelPriorConfig(epsilon=0.5, labels=2),
            build=lambda _weights: BinaryResponse(epsilon=1.01),
            fallback=BinaryResponse(epsilon=1.0),
            word="prior-rr",
        )
        result = release(clicks, tmp_path / "noisy.parquet", None, noise=noise)
        assert result.record.mechanism["epsilon"] == 1.0
