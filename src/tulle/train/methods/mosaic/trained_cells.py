"""A trained model of Mosaic inside tulle: its predictions, and the folder that it is saved to.

The folder can be used with numpy alone; `cell_model` is the file that reads it there.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError, DataError
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic import cell_model
from tulle.train.methods.mosaic.cell_model import CellModel, CellTable
from tulle.train.methods.mosaic.fused_cells import FusedCells, fused_cells
from tulle.train.trained_model import ModelFiles, TrainedModel, write_model_folder

_ROWS_AT_A_TIME = 1 << 16
"""Rows that are predicted together, so that their cells stay in the cache."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainedCells(TrainedModel):
    """A trained model of tables of cells, with the features that it was trained on."""

    model: CellModel
    """Bias and tables."""

    @classmethod
    def of(cls, model: CellModel, features: tuple[PreparedFeature, ...]) -> "TrainedCells":
        """Makes a trained model of a bias and tables.

        It is truncated if no table has a sensitive column.
        """
        return cls(model=model, features=features, is_truncated=not model.reads_sensitive)

    @functools.cached_property
    def fused(self) -> FusedCells:
        """The model, arranged to predict fast."""
        return fused_cells(self.model, self.features)

    @property
    def kind(self) -> str:
        """The word for models of cells in model.json."""
        return cell_model.KIND

    @property
    def clip(self) -> float | None:
        """Largest value that a label counted as; None if the model predicts no values."""
        return self.model.scale if self.model.output == "value" else None

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes that it predicts; None if it predicts something else."""
        return self.model.classes if self.model.output == "classes" else None

    @property
    def remark(self) -> str:
        """That the model is a constant, if no table showed anything."""
        if self.model.tables:
            return ""
        return "the model is a constant: no table showed more than noise would show."

    def predicted(self, rows: ExampleSet) -> NDArray[np.float64]:
        """What the model predicts for each row, see `CellModel.predicted`."""
        parts = []
        no_ids: list[None] = [None] * sum(feature.role == "sensitive" for feature in self.features)
        for start in range(0, rows.num_rows, _ROWS_AT_A_TIME):
            stop = min(start + _ROWS_AT_A_TIME, rows.num_rows)
            chosen = slice(start, stop) if rows.rows is None else rows.rows[start:stop]
            sensitive = rows.sensitive_features
            hidden = no_ids if sensitive is None else list(sensitive[chosen].T)
            ids = [*rows.public_features[chosen].T, *hidden]
            parts.append(self.fused.predicted(ids, stop - start))
        return np.concatenate(parts) if parts else np.empty(0)

    def write(self, folder: Path, facts: Mapping[str, object], *, keep_cut: bool = False) -> None:
        """Writes the model into a new folder, where numpy alone can use it.

        Args:
          folder: Path of the new folder.
          facts: Plain data to store beside the model, such as its guarantee.
          keep_cut: True to make sure of room on the disk first, and to leave what was written
            under its hidden name if the export fails after that.

        Privacy:
          Biases, weights, their deviations and lookups become public as they are. Lookups of
          sensitive columns must come from noisy counts, and deviations from noisy sums.

        Raises:
          ConfigError: The model does not fit the features, or facts are no plain data.
          DataError: A weight is NaN or infinite.
          RunStateError: The folder exists or cannot be written.
        """
        heads, tables = self.model.heads, self.model.tables
        biases = np.array([head.bias for head in heads], np.float64)
        arrays: dict[str, NDArray[Any]] = {cell_model.BIAS: biases}
        for index, table in enumerate(tables):
            _check_table(table, self.features)
            arrays[f"{cell_model.TABLE}{index}"] = table.weights
            if table.stddevs is not None:
                arrays[f"{cell_model.STDDEVS}{index}"] = table.stddevs
        lookups, parts = _numbered_lookups(self.model)
        for number, lookup in enumerate(lookups):
            arrays[f"{cell_model.LOOKUP}{number}"] = lookup
        description = {
            "version": cell_model.VERSION,
            "settings": {
                "kind": cell_model.KIND,
                "output": self.model.output,
                "scale": float(self.model.scale),
                "classes": list(self.model.classes),
                "num_tables": [len(head.tables) for head in heads],
                "shares": [float(table.share) for table in tables],
                "importances": [float(table.importance) for table in tables],
            },
            "truncated": not self.model.reads_sensitive,
            "features": [feature.to_dict() for feature in self.features],
            "lookups": parts,
            "facts": dict(facts),
        }
        loader = Path(cell_model.__file__)
        write_model_folder(
            folder,
            arrays,
            description,
            loader=loader,
            encoder=self.encoder,
            card=self.card,
            keep_cut=keep_cut,
        )


def cells_of(files: ModelFiles, features: tuple[PreparedFeature, ...]) -> TrainedCells:
    """Makes the model that a folder holds.

    Args:
      files: Description and arrays of the folder.
      features: Features that the description names.

    Raises:
      DataError: The arrays are not those that the description is of.
    """
    try:
        cell_model.check_kind(files.description)
        model = cell_model.build_cells(files.description, files.arrays)
    except ValueError as error:
        raise DataError(str(error)) from None
    facts = files.description["facts"]
    return dataclasses.replace(TrainedCells.of(model, features), facts=facts)


def _numbered_lookups(
    model: CellModel,
) -> tuple[list[NDArray[np.int32]], list[list[dict[str, object]]]]:
    """Each distinct lookup once, and the parts of each table with the number of their lookup.

    Tables share columns, and a lookup has a number for each id of its column: storing it with
    every table would make the folder larger for nothing.
    """
    numbers: dict[bytes, int] = {}
    lookups: list[NDArray[np.int32]] = []
    tables = []
    for table in model.tables:
        parts: list[dict[str, object]] = []
        for part in table.parts:
            content = hashlib.sha256(part.lookup.tobytes()).digest()
            if content not in numbers:
                numbers[content] = len(lookups)
                lookups.append(part.lookup)
            place = {"role": part.role, "column": int(part.column), "size": int(part.size)}
            parts.append({**place, "lookup": numbers[content]})
        tables.append(parts)
    return lookups, tables


def _check_table(table: CellTable, features: Sequence[PreparedFeature]) -> None:
    for name, numbers in (("weights", table.weights), ("stddevs", table.stddevs)):
        if numbers is not None and numbers.dtype != np.float32:
            raise ConfigError(f"{name} of a table are {numbers.dtype}, must be float32.")
    for part in table.parts:
        num_ids = [feature.num_ids for feature in features if feature.role == part.role]
        if part.lookup.dtype != np.int32:
            raise ConfigError(f"a lookup is {part.lookup.dtype}, must be int32.")
        if not 0 <= part.column < len(num_ids) or part.lookup.shape != (num_ids[part.column],):
            raise ConfigError(
                f"the lookup of {part.role} column {part.column} is not of a feature of that role; "
                "pass the features that the model was trained on."
            )
