"""One [[query]] table of a measurement's settings."""

import datetime
import itertools
from pathlib import Path
from typing import Any

import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import LogColumns, Side
from tulle.measure.queries.query import MAX_SLICES, Levels, LevelSplit, Quantity, Query
from tulle.measure.slice_jobs import Amount, Bounds, SliceColumn
from tulle.measure.small_tables import read_table
from tulle.privacy.fields import check_choice, check_finite
from tulle.runs.toml_tables import check_flag, check_table, naming

_BOUNDS = ("max_per_slice", "max_slices_per_unit", "max_per_unit")
_KEYS = (
    *("slices", "keys", "share", *_BOUNDS, "clip", "values", "kinds", "base"),
    *("levels", "split", "tau", "history", "running_totals", "max_frequency", "unattributed"),
)
_PRIVATE = "private"


def read_query(table: object, *, columns: LogColumns, folder: Path) -> Query:
    """The query that a table describes, strictly.

    Args:
      table: As TOML gives it.
      columns: Of the log.
      folder: That relative paths start from.
    """
    fields = check_table("[[query]]", table, ("name", "measure"), _KEYS)
    name = fields["name"]
    what = f"query {name!r}"
    quantity = check_choice(f"{what}: measure", fields["measure"], Quantity)
    slices = _slices(what, fields.get("slices", []), quantity, columns)
    is_reach = quantity is Quantity.REACH
    for setting in ("max_per_slice", "max_per_unit") if is_reach else ("max_frequency",):
        if setting in fields:
            raise ConfigError(f"{what}: {setting} does not bound {quantity.value}; leave it out.")
    return Query(
        name=name,
        quantity=quantity,
        slices=slices,
        keys=_keys(what, fields, [column.name for column in slices], folder),
        bounds=None if is_reach else _bounds(what, fields),
        share=check_finite(f"{what}: share", fields.get("share", 1.0)),
        values=_values(what, fields, quantity, columns),
        base_kinds=_texts(what, "kinds", fields.get("kinds", [])),
        base_bounds=_base_bounds(what, fields),
        counts_unattributed=check_flag(f"{what}: unattributed", fields.get("unattributed", False)),
        levels=_levels(what, fields),
        has_running_totals=check_flag(
            f"{what}: running_totals", fields.get("running_totals", False)
        ),
        max_frequency=fields.get("max_frequency", 10),
        max_slices_per_unit=fields.get("max_slices_per_unit") if is_reach else None,
    )


def keys_from_file(what: str, path: Path, names: list[str]) -> pl.DataFrame:
    """The slices that a CSV or Parquet file lists, one column each, each once.

    Raises:
      DataError: The file cannot be read, or lacks a column.
    """
    frame = read_table(path, as_text=True)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise DataError(
            f"{what}: the keys {path.name} have no column {missing[0]!r}; they need "
            f"{', '.join(names)}."
        )
    return frame.select(pl.col(name).cast(pl.String) for name in names).unique(maintain_order=True)


def _slices(
    what: str, names: object, quantity: Quantity, columns: LogColumns
) -> tuple[SliceColumn, ...]:
    found = []
    for name in _texts(what, "slices", names):
        side_text, _, rest = name.rpartition(".")
        about_conversions = quantity.needs_conversions and quantity is not Quantity.RATE
        if side_text not in {"", "impression", "conversion"}:
            side_text, rest = "", name  # a column whose own name has a dot in it
        side = Side(side_text) if side_text else Side.IMPRESSION
        is_day = rest == "day"
        if is_day and not side_text and about_conversions:
            side = Side.CONVERSION
        column = rest
        if is_day:
            is_impression = side is Side.IMPRESSION
            column = columns.impression_time if is_impression else columns.conversion_time
        found.append(SliceColumn(name=rest, side=side, column=column, is_day=is_day))
    return tuple(found)


def _keys(what: str, fields: dict[str, Any], names: list[str], folder: Path) -> pl.DataFrame | None:
    keys = fields.get("keys")
    if not names:
        if keys is not None:
            raise ConfigError(f"{what} has keys and no slices; name the slices.")
        return None
    if keys == _PRIVATE:
        return None
    if keys is None:
        raise ConfigError(
            f"{what} needs keys: the slices that are wanted as a file or a table, or "
            '"private" to find those that occur, which costs a part of epsilon and needs a delta.'
        )
    if isinstance(keys, str):
        return keys_from_file(what, folder / keys, names)
    table = check_table(f"{what}: keys", keys, names, ())
    lists = [_key_values(what, name, table[name]) for name in names]
    num_keys = 1
    for values in lists:
        num_keys *= len(values)
    if num_keys > MAX_SLICES:
        raise ConfigError(f"{what}: {num_keys:,} keys are more than {MAX_SLICES:,}.")
    return pl.DataFrame(
        list(itertools.product(*lists)), schema=dict.fromkeys(names, pl.String), orient="row"
    )


def _key_values(what: str, name: str, values: object) -> list[str]:
    if isinstance(values, dict):
        days = check_table(f"{what}: keys.{name}", values, ("first", "last"), ())
        first, last = (_date(f"{what}: keys.{name}.{end}", days[end]) for end in ("first", "last"))
        num_days = (last - first).days + 1
        if not 1 <= num_days <= 10_000:
            raise ConfigError(f"{what}: keys.{name} must go from a first day to a later one.")
        return [str(first + datetime.timedelta(days=day)) for day in range(num_days)]
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{what}: keys.{name} must be a list of values that is not empty.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (str, int, datetime.date)):
            raise ConfigError(
                f"{what}: {value!r} in keys.{name} must be text, a whole number or a date, as it "
                "is in the log."
            )
    return [str(value) for value in values]


def _date(name: str, value: object) -> datetime.date:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    try:
        return datetime.date.fromisoformat(str(value))
    except ValueError:
        raise ConfigError(f"{name}={value!r} must be a date, e.g. 2026-01-14.") from None


def _bounds(what: str, fields: dict[str, Any]) -> Bounds | None:
    given = {name: fields[name] for name in _BOUNDS if name in fields}
    if not given:
        return None
    if "max_per_slice" not in given:
        raise ConfigError(f"{what} needs max_per_slice beside {', '.join(given)}.")
    for name in ("max_per_slice", "max_per_unit"):
        if name in given:
            given[name] = check_finite(f"{what}: {name}", given[name])
    with naming(what):
        return Bounds(**given)


def _base_bounds(what: str, fields: dict[str, Any]) -> Bounds | None:
    if "base" not in fields:
        return None
    return _bounds(f"{what}: base", check_table(f"{what}: base", fields["base"], (), _BOUNDS))


def _values(
    what: str, fields: dict[str, Any], quantity: Quantity, columns: LogColumns
) -> tuple[Amount, ...]:
    if quantity not in {Quantity.VALUE, Quantity.AVERAGE}:
        for name in ("clip", "values"):
            if name in fields:
                raise ConfigError(f"{what}: {name} is for value and average.")
        return ()
    if "values" not in fields:
        if columns.value is None or "clip" not in fields:
            raise ConfigError(
                f"{what} needs clip, the most that one conversion counts for, and the value "
                "column in [columns]."
            )
        clip = check_finite(f"{what}: clip", fields["clip"])
        with naming(what):
            return (Amount(name="value", column=columns.value, clip=clip),)
    if "clip" in fields or not isinstance(fields["values"], list):
        raise ConfigError(
            f"{what}: values is a list of tables with column, clip and share, and stands in "
            "place of clip."
        )
    return tuple(_amount(what, table) for table in fields["values"])


def _amount(what: str, table: object) -> Amount:
    fields = check_table(f"{what}: values", table, ("column", "clip", "share"), ("name",))
    clip = check_finite(f"{what}: clip", fields["clip"])
    share = check_finite(f"{what}: share", fields["share"])
    name = fields.get("name", fields["column"])
    with naming(what):
        return Amount(name=name, column=fields["column"], clip=clip, share=share)


def _levels(what: str, fields: dict[str, Any]) -> Levels | None:
    if "levels" not in fields:
        for name in ("split", "tau", "history"):
            if name in fields:
                raise ConfigError(f"{what}: {name} is for levels; name them too.")
        return None
    levels = fields["levels"]
    if not isinstance(levels, list):
        raise ConfigError(f"{what}: levels must be a list of lists of slices.")
    columns = tuple(_texts(what, "levels", level) for level in levels)
    split = fields.get("split", LevelSplit.UNIFORM.value)
    if isinstance(split, list):
        shares = tuple(check_finite(f"{what}: split", share) for share in split)
        for name in ("history", "tau"):
            if name in fields:
                raise ConfigError(f"{what}: {name} goes with split cube-root and optimised.")
        with naming(what):
            return Levels(columns=columns, split=shares)
    chosen = check_choice(f"{what}: split", split, LevelSplit)
    if chosen.needs_history != ("history" in fields):
        raise ConfigError(
            f"{what}: history goes with split cube-root and optimised, which need it: counts of "
            "an earlier measurement.json, or of a table that is public."
        )
    if "tau" in fields and not chosen.needs_history:
        raise ConfigError(f"{what}: tau goes with split cube-root and optimised.")
    tau = check_finite(f"{what}: tau", fields.get("tau", 5.0))
    with naming(what):
        return Levels(columns=columns, split=chosen, tau=tau)


def _texts(what: str, name: str, values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{what}: {name}={values!r} must be a list of text.")
    return tuple(values)
