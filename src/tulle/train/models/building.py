"""Models with their initial values, built from their settings."""

from collections.abc import Sequence

import torch

from tulle.data.prepared.dataset import PreparedFeature
from tulle.errors import ConfigError
from tulle.train.models.embeddings import InitialValues
from tulle.train.models.linear_models import FactorizationMachineModel, LogisticRegressionModel
from tulle.train.models.mlp import MLPModel
from tulle.train.models.tower_model import TowerModel
from tulle.train.settings.models import MLP, FactorizationMachine, LogisticRegression, ModelSettings


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
