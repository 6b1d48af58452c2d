"""Everything that a measurement released, as one file that says what it is.

`measurement.json` has the plan and every table with its numbers, intervals and noise. Tables
in Parquet or CSV are made from it, so there is one draw of noise however they are printed.
"""

import dataclasses
import json
import math
import os
import secrets
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from tulle.atomic_files import read_whole, reporting_disk_errors
from tulle.errors import ConfigError
from tulle.measure.attribution.data_driven import ChannelModel
from tulle.measure.queries.answers import (
    MEASURED_COLUMNS,
    METRIC_COLUMNS,
    AnswerTable,
    SliceNumbers,
    answer_frame,
)
from tulle.measure.small_tables import file_stem
from tulle.mechanisms.centred_noise import normal_quantile
from tulle.privacy.events import event_from_dict, event_to_dict
from tulle.privacy.fields import check_fields, check_finite, check_list, check_text, did_you_mean
from tulle.runs.record import Record

FORMS = ("parquet", "csv")
"""Forms of the files with tables."""
CHANNEL_TABLE = "weights of channels"
"""Name of the table with what was learnt about channels."""
_OLD_METRIC = "number"
"""What the column with the name of a metric was called in the first two formats."""
_TABLE_KEYS = ("name", "confidence", "event", "columns", "values")
# What JSON writes as null: no estimate, no bound below, none above, unknown noise.
_ABSENT = {
    "value": math.nan,
    "low": -math.inf,
    "high": math.inf,
    "noise_stddev": math.inf,
    **dict(zip(MEASURED_COLUMNS, (math.nan, math.inf), strict=True)),
}
_PLAIN_TYPES: dict[Any, tuple[type, ...]] = {
    pl.Float64: (float, int),
    pl.Int64: (int,),
    pl.String: (str,),
}
"""Types that JSON gives the values of a column of each type."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MeasureRecord(Record):
    """A measurement with all its numbers. Every field is public information."""

    what: ClassVar[str] = "measurement"
    # Hierarchies of the first format have no numbers as they were measured; in the first two the
    # column with the name of a metric is called "number".
    formats: ClassVar[tuple[str, ...]] = (
        "tulle measurement 1",
        "tulle measurement 2",
        "tulle measurement 3",
    )
    keys: ClassVar[tuple[str, ...]] = ("format", "plan", "randomness", "tables")
    libraries: ClassVar[tuple[str, ...]] = ("polars", "duckdb", "sqlglot")

    tables: tuple[AnswerTable, ...]

    def table(self, name: str) -> AnswerTable:
        """The table of that query."""
        for table in self.tables:
            if table.name == name:
                return table
        known = ", ".join(repr(table.name) for table in self.tables)
        raise ConfigError(f"there is no table {name!r}; there are {known}.")

    def frame(self, path: Path | None, name: str | None = None) -> pl.DataFrame:
        """The table of a query; its name may be left out if there is one table."""
        del path  # The numbers are in the record itself.
        if name is None and len(self.tables) != 1:
            known = ", ".join(repr(table.name) for table in self.tables)
            raise ConfigError(f"there are several tables; name one of {known}.")
        return (self.tables[0] if name is None else self.table(name)).frame

    def to_json(self) -> str:
        """JSON with one line for each row of a table."""
        data = self.to_dict()
        del data["tables"]
        head = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
        tables = ",\n".join(_table_text(table) for table in self.tables)
        return f'{head[:-2]},\n  "tables": [\n{tables}\n  ]\n}}\n'

    @classmethod
    def read_fields(cls, data: object) -> dict[str, Any]:
        """The values of the fields that a file gives, tables included."""
        fields = super().read_fields(data)
        tables = [_table(table) for table in check_list("tables", fields["tables"])]
        return fields | {"tables": tuple(tables)}


def read_measurement(path: Path) -> MeasureRecord:
    """A measurement from its file.

    Raises:
      DataError: There is none, or it cannot be read.
    """
    return read_whole(
        path,
        MeasureRecord.from_json,
        what="a measurement",
        way_out="name the measurement.json of a finished measurement",
    )


def write_tables(record: MeasureRecord, folder: Path, *, form: str = "parquet") -> list[Path]:
    """Writes one file for each table and returns their paths, each there as a whole or not.

    Args:
      record: What was released.
      folder: Where to.
      form: "parquet" or "csv".
    """
    check_form(form)
    paths = table_paths(record, folder, form=form)
    for path, table in zip(paths, record.tables, strict=True):
        staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        with reporting_disk_errors(path):
            try:
                if form == "parquet":
                    table.frame.write_parquet(staged)
                else:
                    table.frame.write_csv(staged)
                os.replace(staged, path)
            finally:
                staged.unlink(missing_ok=True)
    return paths


def table_paths(record: MeasureRecord, folder: Path, *, form: str = "parquet") -> list[Path]:
    """Returns where `write_tables` puts the tables, one path for each.

    Args:
      record: What was released.
      folder: The folder of the release.
      form: "parquet" or "csv".
    """
    return [folder / f"{name}.{form}" for name in _file_names(record)]


def check_form(form: str) -> None:
    """Refuses a form of tables that is not known.

    Raises:
      ConfigError: The form is none of `FORMS`.
    """
    if form not in FORMS:
        raise ConfigError(
            f"form={form!r} is unknown{did_you_mean(form, FORMS)}; use one of {', '.join(FORMS)}."
        )


def channel_table(model: ChannelModel, *, confidence: float) -> AnswerTable:
    """Effects of channels and the weights that credit is shared by.

    The intervals are those of normal noise with the spread that repeated noise has: the
    effect is a quotient of many noisy counts, and its exact law is not known.
    """
    channels = list(model.noisy_effects)
    effects = np.array([model.noisy_effects[name] for name in channels])
    # An effect that is cut at zero has no spread there; an interval needs some width.
    stddevs = np.array([max(model.effect_stddevs[name], 1e-12) for name in channels])
    half_width = normal_quantile(confidence) * stddevs
    answers = [SliceNumbers.around("effect", effects, half_width=half_width, noise_stddev=stddevs)]
    if effects.max() > 0:  # else all weights are alike, whatever the noise
        weights = np.array([model.rule.weights[name] for name in channels])
        scale = 1 / effects.max()
        answers.append(
            SliceNumbers.around(
                "weight", weights, half_width=half_width * scale, noise_stddev=stddevs * scale
            )
        )
    frame = answer_frame(pl.DataFrame({"channel": channels}), answers)
    return AnswerTable(name=CHANNEL_TABLE, frame=frame, event=model.event, confidence=confidence)


def _table_text(table: AnswerTable) -> str:
    head = {
        "name": table.name,
        "confidence": table.confidence,
        "event": event_to_dict(table.event),
        "columns": table.frame.columns,
    }
    text = json.dumps(head, ensure_ascii=False, allow_nan=False)
    rows = ",\n".join(
        "      " + json.dumps(list(row.values()), ensure_ascii=False, allow_nan=False)
        for row in table.plain_rows()
    )
    return f'    {text[:-1]}, "values": [\n{rows}\n    ]}}'


def _table(data: object) -> AnswerTable:
    fields = check_fields("table", data, _TABLE_KEYS)
    columns = [check_text("columns", name) for name in check_list("columns", fields["columns"])]
    if METRIC_COLUMNS[0] not in columns:  # as the formats before the third have it
        columns = [METRIC_COLUMNS[0] if name == _OLD_METRIC else name for name in columns]
    if len(set(columns)) < len(columns):
        raise ConfigError("two columns of a table have the same name.")
    schema = _schema(columns)
    rows = check_list("values", fields["values"])
    for row in rows:
        _check_row(schema, row)
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        pl.col(name).fill_null(absent) for name, absent in _ABSENT.items() if name in columns
    )
    return AnswerTable(
        name=check_text("name", fields["name"]),
        frame=frame,
        event=event_from_dict(fields["event"]),
        confidence=check_finite("confidence", fields["confidence"]),
    )


def _check_row(schema: dict[str, Any], row: object) -> None:
    if not isinstance(row, list) or len(row) != len(schema):
        raise ConfigError(f"a row of a table must be a list of {len(schema)} values.")
    for (name, kind), value in zip(schema.items(), row, strict=True):
        if value is not None and type(value) not in _PLAIN_TYPES[kind]:
            raise ConfigError(f"a value of column {name!r} is not of its type.")


def _schema(columns: list[str]) -> dict[str, Any]:
    kinds: dict[str, Any] = dict.fromkeys((*_ABSENT, "nonnegative"), pl.Float64)
    return {name: (kinds | {"level": pl.Int64}).get(name, pl.String) for name in columns}


def _file_names(record: MeasureRecord) -> list[str]:
    names: list[str] = []
    for table in record.tables:
        name = file_stem(table.name)
        # Two names may differ only in what a file name cannot hold.
        taken = sum(other == name or other.startswith(f"{name}-") for other in names)
        names.append(name if name not in names else f"{name}-{taken + 1}")
    return names
