"""A model after training: what it predicts, which columns it looks at, and the folder it is in.

The folder is there as a whole or not at all. It holds the parameters (model.safetensors), what they
mean (model.json), a file that loads both without tulle (load_model.py), and where it is known the
encoder that makes ids of columns (encoder.json, vocabularies.npz). It is written under a hidden
name. model.json comes last and has the checksums of all others and of itself: a hidden folder in
which they agree is whole, whatever became of the process that wrote it, and a folder in which one
file was changed is refused.
"""

import abc
import dataclasses
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save_file

from tulle.atomic_files import check_room, sync_folder
from tulle.data.prepared.dataset import PreparedDataset, hash_file
from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.fields import check_fields, parse_json
from tulle.quality.class_metrics import ClassMetrics, evaluate_classes
from tulle.quality.metrics import QualityMetrics, evaluate_predictions
from tulle.quality.value_metrics import ValueMetrics, evaluate_values
from tulle.train.examples import ExampleSet

if TYPE_CHECKING:
    from tulle.data.features.encoder import Encoder
    from tulle.runs.card import Card

FORMAT = "tulle model"
TENSORS_FILE = "model.safetensors"
DESCRIPTION_FILE = "model.json"
ENCODER_FILES = ("encoder.json", "vocabularies.npz")
"""What the encoder of the data leaves in a folder."""

_KEYS = ("format", "version", "settings", "truncated", "features", "lookups", "sha256", "facts")
_FINGERPRINT, _OTHER_FILES = "fingerprint", "files"
"""Keys of the checksum of model.json itself, and of those of the files beside the parameters.
Models of versions 1 and 2 may lack them."""
_OLD_VERSIONS = (1, 2)
"""Versions of models that were written before checksums of all files were."""
_LOADER_FILE = "load_model.py"
_STAGED = "partial"
_MORE_BYTES = 1 << 20
"""Room for the loader, the head of the parameters and the indentation of what they mean."""


class ModelFiles(NamedTuple):
    """What the folder of a model holds, read and compared with its checksum."""

    description: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write_model_folder(
    folder: Path,
    arrays: Mapping[str, NDArray[Any]],
    description: Mapping[str, object],
    *,
    loader: Path,
    encoder: "Encoder | Path | None" = None,
    card: "Card | None" = None,
    keep_cut: bool = False,
) -> None:
    """Writes the parameters of a model and what they mean into a new folder.

    Args:
      folder: Path of the folder, which must not exist.
      arrays: Parameters by the names that the loader knows them by.
      description: Plain data that the loader makes a model of them with; their format and
        checksum are added.
      loader: Source of load_model.py, which needs nothing of tulle.
      encoder: What makes ids of columns, or the folder that its files lie in; None: nothing is
        kept of it, and the model takes ids alone.
      card: What is promised; None: it is kept elsewhere.
      keep_cut: Make sure of room before the first byte, and leave what was written under its
        hidden name if the export fails after that.

    Privacy:
      All of it becomes public as it is.

    Raises:
      ConfigError: The description is no plain data.
      DataError: A parameter is NaN or infinite.
      RunStateError: The folder exists or cannot be written.
    """
    description = {"format": FORMAT, **description}
    _check_finite(arrays)
    _check_plain(description)
    staged = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.{_STAGED}")
    if folder.exists():
        raise _exists(folder)
    stays = False
    try:
        staged.mkdir()
        if keep_cut:
            num_bytes = sum(values.nbytes for values in arrays.values())
            check_room(staged, num_bytes + len(json.dumps(description)) + _MORE_BYTES)
            stays = True
        shutil.copyfile(loader, staged / _LOADER_FILE)
        _put_encoder(staged, encoder)
        if card is not None:
            # Loads the accountant, which a machine that only trains does without.
            from tulle.runs.card import write_card

            write_card(staged, card)
        _write_parameters(staged, arrays, description)
        put_in_place(staged, folder)
    except OSError as error:
        if folder.exists() and staged.exists():
            raise _exists(folder) from None
        raise RunStateError(
            f"{folder.name} cannot be written: {error.strerror}; name a place in a folder that "
            "exists, has room and may be written to."
        ) from None
    finally:
        if not stays:
            shutil.rmtree(staged, ignore_errors=True)


def read_model_folder(folder: Path) -> ModelFiles:
    """Reads the files of a model, with every byte of the folder compared.

    Raises:
      DataError: The folder holds no exported model, or a file was cut or changed.
    """
    path = folder / TENSORS_FILE
    try:
        stored = _read_description(folder / DESCRIPTION_FILE)
        content = path.read_bytes()
    except OSError as error:
        name = Path(error.filename or folder).name
        raise DataError(f"{folder.name} is no exported model: {name}: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() != stored["sha256"]:
        raise DataError(f"{path.name} was cut or changed")
    _check_other_files(folder, stored)
    try:
        arrays = load_arrays(content)
    except SafetensorError:
        raise DataError(f"the header of {path.name} is damaged") from None
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise DataError(f"tensor {name!r} of {path.name} has NaN or infinite numbers")
    return ModelFiles(stored, arrays)


def cut_exports(folder: Path) -> list[Path]:
    """Hidden folders that exports to this folder have left beside it when they were killed."""
    return sorted(folder.parent.glob(f".{folder.name}.*.{_STAGED}"))


def clear_cut_exports(folder: Path) -> None:
    """Removes what exports to this folder that were killed have left beside it."""
    for staged in cut_exports(folder):
        shutil.rmtree(staged, ignore_errors=True)


def has_content(staged: Path) -> bool:
    """True if a byte of a model's parameters is in a hidden folder."""
    parameters = staged / TENSORS_FILE
    return parameters.exists() and parameters.stat().st_size > 0


def put_in_place(staged: Path, folder: Path) -> None:
    """Gives a whole model its name in one step, after all of it is safely on disk."""
    for path in staged.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(staged)
    os.rename(staged, folder)
    sync_folder(folder.parent)


def _read_description(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode()
        stored = parse_json(path.name, text)
    except (UnicodeDecodeError, ConfigError):
        raise DataError(f"{path.name} is not JSON; it is cut or damaged") from None
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise DataError(f"{path.name} does not describe a model of tulle")
    stored = dict(check_fields(path.name, stored, _KEYS, (_FINGERPRINT, _OTHER_FILES)))
    is_old = stored["version"] in _OLD_VERSIONS and _FINGERPRINT not in stored
    if not is_old and stored.get(_FINGERPRINT) != _fingerprint(stored):
        raise DataError(f"{path.name} was cut or changed")
    return stored


def _fingerprint(description: Mapping[str, object]) -> str:
    told = {name: value for name, value in description.items() if name != _FINGERPRINT}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _check_other_files(folder: Path, stored: Mapping[str, Any]) -> None:
    digests = stored.get(_OTHER_FILES, {})
    if not isinstance(digests, dict) or any(Path(name).name != name for name in digests):
        raise DataError(f"{_OTHER_FILES!r} of {DESCRIPTION_FILE} must be checksums by file name")
    for name, digest in digests.items():
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            raise DataError(f"{name}: {error.strerror}") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise DataError(f"{name} was cut or changed")


def _check_finite(arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise DataError(
                f"parameter {name!r} has NaN or infinite values; such a model predicts nothing. "
                "Train again with other settings, such as a lower learning rate."
            )


def _check_plain(description: Mapping[str, object]) -> None:
    try:
        json.dumps(description, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"facts must be plain data that JSON can hold ({error}); convert them first."
        ) from None


def _put_encoder(folder: Path, encoder: "Encoder | Path | None") -> None:
    if isinstance(encoder, Path):
        for name in ENCODER_FILES:
            shutil.copyfile(encoder / name, folder / name)
    elif encoder is not None:
        encoder.to_files(folder)


def _write_parameters(
    folder: Path, arrays: Mapping[str, NDArray[Any]], description: Mapping[str, object]
) -> None:
    path = folder / TENSORS_FILE
    # A copy: arrays may be read-only or share their memory.
    save_file({name: np.array(values) for name, values in arrays.items()}, path, {"format": "pt"})
    # safetensors lets only the owner read; the user's own mask decides, as for the others.
    path.chmod((folder / _LOADER_FILE).stat().st_mode)
    digests = {
        file.name: hash_file(file, file.stat().st_size).hexdigest()
        for file in sorted(folder.iterdir())
    }
    told = {**description, "sha256": digests.pop(path.name), _OTHER_FILES: digests}
    # Read back, so that the checksum is over what a reader sees.
    told = json.loads(json.dumps(told))
    told[_FINGERPRINT] = _fingerprint(told)
    text = json.dumps(told, indent=1, allow_nan=False) + "\n"
    (folder / DESCRIPTION_FILE).write_text(text, encoding="utf-8")


def _exists(folder: Path) -> RunStateError:
    return RunStateError(f"{folder.name} exists already; name a new folder for the model.")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainedModel(abc.ABC):
    """Weights with what belongs to them. Each kind of model has a class of its own."""

    features: tuple[PreparedFeature, ...]
    """Features of the data it was trained on; public ones first."""
    is_truncated: bool
    """True if it never looks at a sensitive column."""
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Plain data that were written with it, such as the fingerprint of its plan."""
    encoder: "Encoder | Path | None" = None
    """What makes ids of columns, or the folder of its files; None: the model takes ids alone."""
    card: "Card | None" = None
    """What is promised, if it is to be written with the model."""

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """The word for the kind of model, in its folder and on the command line."""

    @abc.abstractmethod
    def predicted(self, rows: ExampleSet) -> NDArray[np.float64]:
        """What the model predicts for each row, whose features are those of the model."""

    @property
    def clip(self) -> float | None:
        """Largest value that a label counted as; None for labels of 0 and 1."""
        return None

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes that it predicts; None for labels of 0 and 1, and for values."""
        return None

    @property
    def remark(self) -> str:
        """What training has ended with, where a reader should know it; empty if nothing."""
        return ""

    @property
    def num_classes(self) -> int | None:
        """Number of classes of the labels that it was trained on; None if they are values."""
        if self.classes is not None:
            return len(self.classes)
        return 2 if self.clip is None else None

    @abc.abstractmethod
    def write(self, folder: Path, facts: Mapping[str, object], *, keep_cut: bool = False) -> None:
        """Writes the model into a new folder, see `write_model_folder`.

        Args:
          folder: Path of the folder, which must not exist.
          facts: Plain data to keep with the model.
          keep_cut: Leave what was written under its hidden name if the export fails half-way.

        Privacy:
          The parameters become public as they are. They must be those of a finished private
          training, with all noise in them; nothing is added here.
        """

    def with_encoder(self, encoder: "Encoder | Path | None") -> Self:
        """Returns the model with what makes ids of columns, which is then written with it."""
        return dataclasses.replace(self, encoder=encoder)

    def predict_proba(self, examples: ExampleSet | PreparedDataset) -> NDArray[np.float64]:
        """The probability of label 1 for each row; of each class, [rows, classes], for classes.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.

        Raises:
          ConfigError: The model predicts values.
        """
        if self.clip is not None:
            raise ConfigError("the model predicts values and no probabilities; call predict().")
        return self.predict(examples)

    def predict(self, examples: ExampleSet | PreparedDataset) -> NDArray[np.float64]:
        """The probability of label 1 for each row, of each class, or the expected value.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.
        """
        return self.predicted(self._matching(examples))

    def evaluate(self, examples: ExampleSet | PreparedDataset) -> QualityMetrics:
        """Figures of quality on labelled rows that training has not seen.

        Privacy:
          Figures are exact statistics of these rows, which the guarantee of the training rows
          does not cover: evaluate on rows that may show, and say so on the card.
        """
        if self.clip is not None:
            raise ConfigError("the model predicts values; call evaluate_values().")
        if self.classes is not None:
            raise ConfigError("the model predicts classes; call evaluate_classes().")
        rows, labels = self._labelled(examples)
        if rows.report_probs is not None:
            raise DataError(
                "the test labels are randomized reports; predict the rows, and give predictions "
                "and reports to tulle.quality.evaluate_on_reports()."
            )
        return evaluate_predictions(labels, self.predicted(rows))

    def evaluate_classes(self, examples: ExampleSet | PreparedDataset) -> ClassMetrics:
        """Figures of predicted classes on labelled rows that training has not seen.

        Privacy:
          The same as for `evaluate`.
        """
        if self.classes is None:
            raise ConfigError("the model predicts no classes; call evaluate().")
        rows, labels = self._labelled(examples)
        return evaluate_classes(labels, self.predicted(rows), classes=self.classes)

    def evaluate_values(self, examples: ExampleSet | PreparedDataset) -> ValueMetrics:
        """Figures of predicted values on labelled rows that training has not seen.

        Labels are clipped as those of the training rows were.

        Privacy:
          The same as for `evaluate`.

        Raises:
          ConfigError: The model predicts probabilities.
        """
        if self.clip is None:
            raise ConfigError("the model predicts probabilities; call evaluate().")
        rows, labels = self._labelled(examples)
        return evaluate_values(np.minimum(labels, self.clip), self.predicted(rows))

    def _labelled(
        self, examples: ExampleSet | PreparedDataset
    ) -> tuple[ExampleSet, NDArray[np.float32]]:
        rows = self._matching(examples)
        if rows.labels is None:
            raise DataError("the test rows have no label column; name one in the schema.")
        return rows, rows.labels

    def _matching(self, examples: ExampleSet | PreparedDataset) -> ExampleSet:
        if isinstance(examples, PreparedDataset):
            examples = ExampleSet.of(examples, num_classes=self.num_classes)
        examples = examples.with_classes(self.num_classes)
        if examples.features != self.features:
            raise DataError(
                "these rows have other features than the model was trained on; prepare them with "
                "the encoder of the training data (tulle data prepare --like)."
            )
        seen = examples.without_sensitive(examples.labels) if self.is_truncated else examples
        if not seen.fingerprint:  # Rows of a prepared dataset were checked when they were taken.
            seen.check()
        return seen
