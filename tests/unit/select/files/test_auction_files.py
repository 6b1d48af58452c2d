import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

from tulle.data.synth.auctions import AuctionConfig, generate_auction_blocks, write_auction_log
from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, DeviceClicks
from tulle.select.files import whole_auctions
from tulle.select.files.auction_files import AuctionColumns, AuctionRows, read_auctions

Row = dict[str, Any]

ROWS: list[Row] = [
    {"auction_id": 7, "ad": 1, "bid": 1.5, "p_server": 0.25, "p_device": 0.5},
    {"auction_id": 7, "ad": 2, "bid": 0.0, "p_server": 0.0, "p_device": 1.0},
    {"auction_id": 3, "ad": 2, "bid": 2.0, "p_server": 1.0, "p_device": 0.0},
    {"auction_id": 9, "ad": 3, "bid": 0.1, "p_server": 0.3, "p_device": 0.125},
    {"auction_id": 9, "ad": 1, "bid": 0.7, "p_server": 0.2, "p_device": 0.625},
]
PRIVATE_VALUE = "0.987654321"


def write_parquet(path: Path, rows: list[Row]) -> None:
    pl.DataFrame(rows).write_parquet(path)


def write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_gzip(path: Path, rows: list[Row]) -> None:
    plain = path.with_suffix("")
    write_csv(plain, rows)
    path.write_bytes(gzip.compress(plain.read_bytes()))


def write_lines(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_nested(path: Path, rows: list[Row]) -> None:
    lines: list[Row] = []
    of_auction = {"auction_id", "user_id", "timestamp", "consent"}
    for row in rows:
        if not lines or lines[-1]["auction_id"] != row["auction_id"]:
            lines.append({name: row[name] for name in of_auction & row.keys()} | {"candidates": []})
        lines[-1]["candidates"].append({k: v for k, v in row.items() if k not in of_auction})
    write_lines(path, lines)


FORMS: dict[str, tuple[str, Callable[[Path, list[Row]], None]]] = {
    "parquet": ("a.parquet", write_parquet),
    "csv": ("a.csv", write_csv),
    "gzip": ("a.csv.gz", write_gzip),
    "lines": ("a.jsonl", write_lines),
    "nested": ("a.ndjson", write_nested),
}
LINE_FORMS = ("csv", "gzip", "lines")


def write(folder: Path, form: str, rows: list[Row]) -> Path:
    name, writer = FORMS[form]
    writer(folder / name, rows)
    return folder / name


def rows_of(blocks: list[AuctionRows], *, as_text: bool = False) -> list[Row]:
    """Candidates one by one, with the ids that the file has."""
    found = []
    for block in blocks:
        for auction in range(len(block)):
            for place in range(block.offsets[auction], block.offsets[auction + 1]):
                row = {
                    "auction_id": block.auction_ids[auction],
                    "ad": block.original_ads(block.ads)[place],
                    "bid": float(block.bids[place]),
                    "p_server": float(block.server_click_probs[place]),
                }
                if block.device_click_probs is not None:
                    row["p_device"] = float(block.device_click_probs[place])
                found.append(row)
    return (
        [{**row, "auction_id": str(row["auction_id"]), "ad": str(row["ad"])} for row in found]
        if as_text
        else found
    )


def with_text_ids(rows: list[Row]) -> list[Row]:
    return [{**row, "auction_id": str(row["auction_id"]), "ad": str(row["ad"])} for row in rows]


def changed(place: int, **values: Any) -> list[Row]:
    return [{**row, **values} if at == place else row for at, row in enumerate(ROWS)]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_auctions(tmp_path: Path, form: str) -> None:
    blocks = list(read_auctions(write(tmp_path, form, ROWS), with_device=True))
    assert rows_of(blocks, as_text=True) == with_text_ids(ROWS)
    assert [block.offsets.tolist() for block in blocks] == [[0, 2, 3, 5]]
    assert all(block.users is None and block.consents is None for block in blocks)


@pytest.mark.parametrize("form", ["parquet", "lines", "nested"])
def test_whole_numbers_stay_whole_numbers(tmp_path: Path, form: str) -> None:
    (block,) = read_auctions(write(tmp_path, form, ROWS), with_device=False)
    assert block.auction_ids.tolist() == [7, 3, 9]
    assert block.ads.tolist() == [1, 2, 2, 3, 1]
    assert block.ad_codes is None


@pytest.mark.parametrize("form", FORMS)
def test_text_ids_leave_as_they_came(tmp_path: Path, form: str) -> None:
    rows = [{**row, "auction_id": f"a{row['auction_id']}", "ad": f"0{row['ad']}"} for row in ROWS]
    (block,) = read_auctions(write(tmp_path, form, rows), with_device=True)
    assert rows_of([block]) == rows
    assert block.ads.tolist() == [0, 1, 1, 2, 0]
    assert block.ad_codes is not None
    assert block.original_ads(block.ads[2:4]).tolist() == ["02", "03"]


@st.composite
def auctions(draw: st.DrawFn) -> list[Row]:
    ids = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8, unique=True))
    chances = st.floats(0, 1)
    return [
        {
            "auction_id": auction,
            "ad": ad,
            "bid": draw(st.floats(0, 1e300)),
            "p_server": draw(chances),
            "p_device": draw(chances),
        }
        for auction in ids
        for ad in draw(
            st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5, unique=True)
        )
    ]


@pytest.mark.parametrize("form", FORMS)
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(rows=auctions(), size=st.integers(1, 12))
def test_blocks_of_any_size_hold_whole_auctions_and_every_bit(
    tmp_path: Path, form: str, rows: list[Row], size: int
) -> None:
    path = write(tmp_path, form, rows)
    blocks = list(read_auctions(path, with_device=True, candidates_per_block=size))
    assert rows_of(blocks, as_text=True) == with_text_ids(rows)
    ids = [str(auction) for block in blocks for auction in block.auction_ids]
    assert len(ids) == len(set(ids))


def test_blocks_are_about_as_large_as_wanted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_auction_log(AuctionConfig(num_auctions=2_000), path, seed=1)
    blocks = list(read_auctions(path, with_device=False, candidates_per_block=5_000))
    assert sum(map(len, blocks)) == 2_000
    assert len(blocks) > 4
    assert max(block.offsets[-1] for block in blocks) < 5_000 + 25


@pytest.mark.parametrize("name", ["a.csv", "a.csv.zst", "a.parquet"])
def test_a_synthetic_log_comes_back(tmp_path: Path, name: str) -> None:
    config = AuctionConfig(num_auctions=300)
    write_auction_log(config, tmp_path / name, seed=3)
    (block,) = read_auctions(tmp_path / name, with_device=True)
    (truth,) = generate_auction_blocks(config, seed=3)
    assert np.array_equal(block.offsets, truth.offsets)
    assert block.original_ads(block.ads).astype(np.int64).tolist() == truth.ad.tolist()
    assert block.device_click_probs is not None
    assert np.abs(block.device_click_probs - truth.p_device).max() < 1e-9


def test_what_belongs_to_an_auction_is_one_value_for_each(tmp_path: Path) -> None:
    rows = [
        {**row, "user_id": f"u{row['auction_id']}", "consent": row["auction_id"] != 3}
        for row in ROWS
    ]
    for form in FORMS:
        (block,) = read_auctions(write(tmp_path, form, rows), with_device=True)
        assert block.users is not None
        assert block.consents is not None
        assert block.users.tolist() == ["u7", "u3", "u9"]
        assert block.consents.tolist() == [True, False, True]


@pytest.mark.parametrize("form", FORMS)
def test_columns_that_no_selection_needs_are_not_looked_at(tmp_path: Path, form: str) -> None:
    strange = {"timestamp": "no time", "click": PRIVATE_VALUE}
    (plain,) = read_auctions(write(tmp_path, form, ROWS), with_device=True)
    (block,) = read_auctions(
        write(tmp_path, form, [{**row, **strange} for row in ROWS]), with_device=True
    )
    assert rows_of([block]) == rows_of([plain])


@pytest.mark.parametrize("form", ["parquet", *LINE_FORMS])
@pytest.mark.parametrize(("name", "value"), [("user_id", "v"), ("consent", False)])
def test_candidates_of_an_auction_agree_on_what_is_its_own(
    tmp_path: Path, form: str, name: str, value: Any
) -> None:
    first = {"user_id": "u", "consent": True}[name]
    rows = [{**row, name: first} for row in ROWS]
    rows[4][name] = value
    with pytest.raises(DataError, match=rf"(line|row) \d: column '{name}' differs"):
        list(read_auctions(write(tmp_path, form, rows), with_device=False))


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    rows = [{"q": r["auction_id"], "a": r["ad"], "b": r["bid"], "s": r["p_server"]} for r in ROWS]
    columns = AuctionColumns(auction="q", ad="a", bid="b", server_prob="s")
    (block,) = read_auctions(write(tmp_path, "parquet", rows), columns, with_device=False)
    assert block.bids.tolist() == [row["bid"] for row in ROWS]


@pytest.mark.parametrize("form", FORMS)
def test_a_missing_column_is_named_with_the_closest_one(tmp_path: Path, form: str) -> None:
    rows = [{("p_sever" if name == "p_server" else name): v for name, v in r.items()} for r in ROWS]
    with pytest.raises(DataError, match=r"no column 'p_server' \(did you mean 'p_sever'\?\)"):
        list(read_auctions(write(tmp_path, form, rows), with_device=True))


@pytest.mark.parametrize("form", FORMS)
def test_an_optional_column_under_another_name_must_be_there(tmp_path: Path, form: str) -> None:
    columns = AuctionColumns(user="person")
    with pytest.raises(DataError, match="no column 'person'"):
        list(read_auctions(write(tmp_path, form, ROWS), columns, with_device=False))


@pytest.mark.parametrize("name", ["Consent", "consnt", "consents"])
def test_a_misspelt_consent_is_not_overlooked(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, "csv", [{**row, name: "false"} for row in ROWS])
    with pytest.raises(DataError, match=f"no column 'consent', but '{name}'"):
        list(read_auctions(path, with_device=False))
    columns = AuctionColumns(consent=name)
    (block,) = read_auctions(path, columns, with_device=False)
    assert block.consents is not None
    assert not block.consents.any()
    (block,) = read_auctions(path, AuctionColumns(consent=None), with_device=False)
    assert block.consents is None


def test_a_consent_that_only_later_lines_have_is_not_overlooked(tmp_path: Path) -> None:
    path = write(tmp_path, "lines", changed(3, consent=False))
    with pytest.raises(DataError, match="line 4 has the key 'consent', which the first line lacks"):
        list(read_auctions(path, with_device=False))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("bid", -0.5, "finite number >= 0"),
        ("bid", float("nan"), "(is missing|finite number >= 0)"),
        ("bid", float("inf"), "finite number >= 0"),
        ("bid", None, "is missing"),
        ("p_server", 1.0000001, r"probability in \[0, 1\]"),
        ("p_server", float("nan"), r"(is missing|probability in)"),
        ("p_server", None, "is missing"),
        ("p_device", float(PRIVATE_VALUE) + 1, r"probability in \[0, 1\]"),
        ("p_device", float("nan"), r"(is missing|probability in)"),
        ("auction_id", None, "is missing"),
        ("ad", None, "is missing"),
    ],
)
def test_values_that_are_missing_or_out_of_range_are_named_by_place(
    tmp_path: Path, form: str, name: str, value: Any, problem: str
) -> None:
    path = write(tmp_path, form, changed(3, **{name: value}))
    place = {"lines": "line 4", "nested": "line 3"}.get(form, "row 4")
    with pytest.raises(DataError, match=rf"^column '{name}' .*{problem}.*, {place}; ") as caught:
        list(read_auctions(path, with_device=True, candidates_per_block=2))
    assert PRIVATE_VALUE[2:] not in str(caught.value)


@pytest.mark.parametrize("form", LINE_FORMS)
@pytest.mark.parametrize("name", ["bid", "p_server", "p_device"])
def test_text_where_a_number_belongs_is_refused_unseen(
    tmp_path: Path, form: str, name: str
) -> None:
    rows = [{**row, name: f"x{PRIVATE_VALUE}"} for row in ROWS]
    with pytest.raises(DataError, match=f"column '{name}'") as caught:
        list(read_auctions(write(tmp_path, form, rows), with_device=True))
    assert PRIVATE_VALUE not in str(caught.value)


def test_types_are_declared_and_not_guessed(tmp_path: Path) -> None:
    """Ads that look like numbers for a million rows, and then do not, stay the texts they are."""
    rows = [{**row, "ad": "00" if at == 4 else row["ad"]} for at, row in enumerate(ROWS)]
    (block,) = read_auctions(write(tmp_path, "csv", rows), with_device=False)
    assert block.original_ads(block.ads).tolist() == ["1", "2", "2", "3", "00"]


@pytest.mark.parametrize("form", ["lines", "nested"])
@pytest.mark.parametrize("size", [1, 200_000])
def test_json_ids_of_two_types_are_refused(tmp_path: Path, form: str, size: int) -> None:
    path = write(tmp_path, form, changed(4, ad="1"))
    with pytest.raises(DataError, match=r"line \d: (column 'ad'|ids are)"):
        list(read_auctions(path, with_device=False, candidates_per_block=size))


@pytest.mark.parametrize("value", [[1], {"a": 1}, True])
def test_json_numbers_are_numbers(tmp_path: Path, value: Any) -> None:
    path = write(tmp_path, "lines", [{**row, "bid": value} for row in ROWS])
    with pytest.raises(DataError, match="column 'bid'"):
        list(read_auctions(path, with_device=False))


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"candidates": 3}', '{"candidates": []}', ""])
def test_a_broken_json_line_is_named_and_not_quoted(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, "lines", ROWS)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl line 6"):
        list(read_auctions(path, with_device=False))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("kind", [int, str])
def test_an_auction_that_comes_back_is_refused(
    tmp_path: Path, form: str, size: int, kind: type
) -> None:
    rows = [{**row, "auction_id": kind(row["auction_id"])} for row in (*ROWS, ROWS[0])]
    place = {"parquet": "row 6", "csv": "row 6", "gzip": "row 6", "lines": "line 6"}
    with pytest.raises(DataError, match=f"{place.get(form, 'line 4')}: an auction comes back"):
        list(
            read_auctions(write(tmp_path, form, rows), with_device=True, candidates_per_block=size)
        )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [int, str])
def test_an_ad_twice_in_an_auction_is_refused(tmp_path: Path, form: str, kind: type) -> None:
    rows = [{**row, "ad": kind(row["ad"])} for row in changed(4, ad=3)]
    place = {"parquet": "row 5", "csv": "row 5", "gzip": "row 5", "lines": "line 5"}
    problem = f"{place.get(form, 'line 3')}: column 'ad' has a value a second time"
    with pytest.raises(DataError, match=problem):
        list(read_auctions(write(tmp_path, form, rows), with_device=True))


def test_a_file_without_auctions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("auction_id,ad,bid,p_server\n")
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(DataError, match="has no auctions"):
        list(read_auctions(tmp_path / "a.csv", with_device=False))
    with pytest.raises(DataError, match="is empty"):
        list(read_auctions(tmp_path / "a.jsonl", with_device=False))


def test_a_name_that_says_no_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_text("auction_id\n")
    with pytest.raises(ConfigError, match=r"a\.dat does not say how its columns"):
        list(read_auctions(tmp_path / "a.dat", with_device=False))


def test_a_column_has_one_meaning() -> None:
    with pytest.raises(ConfigError, match="server_prob='bid' is the column of bid too"):
        AuctionColumns(server_prob="bid")
    with pytest.raises(ConfigError, match="ad=''"):
        AuctionColumns(ad="")


PRIVATE_COLUMNS = {"p_device": [f"no probability {PRIVATE_VALUE}"], "click": [PRIVATE_VALUE]}


def assert_reads_only_public_columns(read: Callable[[Path], list[AuctionRows]], path: Path) -> None:
    (block,) = read(path)
    assert block.device_click_probs is None


@pytest.mark.parametrize("form", FORMS)
def test_private_columns_are_not_looked_at_without_the_device(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form, [{**row, **PRIVATE_COLUMNS} for row in ROWS])

    def careless(path: Path) -> list[AuctionRows]:
        return list(read_auctions(path, with_device=True))

    assert_reads_only_public_columns(
        lambda path: list(read_auctions(path, with_device=False)), path
    )
    with pytest.raises(DataError):
        assert_reads_only_public_columns(careless, path)
    path = write(tmp_path, form, ROWS)
    with pytest.raises(AssertionError):
        assert_reads_only_public_columns(careless, path)


def assert_candidates_are_public(read: Callable[[Path], list[Row]], folder: Path) -> None:
    """Which candidates there are must not follow from what a device predicts, or that it does."""
    public = [(row["auction_id"], row["ad"]) for row in ROWS]
    for place in range(len(ROWS)):
        path = write(folder, "lines", changed(place, p_device=None))
        try:
            found = [(row["auction_id"], row["ad"]) for row in read(path)]
        except DataError as error:
            assert "candidates must not depend on private data" in str(error)  # noqa: PT017
            assert "server's" in str(error)  # noqa: PT017
        else:
            assert found == public


def test_a_device_cannot_leave_out_a_candidate(tmp_path: Path) -> None:
    def read(path: Path) -> list[Row]:
        return rows_of(list(read_auctions(path, with_device=True)))

    def dropping(path: Path) -> list[Row]:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [row for row in rows if row["p_device"] is not None]

    assert_candidates_are_public(read, tmp_path)
    with pytest.raises(AssertionError):
        assert_candidates_are_public(dropping, tmp_path)
    for form in FORMS:
        path = write(tmp_path, form, changed(2, p_device=None))
        with pytest.raises(DataError, match=r"'p_device' is missing in .*; the set of cand"):
            read(path)


def test_sensitive_arrays_are_not_shown(tmp_path: Path) -> None:
    rows = [{**row, "p_device": float(PRIVATE_VALUE), "user_id": "alice"} for row in ROWS]
    (block,) = read_auctions(write(tmp_path, "parquet", rows), with_device=True)
    assert PRIVATE_VALUE[2:8] not in repr(block)
    assert "alice" not in repr(block)


def test_an_auction_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_auctions, "MAX_ROWS_PER_AUCTION", 3)
    rows = [{**ROWS[0], "ad": ad} for ad in range(5)]
    path = write(tmp_path, "csv", rows)
    with pytest.raises(DataError, match="row 1: an auction has more than 3 rows"):
        list(read_auctions(path, with_device=False, candidates_per_block=2))


@pytest.mark.parametrize("form", FORMS)
def test_auctions_of_a_file_are_what_selection_takes(tmp_path: Path, form: str) -> None:
    (block,) = read_auctions(write(tmp_path, form, ROWS), with_device=True)
    auctions = Auctions(
        offsets=block.offsets,
        ads=block.ads,
        bids=block.bids,
        server_click_probs=block.server_click_probs,
    )
    assert block.device_click_probs is not None
    scores = DeviceClicks(click_probs=block.device_click_probs).scores(auctions)
    assert scores.tolist() == [row["bid"] * row["p_device"] for row in ROWS]
    assert auctions.ads.dtype == np.int64
    assert auctions.bids.dtype == np.float64


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    for form in ("csv", "lines", "nested"):
        path = write(tmp_path, form, ROWS)
        text = path.read_text().replace("\r\n", "\n").replace("\n", "\r\n")
        path.write_bytes(text.encode())
        blocks = list(read_auctions(path, with_device=True))
        assert rows_of(blocks, as_text=True) == with_text_ids(ROWS)


def test_ids_of_a_text_file_can_be_declared_whole_numbers(tmp_path: Path) -> None:
    columns = AuctionColumns(has_numeric_ids=True)
    for form in FORMS:
        (block,) = read_auctions(write(tmp_path, form, ROWS), columns, with_device=True)
        assert rows_of([block]) == ROWS
        assert block.auction_ids.dtype == block.ads.dtype == np.int64
        assert block.ad_codes is None
    path = write(tmp_path, "csv", changed(4, ad="x1"))
    with pytest.raises(DataError, match=r"'ad' holds no whole number .*, row 5;"):
        list(read_auctions(path, columns, with_device=False))
