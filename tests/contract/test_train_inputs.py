"""Data and settings that training refuses, in Python and on the command line alike.

Each line of `REFUSALS` spoils one thing. Every way to train must then say what is wrong and the way
out in its own words, charge nothing and leave nothing behind.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import tulle
from command_line_messages import python_words
from tulle.cli.main import run_with
from tulle.errors import ConfigError, DataError, TulleError

SCHEMA: dict[str, Any] = {
    "label": "sale",
    "public": ["site", "price"],
    "sensitive": ["age", "mobile"],
    "unit": "uid",
    "kinds": {"price": "real", "age": "integer", "mobile": "boolean"},
}
AMOUNTS = {"label": "amount"}
WEIGHED = {"weight": "weight"}
NUM_ROWS = 60
Change = Callable[[pl.DataFrame], pl.DataFrame]


class Refusal(NamedTuple):
    """What is spoiled, and what is said of it."""

    code: int
    """Exit code: 2 for settings, 4 for data."""
    said: str
    """What both ways say."""
    rows: Change = lambda rows: rows
    schema: dict[str, Any] = {}  # noqa: RUF012 (nobody changes it)
    """Changes of the schema; None takes an entry out."""
    given: dict[str, Any] = {}  # noqa: RUF012
    """Keywords of `tulle.train.fit`, which are options, too."""


def value_at_8(column: str, value: object) -> Change:
    """Spoils the value of a column in the eighth row."""

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        values = rows[column].to_list()
        if isinstance(value, str):
            values = [None if one is None else str(one) for one in values]
        values[7] = value
        return rows.with_columns(pl.Series(column, values))

    return change


def clip(value: float) -> dict[str, Any]:
    return {"schema": AMOUNTS, "given": {"clip": value}}


REFUSALS: dict[str, Refusal] = {
    "a user without an id": Refusal(4, "'uid' has nulls or empty text", value_at_8("uid", None)),
    "an empty id": Refusal(4, "'uid' has nulls or empty text", value_at_8("uid", "")),
    "labels of text": Refusal(4, "'sale' of role label is neither", value_at_8("sale", "sold")),
    "a missing label": Refusal(4, "'sale'", value_at_8("sale", None)),
    "labels of no class": Refusal(
        4, "none of the classes", value_at_8("sale", "sold"), given={"classes": ["0", "1"]}
    ),
    "one class": Refusal(2, "has one name", given={"classes": ["0"]}),
    "a class twice": Refusal(2, "has '1' twice", given={"classes": ["1", "0", "1"]}),
    "classes and a clip": Refusal(2, "leave one", given={"classes": ["1", "0"], "clip": 2.0}),
    "amounts without a clip": Refusal(4, "the largest value that a label", schema=AMOUNTS),
    "a clip below zero": Refusal(2, "-1.0 must be a number above 0", **clip(-1.0)),
    "a clip of zero": Refusal(2, "0.0 must be a number above 0", **clip(0.0)),
    "a clip of nan": Refusal(2, "nan must be a finite number", **clip(float("nan"))),
    "a clip without end": Refusal(2, "inf must be a finite number", **clip(float("inf"))),
    "a clip for labels of 0 and 1": Refusal(2, "rr", given={"clip": 5.0, "method": "rr"}),
    "an amount below zero": Refusal(
        4, "add a constant to all labels", value_at_8("amount", -1.0), **clip(50.0)
    ),
    "an amount of nan": Refusal(4, "no number", value_at_8("amount", float("nan")), **clip(50.0)),
    "an amount without end": Refusal(
        4, "no number", value_at_8("amount", float("inf")), **clip(50.0)
    ),
    "a weight below zero": Refusal(4, "below 0 or infinite", value_at_8("weight", -1.0), WEIGHED),
    "a weight without end": Refusal(
        4, "below 0 or infinite", value_at_8("weight", float("inf")), WEIGHED
    ),
    "a weight of nan": Refusal(
        4, "every row needs a weight", value_at_8("weight", float("nan")), WEIGHED
    ),
    "a missing weight": Refusal(4, "every row needs a weight", value_at_8("weight", None), WEIGHED),
    "weights of zero": Refusal(
        4, "weights of all rows are zero", lambda rows: rows.with_columns(weight=0.0), WEIGHED
    ),
    "weights of text": Refusal(4, "'weight' holds no number", value_at_8("weight", "x"), WEIGHED),
    "text among numbers": Refusal(4, "'age' holds no whole number", value_at_8("age", "old")),
    "no truth value": Refusal(4, "'mobile' holds no truth value", value_at_8("mobile", "maybe")),
    "times in milliseconds": Refusal(
        4,
        "such times look like milliseconds",
        lambda rows: rows.with_columns(age=pl.lit(1_767_225_600_000)),
        {"kinds": {"price": "real", "age": "timestamp", "mobile": "boolean"}},
    ),
    "no rows": Refusal(4, "no rows", lambda rows: rows.head(0)),
    "a missing column": Refusal(
        4, "(did you mean 'Site'?)", lambda rows: rows.rename({"site": "Site"})
    ),
    "numbers of no kind": Refusal(
        2,
        "'price' holds numbers with fractions",
        lambda rows: rows.with_columns(price=pl.int_range(len(rows)) + 0.5),
        {"kinds": {}},
    ),
    "a column in two roles": Refusal(2, "take it out of", schema={"sensitive": ["site"]}),
    "a column named twice": Refusal(
        2, "'site' is in public twice", schema={"public": ["site", "site"]}
    ),
    "a window without a time": Refusal(
        4, "the data have no time", given={"unit": "user per 30 days"}
    ),
    "a window of no length": Refusal(
        2, "'0 days' has no length", given={"unit": "user per 0 days"}
    ),
    "a unit that is another column": Refusal(2, "'site' is unknown; use", given={"unit": "site"}),
    "a misspelt unit": Refusal(
        2, "'uids' is unknown (did you mean 'uid'?)", given={"unit": "uids"}
    ),
    "users without a column of them": Refusal(
        4, "whose each row is", schema={"unit": None}, given={"unit": "user"}
    ),
    "a weaker unit than the budget's": Refusal(
        2, "does not cover unit 'user'", given={"unit": "example"}
    ),
}


def log_of(refusal: Refusal) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    rows = pl.DataFrame(
        {
            "uid": [f"u{number}" for number in rng.integers(0, 40, NUM_ROWS)],
            "site": [f"s{number}" for number in rng.integers(0, 3, NUM_ROWS)],
            "price": rng.integers(1, 9, NUM_ROWS) / 4,
            "age": rng.integers(18, 80, NUM_ROWS),
            "mobile": rng.random(NUM_ROWS) < 0.5,
            "sale": rng.integers(0, 2, NUM_ROWS),
            "amount": rng.integers(0, 9, NUM_ROWS) / 2,
            "weight": rng.random(NUM_ROWS),
        }
    )
    # More rows than a table of few values needs to be asked for kinds.
    return refusal.rows(pl.concat([rows, rows]))


def words_of(value: object) -> str:
    """A value as the command line takes it."""
    return ",".join(value) if isinstance(value, list) else str(value)


def schema_of(refusal: Refusal) -> dict[str, Any]:
    return {name: to for name, to in (SCHEMA | refusal.schema).items() if to is not None}


@pytest.fixture
def ledger(tmp_path: Path) -> tulle.Ledger:
    made = tulle.Ledger.create(tmp_path / "ledger.db")
    made.create_budget(
        tulle.Budget(name="ads", unit="user", adjacency="replace", epsilon=9, delta=1e-3)
    )
    return made


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TULLE_CACHE", str(tmp_path / "cache"))


def check_nothing_happened(folder: Path, ledger: tulle.Ledger) -> None:
    assert ledger.spends("ads") == ()
    assert not [path.name for path in folder.glob("*model*")]


@pytest.mark.parametrize("name", REFUSALS)
def test_the_command_line_refuses_it(
    name: str, tmp_path: Path, ledger: tulle.Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = REFUSALS[name]
    log_of(refusal).write_parquet(tmp_path / "log.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(schema_of(refusal)), encoding="utf-8")
    options = [
        word for key, value in refusal.given.items() for word in (f"--{key}", words_of(value))
    ]
    words = ["train", str(tmp_path / "log.parquet"), "--epsilon", "3", "--quiet", *options]
    words += ["--ledger", str(tmp_path / "ledger.db"), "--output", str(tmp_path / "model")]
    # No word of a file, whose settings would be named as they are in it.
    assert run_with([*words, f"--schema={tmp_path / 'schema.json'}"]) == refusal.code
    shown = capsys.readouterr()
    assert refusal.said in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert python_words(shown.err, words) == []
    check_nothing_happened(tmp_path, ledger)


@pytest.mark.parametrize("name", REFUSALS)
def test_python_refuses_it(name: str, tmp_path: Path, ledger: tulle.Ledger) -> None:
    refusal = REFUSALS[name]
    kind = ConfigError if refusal.code == 2 else DataError
    given = {"epsilon": 3, "ledger": ledger, "output": tmp_path / "model", **refusal.given}
    with pytest.raises(TulleError) as caught:
        tulle.train.fit(log_of(refusal), schema_of(refusal), **given)
    assert isinstance(caught.value, kind)
    assert refusal.said in str(caught.value)
    assert "--" not in str(caught.value).replace("(--", "")
    check_nothing_happened(tmp_path, ledger)


@pytest.mark.parametrize("name", REFUSALS)
def test_estimators_refuse_it(name: str, tmp_path: Path, ledger: tulle.Ledger) -> None:
    refusal = REFUSALS[name]
    if refusal.given.get("method", "mosaic") != "mosaic" or {"classes", "clip"} <= set(
        refusal.given
    ):
        pytest.skip("a classifier has no clip, and a regressor neither methods nor classes")
    estimator = tulle.Regressor if "clip" in refusal.given else tulle.Classifier
    given = {"epsilon": 3, "ledger": ledger, "output": tmp_path / "model", **refusal.given}
    with pytest.raises(TulleError) as caught:
        estimator(schema_of(refusal), **given).fit(log_of(refusal))
    assert isinstance(caught.value, ValueError)
    assert refusal.said in str(caught.value)
    check_nothing_happened(tmp_path, ledger)
