"""`tulle.load`: whatever was saved, by what it is."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tulle.errors import DataError

if TYPE_CHECKING:
    from tulle.measure.queries.measure_record import MeasureRecord
    from tulle.train.classifier import Classifier
    from tulle.train.methods.train_plan import TrainPlan
    from tulle.train.regressor import Regressor

_MODEL, _MEASUREMENT, _RUN = "model.json", "measurement.json", "run.json"


def load(path: str | os.PathLike[str]) -> "Classifier | Regressor | MeasureRecord | TrainPlan":
    """Reads what tulle has saved: a model, a finished training run, a measurement or a plan.

    Args:
      path: Folder of `Classifier.save`, of `tulle train --output` or of `tulle measure run`; or
        the file of `tulle plan --output`.

    Returns:
      A `Classifier` or `Regressor` that predicts, a measurement with its tables, or a `TrainPlan`.

    Raises:
      DataError: There is nothing that tulle has saved, or a file was cut or changed.
    """
    place = Path(path)
    if (place / _MODEL).exists() or (place / _RUN).exists():
        from tulle.train.regressor import load_estimator

        return load_estimator(place)
    if (place / _MEASUREMENT).exists():
        from tulle.measure import read_measurement

        return read_measurement(place / _MEASUREMENT)
    if place.suffix == ".json" and place.is_file():
        from tulle.train.verbs import read_plan

        return read_plan(place)
    raise DataError(
        f"{place} is nothing that tulle has saved; name the folder of a model, of a training run "
        "or of a measurement, or the file of a training plan."
    )
