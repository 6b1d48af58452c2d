"""A model as it is served: with its encoder, and with the columns that it looks at alone."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.features.encoder import Encoder
from tulle.data.prediction_file import class_columns
from tulle.data.schema import Kind
from tulle.data.table_arrays import encode_table
from tulle.data.tables.kinds import typed_columns
from tulle.data.tables.refusals import Place
from tulle.data.tables.split_lines import SplitLines, TextColumn
from tulle.errors import ConfigError
from tulle.train.estimator import TableEstimator
from tulle.train.examples import examples_of
from tulle.train.fitted_model import encoder_of, model_of_folder
from tulle.train.fitting import FitResult
from tulle.train.methods.mosaic.fused_cells import FusedCells
from tulle.train.methods.mosaic.trained_cells import TrainedCells
from tulle.train.trained_model import TrainedModel

FloatArray = NDArray[np.float64]
ModelLike = str | os.PathLike[str] | TableEstimator | FitResult | TrainedModel
"""Folder of a model or of a training run, or what `tulle.load` and `tulle.train.fit` give."""

_ROWS_AT_A_TIME = 1 << 14
"""Rows whose log odds are added up together, so that they stay in the processor's cache."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ServedModel:
    """A trained model that takes columns."""

    model: TrainedModel
    encoder: Encoder
    cells: FusedCells | None
    """The model, arranged for speed; None for models of towers."""

    @property
    def results(self) -> tuple[str, ...]:
        """Names of what is predicted, one for each number that a row gets."""
        if self.cells is None or self.cells.model.output == "probability":
            return ("probability",)
        if self.cells.model.output == "value":
            return ("value",)
        return class_columns(self.cells.model.classes)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the model looks at."""
        placed = self.encoder.placed
        if self.cells is not None:
            placed = tuple(placed[number] for number in self.cells.columns)
        elif self.model.is_truncated:
            placed = tuple(one for one in placed if one.feature.role == "public")
        return tuple(dict.fromkeys(one.settings.column for one in placed))

    def predicted(self, rows: pl.DataFrame | SplitLines, place: Place) -> FloatArray:
        """What the model predicts for each row: [rows], or [rows, classes].

        Args:
          rows: Rows as a reader found them, with the columns that the model looks at.
          place: Says where a row is, for messages.
        """
        columns, schema = self.columns, self.encoder.plan.schema
        if self.cells is None:
            return self._predicted_by_towers(rows.select(columns))
        values: dict[str, pl.Series | TextColumn] = {}
        if isinstance(rows, SplitLines):
            kinds = {name: schema.kind(name) for name in columns}
            # Of the text of a category nothing is needed but its hash.
            categories = [name for name in columns if kinds[name] is Kind.CATEGORICAL]
            values = {name: rows.column(name) for name in categories}
            whole = [n for n in columns if kinds[n] in (Kind.INTEGER, Kind.TIMESTAMP)]
            others = rows.select([name for name in columns if name not in values], whole=whole)
        else:
            others = rows.select(columns)
        typed = typed_columns(others, schema, place, columns=columns, is_new=True)
        values |= {series.name: series for series in typed}
        ids: list[NDArray[np.int32] | None] = [None] * len(self.encoder.features)
        for number in self.cells.columns:
            column = self.encoder.placed[number].settings.column
            ids[number] = self.encoder.ids_of(number, values[column])
        parts = []
        for start in range(0, max(len(rows), 1), _ROWS_AT_A_TIME):
            part = slice(start, min(start + _ROWS_AT_A_TIME, len(rows)))
            some = [None if one is None else one[part] for one in ids]
            parts.append(self.cells.predicted(some, part.stop - start))
        return np.concatenate(parts)

    def _predicted_by_towers(self, table: pl.DataFrame) -> FloatArray:
        encoder = self.encoder.of_role("public") if self.model.is_truncated else self.encoder
        rows = examples_of(encode_table(table, encoder, with_label=False))
        if self.model.is_truncated:
            features = self.model.features
            rows = dataclasses.replace(rows, features=features, sensitive_features=None)
        return self.model.predict_proba(rows)


def served_model(model: ModelLike) -> ServedModel:
    """A model by whatever names it.

    Args:
      model: Folder of a model or of a training run, or a model in memory.

    Raises:
      ConfigError: It is no model.
      DataError: There is no model in the folder, it takes ids and no columns, or a file was cut
        or changed.
    """
    if isinstance(model, str | os.PathLike):
        trained = model_of_folder(Path(model))
    elif isinstance(model, TableEstimator):
        trained = model.model_
    elif isinstance(model, FitResult):
        trained = model.model
    elif isinstance(model, TrainedModel):
        trained = model
    else:
        raise ConfigError(
            f"model of type {type(model).__name__} must be the folder of a model, or what "
            "tulle.load() gives."
        )
    cells = trained.fused if isinstance(trained, TrainedCells) else None
    return ServedModel(model=trained, encoder=encoder_of(trained), cells=cells)
