"""A model of cells on its way into a folder that PyTorch alone can use, and back."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.data.prepared.format import PreparedFeature
from tulle.errors import ConfigError
from tulle.train import exported_model
from tulle.train.methods.mosaic.cell_model import CellModel, CellPart, CellTable
from tulle.train.model_folder import write_model_folder


def export_cells(
    folder: Path,
    model: CellModel,
    features: Sequence[PreparedFeature],
    *,
    facts: Mapping[str, object],
    keep_cut: bool = False,
) -> None:
    """Writes a model of cells into a new folder.

    A model of which no table has a sensitive column is truncated: it takes public ids alone.

    Args:
      folder: Must not exist.
      model: With its final weights.
      features: That it was trained on.
      facts: Plain data to keep with it, such as the fingerprint of the plan.
      keep_cut: See `write_model_folder`.

    Privacy:
      Bias, weights and lookups become public as they are. They must be those of a finished
      private training, with all noise in them; nothing is added here. Lookups of sensitive
      columns must come from noisy counts.

    Raises:
      ConfigError: The model does not fit the features, or facts are no plain data.
      DataError: A weight is NaN or infinite.
      RunStateError: The folder exists or cannot be written.
    """
    tensors = {"common.bias": torch.tensor([model.bias], dtype=torch.float64)}
    for index, table in enumerate(model.tables):
        _check_table(table, features)
        tensors[f"table.{index}"] = _tensor(table.weights)
    lookups, parts = _numbered_lookups(model)
    for number, lookup in enumerate(lookups):
        tensors[f"{exported_model.LOOKUP}{number}"] = _tensor(lookup)
    description = {
        "version": exported_model.CELLS_VERSION,
        "settings": {"kind": exported_model.CELLS},
        "truncated": not model.reads_sensitive,
        "features": [dataclasses.asdict(feature) for feature in features],
        "lookups": parts,
        "facts": dict(facts),
    }
    write_model_folder(folder, tensors, description, keep_cut=keep_cut)


def cells_of(description: dict[str, Any], tensors: dict[str, Tensor]) -> CellModel:
    """The model that `export_cells` wrote, out of what the folder holds.

    Raises:
      ValueError: The tensors are not those that the description is of.
    """
    exported = exported_model.build_model(description, tensors)
    if not isinstance(exported, exported_model.Cells):
        raise ValueError(f"it is no model of {exported_model.CELLS}")
    return CellModel(
        bias=exported.common.bias.detach().item(),
        tables=tuple(
            CellTable(
                parts=tuple(
                    CellPart(
                        role=part["role"],
                        column=part["column"],
                        lookup=exported.lookup.of(part).numpy(),
                        size=part["size"],
                    )
                    for part in parts
                ),
                weights=weights.detach().numpy(),
            )
            for parts, weights in zip(exported.parts, exported.table, strict=True)
        ),
    )


def _numbered_lookups(
    model: CellModel,
) -> tuple[list[NDArray[np.int32]], list[list[dict[str, object]]]]:
    """Each distinct lookup once, and the parts of each table with the number of theirs."""
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


def _tensor(values: NDArray[Any]) -> Tensor:
    # A copy: arrays may be read-only or share their memory, which safetensors refuses.
    return torch.from_numpy(values.copy())


def _check_table(table: CellTable, features: Sequence[PreparedFeature]) -> None:
    if table.weights.dtype != np.float32:
        raise ConfigError(f"weights of a table are {table.weights.dtype}, must be float32.")
    for part in table.parts:
        num_ids = [feature.num_ids for feature in features if feature.role == part.role]
        if part.lookup.dtype != np.int32:
            raise ConfigError(f"a lookup is {part.lookup.dtype}, must be int32.")
        if not 0 <= part.column < len(num_ids) or part.lookup.shape != (num_ids[part.column],):
            raise ConfigError(
                f"the lookup of {part.role} column {part.column} is not of a feature of that role; "
                "pass the features that the model was trained on."
            )
