"""A classifier over tables and files, with the manners of scikit-learn, which it does without.

    model = tulle.Classifier(schema, epsilon=3, delta=1e-7).fit(rows)
    probabilities = model.predict_proba(new_rows)
    model.save("model")

The label is a column of the rows: which columns are labels, public or sensitive is said by the
schema, once.
"""

import dataclasses
import html
import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tulle.accounting.budget import Moment
from tulle.accounting.ledger import Ledger
from tulle.atomic_files import reporting_disk_errors
from tulle.data.features.encoder import Encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.formats.known_roles import check_known_roles
from tulle.data.named_logs import SchemaLike, schema_of
from tulle.data.schema import Schema
from tulle.data.table_arrays import encode_table
from tulle.data.tables.sources import open_log, whole_table
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.fields import did_you_mean
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.units import Owner
from tulle.quality.metrics import QualityMetrics
from tulle.runs.card import Card, read_card, write_card
from tulle.train import verbs
from tulle.train.examples import ExampleSet, examples_of
from tulle.train.fitting import FitResult
from tulle.train.methods.catalogue import chosen_method
from tulle.train.methods.method import Method
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.settings.units import UnitLevel, check_unit_word, chosen_level
from tulle.train.trained_model import TrainedModel
from tulle.train.training_run import MODEL_FOLDER, load_model

# What `classes_` of scikit-learn is for every model here. One array serves all of them, so that
# nobody may write to it.
_CLASSES = np.array([0, 1])
_CLASSES.setflags(write=False)
_CARD = "card.json"
FilePath = str | os.PathLike[str]


class NotFittedError(RunStateError, AttributeError):
    """Something was asked that only `fit` can answer; no such attribute for `hasattr`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Fitted:
    model: TrainedModel
    encoder: Encoder
    card: Card
    result: FitResult | None = None
    """How the model came about; None if it was loaded."""


class Classifier:
    """Learns the probability of label 1 from a table, or from files of a log.

    A value must look the same in every table. pandas turns whole numbers with gaps into floats,
    and 5.0 is another category than 5: store such a column as Int64.

    Args:
      schema: Roles and kinds of the columns: a Schema, plain data, or a TOML or JSON file. No
        other column is ever looked at.
      epsilon: The guarantee of each fit; None if the method has its target, or no guarantee.
      delta: Probability that the bound may fail; None: 1e-7, or 0 for methods that need none.
      method: "mosaic", "hybrid", "rr", "dp-sgd", "label-projection" or "nonprivate"; a method
        with its settings; or those as plain data.
      unit: Who is protected: "example" or "user". Must be said if the schema has a unit.
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
        not be, or the schema has a unit and nobody says whether it is protected.
    """

    def __init__(
        self,
        schema: SchemaLike,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        method: str | Method | Mapping[str, Any] = "mosaic",
        unit: UnitLevel | str | None = None,
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
        self._fitted: _Fitted | None = None
        self._check_settings()

    def fit(self, rows: object) -> Self:
        """Trains on all rows of a table or of files, and returns itself.

        Args:
          rows: A table of polars, pandas, Arrow or DuckDB, or files of a log.

        Privacy:
          The model has `guarantee_`, for the unit and the columns that it names. Each fit spends
          anew: fits of the same rows add up, also if all but the best are thrown away. Numbers of
          rows and values of public columns are taken for public.

        Raises:
          ConfigError: The target cannot be met on so many rows, or a batch is too large.
          DataError: A column is missing, a label is not 0 or 1, or there are no rows.
        """
        settings = {name: getattr(self, name) for name in _PARAMETERS if name != "schema"}
        result = verbs.fit(rows, self.schema, test=0, **settings)
        encoder = _encoder_of(result.model)
        self._fitted = _Fitted(model=result.model, encoder=encoder, card=result.card, result=result)
        return self

    def predict_proba(self, rows: object) -> NDArray[np.float64]:
        """Probabilities of label 0 and label 1, as [rows, 2].

        Args:
          rows: A table or files with the columns of the features; label, unit and time are not
            needed, and sensitive columns only if the model uses them.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.
        """
        ones = self._get_fitted().model.predict_proba(self._examples(rows, with_label=False))
        return np.stack([1 - ones, ones], axis=1)

    def predict(self, rows: object) -> NDArray[np.int64]:
        """The likelier label of each row.

        Where label 1 is rare, that is 0 almost everywhere: rank by `predict_proba`.
        """
        probabilities = self.predict_proba(rows)
        return (probabilities[:, 1] > probabilities[:, 0]).astype(np.int64)

    def evaluate(self, rows: object) -> QualityMetrics:
        """AUC loss, log loss and calibration on labelled rows that `fit` has not seen.

        There is no `score`: with rare labels the accuracy is best for a model that predicts 0
        always.

        Privacy:
          Figures are exact statistics of these rows, which `guarantee_` does not cover.
        """
        return self._get_fitted().model.evaluate(self._examples(rows, with_label=True))

    def save(self, folder: FilePath) -> None:
        """Writes model, encoder, schema and card into a new folder, which `tulle.load` reads.

        Privacy:
          The folder holds nothing that `guarantee_` does not cover.

        Raises:
          RunStateError: The folder exists, or cannot be written.
        """
        fitted, path = self._get_fitted(), Path(folder)
        fitted.model.with_encoder(fitted.encoder).write(path, fitted.model.facts)
        with reporting_disk_errors(path / _CARD):
            write_card(path, fitted.card)

    @classmethod
    def load(cls, folder: FilePath) -> "Classifier":
        """Reads what `save` wrote, or the folder of a finished training run.

        Raises:
          DataError: There is no model in it, or one that takes ids and not columns; a file was
            cut or changed.
        """
        path = Path(folder)
        place = path / MODEL_FOLDER if (path / MODEL_FOLDER).is_dir() else path
        model = load_model(place)
        if model.encoder is None:
            raise DataError(
                f"{path.name} has no encoder, so that its model takes ids and no columns; read it "
                "with tulle.train.load_model(), or train it anew."
            )
        if not (path / _CARD).exists():
            raise DataError(
                f"{path.name} has no {_CARD}: the run in it is not finished. Go on with it with "
                "`tulle train --resume`."
            )
        encoder, card = _encoder_of(model), read_card(path / _CARD)
        guarantee, schema = card.plan.guarantee, encoder.plan.schema
        is_private = card.plan.is_private
        found = cls(
            schema,
            epsilon=guarantee.epsilon if is_private else None,
            delta=guarantee.delta if is_private else None,
            method=str(card.plan.settings["method"]),
            unit="example" if guarantee.unit.owner is Owner.EXAMPLE else "user",
            allow_public=schema.public,
        )
        vars(found)["_fitted"] = _Fitted(model=model, encoder=encoder, card=card)
        return found

    @property
    def classes_(self) -> NDArray[np.int64]:
        """The labels, in the order of the columns of `predict_proba`."""
        self._get_fitted()
        return _CLASSES

    @property
    def card_(self) -> Card:
        """The card of the fit: what is promised, and what makes it true."""
        return self._get_fitted().card

    @property
    def result_(self) -> FitResult:
        """The trained model and how it came about.

        Raises:
          NotFittedError: The model was loaded and not fitted here.
        """
        result = self._get_fitted().result
        if result is None:
            raise NotFittedError("this model was loaded; how it came about is on its card_.")
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

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """The arguments by name. `deep` changes nothing: no argument is an estimator."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    # Named one by one in scikit-learn's interface too, whatever they are.
    def set_params(self, **params: Any) -> Self:
        """Changes some arguments for the next fit, or none if one is refused."""
        for name in params:
            if name not in _PARAMETERS:
                raise ConfigError(
                    f"{name!r} is not an argument of Classifier{did_you_mean(name, _PARAMETERS)}; "
                    f"use one of {', '.join(_PARAMETERS)}."
                )
        type(self)(**(self.get_params() | params))
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> "Classifier":
        # Arguments are frozen, so they are shared. A ledger must not be copied.
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    def __repr__(self) -> str:
        named = self.method if isinstance(self.method, str) else type(self.method).__name__
        state = "not fitted" if self._fitted is None else f"{self.guarantee_}"
        return f"Classifier(method={named!r}, epsilon={self.epsilon}): {state}"

    def _repr_html_(self) -> str:
        """The page of the fit, for notebooks."""
        if self._fitted is None or self._fitted.result is None:
            return f"<pre>{html.escape(repr(self))}</pre>"
        return self._fitted.result._repr_html_()

    def _get_fitted(self) -> _Fitted:
        if self._fitted is None:
            raise NotFittedError("this Classifier is not fitted; call fit(rows) first.")
        return self._fitted

    def _check_settings(self) -> None:
        if not isinstance(self.schema, Schema | Mapping | str | os.PathLike):
            raise ConfigError(
                f"schema of type {type(self.schema).__name__} must be a Schema, e.g. "
                "Schema(label=…, public=…, sensitive=…)."
            )
        schema = schema_of(self.schema)
        check_unit_word(self.unit, schema.unit)
        method = chosen_method(self.method, epsilon=self.epsilon, delta=self.delta, unit=self.unit)
        check_known_roles(schema, allowed_public=self.allow_public)
        if method.is_private:
            chosen_level(method.unit, schema.unit)
        if self.features is not None and not isinstance(self.features, FeaturePlan):
            raise ConfigError(
                f"features of type {type(self.features).__name__} must be a FeaturePlan, or None."
            )
        if self.features is not None and self.features.schema != schema:
            raise ConfigError(
                "features is a FeaturePlan of another schema than the classifier's; make it from "
                "the same schema."
            )

    def _examples(self, rows: object, *, with_label: bool) -> ExampleSet:
        """Rows as ids. A model that never looks at sensitive columns is handed none."""
        fitted = self._get_fitted()
        encoder = fitted.encoder
        if fitted.model.is_truncated:
            encoder = encoder.of_role("public")
        table = _table_of(rows, encoder, with_label=with_label)
        found = examples_of(encode_table(table, encoder, with_label=with_label))
        if not fitted.model.is_truncated:
            return found
        return dataclasses.replace(found, features=fitted.model.features, sensitive_features=None)


_PARAMETERS = tuple(inspect.signature(Classifier).parameters)


def _encoder_of(model: TrainedModel) -> Encoder:
    encoder = model.encoder
    return Encoder.from_files(encoder) if isinstance(encoder, Path) else _checked(encoder)


def _checked(encoder: Encoder | None) -> Encoder:
    if encoder is None:
        raise DataError("the model has no encoder, so that it takes ids and no columns.")
    return encoder


def _table_of(rows: object, encoder: Encoder, *, with_label: bool) -> object:
    """The rows of files as one table; a table in memory as it is."""
    if not isinstance(rows, str | os.PathLike | list | tuple):
        return rows
    schema = encoder.plan.schema
    if not with_label:
        schema = schema.to_read({feature.column for feature in encoder.plan.features})
    return whole_table(open_log(rows, schema))
