"""Logs on their way to training: schemas, bounds, samplers, splits."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.data.description import Description
    from tulle.data.features.default_features import default_features
    from tulle.data.features.feature_plan import FeaturePlan
    from tulle.data.preparation import PrepareResult
    from tulle.data.prepared.dataset import PreparedDataset
    from tulle.data.schema import Kind, Schema
    from tulle.data.synth.writing import write_synthetic
    from tulle.data.verbs import describe, prepare

__all__ = [
    "Description",
    "FeaturePlan",
    "Kind",
    "PrepareResult",
    "PreparedDataset",
    "Schema",
    "default_features",
    "describe",
    "prepare",
    "write_synthetic",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
