"""What a fit has learnt: a model with its encoder and card, as a folder and as bytes.

The folder is what `tulle.load` reads. A copy that leaves the process is made of the same files, so
that nothing can be in it which the guarantee does not cover.
"""

import dataclasses
from pathlib import Path

from tulle.atomic_files import reporting_disk_errors
from tulle.data.features.encoder import Encoder
from tulle.errors import DataError
from tulle.runs.card import Card, read_card, write_card
from tulle.scratch_folders import scratch_folder
from tulle.train.fitting import FitResult
from tulle.train.trained_model import TrainedModel
from tulle.train.training_run import MODEL_FOLDER, load_model

_CARD = "card.json"
_SCRATCH = "tulle-copies-"
_COPY = "model"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FittedModel:
    """A trained model with what belongs to it. All of it has the guarantee on the card."""

    model: TrainedModel
    encoder: Encoder
    card: Card
    result: FitResult | None = None
    """How the model came about; None if it was loaded."""

    @classmethod
    def of(cls, result: FitResult) -> "FittedModel":
        """What a finished training run has learnt."""
        encoder = _encoder_of(result.model)
        return cls(model=result.model, encoder=encoder, card=result.card, result=result)

    @classmethod
    def read(cls, folder: Path) -> "FittedModel":
        """Reads what `write` wrote, or the folder of a finished training run.

        Raises:
          DataError: There is no model in it, or one that takes ids and not columns; a file was
            cut or changed.
        """
        place = folder / MODEL_FOLDER if (folder / MODEL_FOLDER).is_dir() else folder
        model = load_model(place)
        if model.encoder is None:
            raise DataError(
                f"{folder.name} has no encoder, so that its model takes ids and no columns; read "
                "it with tulle.train.load_model(), or train it anew."
            )
        if not (folder / _CARD).exists():
            raise DataError(
                f"{folder.name} has no {_CARD}: the run in it is not finished. Go on with it with "
                "`tulle train --resume`."
            )
        encoder = _encoder_of(model)
        return cls(
            model=model.with_encoder(encoder), encoder=encoder, card=read_card(folder / _CARD)
        )

    @classmethod
    def of_files(cls, files: dict[str, bytes]) -> "FittedModel":
        """Reads the files that `to_files` gave."""
        with scratch_folder(_SCRATCH) as folder:
            place = folder / _COPY
            place.mkdir()
            for name, content in files.items():
                (place / name).write_bytes(content)
            return cls.read(place)

    def write(self, folder: Path) -> None:
        """Writes all but how it came about into a new folder.

        Privacy:
          The folder holds nothing that the guarantee does not cover.

        Raises:
          RunStateError: The folder exists, or cannot be written.
        """
        self.model.with_encoder(self.encoder).write(folder, self.model.facts)
        with reporting_disk_errors(folder / _CARD):
            write_card(folder, self.card)

    def to_files(self) -> dict[str, bytes]:
        """The files that `write` writes, by their names.

        Privacy:
          They hold nothing that the guarantee does not cover.
        """
        with scratch_folder(_SCRATCH) as folder:
            self.write(folder / _COPY)
            return {path.name: path.read_bytes() for path in sorted((folder / _COPY).iterdir())}


def _encoder_of(model: TrainedModel) -> Encoder:
    encoder = model.encoder
    if encoder is None:
        raise DataError("the model has no encoder, so that it takes ids and no columns.")
    return Encoder.from_files(encoder) if isinstance(encoder, Path) else encoder
