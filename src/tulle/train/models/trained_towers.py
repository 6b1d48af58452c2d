"""Models of towers: built from settings, predicted with, and in folders that PyTorch can use."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.privacy.codec import plain_data, settings_from
from tulle.train.examples import ExampleSet
from tulle.train.models import exported_model
from tulle.train.models.batches import predict
from tulle.train.models.linear_models import FactorizationMachineModel, LogisticRegressionModel
from tulle.train.models.mlp import MLPModel
from tulle.train.models.tower_model import InitialValues, TowerModel
from tulle.train.settings.models import (
    MLP,
    AnyModel,
    FactorizationMachine,
    LogisticRegression,
    ModelSettings,
)
from tulle.train.trained_model import ModelFiles, TrainedModel, write_model_folder


def build_model(
    settings: ModelSettings,
    features: Sequence[PreparedFeature],
    *,
    seed: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> TowerModel:
    """Builds a model with initial values that depend on `seed` and the features alone.

    Args:
      settings: Kind and sizes of the model.
      features: Features of all roles, in the order of the dataset.
      seed: Seed of the initial values.
      device: Device that holds the parameters.
      dtype: Type of the parameters.

    Raises:
      ConfigError: There are no features, or no model has such settings.
    """
    if not features:
        raise ConfigError("features=() must hold at least one feature of the dataset.")
    layout, initial = settings.layout(features), InitialValues(seed, device, dtype)
    if isinstance(settings, MLP):
        return MLPModel.of(settings, layout, initial)
    if isinstance(settings, FactorizationMachine):
        return FactorizationMachineModel.of(layout, initial, stddev=settings.initial_stddev)
    if isinstance(settings, LogisticRegression):
        return LogisticRegressionModel.of(layout, initial, stddev=settings.initial_stddev)
    raise ConfigError(f"model of type {type(settings).__name__} is unknown; use an MLP.")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainedTowers(TrainedModel):
    """Towers that steps have trained."""

    model: TowerModel
    """The model. If it is truncated, its sensitive tower is all zeros."""
    settings: ModelSettings
    """Settings that the model was built with."""
    device: torch.device
    report_channel: BinaryChannel | None = None
    """Set if the weights predict randomized reports: turns predictions into those of labels. It
    holds one pair of probabilities."""

    @property
    def kind(self) -> str:
        """The word for the kind of model in settings files."""
        return self.settings.kind

    def predicted(self, rows: ExampleSet) -> NDArray[np.float64]:
        """The probability of label 1 for each row."""
        found = predict(self.model, rows, self.device)
        return found if self.report_channel is None else self.report_channel.label_probs(found)

    def write(self, folder: Path, facts: Mapping[str, object], *, keep_cut: bool = False) -> None:
        """Writes the model into a new folder, where PyTorch alone can use it.

        Args:
          folder: Path of the new folder.
          facts: Plain data to store beside the model, such as its guarantee.
          keep_cut: True to make sure of room on the disk first, and to leave what was written
            under its hidden name if the export fails after that.

        Raises:
          ConfigError: The model does not fit settings and features, or facts are no plain data.
          DataError: A parameter is NaN or infinite.
          RunStateError: The folder exists or cannot be written.
        """
        arrays = {
            name: values.detach().to("cpu").numpy()
            for name, values in self.model.parameters.items()
            if not (self.is_truncated and name.startswith("sensitive."))
        }
        description = {
            "version": exported_model.VERSION,
            "settings": plain_data(self.settings),
            "truncated": self.is_truncated,
            "features": [feature.to_dict() for feature in self.features],
            "lookups": _lookups(
                self.settings, self.features, self.model.parameters, truncated=self.is_truncated
            ),
            "facts": dict(facts) | self._report_facts(),
        }
        loader = Path(exported_model.__file__)
        write_model_folder(
            folder,
            arrays,
            description,
            loader=loader,
            encoder=self.encoder,
            card=self.card,
            keep_cut=keep_cut,
        )

    def _report_facts(self) -> dict[str, object]:
        """What the loader of the folder needs if the weights predict reports."""
        channel = self.report_channel
        if channel is None:
            return {}
        probs = [float(channel.prob_if_negative), float(channel.prob_if_positive)]
        return {exported_model.REPORT_PROBS: probs}


def towers_of(
    files: ModelFiles, features: tuple[PreparedFeature, ...], device: torch.device | str = "cpu"
) -> TrainedTowers:
    """Makes the model that a folder holds.

    Args:
      files: Description and parameters.
      features: The features of the description.
      device: Device that the towers are put on.

    Raises:
      ConfigError: The parameters are not those of the settings.
    """
    if (version := files.description["version"]) != exported_model.VERSION:
        raise ConfigError(
            f"model.json has version={version!r}, this version of tulle reads "
            f"{exported_model.VERSION} of such models"
        )
    truncated, facts = files.description["truncated"], files.description["facts"]
    settings = settings_from(AnyModel, files.description["settings"], what="model")
    tensors = {name: torch.from_numpy(np.array(values)) for name, values in files.arrays.items()}
    probs: Any = facts.get(exported_model.REPORT_PROBS)
    return TrainedTowers(
        model=_towers(settings, features, tensors, truncated, device),
        settings=settings,
        features=features,
        is_truncated=truncated,
        device=torch.device(device),
        facts=facts,
        report_channel=None
        if probs is None
        else BinaryChannel(
            prob_if_negative=np.asarray(probs[0]), prob_if_positive=np.asarray(probs[1])
        ),
    )


def _lookups(
    settings: ModelSettings,
    features: Sequence[PreparedFeature],
    parameters: Mapping[str, Tensor],
    *,
    truncated: bool,
) -> dict[str, list[dict[str, object]]]:
    """Columns of ids that each table of each role is for, and what is added to them."""
    layout = settings.layout(features)
    roles = ("public",) if truncated else ("public", "sensitive")
    for role in roles:
        shapes = {table.tensor: (table.num_rows, table.dim) for table in layout[role]}
        is_table = f"{role}.table."
        found = {n: tuple(t.shape) for n, t in parameters.items() if n.startswith(is_table)}
        if shapes != found:
            raise _does_not_fit(role)
    return {
        role: [
            {
                "tensor": table.tensor,
                "columns": list(table.columns),
                "first_rows": list(table.first_rows),
            }
            for table in layout[role]
        ]
        for role in roles
    }


def _towers(
    settings: ModelSettings,
    features: Sequence[PreparedFeature],
    tensors: Mapping[str, Tensor],
    truncated: object,
    device: torch.device | str,
) -> TowerModel:
    is_double = any(tensor.dtype == torch.float64 for tensor in tensors.values())
    dtype = torch.float64 if is_double else torch.float32
    model = build_model(settings, features, seed=0, device=device, dtype=dtype)
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
