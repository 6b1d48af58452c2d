"""A table in memory as arrays: the twin of a prepared dataset.

The same row gets the same ids, label and unit as from a file that
`layout_for` reads, so a model trained on one can be used on the other.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.data.features.encoder import Encoder
from tulle.data.prepared.feature import PreparedFeature
from tulle.data.row_arrays import RowArrays, check_units
from tulle.data.schema import Schema
from tulle.data.tables.kinds import typed_columns
from tulle.data.tables.memory import as_polars, one_row
from tulle.errors import ConfigError, DataError


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TableArrays:
    """The rows of a table as numbers. All arrays are raw data."""

    schema: Schema
    features: tuple[PreparedFeature, ...]
    """Features, public ones first."""
    public_features: NDArray[np.int32]
    """[rows, public features]"""
    sensitive_features: NDArray[np.int32]
    """[rows, sensitive features]"""
    labels: NDArray[np.float32] | None
    """0 or 1, or what else was asked for; None without labels."""
    units: NDArray[np.int64] | None
    """Equal for rows of one unit; None without labels or if each row is its own."""
    times: NDArray[np.int64] | None = None
    """Seconds since 1970; None without labels or without such times."""
    days: NDArray[np.int32] | None = None
    """Days since 1970; None without labels or without times."""
    weights: NDArray[np.float32] | None = None
    """How much each row counts, from 0; None without labels or if all count alike."""

    @property
    def num_rows(self) -> int:
        """Rows of every array."""
        return len(self.public_features)


def encode_table(
    table: object,
    encoder: Encoder,
    *,
    with_label: bool,
    with_weight: bool = True,
    num_classes: int | None = 2,
    classes: tuple[str, ...] | None = None,
) -> TableArrays:
    """Encodes a polars, pandas or Arrow table.

    Null and NaN are missing, and so is empty text, as in a file. Other marks of a
    missing value (-1 in some logs) must be made null first.

    Args:
      table: See `as_polars`. Columns without a role are not looked at.
      encoder: What to make of the columns.
      with_label: True to train or evaluate: every column with a role must be there.
        False to predict: the columns of features are enough, and no other is read.
      with_weight: False to evaluate, where every row counts once: no weight is needed.
      num_classes: Labels must be whole numbers from 0 to num_classes - 1; None: values from 0 on.
      classes: Names of the classes, if labels are names; None: labels are numbers.

    Privacy:
      Nothing is released: the arrays are as sensitive as the rows.

    Raises:
      DataError: A column is missing, or a value breaks the schema; or there is no row
        to train on.
    """
    schema = encoder.plan.schema
    if not with_weight:
        schema = schema.without_weight()
    columns = {feature.column for feature in encoder.plan.features}
    rows: dict[str, NDArray[Any]] = {}
    if with_label:
        if schema.label is None:
            raise ConfigError(
                "with_label=True, but the schema has no label; name the label's column in it."
            )
        columns |= set(schema.used)
    plain = as_polars(table, columns=columns)
    if with_label:
        dataclasses.replace(schema.roles, ignored=()).check_against(plain.columns)
        if not plain.height:
            raise DataError("the table has no rows; pass at least one.")
        check_units(plain, schema)
        maker = RowArrays(
            schema=schema, num_classes=num_classes, salt=encoder.plan.salt, classes=classes
        )
        rows = dict(maker.make(plain, _place))
    read = tuple(dict.fromkeys(feature.column for feature in encoder.plan.features))
    ids = encoder.encode(typed_columns(plain, schema, _place, columns=read, is_new=not with_label))
    num_public = sum(feature.role == "public" for feature in encoder.features)
    return TableArrays(
        schema=schema,
        features=encoder.features,
        public_features=np.ascontiguousarray(ids[:, :num_public]),
        sensitive_features=np.ascontiguousarray(ids[:, num_public:]),
        labels=rows.get("labels"),
        units=rows.get("units"),
        times=rows.get("times"),
        days=rows.get("days"),
        weights=rows.get("weights"),
    )


def encode_row(row: Mapping[str, object], encoder: Encoder) -> TableArrays:
    """Encodes one row, given as values by column; columns without a feature are not looked at.

    Privacy:
      Nothing is released: the arrays are as sensitive as the row.

    Raises:
      DataError: A column is missing, or a value breaks the schema.
    """
    columns = dict.fromkeys(feature.column for feature in encoder.plan.features)
    table = one_row({name: row[name] for name in columns if name in row})
    return encode_table(table, encoder, with_label=False)


def _place(index: int) -> str:
    return f"row {index + 1} of the table"
