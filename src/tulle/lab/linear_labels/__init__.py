"""Linear models of conversions from one release of noisy label sums."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.lab.linear_labels.feature_rows import BoundedFeatures, OneHotFields
    from tulle.lab.linear_labels.label_sums import (
        LabelBlock,
        LabelSumsConfig,
        best_noise,
        dataset_blocks,
        release_label_sums,
    )
    from tulle.lab.linear_labels.linear_model import LinearFitConfig, fit_linear_model

__all__ = [
    "BoundedFeatures",
    "LabelBlock",
    "LabelSumsConfig",
    "LinearFitConfig",
    "OneHotFields",
    "best_noise",
    "dataset_blocks",
    "fit_linear_model",
    "release_label_sums",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
