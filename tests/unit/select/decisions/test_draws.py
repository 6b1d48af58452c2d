"""Decisions from a file: the stated law, nobody's data without consent, one form for all."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from statistical.randomizer_checks import assert_follows, assert_rejects
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.select.decisions import draws
from tulle.select.decisions.chosen_ads import SelectionRecord
from tulle.select.decisions.draws import decide, draw_places
from tulle.select.files import choice_files
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import NonPersonalised
from tulle.select.mechanisms.noisy_max import NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.shortlists import Cutoff, TopCandidates
from tulle.select.mechanisms.slots import SlotMechanism
from tulle.select.selection_config import Consent, Pricing, SelectionConfig
from unit.select.decisions.auction_tables import (
    auction_table,
    by_user,
    copies_of,
    decide_seeded,
    read_in_small_blocks,
    read_table,
    selection,
    server_winners,
    with_text_ids,
    write_table,
)

# By server score: 3, 1, 4, 2 and 5, which is below a reserve of 0.1. Devices like 4 best of the
# first three, and 5 best of all.
ONE_AUCTION = pl.DataFrame(
    {
        "auction_id": [0] * 5,
        "ad": [1, 2, 3, 4, 5],
        "bid": [1.0, 1.0, 2.0, 1.0, 1.0],
        "p_server": [0.4, 0.2, 0.3, 0.3, 0.05],
        "p_device": [0.4, 0.9, 0.1, 0.5, 1.0],
    }
)
TOP_THREE = FloorMechanism(epsilon=2.0, shortlist=TopCandidates(num_finalists=3))


def shuffled(min_cell_size: int, **settings: Any) -> SelectionConfig:
    given: dict[str, Any] = {
        "mechanism": FloorMechanism(epsilon=1.0, shortlist=TopCandidates(num_finalists=2)),
        "min_cell_size": min_cell_size,
        "pricing": Pricing(rule="posted"),
        "delta": 1e-6,
    }
    return selection(**given | settings)


def drawn(
    config: SelectionConfig, table: pl.DataFrame, folder: Path, **options: Any
) -> pl.DataFrame:
    name = options.pop("name", "choices.parquet")
    path = write_table(table, folder / options.pop("source", "auctions.parquet"))
    decide_seeded(config, path, folder / name, **options)
    found = read_table(folder / name)
    for written in folder.glob(f"{Path(name).stem}.*"):
        written.unlink()
    return found


class TestLaw:
    def test_choices_have_the_law_of_randomized_response(self, tmp_path: Path) -> None:
        table = copies_of(ONE_AUCTION, 100_000)
        config = selection(mechanism=TOP_THREE, pricing=Pricing(reserve=0.1))
        ads = drawn(config, table, tmp_path, seed=11)["ad"].to_numpy()
        counts = np.array([np.sum(ads == ad) for ad in (3, 1, 4)])
        assert counts.sum() == 100_000

        def law(epsilon: float) -> list[float]:
            total = 2 + math.exp(epsilon)
            return [1 / total, 1 / total, math.exp(epsilon) / total]

        assert_follows(counts.tolist(), law(2.0))
        assert_rejects(counts.tolist(), law(2.1))
        assert_rejects(counts.tolist(), law(1.9))

    def test_a_cutoff_after_the_reserve_has_its_law_too(self, tmp_path: Path) -> None:
        table = copies_of(ONE_AUCTION, 100_000)
        # Scores 0.6, 0.4 and 0.3 reach (1 - 0.5) of the best.
        cutoff = FloorMechanism(epsilon=2.0, shortlist=Cutoff(gamma=0.5))
        config = selection(mechanism=cutoff, pricing=Pricing(reserve=0.1))
        ads = drawn(config, table, tmp_path, seed=12)["ad"].to_numpy()
        total = 2 + math.exp(2.0)
        counts = [int(np.sum(ads == ad)) for ad in (3, 1, 4)]
        assert_follows(counts, [1 / total, 1 / total, math.exp(2.0) / total])
        assert_rejects(counts, [1.05 / total, 1.05 / total, 1 - 2.1 / total])

    def test_noisy_maxima_have_their_law_through_the_file(self, tmp_path: Path) -> None:
        table = copies_of(ONE_AUCTION, 180_000)
        noisy = NoisyMax(epsilon=3.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores())
        ads = drawn(selection(mechanism=noisy), table, tmp_path, seed=13)["ad"].to_numpy()
        scores = (ONE_AUCTION["bid"] * ONE_AUCTION["p_device"]).to_numpy()

        def law(rate: float) -> list[float]:
            scaled = (scores - scores.min()) / (scores.max() - scores.min())
            weights = np.exp(rate * scaled)
            return [float(weight) for weight in weights / weights.sum()]

        counts = [int(np.sum(ads == ad)) for ad in ONE_AUCTION["ad"]]
        assert_follows(counts, law(1.5))
        assert_rejects(counts, law(1.05 * 1.5))
        # Half the noise, as if scores could only rise together.
        assert_rejects(counts, law(3.0))


class TestConsent:
    @pytest.mark.parametrize("mechanism", [TOP_THREE, SlotMechanism(epsilon=2.0, num_slots=2)])
    def test_without_consent_private_scores_change_nothing(
        self, tmp_path: Path, mechanism: Any
    ) -> None:
        table = auction_table(300, seed=3, has_refusals=True)
        config = selection(mechanism=mechanism, consent=Consent.COLUMN)
        rng = np.random.default_rng(9)
        other = pl.Series(rng.random(table.height))
        changed = table.with_columns(p_device=pl.when("consent").then("p_device").otherwise(other))
        assert not changed.equals(table)
        first, second = (drawn(config, one, tmp_path) for one in (table, changed))
        assert first.equals(second)
        # And the check would see it: where they agreed, the same change moves choices.
        agreed = [one.with_columns(consent=pl.lit(value=True)) for one in (table, changed)]
        assert not drawn(config, agreed[0], tmp_path).equals(drawn(config, agreed[1], tmp_path))

    @pytest.mark.parametrize("garbage", [None, 7.0, float("nan")])
    def test_what_devices_of_others_predict_is_not_even_checked(
        self, tmp_path: Path, garbage: float | None
    ) -> None:
        table = auction_table(100, seed=3, has_refusals=True)
        config = selection(consent=Consent.COLUMN)
        others = pl.when("consent").then("p_device").otherwise(pl.lit(garbage, pl.Float64))
        changed = table.with_columns(p_device=others)
        assert drawn(config, table, tmp_path).equals(drawn(config, changed, tmp_path))

    def test_without_consent_the_winner_of_the_server_is_shown(self, tmp_path: Path) -> None:
        table = auction_table(300, seed=3, has_refusals=True)
        chosen = drawn(selection(consent=Consent.COLUMN), table, tmp_path)
        winners = server_winners(table)
        agreed = dict(table.select("auction_id", "consent").rows())
        pairs = dict(chosen.rows())
        assert pairs.keys() == winners.keys()
        assert all(pairs[a] == winners[a] for a in winners if not agreed[a])
        assert any(pairs[a] != winners[a] for a in winners if agreed[a])

    def test_draws_for_those_who_agreed_do_not_depend_on_the_others(self, tmp_path: Path) -> None:
        table = auction_table(200, seed=6, has_refusals=True)
        config = selection(consent=Consent.COLUMN)
        both = drawn(config, table, tmp_path)
        alone = drawn(config, table.filter("consent"), tmp_path)
        assert both.join(alone, on=["auction_id", "ad"], how="semi").equals(alone)

    def test_a_user_beyond_the_limit_gets_the_winner(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read_in_small_blocks(monkeypatch, 60)
        table = auction_table(200, seed=8, sizes=(4, 6), num_users=20)
        pairs = dict(drawn(by_user(2), table, tmp_path).rows())
        winners = server_winners(table)
        seen: Counter[int] = Counter()
        moved = 0
        for auction, user in (
            table.select("auction_id", "user_id").unique(maintain_order=True).rows()
        ):
            seen[user] += 1
            if seen[user] > 2:
                assert pairs[auction] == winners[auction]
            moved += pairs[auction] != winners[auction]
        assert 5 < moved <= 40

    def test_fewer_finalists_than_stated_get_the_winner(self, tmp_path: Path) -> None:
        table = auction_table(300, seed=3)
        pairs = dict(drawn(selection(least_finalists=5), table, tmp_path).rows())
        winners = server_winners(table)
        sizes = dict(table.group_by("auction_id").len().rows())
        small = [auction for auction, size in sizes.items() if size < 5]
        assert all(pairs[auction] == winners[auction] for auction in small)
        assert any(pairs[a] != winners[a] for a in sizes if sizes[a] >= 5)


class TestForms:
    @pytest.mark.parametrize("source", ["auctions.parquet", "auctions.jsonl", "auctions.csv"])
    @pytest.mark.parametrize("name", ["choices.parquet", "choices.jsonl", "choices.csv"])
    @pytest.mark.parametrize("has_text", [False, True])
    def test_every_form_gives_the_same_choices(
        self, tmp_path: Path, source: str, name: str, has_text: bool
    ) -> None:
        table = auction_table(40, seed=3)
        table = with_text_ids(table) if has_text else table
        expected = drawn(selection(), table, tmp_path)
        found = drawn(selection(), table, tmp_path, source=source, name=name)
        assert found.columns == ["auction_id", "ad"]
        if source.endswith("csv"):
            expected = expected.cast(pl.String)
        assert found.cast(pl.String).equals(expected.cast(pl.String))

    def test_one_line_an_auction_is_read_too(self, tmp_path: Path) -> None:
        table = auction_table(40, seed=3)
        lines = [
            json.dumps(
                {
                    "auction_id": part["auction_id"][0],
                    "candidates": part.select("ad", "bid", "p_server", "p_device").to_dicts(),
                }
            )
            for part in table.partition_by("auction_id", maintain_order=True)
        ]
        path = tmp_path / "nested.jsonl"
        path.write_text("\n".join(lines) + "\n")
        decide_seeded(selection(), path, tmp_path / "nested_choices.parquet")
        nested = pl.read_parquet(tmp_path / "nested_choices.parquet")
        assert nested.equals(drawn(selection(), table, tmp_path))

    def test_blocks_of_any_size_have_an_ad_of_their_own_auction(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = with_text_ids(auction_table(100, seed=3))
        read_in_small_blocks(monkeypatch, 20)
        found = drawn(selection(), table, tmp_path)
        assert (
            found["auction_id"].to_list()
            == table["auction_id"].unique(maintain_order=True).to_list()
        )
        assert found.join(table, on=["auction_id", "ad"], how="semi").height == 100

    def test_auctions_below_the_reserve_show_no_ad(self, tmp_path: Path) -> None:
        table = auction_table(200, seed=3)
        config = selection(pricing=Pricing(reserve=0.2))
        found = drawn(config, table, tmp_path)
        assert set(found["auction_id"]) == server_winners(table, 0.2).keys()
        shown = found.join(table, on=["auction_id", "ad"])
        assert (shown["bid"] * shown["p_server"]).min() >= 0.2  # type: ignore[operator]

    def test_nothing_but_the_auction_and_its_ad_leaves(self, tmp_path: Path) -> None:
        table = auction_table(30, seed=1).with_columns(secret=pl.lit("s"))
        path = write_table(table, tmp_path / "auctions.parquet")
        result = decide_seeded(selection(), path, tmp_path / "choices.parquet")
        assert pl.read_parquet(result.path).columns == ["auction_id", "ad"]
        assert list(result.record.columns) == ["auction_id", "ad"]
        text = (tmp_path / "choices.release.json").read_text()
        assert SelectionRecord.from_json(text) == result.record
        # Probabilities of the file are not in the record either.
        assert not any(str(value) in text for value in table["p_device"] if value > 0.001)

    def test_a_writer_that_is_given_a_propensity_refuses(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def telling(path: Path, blocks: Any, names: Any, **options: Any) -> None:
            choice_files.write_choices(path, blocks, (*names, "propensity"), **options)

        monkeypatch.setattr(draws, "write_choices", telling)
        with pytest.raises(ConfigError, match="must not be written beside a choice"):
            drawn(selection(), auction_table(5, seed=1), tmp_path)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["auctions.parquet"]


class TestSlots:
    def test_shown_ads_come_in_server_order_with_their_slot(self, tmp_path: Path) -> None:
        table = auction_table(200, seed=5, has_refusals=True)
        mechanism = SlotMechanism(epsilon=1.0, num_slots=3)
        found = drawn(selection(mechanism=mechanism, consent=Consent.COLUMN), table, tmp_path)
        assert found.columns == ["auction_id", "slot", "ad"]
        scored = table.with_columns(score=pl.col("bid") * pl.col("p_server"))
        shown = found.join(scored, on=["auction_id", "ad"], maintain_order="left")
        assert shown.height == found.height
        for part in shown.partition_by("auction_id"):
            size = table.filter(auction_id=part["auction_id"][0]).height
            assert part["slot"].to_list() == list(range(min(size, 3)))
            assert part["score"].is_sorted(descending=True)
            assert part["ad"].n_unique() == part.height

    def test_only_finalists_are_shown_also_where_nobody_agreed(self, tmp_path: Path) -> None:
        table = auction_table(100, seed=5).with_columns(consent=pl.lit(value=False))
        shortlist = TopCandidates(num_finalists=2)
        mechanism = SlotMechanism(epsilon=1.0, num_slots=3, shortlist=shortlist)
        found = drawn(selection(mechanism=mechanism, consent=Consent.COLUMN), table, tmp_path)
        assert found.group_by("auction_id").len()["len"].max() == 2


class TestShuffle:
    @pytest.mark.parametrize("name", ["counts.parquet", "counts.jsonl", "counts.csv"])
    @pytest.mark.parametrize("has_text", [False, True])
    def test_only_counts_of_cells_leave(self, tmp_path: Path, name: str, has_text: bool) -> None:
        table = auction_table(300, seed=4, num_ads=4)
        table = with_text_ids(table) if has_text else table
        counts = drawn(shuffled(5), table, tmp_path, name=name)
        assert counts.columns == ["cell", "ad", "impressions"]
        assert counts["impressions"].sum() == 300
        assert counts.select("cell", "ad").n_unique() == counts.height
        assert counts.select("cell", "ad").equals(counts.select("cell", "ad").sort("cell", "ad"))

    def test_small_cells_get_the_winner_of_the_server(self, tmp_path: Path) -> None:
        table = auction_table(300, seed=4, num_ads=4)
        # No cell has so many: all is as without personalisation.
        counts = drawn(shuffled(150), table, tmp_path)
        winners = Counter(server_winners(table).values())
        found = counts.group_by("ad").agg(pl.col("impressions").sum())
        assert dict(found.rows()) == dict(winners)
        # Larger cells are personalised, so the winners lose some.
        moved = drawn(shuffled(2), table, tmp_path).group_by("ad").agg(pl.col("impressions").sum())
        assert dict(moved.rows()) != dict(winners)

    def test_counts_follow_the_law_in_a_large_cell(self, tmp_path: Path) -> None:
        table = copies_of(ONE_AUCTION, 100_000)
        config = shuffled(20, mechanism=TOP_THREE)
        counts = dict(drawn(config, table, tmp_path, seed=14).select("ad", "impressions").rows())
        total = 2 + math.exp(2.0)
        observed = [counts[ad] for ad in (3, 1, 4)]
        assert_follows(observed, [1 / total, 1 / total, math.exp(2.0) / total])
        assert_rejects(observed, [1.05 / total, 1.05 / total, 1 - 2.1 / total])

    def test_the_number_of_personalised_reports_is_that_of_large_cells(
        self, tmp_path: Path
    ) -> None:
        table = pl.concat(
            [
                copies_of(ONE_AUCTION, 9),
                copies_of(ONE_AUCTION.with_columns(pl.col("ad") + 10), 3).with_columns(
                    pl.col("auction_id") + 9
                ),
            ]
        )
        path = write_table(table, tmp_path / "auctions.parquet")
        for least, expected in ((3, 12), (4, 9), (10, 0)):
            out = tmp_path / f"counts{least}.parquet"
            record = decide_seeded(shuffled(least), path, out).record
            assert (record.num_requests, record.num_personalised) == (12, expected)


class TestRefusals:
    def test_a_file_that_changes_meanwhile_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = auction_table(50, seed=1)
        path = write_table(table, tmp_path / "auctions.parquet")

        def changing(*arguments: Any, **options: Any) -> Any:
            write_table(table.with_columns(p_device=1 - pl.col("p_device")), path)
            return draw_places(*arguments, **options)

        monkeypatch.setattr(draws, "draw_places", changing)
        with pytest.raises(DataError, match=r"auctions\.parquet changed while it was read"):
            decide_seeded(selection(), path, tmp_path / "choices.parquet")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["auctions.parquet"]

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"p_device": pl.lit(None, pl.Float64)}, "must not depend on private data"),
            ({"p_device": pl.lit(1.5)}, r"is no probability in \[0, 1\]"),
            ({"bid": pl.lit(-1.0)}, "is no finite number >= 0"),
            ({"ad": pl.lit(1)}, "a second time"),
        ],
    )
    def test_data_that_cannot_be_used_leave_no_file(
        self, tmp_path: Path, change: dict[str, pl.Expr], problem: str
    ) -> None:
        table = auction_table(20, seed=1, sizes=(2, 4)).with_columns(**change)
        path = write_table(table, tmp_path / "auctions.parquet")
        with pytest.raises(DataError, match=problem):
            decide_seeded(selection(), path, tmp_path / "choices.parquet")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["auctions.parquet"]

    def test_a_missing_column_is_named(self, tmp_path: Path) -> None:
        path = write_table(auction_table(5, seed=1).drop("p_device"), tmp_path / "a.parquet")
        with pytest.raises(DataError, match="no column 'p_device'"):
            decide_seeded(selection(), path, tmp_path / "choices.parquet")

    def test_other_names_of_columns_can_be_given(self, tmp_path: Path) -> None:
        table = auction_table(50, seed=1)
        expected = drawn(selection(), table, tmp_path)
        path = write_table(table.rename({"p_device": "d", "ad": "item"}), tmp_path / "b.parquet")
        columns = AuctionColumns(device_prob="d", ad="item")
        out = tmp_path / "choices.parquet"
        decide(selection(), path, out, columns=columns, rng=SeededNoise(5))
        assert pl.read_parquet(out).equals(expected)

    def test_files_that_are_there_are_kept(self, tmp_path: Path) -> None:
        path = write_table(auction_table(5, seed=1), tmp_path / "auctions.parquet")
        for name in ("choices.parquet", "choices.release.json"):
            (tmp_path / name).write_text("mine")
            with pytest.raises(RunStateError, match=f"{name} exists"):
                decide_seeded(selection(), path, tmp_path / "choices.parquet")
            assert (tmp_path / name).read_text() == "mine"
            (tmp_path / name).unlink()

    @pytest.mark.parametrize(
        ("out", "problem"),
        [
            ("choices.xml", "does not say how to write rows"),
            ("none/choices.parquet", "in no folder that exists"),
            ("auctions.parquet", "a file that is read"),
        ],
    )
    def test_a_wrong_name_is_refused_first(self, tmp_path: Path, out: str, problem: str) -> None:
        path = write_table(auction_table(5, seed=1), tmp_path / "auctions.parquet")
        with pytest.raises(ConfigError, match=problem):
            decide_seeded(selection(), path, tmp_path / out)

    def test_a_selection_without_personalisation_shows_winners(self, tmp_path: Path) -> None:
        table = auction_table(100, seed=1)
        pairs = drawn(selection(mechanism=NonPersonalised()), table, tmp_path).rows()
        assert dict(pairs) == server_winners(table)
