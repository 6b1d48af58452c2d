"""What a fit has learnt: a model with its encoder and card, as a folder and as bytes.

The folder is what `tulle.load` reads. A copy that leaves the process is made of the same files, so
that nothing can be in it which the guarantee does not cover.
"""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

from tulle.data.features.encoder import Encoder
from tulle.data.table_arrays import encode_row
from tulle.errors import DataError
from tulle.runs.card import Card, read_card
from tulle.scratch_folders import scratch_folder
from tulle.train.examples import examples_of
from tulle.train.fitting import FitResult
from tulle.train.methods.mosaic.single_rows import SingleRows
from tulle.train.methods.mosaic.trained_cells import TrainedCells
from tulle.train.trained_model import TrainedModel
from tulle.train.training_run import MODEL_FOLDER, PLAN_FINGERPRINT, load_model

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
        encoder = encoder_of(result.model)
        model = result.model.with_encoder(encoder)
        return cls(model=model, encoder=encoder, card=result.card, result=result)

    @classmethod
    def read(cls, folder: Path) -> "FittedModel":
        """Reads what `write` wrote, or the folder of a finished training run.

        Raises:
          DataError: There is no model in it, or one that takes ids and not columns; a file was
            cut or changed.
        """
        model = model_of_folder(folder)
        if model.card is None:
            raise DataError(
                f"{folder.name} has no {_CARD}, so that nobody knows what it promises; name the "
                "folder of the run that it lies in."
            )
        encoder = encoder_of(model)
        return cls(model=model.with_encoder(encoder), encoder=encoder, card=model.card)

    def predicted_one(self, row: Mapping[str, object]) -> float | dict[str, float]:
        """What the model predicts for one row, given as values by column.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.

        Raises:
          DataError: A column is missing, or a value is none of its column's kind.
        """
        if not hasattr(row, "keys"):  # a row of pandas has them, and is no Mapping
            raise DataError(
                f"a row of type {type(row).__name__} has no names of columns; give a dictionary of "
                "values by column, or call predict_proba() for a table."
            )
        if self._single_rows is not None:
            return self._single_rows.predicted(row)
        is_truncated = self.model.is_truncated
        encoder = self.encoder.of_role("public") if is_truncated else self.encoder
        examples = examples_of(encode_row(row, encoder))
        if is_truncated:
            examples = dataclasses.replace(
                examples, features=self.model.features, sensitive_features=None
            )
        return float(self.model.predict(examples)[0])

    @functools.cached_property
    def _single_rows(self) -> SingleRows | None:
        """The way to predict one row fast; None for models of towers, which have no such way."""
        model = self.model
        return SingleRows(model.fused, self.encoder) if isinstance(model, TrainedCells) else None

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
        whole = dataclasses.replace(self.model, encoder=self.encoder, card=self.card)
        whole.write(folder, self.model.facts)

    def to_files(self) -> dict[str, bytes]:
        """The files that `write` writes, by their names.

        Privacy:
          They hold nothing that the guarantee does not cover.
        """
        with scratch_folder(_SCRATCH) as folder:
            self.write(folder / _COPY)
            return {path.name: path.read_bytes() for path in sorted((folder / _COPY).iterdir())}


def model_of_folder(folder: Path) -> TrainedModel:
    """The model in a folder that `FittedModel.write` or a training run wrote.

    Its encoder is with it, and its card if the folder has one: that of a run comes last.

    Raises:
      DataError: There is no model in it, or one that takes ids and not columns; a file was cut or
        changed, or the card is that of another model.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{folder.name} {what}; name the folder of a model or of a training run.")
    place = folder / MODEL_FOLDER if (folder / MODEL_FOLDER).is_dir() else folder
    model = load_model(place)
    if model.encoder is None:
        raise DataError(
            f"{folder.name} has no encoder, so that its model takes ids and no columns; read it "
            "with tulle.train.load_model(), or train it anew."
        )
    if not (folder / _CARD).exists():
        if place != folder:
            raise DataError(
                f"{folder.name} has no {_CARD}: the run in it is not finished. Go on with it with "
                "`tulle train --resume`."
            )
        return model
    card = read_card(folder / _CARD)
    plan = card.plan.fingerprint()
    # Models that were saved from memory have none: their folder has the checksum of its card.
    if model.facts.get(PLAN_FINGERPRINT, plan) != plan:
        raise DataError(
            f"{_CARD} of {folder.name} is that of another model: its plan is not the one that this "
            "model was trained by. Put back the card that was there."
        )
    return dataclasses.replace(model, card=card)


def encoder_of(model: TrainedModel) -> Encoder:
    """What makes ids of columns for a model.

    Raises:
      DataError: It has none.
    """
    encoder = model.encoder
    if encoder is None:
        raise DataError("the model has no encoder, so that it takes ids and no columns.")
    return Encoder.from_files(encoder) if isinstance(encoder, Path) else encoder
