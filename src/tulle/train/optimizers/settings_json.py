"""Optimizer settings from plain data."""

from tulle.train.optimizers.adam import Adam
from tulle.train.optimizers.optimizer import OptimizerSettings
from tulle.train.optimizers.rmsprop import RMSprop
from tulle.train.optimizers.sgd import SGD
from tulle.train.optimizers.yogi import Yogi
from tulle.train.tagged_settings import class_of_kind

_Settings = SGD | Adam | RMSprop | Yogi
_KINDS: dict[str, type[_Settings]] = {cls.kind: cls for cls in (SGD, Adam, RMSprop, Yogi)}


def optimizer_from_dict(data: object) -> OptimizerSettings:
    """Reads what the `to_dict` of any optimizer's settings wrote."""
    return class_of_kind("optimizer", data, _KINDS).from_dict(data)
