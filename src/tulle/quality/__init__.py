"""How good predictions are, on true labels and on randomized ones."""

from tulle.quality.bidding import BiddingUtility, ExponentialBids, UniformBids, bidding_utility
from tulle.quality.calibration import CalibrationGroup
from tulle.quality.estimate import Estimate
from tulle.quality.likelihood import relative_log_likelihood
from tulle.quality.metrics import QualityMetrics, evaluate_predictions, relative_auc_loss
from tulle.quality.noisy_labels import NoisyLabelMetrics, auc_of_labels, evaluate_on_reports

__all__ = [
    "BiddingUtility",
    "CalibrationGroup",
    "Estimate",
    "ExponentialBids",
    "NoisyLabelMetrics",
    "QualityMetrics",
    "UniformBids",
    "auc_of_labels",
    "bidding_utility",
    "evaluate_on_reports",
    "evaluate_predictions",
    "relative_auc_loss",
    "relative_log_likelihood",
]
