"""A trained model as a folder that PyTorch alone can use.

Here are models of towers on their way out, and models of every kind on their way back.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tulle.data.prepared.dataset import hash_file
from tulle.data.prepared.format import PreparedFeature
from tulle.errors import ConfigError, DataError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.fields import check_fields, check_list
from tulle.train import exported_model
from tulle.train.methods.mosaic.cell_export import cells_of
from tulle.train.methods.mosaic.cell_model import CellModel
from tulle.train.model_folder import write_model_folder
from tulle.train.models.embeddings import TableSharing
from tulle.train.models.model_settings import AnyModel
from tulle.train.models.tower_model import ModelSettings, TowerModel

_KEYS = ("format", "version", "settings", "truncated", "features", "lookups", "sha256", "facts")
_EXPORT_AGAIN = "export the model again"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LoadedModel:
    """An exported model, back in tulle."""

    model: TowerModel | CellModel
    """Of a truncated one with towers the sensitive one is all zeros: the truncated form."""
    settings: ModelSettings | None
    """That towers were built with; a model of cells has none."""
    features: tuple[PreparedFeature, ...]
    truncated: bool
    facts: Mapping[str, Any]


def export_model(
    folder: Path,
    model: TowerModel,
    settings: ModelSettings,
    features: Sequence[PreparedFeature],
    *,
    truncated: bool,
    facts: Mapping[str, object],
) -> None:
    """Writes a model into a new folder.

    Args:
      folder: Must not exist.
      model: With its final parameters.
      settings: That it was built with.
      features: That it was built for.
      truncated: Leave the sensitive tower out: the model was trained without it.
      facts: Plain data to keep with it, such as the fingerprint of the plan.

    Privacy:
      The parameters become public as they are. They must be those of a finished
      private training, with all noise in them; nothing is added here.

    Raises:
      ConfigError: The model does not fit settings and features, or facts are no plain data.
      DataError: A parameter is NaN or infinite.
      RunStateError: The folder exists or cannot be written.
    """
    tensors = {
        name: values
        for name, values in model.parameters.items()
        if not (truncated and name.startswith("sensitive."))
    }
    description = {
        "version": exported_model.VERSION,
        "settings": plain_data(settings),
        "truncated": truncated,
        "features": [dataclasses.asdict(feature) for feature in features],
        "lookups": _lookups(settings, features, model.parameters, truncated=truncated),
        "facts": dict(facts),
    }
    write_model_folder(folder, tensors, description)


def load_model(folder: Path, *, device: torch.device | str = "cpu") -> LoadedModel:
    """Reads an exported model back, with every byte of its parameters checked.

    Args:
      folder: Of the model.
      device: Where towers are put; a model of cells stays in the memory of the host.

    Raises:
      DataError: The folder holds no exported model, or a file was cut or changed.
    """
    tensors_path = folder / exported_model.TENSORS_FILE
    try:
        description = exported_model.read_description(folder / exported_model.DESCRIPTION_FILE)
        fields = check_fields(exported_model.DESCRIPTION_FILE, description, _KEYS)
        if hash_file(tensors_path, tensors_path.stat().st_size).hexdigest() != fields["sha256"]:
            raise ValueError(f"{tensors_path.name} was cut or changed")
        tensors = exported_model.read_tensors(tensors_path)
        features = tuple(map(PreparedFeature.from_dict, check_list("features", fields["features"])))
        model: TowerModel | CellModel
        settings = None
        if exported_model.is_of_cells(fields):
            model = cells_of(fields, tensors)
        else:
            settings = settings_from(AnyModel, fields["settings"], what="model")
            model = _towers(settings, features, tensors, fields["truncated"], device)
    except OSError as error:
        raise DataError(
            f"{folder.name} is no exported model: {Path(error.filename or folder).name}: "
            f"{error.strerror}; {_EXPORT_AGAIN}."
        ) from None
    except (ValueError, ConfigError) as error:
        reason = str(error).removesuffix(".")
        raise DataError(f"{folder.name} cannot be used: {reason}; {_EXPORT_AGAIN}.") from None
    return LoadedModel(
        model=model,
        settings=settings,
        features=features,
        truncated=fields["truncated"],
        facts=fields["facts"],
    )


def _lookups(
    settings: ModelSettings,
    features: Sequence[PreparedFeature],
    parameters: Mapping[str, Tensor],
    *,
    truncated: bool,
) -> dict[str, list[dict[str, object]]]:
    """For each role and table: which columns of ids it is for, and what is added to them."""
    is_shared = plain_data(settings)["tables"] == TableSharing.AS_PREPARED.value
    roles = ("public",) if truncated else ("public", "sensitive")
    return {role: _role_lookups(role, features, parameters, is_shared) for role in roles}


def _role_lookups(
    role: str,
    features: Sequence[PreparedFeature],
    parameters: Mapping[str, Tensor],
    is_shared: bool,
) -> list[dict[str, object]]:
    """Tables as `build_embeddings` stacks them: by dimension, in the order of the columns."""
    of_role = [feature for feature in features if feature.role == role]
    keys = [f.table if is_shared else str(column) for column, f in enumerate(of_role)]
    num_rows = dict.fromkeys(keys, 0)
    for key, feature in zip(keys, of_role, strict=True):
        num_rows[key] = max(num_rows[key], feature.num_ids)
    tables = {n: t for n, t in parameters.items() if n.startswith(f"{role}.table.")}
    first_rows: dict[str, int] = {}
    table_of: dict[str, str] = {}
    ends = dict.fromkeys(tables, 0)
    for key, count in num_rows.items():
        # Tables of one role differ in dimension only by the fourth-root rule.
        name = next(
            (
                n
                for n, t in tables.items()
                if len(tables) == 1 or t.shape[1] == int(2 * count**0.25)
            ),
            None,
        )
        if name is None:
            raise _does_not_fit(role)
        table_of[key], first_rows[key] = name, ends[name]
        ends[name] += count
    if any(ends[name] != len(table) for name, table in tables.items()):
        raise _does_not_fit(role)
    return [
        {
            "tensor": name,
            "columns": [c for c, key in enumerate(keys) if table_of[key] == name],
            "first_rows": [first_rows[key] for key in keys if table_of[key] == name],
        }
        for name in tables
    ]


def _towers(
    settings: ModelSettings,
    features: Sequence[PreparedFeature],
    tensors: Mapping[str, Tensor],
    truncated: object,
    device: torch.device | str,
) -> TowerModel:
    is_double = any(tensor.dtype == torch.float64 for tensor in tensors.values())
    dtype = torch.float64 if is_double else torch.float32
    model = settings.build(features, seed=0, device=device, dtype=dtype)
    if not isinstance(truncated, bool):
        raise ConfigError(f"truncated={truncated!r} must be true or false.")
    parameters = model.parameters
    if unknown := sorted(tensors.keys() - parameters.keys()):
        raise ConfigError(f"its settings have no parameter {unknown[0]!r}")
    for name, values in parameters.items():
        if truncated and name.startswith("sensitive."):
            values.zero_()
        elif name not in tensors or tensors[name].shape != values.shape:
            raise ConfigError(f"parameter {name!r} is missing or of another shape")
        else:
            values.copy_(tensors[name])
    return model


def _does_not_fit(role: str) -> ConfigError:
    return ConfigError(
        f"the {role} tables of the model are not those of its settings and features; pass the "
        "settings and features that it was built with."
    )
