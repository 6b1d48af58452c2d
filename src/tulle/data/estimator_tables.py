"""What scikit-learn hands an estimator, as one table with a schema: rows, labels apart from them.

A table keeps the names of its columns. An array has none, so its columns are called x0, x1 and so
on, as scikit-learn calls them. Where nothing is said about roles, every column is sensitive: nobody
can have meant that a column is public.
"""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np
import polars as pl

from tulle.data.schema import Kind, Schema
from tulle.data.tables.kinds import FLAG_WORDS, class_numbers, label_numbers
from tulle.data.tables.memory import as_column, as_numbered_columns, as_polars, is_table
from tulle.data.tables.sources import open_log, whole_table
from tulle.errors import ConfigError, DataError

LabelColumn = pl.Series
"""Labels that came apart from their rows, one a row, when they have been checked."""
LABEL = "y"
"""What labels are called that came apart from rows of which nothing was said."""
WEIGHT = "sample_weight"
"""What weights are called that came apart from their rows."""


def is_files(rows: object) -> bool:
    """Whether rows are named by a path or by several."""
    if isinstance(rows, list | tuple):
        return bool(rows) and all(isinstance(path, str | os.PathLike) for path in rows)
    return isinstance(rows, str | os.PathLike)


def named_columns(rows: object) -> object:
    """The rows as something whose columns have names; files and tables as they are.

    Privacy:
      The rows stay what they are.

    Raises:
      DataError: They are no rows and columns.
    """
    return rows if is_files(rows) or is_table(rows) else as_numbered_columns(rows)


def width_of(rows: object) -> int | None:
    """Number of columns of rows whose columns have no names; None of files and tables."""
    if is_files(rows) or is_table(rows):
        return None
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return int(rows.shape[1])
    return as_numbered_columns(rows).width


def schema_of_rows(rows: object) -> Schema:
    """The schema of rows of which nothing was said: all columns are sensitive, and so are labels.

    Numbers are real, truth values boolean, times timestamps and all other columns categorical.

    Args:
      rows: A table or an array, without the label.

    Privacy:
      Looks at names and types of columns alone, which are public.

    Raises:
      DataError: They are files, which have no types, or no table.
    """
    if is_files(rows):
        raise ConfigError(
            "schema=None is for tables and arrays, and these rows are files; give a Schema, which "
            "says what their columns are."
        )
    table = as_polars(named_columns(rows))
    if LABEL in table.columns:
        raise ConfigError(
            f"schema=None, and X has a column {LABEL!r}, which labels are called then; rename it, "
            "or give a Schema."
        )
    kinds = {name: kind for name, dtype in table.schema.items() if (kind := _kind_of(dtype))}
    return Schema(label=LABEL, sensitive=tuple(table.columns), kinds=kinds)


def joined_rows(
    rows: object, schema: Schema, *, y: LabelColumn | None = None, sample_weight: object = None
) -> pl.DataFrame:
    """Rows and the labels or weights that came apart from them, as one table.

    Args:
      rows: A table or an array without these columns.
      schema: Roles of all columns, with the names of label and weight.
      y: One label a row, in the same order; None if it is a column of the rows.
      sample_weight: One weight a row, in the same order; None if there is none, or it is a column.

    Privacy:
      The rows stay what they are. Numbers of rows are public.

    Raises:
      ConfigError: The schema names no label.
      DataError: Rows are files or have such a column already, or there are more or fewer rows.
    """
    if schema.label is None and y is not None:
        raise ConfigError("y is given, but the schema has no label; name one in it.")
    apart: dict[str, tuple[str, pl.Series]] = {}
    if y is not None:
        apart["y"] = ("label", y.alias(str(schema.label)))
    if sample_weight is not None:
        weights = as_column(sample_weight, str(schema.weight))
        # True and False say which rows count at all.
        weights = weights.cast(pl.Int8) if weights.dtype == pl.Boolean else weights
        apart["sample_weight"] = ("weight", weights)
    if is_files(rows):
        raise DataError(
            f"{' and '.join(apart)} is given, and X are files, which have columns of their own; "
            "leave it out, or read the files as a table."
        )
    given = as_polars(named_columns(rows), columns=set(schema.used))
    for name, (role, values) in apart.items():
        if values.name in given.columns:
            raise DataError(
                f"X has the {role} column {values.name!r}, and {name} is given too; drop the "
                f"column from X, or leave {name} out."
            )
    if not given.width:
        names = [name for name in schema.used if name not in (schema.label, schema.weight)]
        raise DataError(
            f"X has no column {names[0]!r} nor any other of the schema; name its columns as the "
            "schema does, those of an array x0, x1 and so on."
        )
    for name, (role, values) in apart.items():
        if given.height != values.len():
            raise DataError(
                f"X and {name} have different numbers of rows; pass one {role} for each row of X."
            )
    return given.with_columns([values for _, values in apart.values()])


def weighted_schema(schema: Schema) -> Schema:
    """The schema of rows whose weights came apart from them.

    Raises:
      ConfigError: The schema has a column of weights already.
    """
    if schema.weight is not None:
        raise ConfigError(
            f"sample_weight is given, and column {schema.weight!r} of the schema has weights too; "
            "leave one of them out."
        )
    return dataclasses.replace(schema, weight=WEIGHT)


def binary_labels(labels: object) -> LabelColumn:
    """Labels of 0 and 1, or of words and truth values that stand for them.

    Other labels are refused and not numbered by what occurs: which labels occur is protected.

    Privacy:
      Labels stay what they are. A refusal says that a label is none of these, not which.

    Raises:
      DataError: A label is something else.
    """
    found = as_column(labels, LABEL)
    numbers = label_numbers(found)
    if not numbers.is_in([0.0, 1.0]).fill_null(False).all():
        raise DataError(
            f"y has a label that is neither 0 nor 1 nor {FLAG_WORDS}. Only binary classification "
            "is supported without names of classes, and no continuous labels: which labels occur "
            "is protected, so that classes are not read from y. Name all of them, e.g. "
            "classes=['none', 'cart', 'sale'], or say which one is meant, e.g. y == 'sale'."
        )
    return found


def class_labels(labels: object, classes: Sequence[str]) -> LabelColumn:
    """Labels that are names of classes.

    Args:
      labels: One label a row.
      classes: Names of all classes, which are public.

    Privacy:
      Labels stay what they are. A refusal says that a label is none of these, not which.

    Raises:
      DataError: A label is something else.
    """
    found = as_column(labels, LABEL)
    if class_numbers(found, classes).has_nulls():
        raise DataError(
            "y has a label that is none of the classes that were named; name all classes that "
            "labels may be in classes=…, or mend or drop such rows."
        )
    return found


def value_labels(labels: object) -> LabelColumn:
    """Labels that are numbers from 0 on.

    Privacy:
      Labels stay what they are. A refusal says that a label is none of these, not which.

    Raises:
      DataError: A label is something else.
    """
    found = as_column(labels, LABEL)
    numbers = label_numbers(found)
    if not ((numbers >= 0) & numbers.is_finite()).fill_null(False).all():
        raise DataError(
            "y has a label that is no number from 0 on. Mend or drop such rows; to learn values "
            "below 0, add a constant to all labels first."
        )
    return numbers


def rows_of_files(rows: object, schema: Schema) -> object:
    """The rows of files as one table; a table as it is, and an array with names."""
    return whole_table(open_log(rows, schema)) if is_files(rows) else named_columns(rows)


def _kind_of(dtype: pl.DataType) -> Kind | None:
    if dtype == pl.Boolean:
        return Kind.BOOLEAN
    if dtype.is_numeric():
        return Kind.REAL
    return Kind.TIMESTAMP if dtype in (pl.Date, pl.Datetime) else None
