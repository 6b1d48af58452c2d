"""A classifier over tables and files, with the manners of scikit-learn, which it does without.

    model = tulle.Classifier(schema, epsilon=3, delta=1e-7).fit(rows)
    probabilities = model.predict_proba(new_rows)
    model.save("model")

The label is a column of the rows, or comes apart from them as y. Which columns are labels, public
or sensitive is said by the schema, once. Labels are 0 and 1, or names of classes that are given.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tulle.accounting.ledger import Ledger
from tulle.accounting.spans import Moment
from tulle.data.estimator_tables import LabelColumn, binary_labels, class_labels
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.named_logs import SchemaLike
from tulle.data.tables.kinds import are_whole_numbers
from tulle.errors import ConfigError, DataError
from tulle.quality.class_metrics import ClassMetrics
from tulle.quality.metrics import QualityMetrics
from tulle.train.continuing import StartLike
from tulle.train.estimator import TableEstimator
from tulle.train.estimator_errors import raising_value_errors
from tulle.train.fitted_model import FittedModel
from tulle.train.methods.catalogue import chosen_method
from tulle.train.methods.method import Method
from tulle.train.settings.units import UnitLevel

FilePath = str | os.PathLike[str]

# What `classes_` of scikit-learn is for labels of 0 and 1. One array serves all such models, so
# that nobody may write to it.
_CLASSES = np.array([0, 1])
_CLASSES.setflags(write=False)


class Classifier(TableEstimator):
    """Learns the probability of label 1, or of each class, from a table, an array or files.

    A value must look the same in every table. pandas turns whole numbers with gaps into floats,
    and 5.0 is another category than 5: store such a column as Int64.

    Args:
      schema: Roles and kinds of the columns: a Schema, plain data, or a TOML or JSON file. No
        other column is ever looked at. None: every column of X is sensitive, and labels are y.
      classes: Names of all classes, text or whole numbers, if labels are not 0 and 1. They are
        public and never read from the labels, since which of them occur is protected.
      epsilon: The guarantee of each fit; None if the method has its target, or no guarantee.
      delta: Probability that the bound may fail; None: 1e-7, or 0 for methods that need none.
      method: "mosaic", "hybrid", "rr", "dp-sgd", "label-projection" or "nonprivate"; a method
        with its settings; or those as plain data.
      unit: Who is protected: "example", "user", or e.g. "user per 30 days". None: users if the
        schema names them, else rows.
      from_model: Released model of Mosaic that fits continue from: a fitted estimator, or the
        folder of a model. Schema and encoder are then those of the model.
      keep_evidence: Fraction of the evidence of that model that is kept; None: 0.7.
      allow_constant: Train also where rows are so few that the model can be expected to be a
        constant, which is refused else.
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

    def __init__(
        self,
        schema: SchemaLike | None = None,
        *,
        classes: Sequence[str | int] | None = None,
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
        self.classes = classes
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
          y: Label of each row, 0 or 1 or the name of a class; None if it is a column of X.
          sample_weight: How much each row counts, from 0, against the largest weight. Weights are
            public, like a column of role weight in the schema. Only method mosaic uses them.

        Privacy:
          The model has `guarantee_`, for the unit and the columns that it names. Each fit spends
          anew: fits of the same rows add up, also if all but the best are thrown away, and so do
          the folds of a cross-validation. Numbers of rows and values of public columns are taken
          for public.

        Raises:
          ConfigError: The target cannot be met on so many rows, or a batch is too large.
          DataError: A column is missing, a label is not 0 or 1 (or none of the classes), a weight
            is below 0, or there are no rows.
        """
        self._train(X, y, sample_weight)
        return self

    def predict_proba(self, X: object) -> NDArray[np.float64]:  # noqa: N803
        """Probabilities of label 0 and label 1, or of each class, as [rows, classes].

        Columns are in the order of `classes_`.

        Args:
          X: Rows with the columns of the features, in any order; label, unit and time are not
            needed, and sensitive columns only if the model uses them.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.
        """
        with raising_value_errors():
            found = self._get_fitted().model.predict_proba(self._examples(X, None))
            order = np.argsort(self._labels())
        columns = found if found.ndim == 2 else np.stack([1 - found, found], axis=1)
        return columns[:, order]

    def predict(self, X: object) -> NDArray[Any]:  # noqa: N803
        """The likeliest label of each row, one of `classes_`.

        Where one label is frequent, that is this one almost everywhere: rank by `predict_proba`.
        """
        labels = np.sort(self._labels())
        likeliest: NDArray[Any] = labels[self.predict_proba(X).argmax(axis=1)]
        return likeliest

    def evaluate(self, X: object, y: object = None) -> QualityMetrics | ClassMetrics:  # noqa: N803
        """Figures of quality on labelled rows that `fit` has not seen.

        They are those of several classes where classes were named.

        Args:
          X: A table with the label in it, files of a log, or rows whose labels are `y`.
          y: The labels; None if they are a column of X.

        Privacy:
          Figures are exact statistics of these rows, which `guarantee_` does not cover.
        """
        with raising_value_errors():
            model = self._get_fitted().model
            rows = self._labelled(X, y)
            return model.evaluate(rows) if model.classes is None else model.evaluate_classes(rows)

    def score(self, X: object, y: object = None) -> float:  # noqa: N803
        """The AUC on labelled rows that `fit` has not seen; with named classes, the accuracy.

        For labels of 0 and 1 it is no accuracy, as other classifiers have it: with rare labels
        the accuracy is best for a model that predicts 0 always.

        Privacy:
          It is an exact statistic of these rows, which `guarantee_` does not cover.
        """
        found = self.evaluate(X, y)
        return found.accuracy if isinstance(found, ClassMetrics) else found.auc

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted, as scikit-learn wants them: columns of `predict_proba` follow them.

        Named classes are numbers if all names are whole numbers, and text otherwise.
        """
        # Its measures of probabilities sort the labels and take the columns to be in that order.
        return np.sort(self._labels())

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn, which alone asks, may expect of this classifier."""
        from sklearn.utils import ClassifierTags

        tags = self._tags()
        # Noise decides how good a model of a few hundred rows can be, whatever the data are.
        tags.classifier_tags = ClassifierTags(poor_score=True, multi_class=self.classes is not None)
        return tags

    def _labels(self) -> NDArray[Any]:
        """The labels in the order in which the model has them: that of their names."""
        names = self._get_fitted().model.classes
        if names is None:
            return _CLASSES
        return np.array(list(map(int, names)) if are_whole_numbers(names) else names)

    def _method(self) -> Method:
        found = chosen_method(
            self.method,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            classes=self.classes,
            allow_constant=self.allow_constant,
        )
        if found.num_classes is None:
            raise ConfigError(
                "the method has a clip and learns values, and a Classifier learns which label a "
                "row has; use tulle.Regressor, or leave the clip out."
            )
        return found

    def _label_column(self, labels: object) -> LabelColumn:
        names = self._method().class_names
        return binary_labels(labels) if names is None else class_labels(labels, names)

    @classmethod
    def _arguments_of(cls, fitted: FittedModel) -> dict[str, Any]:
        if fitted.model.clip is not None:
            raise DataError("this model predicts values; read it with tulle.Regressor.load().")
        return {"classes": fitted.model.classes}
