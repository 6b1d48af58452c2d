"""How good predictions are, on true labels and on randomized ones."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.quality.class_metrics import ClassFigures, ClassMetrics, evaluate_classes
    from tulle.quality.metrics import (
        BiddingUtility,
        CalibrationGroup,
        Estimate,
        ExponentialBids,
        QualityMetrics,
        UniformBids,
        bidding_utility,
        evaluate_predictions,
        relative_auc_loss,
        relative_log_likelihood,
    )
    from tulle.quality.noisy_labels import NoisyLabelMetrics, auc_of_labels, evaluate_on_reports
    from tulle.quality.value_metrics import ValueMetrics, evaluate_values

__all__ = [
    "BiddingUtility",
    "CalibrationGroup",
    "ClassFigures",
    "ClassMetrics",
    "Estimate",
    "ExponentialBids",
    "NoisyLabelMetrics",
    "QualityMetrics",
    "UniformBids",
    "ValueMetrics",
    "auc_of_labels",
    "bidding_utility",
    "evaluate_classes",
    "evaluate_on_reports",
    "evaluate_predictions",
    "evaluate_values",
    "relative_auc_loss",
    "relative_log_likelihood",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
