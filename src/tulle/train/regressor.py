"""A regressor over tables and files: the expected value of a label such as an amount or a count.

    model = tulle.Regressor(schema, clip=400, epsilon=3, delta=1e-7).fit(rows)
    values = model.predict(new_rows)

It has the manners of `Classifier`. The clip is public and is chosen without looking at the labels:
a label above it counts as the clip, so that no row adds more than any other could.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tulle.accounting.ledger import Ledger
from tulle.accounting.spans import Moment
from tulle.data.estimator_tables import LabelColumn, value_labels
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.named_logs import SchemaLike
from tulle.errors import ConfigError, DataError
from tulle.quality.value_metrics import ValueMetrics
from tulle.train.classifier import Classifier
from tulle.train.continuing import StartLike
from tulle.train.estimator import TableEstimator
from tulle.train.estimator_errors import raising_value_errors
from tulle.train.fitted_model import FittedModel
from tulle.train.methods.catalogue import chosen_method
from tulle.train.methods.method import Method
from tulle.train.settings.units import UnitLevel

FilePath = str | os.PathLike[str]


class Regressor(TableEstimator):
    """Learns the expected value of a label from a table, an array, or files of a log.

    Args:
      schema: Roles and kinds of the columns, as for `Classifier`; the label is a number from 0 on.
      clip: Largest value that a label counts as, in the unit of the labels. It is public: choose
        it by what you know of such labels, never by the largest one. Low clips cut off large
        values, and high ones leave more noise on all of them.
      epsilon: The guarantee of each fit; None if the method has its target.
      delta: Probability that the bound may fail; None: 1e-7.
      method: "mosaic", the one method that learns values, or its settings.
      unit: Who is protected, as for `Classifier`.
      from_model: Released model of Mosaic that fits continue from, as for `Classifier`.
      keep_evidence: Fraction of the evidence of that model that is kept, as for `Classifier`.
      allow_constant: Train also where rows are so few that the model can be expected to be a
        constant, which is refused else.
      features: What becomes of the columns, as for `Classifier`.
      allow_public: Columns of a known log that are public here deliberately.
      ledger: A ledger or its path, which is charged by each fit before anything is drawn.
      purpose: What the ledger calls the fit; None: "training".
      at: When the data are from, where a budget renews.
      until: Last day or time of the data.
      seed: Makes all noise repeatable. Then the model is not a private release.
      output: Folder in which the run is kept, so that it can be resumed; None: it is not kept.
      resume: Go on with the run in `output`.
      device: "cpu".

    Every argument is public information and is kept as it is given.

    Raises:
      ConfigError: Arguments contradict each other, or the clip is no number above 0.
    """

    _estimator_type = "regressor"

    def __init__(
        self,
        schema: SchemaLike | None = None,
        *,
        clip: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        method: str | Method | Mapping[str, Any] = "mosaic",
        unit: UnitLevel | str | None = None,
        from_model: StartLike | TableEstimator | None = None,
        keep_evidence: float | None = None,
        allow_constant: bool = False,
        features: FeaturePlan | None = None,
        allow_public: Sequence[str] = (),
        ledger: Ledger | FilePath | None = None,
        purpose: str | None = None,
        at: Moment | None = None,
        until: Moment | None = None,
        seed: int | None = None,
        output: FilePath | None = None,
        resume: bool = False,
        device: str = "cpu",
    ) -> None:
        self.clip = clip
        super().__init__(
            schema,
            epsilon=epsilon,
            delta=delta,
            method=method,
            unit=unit,
            from_model=from_model,
            keep_evidence=keep_evidence,
            allow_constant=allow_constant,
            features=features,
            allow_public=allow_public,
            ledger=ledger,
            purpose=purpose,
            at=at,
            until=until,
            seed=seed,
            output=output,
            resume=resume,
            device=device,
        )

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:  # noqa: N803
        """Trains on all rows of a table, an array or files, and returns itself.

        Args:
          X: A table of polars, pandas, Arrow or DuckDB, an array of rows, or files of a log.
          y: Label of each row, a number from 0 on; None if the label is a column of X.
          sample_weight: How much each row counts, as for `Classifier`.

        Privacy:
          The model has `guarantee_`, for the unit and the columns that it names. Each fit spends
          anew: fits of the same rows add up, also those of a search for the best clip.

        Raises:
          ConfigError: There is no clip, or the target cannot be met on so many rows.
          DataError: A column is missing, a label is no number from 0 on, or there are no rows.
        """
        with raising_value_errors():
            if self._method().num_classes is not None:
                raise ConfigError(
                    "clip is missing: say the largest value that a label counts as, e.g. clip=400, "
                    "chosen without looking at the labels; for labels of 0 and 1 use Classifier."
                )
        self._train(X, y, sample_weight)
        return self

    def predict(self, X: object) -> NDArray[np.float64]:  # noqa: N803
        """The expected value of each row, between 0 and the clip.

        Args:
          X: Rows with the columns of the features, in any order; the label is not needed.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.
        """
        with raising_value_errors():
            return self._get_fitted().model.predict(self._examples(X, None))

    def evaluate(self, X: object, y: object = None) -> ValueMetrics:  # noqa: N803
        """Figures of quality on labelled rows that `fit` has not seen.

        Labels are clipped as those of the training rows were: that is what was learnt.

        Args:
          X: A table with the label in it, files of a log, or rows whose labels are `y`.
          y: The labels; None if they are a column of X.

        Privacy:
          Figures are exact statistics of these rows, which `guarantee_` does not cover.
        """
        with raising_value_errors():
            return self._get_fitted().model.evaluate_values(self._labelled(X, y))

    def score(self, X: object, y: object = None) -> float:  # noqa: N803
        """R2 of clipped labels on rows that `fit` has not seen; 0 is the mean label everywhere.

        Privacy:
          It is an exact statistic of these rows, which `guarantee_` does not cover.
        """
        return self.evaluate(X, y).r_squared

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn, which alone asks, may expect of this regressor."""
        from sklearn.utils import RegressorTags

        tags = self._tags()
        tags.target_tags.positive_only = True
        # Noise decides how good a model of a few hundred rows can be, whatever the data are.
        tags.regressor_tags = RegressorTags(poor_score=True)
        return tags

    def _method(self) -> Method:
        return chosen_method(
            self.method,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            clip=self.clip,
            allow_constant=self.allow_constant,
        )

    def _label_column(self, labels: object) -> LabelColumn:
        return value_labels(labels)

    @classmethod
    def _arguments_of(cls, fitted: FittedModel) -> dict[str, Any]:
        if fitted.model.clip is None:
            raise DataError("this model predicts probabilities; read it with Classifier.load().")
        return {"clip": fitted.model.clip}


def load_estimator(folder: FilePath) -> Classifier | Regressor:
    """Reads a saved model as what it is: a regressor if it predicts values, else a classifier.

    Raises:
      DataError: There is no model in it, or one that takes ids and not columns; a file was cut or
        changed.
    """
    fitted = FittedModel.read(Path(folder))
    kind = Classifier if fitted.model.clip is None else Regressor
    return kind.of_fitted(fitted)
