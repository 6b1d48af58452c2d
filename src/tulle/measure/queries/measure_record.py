"""Everything that a measurement released, as one file that says what it is.

`measurement.json` has the plan and every table with its numbers, intervals and noise. Tables
of other formats are made from it, so there is one draw of noise however they are printed.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import polars as pl

from tulle.errors import ConfigError
from tulle.measure.queries.answer_table import MEASURED_COLUMNS, AnswerTable
from tulle.privacy.event_json import event_from_dict, event_to_dict
from tulle.privacy.fields import (
    check_fields,
    check_finite,
    check_format,
    check_list,
    check_text,
    parse_json,
)
from tulle.privacy.plan import Plan
from tulle.runs.whole_files import read_whole

_FORMAT = "tulle measurement 2"
_READ_FORMATS = ("tulle measurement 1", _FORMAT)
"""Hierarchies of the first have no numbers as they were measured."""
_KEYS = ("format", "plan", "randomness", "tables")
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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MeasureRecord:
    """A measurement. Every field is public information."""

    plan: Plan
    tables: tuple[AnswerTable, ...]
    randomness: str
    is_secure: bool

    def table(self, name: str) -> AnswerTable:
        """The table of that query."""
        for table in self.tables:
            if table.name == name:
                return table
        known = ", ".join(repr(table.name) for table in self.tables)
        raise ConfigError(f"there is no table {name!r}; there are {known}.")

    def to_json(self) -> str:
        """JSON with one line for each row of a table."""
        data = {
            "format": _FORMAT,
            "plan": self.plan.to_dict(),
            "randomness": {"description": self.randomness, "is_secure": self.is_secure},
        }
        head = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
        tables = ",\n".join(_table_text(table) for table in self.tables)
        return f'{head[:-2]},\n  "tables": [\n{tables}\n  ]\n}}\n'

    @classmethod
    def from_json(cls, text: str) -> "MeasureRecord":
        """Reads what `to_json` wrote."""
        data = parse_json("measurement", text)
        check_format("measurement", data, *_READ_FORMATS)
        fields = check_fields("measurement", data, _KEYS)
        randomness = check_fields("randomness", fields["randomness"], ("description", "is_secure"))
        return cls(
            plan=Plan.from_dict(fields["plan"]),
            tables=tuple(_table(data) for data in check_list("tables", fields["tables"])),
            randomness=check_text("description", randomness["description"]),
            is_secure=randomness["is_secure"] is True,
        )


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
