"""A classifier over tables and files, with the manners of scikit-learn, which it does without.

    model = tulle.Classifier(schema, epsilon=3, delta=1e-7).fit(rows)
    probabilities = model.predict_proba(new_rows)
    model.save("model")

The label is a column of the rows, or comes apart from them as y. Which columns are labels, public
or sensitive is said by the schema, once.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tulle.data.estimator_tables import LabelColumn, binary_labels
from tulle.errors import ConfigError, DataError
from tulle.quality.metrics import QualityMetrics
from tulle.train.estimator import TableEstimator
from tulle.train.estimator_errors import raising_value_errors
from tulle.train.fitted_model import FittedModel
from tulle.train.methods.method import Method

# What `classes_` of scikit-learn is for every model here. One array serves all of them, so that
# nobody may write to it.
_CLASSES = np.array([0, 1])
_CLASSES.setflags(write=False)


class Classifier(TableEstimator):
    """Learns the probability of label 1 from a table, an array, or files of a log.

    A value must look the same in every table. pandas turns whole numbers with gaps into floats,
    and 5.0 is another category than 5: store such a column as Int64.

    Args:
      schema: Roles and kinds of the columns: a Schema, plain data, or a TOML or JSON file. No
        other column is ever looked at. None: every column of X is sensitive, and labels are y.
      epsilon: The guarantee of each fit; None if the method has its target, or no guarantee.
      delta: Probability that the bound may fail; None: 1e-7, or 0 for methods that need none.
      method: "mosaic", "hybrid", "rr", "dp-sgd", "label-projection" or "nonprivate"; a method
        with its settings; or those as plain data.
      unit: Who is protected: "example", "user", or e.g. "user per 30 days". None: users if the
        schema names them, else rows.
      features: What becomes of the columns; None: `tulle.data.default_features`. A FeaturePlan
        may have vocabularies of public columns; those of sensitive ones cost privacy and need a
        ledger, see `tulle.data.prepare`.
      allow_public: Columns of a known log that are public here deliberately.
      ledger: A ledger or its path, which is charged by each fit before anything is drawn.
      purpose: What the ledger calls the fit; None: "training".
      at: When the data are from, where a budget renews.
      until: Last day or time of the data.
      seed: Makes all noise repeatable. Then the model is not a private release.
      output: Folder in which the run is kept, so that it can be resumed; None: it is not kept.
      resume: Go on with the run in `output`.
      device: "cpu" or "cuda".

    Every argument is public information and is kept as it is given.

    Raises:
      ConfigError: Arguments contradict each other, a column of a known log is public that must
        not be.
    """

    _estimator_type = "classifier"

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:  # noqa: N803
        """Trains on all rows of a table, an array or files, and returns itself.

        Args:
          X: A table of polars, pandas, Arrow or DuckDB, an array of rows, or files of a log.
          y: Label of each row, 0 or 1; None if the label is a column of X.
          sample_weight: How much each row counts, from 0, against the largest weight. Weights are
            public, like a column of role weight in the schema. Only method mosaic uses them.

        Privacy:
          The model has `guarantee_`, for the unit and the columns that it names. Each fit spends
          anew: fits of the same rows add up, also if all but the best are thrown away, and so do
          the folds of a cross-validation. Numbers of rows and values of public columns are taken
          for public.

        Raises:
          ConfigError: The target cannot be met on so many rows, or a batch is too large.
          DataError: A column is missing, a label is not 0 or 1, a weight is below 0, or there are
            no rows.
        """
        self._train(X, y, sample_weight)
        return self

    def predict_proba(self, X: object) -> NDArray[np.float64]:  # noqa: N803
        """Probabilities of label 0 and label 1, as [rows, 2].

        Args:
          X: Rows with the columns of the features, in any order; label, unit and time are not
            needed, and sensitive columns only if the model uses them.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.
        """
        with raising_value_errors():
            ones = self._get_fitted().model.predict_proba(self._examples(X, None))
        return np.stack([1 - ones, ones], axis=1)

    def predict(self, X: object) -> NDArray[np.int64]:  # noqa: N803
        """The likelier label of each row.

        Where label 1 is rare, that is 0 almost everywhere: rank by `predict_proba`.
        """
        probabilities = self.predict_proba(X)
        return (probabilities[:, 1] > probabilities[:, 0]).astype(np.int64)

    def evaluate(self, X: object, y: object = None) -> QualityMetrics:  # noqa: N803
        """Figures of quality on labelled rows that `fit` has not seen.

        Args:
          X: A table with the label in it, files of a log, or rows whose labels are `y`.
          y: The labels; None if they are a column of X.

        Privacy:
          Figures are exact statistics of these rows, which `guarantee_` does not cover.
        """
        with raising_value_errors():
            return self._get_fitted().model.evaluate(self._labelled(X, y))

    def score(self, X: object, y: object = None) -> float:  # noqa: N803
        """The AUC on labelled rows that `fit` has not seen.

        It is no accuracy, as other classifiers have it: with rare labels the accuracy is best for
        a model that predicts 0 always.

        Privacy:
          It is an exact statistic of these rows, which `guarantee_` does not cover.
        """
        return 1 - self.evaluate(X, y).auc_loss

    @property
    def classes_(self) -> NDArray[np.int64]:
        """The labels, in the order of the columns of `predict_proba`."""
        self._get_fitted()
        return _CLASSES

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn, which alone asks, may expect of this classifier."""
        from sklearn.utils import ClassifierTags

        tags = self._tags()
        # Noise decides how good a model of a few hundred rows can be, whatever the data are.
        tags.classifier_tags = ClassifierTags(poor_score=True, multi_class=False)
        return tags

    def _method(self) -> Method:
        found = super()._method()
        if found.num_classes is None:
            raise ConfigError(
                "the method has a clip and learns values, and a Classifier learns which label a "
                "row has; use tulle.Regressor, or leave the clip out."
            )
        return found

    def _label_column(self, labels: object) -> LabelColumn:
        return binary_labels(labels)

    @classmethod
    def _arguments_of(cls, fitted: FittedModel) -> dict[str, Any]:
        if fitted.model.clip is not None:
            raise DataError("this model predicts values; read it with tulle.Regressor.load().")
        return {}
