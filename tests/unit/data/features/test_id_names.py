"""Names of ids come from settings and from the caller's table, never from anywhere else."""

from pathlib import Path

import polars as pl
import pytest

from tulle.data.features.column_features import (
    DayOfWeekFeature,
    HashedFeature,
    HourFeature,
    LogFeature,
    VocabularyFeature,
)
from tulle.data.features.encoder import Encoder, build_encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.id_names import joined_names, names_of_ids, range_name
from tulle.data.features.vocabulary import fit_vocabularies
from tulle.data.schema import Schema
from tulle.errors import DataError

SALT = bytes(range(16))
SCHEMA = Schema(
    label="click",
    public=("site", "price", "share"),
    sensitive=("interest",),
    unit="user",
    time="second",
    kinds={"price": "integer", "share": "real", "second": "timestamp"},
)
FEATURES = (
    HashedFeature(column="site", num_bins=5),
    LogFeature(column="price", num_buckets=4),
    LogFeature(column="share", num_buckets=3),
    HourFeature(column="second"),
    DayOfWeekFeature(column="second"),
    HashedFeature(column="interest", num_bins=40),
)
SITES = [f"site {number}" for number in range(12)]


@pytest.fixture(params=[True, False], ids=["one table a role", "a table each"])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    plan = FeaturePlan(schema=SCHEMA, features=FEATURES, salt=SALT, shared_tables=request.param)
    return build_encoder(plan)


@pytest.mark.parametrize(
    ("names", "together"),
    [
        (["0", "no whole number", "1", "2"], "0 to 2"),
        (["0 to 15", "16", "no whole number", "17 to 18"], "0 to 18"),
        (["95 to 110", "111 to 126", "127 or more"], "95 or more"),
        (["up to 3", "4", "5 to 9"], "up to 9"),
        (["up to 3", "4 or more"], "any number"),
        (["below 1.5", "1.5 to below 2", "2 to below 3.5"], "below 3.5"),
        (["1.5 to below 2", "2 to below 3.5"], "1.5 to below 3.5"),
        (["below 1.5", "1.5 or more"], "any number"),
        (["no whole number", "no whole number"], "no whole number"),
        (["00:00", "01:00"], "00:00, 01:00"),
        (["00:00", "01:00", "02:00"], "00:00 to 02:00"),
        (["Monday", "Tuesday"], "Monday, Tuesday"),
        (["Monday", "Tuesday", "Wednesday"], "Monday to Wednesday"),
    ],
)
def test_neighbouring_bins_are_one_range(names: list[str], together: str) -> None:
    assert range_name(names) == together


def test_numbers_and_times_have_names_without_any_table(encoder: Encoder) -> None:
    site, price, share, hour, day, interest = names_of_ids(encoder)
    assert [price.name(number) for number in price.ids] == [
        *("0", "1 to 2", "3 to 6", "7 or more", "negative", "missing")
    ]
    assert price.num_ordered == 4
    assert share.name(share.ids[1]) == "1 to below 3"
    assert [hour.name(number) for number in hour.ids[[0, 23, 24]]] == ["00:00", "23:00", "missing"]
    assert [day.name(number) for number in day.ids[[0, 6, 7]]] == ["Monday", "Sunday", "missing"]
    assert site.name(3) == "bin 3"
    assert (len(site.ids), len(interest.ids)) == (5, 40)
    assert site.num_ordered == interest.num_ordered == 0


def test_names_are_those_that_the_encoder_gives_these_ids(encoder: Encoder) -> None:
    wanted = {
        1: {0: "0", 1: "1 to 2", 2: "1 to 2", 6: "3 to 6", 7: "7 or more", None: "missing"},
        2: {0: "0 to below 1", 2: "1 to below 3", 3: "3 or more", -1: "negative"},
    }
    for place, names in wanted.items():
        for value, name in names.items():
            (found,) = encoder.ids_of(place, pl.Series([value], dtype=pl.Int64))
            assert names_of_ids(encoder)[place].name(int(found)) == name


def test_all_values_of_a_bin_are_named_and_the_rest_is_counted(encoder: Encoder) -> None:
    values = pl.DataFrame({"site": SITES + SITES, "note": "not looked at"})
    names = names_of_ids(encoder, values)[0]
    ids = encoder.ids_of(0, pl.Series("site", SITES)).tolist()
    for number in range(5):
        inside = tuple(site for site, found in zip(SITES, ids, strict=True) if found == number)
        assert names.names.get(number, ()) == inside
        assert names.name(number) == (joined_names(inside) if inside else f"bin {number}")
    assert joined_names(["a", "b"]) == "a, b"
    assert joined_names(["a", "b", "c", "d"]) == "a, b and 2 more"


def test_a_file_names_the_same_bins_as_a_table(encoder: Encoder, tmp_path: Path) -> None:
    values = pl.DataFrame({"site": [*SITES, None], "note": "not looked at"})
    values.write_csv(tmp_path / "sites.csv")
    values.write_parquet(tmp_path / "sites.parquet")
    wanted = names_of_ids(encoder, values)[0].names
    assert "missing" in [name for names in wanted.values() for name in names]
    for name in ("sites.csv", "sites.parquet"):
        assert names_of_ids(encoder, tmp_path / name)[0].names == wanted


def test_a_log_does_not_name_values_of_sensitive_columns(encoder: Encoder) -> None:
    log = pl.DataFrame({"interest": ["golf"], "site": ["site 1"], "click": [1], "user": ["u"]})
    with pytest.raises(DataError, match="column 'click' beside the sensitive column 'interest'"):
        names_of_ids(encoder, log)
    with pytest.raises(DataError, match="'user' beside the sensitive column 'interest'"):
        names_of_ids(encoder, log.drop("click"))
    # Public columns of a log are public, and so is a catalogue of sensitive values.
    assert names_of_ids(encoder, log.drop("interest"))[0].names
    assert names_of_ids(encoder, log.select("interest"))[-1].names


def test_a_table_without_a_column_of_the_model_is_refused(encoder: Encoder) -> None:
    with pytest.raises(DataError, match="no column that the model looks at; name one of"):
        names_of_ids(encoder, pl.DataFrame({"sites": SITES}))


def test_kept_values_of_a_vocabulary_have_numbers_until_they_are_named() -> None:
    schema = Schema(label="click", public=("site",))
    features = (VocabularyFeature(column="site", min_count=2),)
    plan = FeaturePlan(schema=schema, features=features, salt=SALT, shared_tables=True)
    rows = pl.DataFrame({"site": ["a", "a", "b", "b", "rare"]})
    encoder = build_encoder(plan, fit_vocabularies(lambda: iter([rows]), plan))
    (names,) = names_of_ids(encoder)
    shown = {names.name(int(number)) for number in names.ids}
    assert shown == {"value 0", "value 1", "missing", "other values"}
    (named,) = names_of_ids(encoder, rows)
    assert {named.name(int(number)) for number in named.ids} == {
        *("a", "b", "missing", "other values")
    }
