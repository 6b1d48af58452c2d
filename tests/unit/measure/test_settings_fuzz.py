"""Whatever a settings file or a log says: a measurement, or an error with a way out; no spend."""

import datetime
import shutil
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tulle.accounting.ledger_rows import SpendStatus
from tulle.errors import TulleError
from tulle.measure.config_file import read_config
from tulle.measure.queries.measure_plan import make_measure_plan
from unit.measure.queries.small_measurements import (
    PRIVATE_QUERIES,
    QUERIES,
    new_ledger,
    paying,
    run_measure,
    small_log,
    write_log,
    write_settings,
)
from unit.measure.queries.small_measurements import settings as settings_text
from unit.measure.toml_text import changed, paths, toml_text

PLAIN = tomllib.loads(settings_text(*QUERIES))
PRIVATE = tomllib.loads(settings_text(*PRIVATE_QUERIES, privacy='noise = "gaussian"\ndelta = 1e-6'))
LEARNT = tomllib.loads(
    settings_text("conversions", rule="data-driven").replace(
        'lookback = "3 days"',
        'lookback = "3 days"\nchannel = "kind"\nchannels = ["click", "view"]\nshare = 0.3\n'
        'model = "shapley"\nmax_set_size = 2',
    )
)
VALUES = st.one_of(
    st.integers(-3, 5),
    st.integers(),
    st.floats(),
    st.sampled_from(
        ["", " ", "a", "private", "user", "day", "conversion.day", "row", "k", "metric"]
    ),
    st.sampled_from(
        ["linear", "last-n", "reach", "7 days", "-1 days", "*", "**a", "\0", "a/b.csv"]
    ),
    st.text(max_size=5),
    st.booleans(),
    st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
    st.lists(st.sampled_from(["a", "", "geo", 1, 0.5, True, ["geo"], {"x": 1}]), max_size=3),
    st.dictionaries(st.sampled_from(["first", "last", "column", "a"]), st.integers(), max_size=2),
)
NAMES = st.sampled_from(
    [
        *("share", "keys", "slices", "levels", "split", "tau", "history", "clip", "values"),
        *("base", "kinds", "unattributed", "running_totals", "max_frequency", "max_per_unit"),
        *("delta", "noise", "confidence", "key_share", "max_touches", "weights", "channel"),
        *("database", "version", "advertiser", "priority", "impression_id", "nothing"),
    ]
)


@st.composite
def mutated(draw: st.DrawFn, tree: dict[str, Any]) -> dict[str, Any]:
    """A settings tree with one to three places changed."""
    for _ in range(draw(st.integers(1, 3))):
        places = list(paths(tree))
        if not places:
            return tree
        place, kind = draw(st.sampled_from(places)), draw(st.sampled_from(["drop", "set", "add"]))
        value, name = draw(VALUES), draw(NAMES)

        def change(
            inner: Any, key: Any, kind: str = kind, value: Any = value, n: str = name
        ) -> None:
            if kind == "drop":
                del inner[key]
            elif kind == "set" or not isinstance(inner, dict):
                inner[key] = value
            else:
                inner[n] = value

        tree = changed(tree, place, change)
    return tree


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    write_log(folder)
    return folder


@pytest.mark.parametrize("tree", [PLAIN, PRIVATE, LEARNT], ids=["plain", "private", "learnt"])
def test_trees_survive_being_written(folder: Path, tree: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(tree)) == tree
    make_measure_plan(read_config(write_settings(folder, toml_text(tree))).config)


@settings(max_examples=800, derandomize=True, suppress_health_check=list(HealthCheck))
@given(tree=st.one_of(mutated(PLAIN), mutated(PRIVATE), mutated(LEARNT)))
def test_changed_settings_plan_or_say_what_is_wrong(folder: Path, tree: dict[str, Any]) -> None:
    path = write_settings(folder, toml_text(tree), "changed.toml")
    message = None
    try:
        make_measure_plan(read_config(path).config)
    except TulleError as error:
        message = str(error)
    assert message is None or len(message.split()) >= 3


SMALL = tomllib.loads(settings_text("value", "rate", "reach", "running"))


@settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck))
@given(tree=mutated(SMALL))
def test_changed_settings_measure_or_spend_nothing(folder: Path, tree: dict[str, Any]) -> None:
    check_measured_or_unspent(folder, write_settings(folder, toml_text(tree), "changed.toml"))


def check_measured_or_unspent(folder: Path, path: Path) -> bool:
    """Measures on a fresh ledger; True if it worked."""
    for left in ("out", "ledger"):
        shutil.rmtree(folder / left, ignore_errors=True)
    (folder / "ledger").mkdir()
    ledger = new_ledger(folder / "ledger" / "ledger.db", epsilon=1e6)
    try:
        result = run_measure(read_config(path).config, folder / "out", paying(ledger))
    except TulleError:
        assert [spend.status for spend in ledger.spends("all")] == []
        assert list((folder / "out").iterdir() if (folder / "out").exists() else []) == []
        return False
    assert [spend.status for spend in ledger.spends("all")] == [SpendStatus.RELEASED]
    assert len(list(result.record.tables)) > 0
    return True


def _with(name: str, expression: Any) -> Any:
    return lambda table: (
        table.with_columns(expression.alias(name)) if name in table.columns else table
    )


def _sometimes(name: str, value: Any) -> Any:
    """The value in every third row."""

    def fault(table: pl.DataFrame) -> pl.DataFrame:
        if name not in table.columns:
            return table
        every_third = pl.int_range(pl.len()) % 3 == 0
        return table.with_columns(
            pl.when(every_third).then(pl.lit(value)).otherwise(pl.col(name)).alias(name)
        )

    return fault


FAULTS = {
    "none": lambda table: table,
    "reversed": lambda table: table.reverse(),
    "empty": lambda table: table.clear(),
    "twice": lambda table: pl.concat([table, table]),
    "null users": _sometimes("user", None),
    "null times": _sometimes("timestamp", None),
    "null values": _sometimes("value", None),
    "NaN values": _sometimes("value", float("nan")),
    "infinite values": _sometimes("value", float("inf")),
    "negative values": _sometimes("value", -1.0),
    "huge values": _sometimes("value", 1e300),
    "null campaigns": _sometimes("campaign", None),
    "null kinds": _sometimes("kind", None),
    "odd campaigns": _sometimes("campaign", "a'\"; \n\0|ü"),
    "milliseconds": _with("timestamp", pl.col("timestamp") + 1_700_000_000_000),
    "negative times": _with("timestamp", pl.col("timestamp") - 1_000_000),
    "text times": _with("timestamp", pl.col("timestamp").cast(pl.String)),
    "fractions of seconds": _with("timestamp", pl.col("timestamp") + 0.5),
    "timestamps": _with("timestamp", pl.from_epoch(pl.col("timestamp"))),
    "text users": _with("user", pl.format("u{}", "user")),
    "fractional users": _with("user", pl.col("user") + 0.5),
    "number campaigns": _with("campaign", pl.col("user")),
    "text values": _with("value", pl.lit("much")),
    "text numbers": _with("value", pl.lit("3")),
    "list values": _with("value", pl.concat_list("user")),
    "no user": lambda table: table.drop("user"),
    "no time": lambda table: table.drop("timestamp"),
    "no campaign": lambda table: table.drop("campaign", strict=False),
    "no value": lambda table: table.drop("value", strict=False),
    "no columns": lambda table: table.select(other=pl.lit(1)),
    "upper case": lambda table: table.rename(str.upper),
}


@pytest.mark.long("fuzzing at length; changed settings are fuzzed in make test")
@pytest.mark.parametrize("ending", ["parquet", "csv"])
@settings(max_examples=35, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    tree=st.sampled_from([SMALL, PRIVATE, LEARNT]),
    faults=st.tuples(st.sampled_from(sorted(FAULTS)), st.sampled_from(sorted(FAULTS))),
)
def test_faulty_tables_measure_or_spend_nothing(
    folder: Path, ending: str, tree: dict[str, Any], faults: tuple[str, str]
) -> None:
    names = {name: f"faulty-{name}.{ending}" for name in ("impressions", "conversions")}
    log = [FAULTS[name](table) for name, table in zip(faults, small_log(num_rows=90), strict=True)]
    for name, table in zip(names.values(), log, strict=True):
        try:
            if ending == "parquet":
                table.write_parquet(folder / name)
            else:
                table.write_csv(folder / name)
        except pl.exceptions.ComputeError:  # CSV has no lists
            return
    path = write_settings(folder, toml_text({**tree, "log": names}), "faulty.toml")
    worked = check_measured_or_unspent(folder, path)
    if set(faults) <= {"none", "reversed", "twice"}:
        assert worked
    if set(faults) & {"no user", "no time", "null users", "no columns", "upper case"}:
        assert not worked
