"""Reading the settings of any model from plain data."""

from tulle.train.models.factorization_machine import FactorizationMachine
from tulle.train.models.logistic_regression import LogisticRegression
from tulle.train.models.mlp import MLP
from tulle.train.models.tower_model import ModelSettings
from tulle.train.tagged_settings import class_of_kind

_Model = MLP | FactorizationMachine | LogisticRegression
_KINDS: dict[str, type[_Model]] = {
    cls.kind: cls for cls in (MLP, FactorizationMachine, LogisticRegression)
}


def model_from_dict(data: object) -> ModelSettings:
    """The settings that `to_dict` of a model wrote; keys that are left out have defaults."""
    return class_of_kind("model", data, _KINDS).from_dict(data)
