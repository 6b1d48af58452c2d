"""Trained models at work: predictions for files of any size, and forms that other stacks run.

Nothing here needs torch for a model of Mosaic.
"""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.serve.exports import ExportedForm, export
    from tulle.serve.predictions import WrittenPredictions, predict

__all__ = [
    "ExportedForm",
    "WrittenPredictions",
    "export",
    "predict",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
