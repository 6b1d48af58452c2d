"""Training with semi-sensitive features: Mosaic, private steps, and their models.

Mosaic needs numpy alone. Methods with steps need PyTorch, which is loaded when they train.
"""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.quality.metrics import QualityMetrics, relative_auc_loss
    from tulle.train.classifier import Classifier
    from tulle.train.examples import ExampleSet
    from tulle.train.fitting import FitResult
    from tulle.train.label_training import fit_on_reports
    from tulle.train.methods.baseline import NonPrivateConfig
    from tulle.train.methods.dp_sgd import DpSgdConfig
    from tulle.train.methods.hybrid import HybridConfig
    from tulle.train.methods.label_projection.method import (
        LabelProjectionConfig,
        Projection,
        SmoothingPrior,
    )
    from tulle.train.methods.method import Accounting
    from tulle.train.methods.mosaic.method import CellSettings, MosaicConfig, StageShares
    from tulle.train.methods.randomized_labels import RandomizedLabelsConfig
    from tulle.train.regressor import Regressor
    from tulle.train.run_context import NoiseMemory, NoisePlacement, Products, RunOptions
    from tulle.train.settings.models import MLP, FactorizationMachine, LogisticRegression
    from tulle.train.settings.optimizers import SGD, Adam, RMSprop, Yogi
    from tulle.train.settings.phases import (
        EarlyStopping,
        ExplicitSplit,
        LabelCorrection,
        LabelPhase,
        PaperSplit,
        PlainPhase,
        PrivatePhase,
        PublicTower,
        RatioSplit,
    )
    from tulle.train.settings.step_noise import (
        BandedNoise,
        IndependentNoise,
        LatticeNoise,
        SelectedRows,
    )
    from tulle.train.settings.units import ExampleLevel, RowChoice, UserAccounting, UserLevel
    from tulle.train.training_run import load_model
    from tulle.train.verbs import fit, plan

__all__ = [
    "MLP",
    "SGD",
    "Accounting",
    "Adam",
    "BandedNoise",
    "CellSettings",
    "Classifier",
    "DpSgdConfig",
    "EarlyStopping",
    "ExampleLevel",
    "ExampleSet",
    "ExplicitSplit",
    "FactorizationMachine",
    "FitResult",
    "HybridConfig",
    "IndependentNoise",
    "LabelCorrection",
    "LabelPhase",
    "LabelProjectionConfig",
    "LatticeNoise",
    "LogisticRegression",
    "MosaicConfig",
    "NoiseMemory",
    "NoisePlacement",
    "NonPrivateConfig",
    "PaperSplit",
    "PlainPhase",
    "PrivatePhase",
    "Products",
    "Projection",
    "PublicTower",
    "QualityMetrics",
    "RMSprop",
    "RandomizedLabelsConfig",
    "RatioSplit",
    "Regressor",
    "RowChoice",
    "RunOptions",
    "SelectedRows",
    "SmoothingPrior",
    "StageShares",
    "UserAccounting",
    "UserLevel",
    "Yogi",
    "fit",
    "fit_on_reports",
    "load_model",
    "plan",
    "relative_auc_loss",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
