"""Models on their way back from their folders, whichever method has trained them."""

from pathlib import Path
from typing import TYPE_CHECKING

from tulle.data.prepared.dataset import PreparedFeature
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_list
from tulle.train.trained_model import ENCODER_FILES, TrainedModel, read_model_folder

if TYPE_CHECKING:
    import torch

_CELLS = "cells"


def load_model(folder: Path, *, device: "torch.device | str" = "cpu") -> TrainedModel:
    """Reads an exported model back, with every byte of its parameters checked.

    Args:
      folder: The folder of the model.
      device: Device that towers are put on; a model of cells stays in the memory of the host.

    Raises:
      DataError: The folder holds no exported model, or a file was cut or changed.
    """
    try:
        files = read_model_folder(folder)
        stored = check_list("features", files.description["features"])
        features = tuple(map(PreparedFeature.from_dict, stored))
        settings = files.description["settings"]
        kind = settings.get("kind") if isinstance(settings, dict) else None
        model: TrainedModel
        if kind == _CELLS:
            from tulle.train.methods.mosaic.trained_cells import cells_of

            model = cells_of(files, features)
        else:
            from tulle.train.models.trained_towers import towers_of

            model = towers_of(files, features, device)
    except (ConfigError, DataError) as error:
        reason = str(error).removesuffix(".")
        raise DataError(
            f"{folder.name} cannot be used: {reason}; export the model again."
        ) from None
    has_encoder = all((folder / name).exists() for name in ENCODER_FILES)
    return model.with_encoder(folder) if has_encoder else model
