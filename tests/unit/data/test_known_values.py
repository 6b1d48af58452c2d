"""A public table of a sensitive column's values: how it is given, refused, kept and encoded."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.data.features.default_features import default_features
from tulle.data.features.encoder import Encoder, build_encoder
from tulle.data.features.id_names import MISSING, OTHERS, names_of_ids
from tulle.data.known_values import KnownValues
from tulle.data.number_columns import undeclared_numbers
from tulle.data.prepared.feature import FactGroups, PreparedFeature
from tulle.data.schema import Schema, read_schema, write_schema
from tulle.data.verbs import prepare
from tulle.errors import ConfigError, DataError, TulleError

SALT = bytes(range(16))
TABLE = pl.DataFrame(
    {
        "audience": ["shoes", "hats", "trips", "007"],
        "advertiser": ["wear", "wear", None, "cars"],
        "size": [1, 2, 2, 1],
    }
)


def schema(known: object = TABLE, **roles: object) -> Schema:
    given = {"label": "sale", "public": ["site"], "sensitive": ["audience"], "unit": "user"}
    return Schema(**{**given, **roles}, known_values={"audience": known})


def known(given: object = TABLE) -> KnownValues:
    found = schema(given).known_values["audience"]
    assert isinstance(found, KnownValues)
    return found


def encoder(given: object = TABLE) -> Encoder:
    return build_encoder(default_features(schema(given), num_rows=1000, salt=SALT))


def csv_of(folder: Path) -> Path:
    TABLE.write_csv(folder / "audiences.csv")
    return folder / "audiences.csv"


def parquet_of(folder: Path) -> str:
    TABLE.write_parquet(folder / "audiences.parquet")
    return str(folder / "audiences.parquet")


def arrow_of(folder: Path) -> Path:
    TABLE.write_ipc(folder / "audiences.arrow")
    return folder / "audiences.arrow"


def pandas_of(_folder: Path) -> object:
    return pandas.DataFrame(TABLE.to_dict(as_series=False))


@pytest.mark.parametrize(
    "given",
    [csv_of, parquet_of, arrow_of, pandas_of, lambda _: TABLE.to_arrow(), lambda _: TABLE[::-1]],
)
def test_a_table_says_the_same_in_every_form_and_order(
    given: Callable[[Path], object], tmp_path: Path
) -> None:
    found = known(given(tmp_path))
    assert found == known()
    assert found.values == ("007", "hats", "shoes", "trips")
    advertiser, size = found.facts
    assert [advertiser.groups[place] for place in advertiser.places] == [
        *("cars", "wear", "wear", "missing")
    ]
    assert [size.groups[place] for place in size.places] == ["1", "2", "1", "2"]


def test_a_list_of_values_has_no_facts() -> None:
    assert known(["b", "a"]) == KnownValues(values=("a", "b"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (TABLE.with_columns(sale=1), "has column 'sale', as a log has"),
        (TABLE.with_columns(user=1), "has column 'user', as a log has"),
        (pl.concat([TABLE, TABLE[:1]]), "has a value of 'audience' twice, as a log has"),
        (TABLE.with_columns(audience=pl.Series(["a", None, "b", "c"])), "without a value"),
        (TABLE.with_columns(size=pl.Series([0.5, 1, 2, 3])), "put numbers into classes"),
        (TABLE.rename({"audience": "id"}), "has no column 'audience'"),
        (TABLE[:0], "there are 0 known values"),
        ("nowhere.csv", "nowhere.csv does not exist"),
        ("audiences.xlsx", "must end in .parquet, .arrow, .csv or .tsv"),
        (7, "must be a file"),
    ],
)
def test_what_is_no_such_table_or_looks_like_a_log_is_refused(given: object, message: str) -> None:
    with pytest.raises(TulleError, match=message) as caught:
        schema(given)
    # It may be the log after all.
    assert not any(value in str(caught.value) for value in ("shoes", "hats", "wear"))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = Path(parquet_of(tmp_path))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"audiences\.parquet cannot be read"):
        schema(path)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"public": ["audience"], "sensitive": []}, "is no sensitive one"),
        ({"kinds": {"audience": "integer"}}, "which is integer; only categories"),
    ],
)
def test_only_sensitive_categories_have_known_values(
    roles: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        schema(TABLE, **roles)


def test_a_schema_file_names_the_table_beside_it(tmp_path: Path) -> None:
    csv_of(tmp_path)
    (tmp_path / "schema.toml").write_text(
        'label = "sale"\npublic = ["site"]\nsensitive = ["audience"]\nunit = "user"\n\n'
        '[known_values]\naudience = "audiences.csv"\n'
    )
    read = read_schema(tmp_path / "schema.toml")
    assert read == schema()
    # As written, a schema has the whole table: where it goes, nobody needs the file.
    write_schema(tmp_path / "schema.json", read)
    (tmp_path / "audiences.csv").unlink()
    assert read_schema(tmp_path / "schema.json") == read


def test_a_schema_with_known_values_can_be_copied() -> None:
    for again in (copy.copy(schema()), copy.deepcopy(schema())):
        assert again == schema()


def test_a_schema_without_known_values_is_written_as_before() -> None:
    assert "known_values" not in Schema(label="sale", sensitive=["audience"]).to_dict()


def test_numbers_with_known_values_need_no_kind() -> None:
    rows = pl.DataFrame({"audience": [1.5, 2.5]})
    assert undeclared_numbers(rows, Schema(label="sale", sensitive=["audience"]))
    assert not undeclared_numbers(rows, schema())


def test_each_known_value_has_an_id_and_all_others_one() -> None:
    made = encoder()
    (place,) = (n for n, feature in enumerate(made.features) if feature.name == "audience")
    feature = made.features[place]
    values = pl.Series([*known().values, None, "unheard", "of"], dtype=pl.String)
    ids = made.ids_of(place, values).tolist()
    first = feature.first_known
    assert ids == [first, first + 1, first + 2, first + 3, first + 4, first + 5, first + 5]
    assert feature.num_ids == first + 6
    assert feature.facts == tuple(
        FactGroups(name=fact.name, groups=fact.places) for fact in known().facts
    )
    names = names_of_ids(made)[place]
    assert [names.name(one) for one in ids[:6]] == [*known().values, MISSING, OTHERS]


@settings(max_examples=20, deadline=None)
@given(st.sets(st.text(min_size=1, max_size=12), min_size=1, max_size=40))
def test_no_two_known_values_share_an_id(values: set[str]) -> None:
    made = encoder(sorted(values))
    texts = pl.Series(sorted(values), dtype=pl.String)
    assert len(set(made.ids_of(1, texts).tolist())) == len(values)


def test_an_encoder_keeps_the_table_and_another_table_makes_another_one(tmp_path: Path) -> None:
    made = encoder()
    made.to_files(tmp_path)
    read = Encoder.from_files(tmp_path)
    assert read.features == made.features
    assert read.plan.schema.known_values["audience"] == known()
    changed = TABLE.with_columns(advertiser=pl.Series(["wear", "wear", "wear", "cars"]))
    renamed = TABLE.with_columns(advertiser=pl.Series(["was", "was", None, "cars"]))
    for table in (changed, renamed, TABLE[:3], TABLE.drop("size")):
        assert encoder(table).fingerprint() != made.fingerprint()
        assert encoder(table).features != made.features
    assert encoder(TABLE[::-1]).fingerprint() == made.fingerprint()


def test_a_feature_of_known_values_is_read_back() -> None:
    feature = encoder().features[1]
    assert PreparedFeature.from_dict(feature.to_dict()) == feature
    plain = PreparedFeature(name="site", role="public", num_ids=5, table="public")
    assert "num_known" not in plain.to_dict()


@pytest.mark.parametrize(
    "changes",
    [
        {"num_known": 5},
        {"facts": [{"name": "size", "groups": [0]}]},
        {"facts": [{"name": "size", "groups": [0, 2, 2, 0]}]},
        {"facts": [{"name": "size", "groups": [0.0, 1, 1, 0]}]},
    ],
)
def test_a_feature_that_contradicts_itself_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        PreparedFeature.from_dict({**encoder().features[1].to_dict(), **changes})


def test_prepared_data_know_the_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = pl.DataFrame(
        {
            "sale": rng.integers(0, 2, 50),
            "site": rng.integers(0, 5, 50),
            "audience": rng.choice(["shoes", "hats", "new"], 50),
            "user": np.arange(50),
        }
    )
    rows.write_parquet(tmp_path / "log.parquet")
    made = prepare(
        tmp_path / "log.parquet",
        schema(),
        output=tmp_path / "prepared",
        hash_bins_sensitive=100,
        salt=SALT,
    ).dataset
    assert made.schema == schema()
    (feature,) = (one for one in made.features if one.name == "audience")
    assert feature.num_known == 4
    assert set(np.unique(made.sensitive_features)) == {1, 2, 5}
    other = prepare(
        tmp_path / "log.parquet",
        schema(TABLE.drop("size")),
        output=tmp_path / "other",
        hash_bins_sensitive=100,
        salt=SALT,
    ).dataset
    assert other.fingerprint != made.fingerprint
