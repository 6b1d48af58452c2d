"""The verb `export`: a model in a form that another stack runs."""

import dataclasses
import os
import secrets
import shutil
from pathlib import Path

from tulle.atomic_files import short_name, write_bytes, write_text
from tulle.errors import ConfigError, RunStateError, reason_of
from tulle.measure.engines.sql_text import DIALECTS, check_dialect
from tulle.privacy.fields import did_you_mean
from tulle.serve.json_form import json_form
from tulle.serve.scoring_tables import ScoringTables, scoring_tables
from tulle.serve.served_model import ModelLike
from tulle.serve.sql_form import ROWS, sql_form

FilePath = str | os.PathLike[str]
FORMS = ("json", "onnx", "sql")
_PREFIX = "model"
SELECT_FILE, CREATE_FILE, WEIGHTS = "score.sql", "create.sql", "weights"
"""What a folder of SQL holds: the SELECT, the tables to create, and the folder of their rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportedForm:
    """Where an exported model is, and what its user should know."""

    path: Path
    form: str
    columns: tuple[str, ...]
    """Columns that rows must have."""
    mapped: tuple[str, ...]
    """Columns whose values left with the model: other values of them count as rare ones."""


def export(
    model: ModelLike,
    output: FilePath,
    *,
    form: str,
    values: object = None,
    dialect: str | None = None,
    rows: str = ROWS,
) -> ExportedForm:
    """Writes a model of tables in a form that another stack runs.

    JSON says how to score, hashes included. SQL and ONNX cannot compute hashes of texts: the values
    of hashed columns come from a table, and other values count as rare ones, which a column of the
    result counts.

    Args:
      model: Folder of a model or of a training run, or what `tulle.load` and `fit` give.
      output: New file of JSON or ONNX, new folder of SQL.
      form: "json", "onnx" or "sql".
      values: A table or file with values of hashed columns that may be public, such as a catalogue.
      dialect: Dialect of SQL: "duckdb", "spark", "bigquery", "snowflake" or "trino".
      rows: Name of the table of rows in SQL.

    Privacy:
      The export holds the model, which keeps its guarantee, and `values` as they are: values of
      sensitive columns must be public. A table that looks like the log is refused.

    Raises:
      ConfigError: The form is unknown or cannot hold the model, or SQL has no dialect.
      DataError: `values` has no column of the model, or looks like a log.
      RunStateError: The output exists, or cannot be written.
    """
    if form not in FORMS:
        raise ConfigError(
            f"form={form!r} is unknown{did_you_mean(form, FORMS)}; use one of {', '.join(FORMS)}."
        )
    if form == "sql" and dialect is None:
        raise ConfigError(
            f"form='sql' needs a dialect; add one of them, e.g. dialect={DIALECTS[0]!r} "
            f"({', '.join(DIALECTS)})."
        )
    if dialect is not None and form != "sql":
        raise ConfigError(
            f"dialect={dialect!r} is for form='sql' and not for {form}; leave it out."
        )
    if dialect is not None:
        check_dialect(dialect)
    path = Path(output)
    if path.exists():
        raise RunStateError(f"{short_name(path)} exists already; name another output.")
    tables = scoring_tables(model, values)
    if form == "json":
        write_text(path, json_form(tables))
    elif form == "onnx":
        write_bytes(path, _onnx(tables))
    elif dialect is not None:
        _write_sql(path, tables, dialect, rows)
    return ExportedForm(
        path=path,
        form=form,
        columns=tuple(dict.fromkeys(one.feature.column for one in tables.features)),
        mapped=tuple(
            one.feature.column
            for one in tables.features
            if one.ids_by_text is not None and form != "json"
        ),
    )


def _onnx(tables: ScoringTables) -> bytes:
    try:
        from tulle.serve.onnx_form import onnx_form
    except ImportError:
        raise ConfigError(
            "form='onnx' needs the package onnx: install tulle with the extra onnx, or use another "
            "form."
        ) from None
    return onnx_form(tables)


def _write_sql(path: Path, tables: ScoringTables, dialect: str, rows: str) -> None:
    made = sql_form(tables, dialect=dialect, rows=rows, prefix=_PREFIX)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        (staged / WEIGHTS).mkdir(parents=True)
        (staged / SELECT_FILE).write_text(made.select, encoding="utf-8")
        (staged / CREATE_FILE).write_text(made.create, encoding="utf-8")
        for name, table in made.weights.items():
            table.write_parquet(staged / WEIGHTS / f"{name}.parquet")
        staged.rename(path)
    except OSError as error:
        raise RunStateError(
            f"{short_name(path)} cannot be written: {reason_of(error)}; name a place in a folder "
            "that has room and may be written to."
        ) from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)
