"""What every estimator of tables shares: arguments, fit, saved folders and copies.

It has the manners of scikit-learn, which it does without: arguments are kept as they are given, a
clone shares them, and what a fit has learnt ends in an underscore. A copy that leaves the process
(pickle, joblib) holds what `save` writes and nothing else.
"""

import dataclasses
import html
import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tulle.accounting.ledger import Ledger
from tulle.accounting.spans import Moment
from tulle.data.estimator_tables import (
    LabelColumn,
    joined_rows,
    named_columns,
    rows_of_files,
    schema_of_rows,
    weighted_schema,
    width_of,
)
from tulle.data.features.encoder import Encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.formats.known_roles import check_known_roles
from tulle.data.named_logs import SchemaLike, schema_of
from tulle.data.schema import Schema
from tulle.data.table_arrays import encode_table
from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean
from tulle.privacy.guarantee import Guarantee
from tulle.runs.card import Card
from tulle.train import verbs
from tulle.train.continuing import Start, StartLike, read_start
from tulle.train.estimator_errors import ArgumentError, InputError, not_fitted, raising_value_errors
from tulle.train.examples import ExampleSet, examples_of
from tulle.train.explanation import Explanation, explain_model
from tulle.train.fitted_model import FittedModel
from tulle.train.fitting import FitResult
from tulle.train.methods.catalogue import chosen_method
from tulle.train.methods.method import Method
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.settings.units import UnitLevel, check_unit_word
from tulle.train.trained_model import TrainedModel

FilePath = str | os.PathLike[str]


class TableEstimator:
    """What a classifier and a regressor of tables have in common; see `Classifier`."""

    _fitted: FittedModel | None = None
    _estimator_type: ClassVar[str]

    def __init__(
        self,
        schema: SchemaLike | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        method: str | Method | Mapping[str, Any] = "mosaic",
        unit: UnitLevel | str | None = None,
        from_model: "StartLike | TableEstimator | None" = None,
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
        self.schema = schema
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.unit = unit
        self.from_model = from_model
        self.keep_evidence = keep_evidence
        self.allow_constant = allow_constant
        self.features = features
        self.allow_public = allow_public
        self.ledger = ledger
        self.purpose = purpose
        self.at = at
        self.until = until
        self.seed = seed
        self.output = output
        self.resume = resume
        self.device = device
        with raising_value_errors():
            self._check_settings()

    def explain(self, values: object = None) -> Explanation:
        """Tables of the model, effects of values with intervals, and sums behind predictions.

        Args:
          values: A table or file whose distinct values give hashed bins their names, such as a
            catalogue of campaigns; without it they have numbers.

        Privacy:
          Shows the model, which `guarantee_` covers, and names from `values` as they are: those of
          sensitive columns must be public.

        Raises:
          ConfigError: The model is no sum of tables, as a perceptron is none.
          DataError: `values` has no column of the model, or is a log with sensitive columns.
        """
        fitted = self._get_fitted()
        return explain_model(fitted.model, fitted.encoder, fitted.card, values=values)

    def predict_one(self, row: Mapping[str, object]) -> float | dict[str, float]:
        """What is predicted for one row, fast enough to be asked for each request.

        Args:
          row: Values by column, None where one is missing. The label is not needed, and neither
            is a column that the model does not look at.

        Returns:
          The probability of label 1, or the expected value; for classes their probabilities.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.

        Raises:
          DataError: A column is missing, or a value is none of its column's kind.
        """
        return self._get_fitted().predicted_one(row)

    @property
    def model_(self) -> TrainedModel:
        """The trained model, with what makes ids of columns."""
        return self._get_fitted().model

    def save(self, folder: FilePath) -> None:
        """Writes model, encoder, schema and card into a new folder, which `tulle.load` reads.

        Privacy:
          The folder holds nothing that `guarantee_` does not cover.

        Raises:
          RunStateError: The folder exists, or cannot be written.
        """
        self._get_fitted().write(Path(folder))

    @classmethod
    def load(cls, folder: FilePath) -> Self:
        """Reads what `save` wrote, or the folder of a finished training run.

        Raises:
          DataError: There is no model in it, or one that takes ids and not columns; a file was
            cut or changed.
        """
        return cls.of_fitted(FittedModel.read(Path(folder)))

    @classmethod
    def of_fitted(cls, fitted: FittedModel) -> Self:
        """An estimator that has learnt this."""
        plan, schema = fitted.card.plan, fitted.encoder.plan.schema
        found = cls(
            schema,
            **cls._arguments_of(fitted),
            epsilon=plan.guarantee.epsilon if plan.is_private else None,
            delta=plan.guarantee.delta if plan.is_private else None,
            method=str(plan.settings["method"]),
            unit=str(plan.guarantee.unit),
            allow_public=schema.public + (() if schema.weight is None else (schema.weight,)),
        )
        vars(found)["_fitted"] = fitted
        return found

    @property
    def card_(self) -> Card:
        """The card of the fit: what is promised, and what makes it true."""
        return self._get_fitted().card

    @property
    def result_(self) -> FitResult:
        """The trained model and how it came about.

        Raises:
          NotFittedError: The model was loaded or unpickled and not fitted here.
        """
        result = self._get_fitted().result
        if result is None:
            raise not_fitted("this model was loaded; how it came about is on its card_.")
        return result

    @property
    def plan_(self) -> TrainPlan:
        """Method, sampler, noise and event of the fit."""
        return self.result_.plan

    @property
    def guarantee_(self) -> Guarantee:
        """What the model promises, if no seed was set; infinite for a baseline."""
        return self.card_.plan.guarantee

    @property
    def encoder_(self) -> Encoder:
        """How columns became ids; needed to use an exported model on other rows."""
        return self._get_fitted().encoder

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """Names of the columns that a prediction needs. Those of an array are x0, x1 and so on."""
        plan = self._get_fitted().encoder.plan
        used = {feature.column for feature in plan.features}
        names = [name for name in plan.schema.used if name in used]
        return np.array(names, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of columns that a prediction needs."""
        return len(self.feature_names_in_)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """The arguments by name. `deep` changes nothing: no argument is a part to be set."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    # Named one by one in scikit-learn's interface too, whatever they are.
    def set_params(self, **params: Any) -> Self:
        """Changes some arguments for the next fit, or none if one is refused."""
        given = self.get_params()
        for name in params:
            if name not in given:
                raise ArgumentError(
                    f"{name!r} is not an argument of {type(self).__name__}"
                    f"{did_you_mean(name, list(given))}; use one of {', '.join(given)}."
                )
        type(self)(**(given | params))
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        # Arguments are frozen, so they are shared.
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        del memo
        # What a fit has learnt is never changed, only replaced by the next fit.
        twin = self.__sklearn_clone__()
        vars(twin)["_fitted"] = self._fitted
        return twin

    def __getstate__(self) -> dict[str, Any]:
        files = None if self._fitted is None else self._fitted.to_files()
        return {"arguments": self.get_params(), "files": files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state["arguments"].items():
            setattr(self, name, value)
        if state["files"] is not None:
            self._fitted = FittedModel.of_files(state["files"])

    def __repr__(self) -> str:
        named = self.method if isinstance(self.method, str) else type(self.method).__name__
        state = "not fitted" if self._fitted is None else f"{self.guarantee_}"
        return f"{type(self).__name__}(method={named!r}, epsilon={self.epsilon}): {state}"

    def _repr_html_(self) -> str:
        """The page of the fit, for notebooks."""
        if self._fitted is None or self._fitted.result is None:
            return f"<pre>{html.escape(repr(self))}</pre>"
        return self._fitted.result._repr_html_()

    @classmethod
    def _arguments_of(cls, fitted: FittedModel) -> dict[str, Any]:
        """Arguments that only estimators of this class have."""
        raise NotImplementedError

    def _method(self) -> Method:
        """The method with its target, as the arguments say."""
        return chosen_method(
            self.method,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            allow_constant=self.allow_constant,
        )

    def _label_column(self, labels: object) -> LabelColumn:
        """Labels that came apart from their rows, checked, as a column."""
        raise NotImplementedError

    def _train(self, rows: object, labels: object, weights: object) -> None:
        """Trains on rows and keeps what it has learnt.

        Args:
          rows: What was handed in as X.
          labels: Labels that came apart from the rows, or None.
          weights: Weights that came apart from the rows, or None.
        """
        settings = {name: value for name, value in self.get_params().items() if name != "schema"}
        with raising_value_errors():
            if isinstance(earlier := self.from_model, TableEstimator):
                settings["from_model"] = earlier._get_fitted()  # noqa: SLF001
            start = read_start(settings["from_model"], None)
            if self.schema is None and labels is None and start.encoder is None:
                raise InputError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None: "
                    "schema=None does not say which column is the label. Pass y, or a Schema."
                )
            schema = self._schema_of(rows, weights, start)
            if weights is not None:
                schema = weighted_schema(schema)
                if self.features is not None:
                    settings["features"] = dataclasses.replace(self.features, schema=schema)
            table = named_columns(rows)
            if labels is not None or weights is not None:
                y = None if labels is None else self._label_column(labels)
                table = joined_rows(rows, schema, y=y, sample_weight=weights)
            result = verbs.fit(table, schema, test=0, **settings)
            self._fitted = FittedModel.of(result)

    def _schema_of(self, rows: object, weights: object, start: Start) -> Schema:
        """The schema that was given, else that of the model to continue from, else of the rows.

        Args:
          rows: What was handed in as X.
          weights: Weights that came apart from the rows, or None.
          start: The model to continue from, if there is one.
        """
        if self.schema is not None:
            return schema_of(self.schema)
        if start.encoder is None:
            return schema_of_rows(rows)
        schema = start.encoder.plan.schema
        # Weights that come apart from their rows are added to it again.
        return schema if weights is None else schema.without_weight()

    def _tags(self) -> Any:
        """Tags of scikit-learn that all estimators share."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=self.schema is None, one_d_labels=True),
            input_tags=InputTags(categorical=True, string=True, allow_nan=True),
            non_deterministic=self.seed is None,
        )

    def _labelled(self, rows: object, labels: object) -> ExampleSet:
        """Rows as ids, with their labels.

        Args:
          rows: What was handed in as X.
          labels: Labels that came apart from the rows; None if they are a column of them.
        """
        if labels is None:
            return self._examples(rows, rows)
        schema = self._get_fitted().encoder.plan.schema.without_weight()
        return self._examples(rows, joined_rows(rows, schema, y=self._label_column(labels)))

    def _examples(self, rows: object, labelled: object) -> ExampleSet:
        """Rows as ids. A model that never looks at sensitive columns is handed none.

        Args:
          rows: What was handed in as X.
          labelled: The same with labels; None if they are not needed.
        """
        fitted = self._get_fitted()
        encoder = fitted.encoder
        if fitted.model.is_truncated and encoder.plan.of_role("public"):
            encoder = encoder.of_role("public")
        self._check_width(rows)
        schema = encoder.plan.schema.without_weight()
        if labelled is None:
            schema = schema.to_read({feature.column for feature in encoder.plan.features})
        table = rows_of_files(rows if labelled is None else labelled, schema)
        arrays = encode_table(
            table,
            encoder,
            with_label=labelled is not None,
            with_weight=False,
            num_classes=fitted.model.num_classes,
            classes=fitted.model.classes,
        )
        found = examples_of(arrays)
        if not fitted.model.is_truncated:
            return found
        return dataclasses.replace(found, features=fitted.model.features, sensitive_features=None)

    def _check_width(self, rows: object) -> None:
        """Refuses an array of other columns than the one of the fit, which nothing else shows."""
        width, names = width_of(rows), self.feature_names_in_
        numbered = {f"x{place}" for place in range(len(names))}
        if width is not None and set(names) == numbered and width != len(names):
            raise InputError(
                f"X has {width} features, but {type(self).__name__} is expecting {len(names)} "
                "features as input; pass the columns that it was fitted on."
            )

    def _get_fitted(self) -> FittedModel:
        if self._fitted is None:
            raise not_fitted(f"this {type(self).__name__} is not fitted; call fit(rows) first.")
        return self._fitted

    def _check_settings(self) -> None:
        if not isinstance(self.schema, Schema | Mapping | str | os.PathLike | None):
            raise ConfigError(
                f"schema of type {type(self.schema).__name__} must be a Schema, e.g. "
                "Schema(label=…, public=…, sensitive=…)."
            )
        schema = None if self.schema is None else schema_of(self.schema)
        unit_column = None if schema is None else schema.unit
        check_unit_word(self.unit, unit_column)
        self._method()
        if schema is not None:
            check_known_roles(schema, allowed_public=self.allow_public)
        if self.features is not None and not isinstance(self.features, FeaturePlan):
            raise ConfigError(
                f"features of type {type(self.features).__name__} must be a FeaturePlan, or None."
            )
        if self.features is not None and self.features.schema != schema:
            raise ConfigError(
                "features is a FeaturePlan of another schema than the estimator's; make it from "
                "the same schema."
            )
