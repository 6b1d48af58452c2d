"""A classifier over tables with the manners of scikit-learn, which it does without.

    model = TableClassifier(schema, epsilon=3, delta=1e-7)
    model.fit(train_table)
    probabilities = model.predict_proba(test_table)

The label is a column of the table: which columns are labels, public or sensitive is
said by the schema, once.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.data.features.encoder import Encoder, build_encoder
from tulle.data.features.feature_plan import FeaturePlan, hash_all
from tulle.data.features.vocabulary import fit_vocabularies
from tulle.data.formats.known_roles import check_known_roles
from tulle.data.schema import Schema
from tulle.data.table_arrays import TableArrays, encode_table
from tulle.data.table_columns import as_polars
from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import did_you_mean
from tulle.privacy.guarantee import Guarantee
from tulle.quality.metrics import QualityMetrics
from tulle.train.examples import ExampleSet
from tulle.train.fitting import FitResult, fit
from tulle.train.methods.method import Method
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.run_options import RunOptions
from tulle.train.train_plan import TrainPlan
from tulle.train.unit_level import chosen_level

_CLASSES = np.array([0, 1])
_CLASSES.setflags(write=False)


class NotFittedError(RunStateError, AttributeError):
    """Something was asked that only `fit` can answer; no such attribute for `hasattr`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hashing:
    """Every feature hashed into one table a role, see `hash_all`."""

    public_bins: int = 100_000
    sensitive_bins: int = 50_000
    salt: bytes | None = None
    """None: a fresh one for each fit."""

    def plan(self, schema: Schema) -> FeaturePlan:
        """The features of a schema."""
        return hash_all(schema, self.public_bins, self.sensitive_bins, salt=self.salt)


class TableClassifier:
    """Learns the chance of label 1 from a polars, pandas or Arrow table.

    A value must look the same in every table. pandas turns whole numbers with gaps into
    floats, and 5.0 is another category than 5: store such a column as Int64.

    Args:
      schema: Roles and kinds of the columns. No other column is ever looked at.
      epsilon: Of the guarantee of each fit; None if the config has its target.
      delta: As epsilon.
      config: Method and its settings. None: `MosaicConfig()`, which needs none. If the schema
        has a unit, the config must say what is protected together, see `unit` there.
      features: What becomes of the columns. None: `Hashing()`. A FeaturePlan may have
        vocabularies of public columns; those of sensitive ones cost privacy and need
        a ledger, see `tulle.data.prepare`.
      allowed_public: Columns of a known log that are public here deliberately.
      options: Seed, device, run folder, ledger. None: none of these.

    Every argument is public information and is kept as it is given.

    Raises:
      ConfigError: Arguments contradict each other, a column of a known log is public that must
        not be, or the schema has a unit and the config does not say whether it is protected.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        config: Method | None = None,
        features: Hashing | FeaturePlan | None = None,
        allowed_public: Sequence[str] = (),
        options: RunOptions | None = None,
    ) -> None:
        self.schema = schema
        self.epsilon = epsilon
        self.delta = delta
        self.config = config
        self.features = features
        self.allowed_public = allowed_public
        self.options = options
        self._fitted: _Fitted | None = None
        self._check_settings()

    def fit(self, table: object) -> "TableClassifier":
        """Trains on all rows of a table, and returns itself.

        Privacy:
          The model has `guarantee_`, for the unit and the columns that it names. Each fit
          spends anew: fits of the same rows add up, also if all but the best are thrown
          away. Numbers of rows and values of public columns are taken for public.

        Raises:
          ConfigError: The target cannot be met on so many rows, or a batch is too large.
          DataError: A column is missing, a label is not 0 or 1, or there are no rows.
        """
        encoder = self._make_encoder(table)
        arrays = encode_table(table, encoder, with_label=True)
        result = fit(_examples(arrays), self._calibrated(), options=self.options)
        self._fitted = _Fitted(result=result, encoder=encoder)
        return self

    def predict_proba(self, table: object) -> NDArray[np.float64]:
        """Chances of label 0 and label 1, as [rows, 2].

        Args:
          table: Has the columns of the features; label, unit and time are not needed.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.
        """
        fitted = self._get_fitted()
        arrays = encode_table(table, fitted.encoder, with_label=False)
        chances = fitted.result.model.predict_proba(_examples(arrays))
        return np.stack([1 - chances, chances], axis=1)

    def predict(self, table: object) -> NDArray[np.int64]:
        """The likelier label of each row.

        Where label 1 is rare, that is 0 almost everywhere: rank by `predict_proba`.
        """
        chances = self.predict_proba(table)
        return (chances[:, 1] > chances[:, 0]).astype(np.int64)

    def evaluate(self, table: object) -> QualityMetrics:
        """AUC loss, log loss and calibration on labelled rows that `fit` has not seen.

        There is no `score`: with rare labels the accuracy is best for a model that
        predicts 0 always.

        Privacy:
          Figures are exact statistics of these rows, which `guarantee_` does not cover.
        """
        fitted = self._get_fitted()
        arrays = encode_table(table, fitted.encoder, with_label=True)
        return fitted.result.model.evaluate(_examples(arrays))

    @property
    def classes_(self) -> NDArray[np.int64]:
        """The labels, in the order of the columns of `predict_proba`."""
        self._get_fitted()
        return _CLASSES

    @property
    def result_(self) -> FitResult:
        """The trained model and how it came about."""
        return self._get_fitted().result

    @property
    def plan_(self) -> TrainPlan:
        """Config, sampler, noise and event of the fit."""
        return self.result_.plan

    @property
    def guarantee_(self) -> Guarantee:
        """What the model promises, if no seed was set; infinite for a baseline."""
        return self.plan_.guarantee

    @property
    def encoder_(self) -> Encoder:
        """How columns became ids; needed to use an exported model on other rows."""
        return self._get_fitted().encoder

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """The arguments by name. `deep` changes nothing: no argument is an estimator."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    # Named one by one in scikit-learn's interface too, whatever they are.
    def set_params(self, **params: Any) -> "TableClassifier":
        """Changes some arguments for the next fit, or none if one is refused."""
        for name in params:
            if name not in _PARAMETERS:
                raise ConfigError(
                    f"{name!r} is not an argument of TableClassifier"
                    f"{did_you_mean(name, _PARAMETERS)}; use one of {', '.join(_PARAMETERS)}."
                )
        type(self)(**(self.get_params() | params))
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> "TableClassifier":
        # Arguments are frozen, so they are shared. A ledger must not be copied.
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    def _get_fitted(self) -> "_Fitted":
        if self._fitted is None:
            raise NotFittedError("this TableClassifier is not fitted; call fit(table) first.")
        return self._fitted

    def _check_settings(self) -> None:
        if not isinstance(self.schema, Schema):
            raise ConfigError(
                f"schema of type {type(self.schema).__name__} must be a Schema, e.g. "
                "Schema(label=…, public=…, sensitive=…)."
            )
        if self.config is not None and not isinstance(self.config, Method):
            raise ConfigError(
                f"config of type {type(self.config).__name__} must be one of MosaicConfig, "
                "HybridConfig, RandomizedLabelsConfig, DpSgdConfig, LabelProjectionConfig, "
                "NonPrivateConfig, or None for MosaicConfig()."
            )
        check_known_roles(self.schema, allowed_public=self.allowed_public)
        config = self._calibrated()
        if config.is_private:
            chosen_level(config.unit, self.schema.unit)
        _check_features(self.features, self.schema)
        if self.options is not None and self.options.resume and _has_fresh_salt(self.features):
            raise ConfigError(
                "resume=True with a fresh salt for each fit would encode the rows anew and find "
                "other data; give features=Hashing(salt=…), with the salt of the first fit."
            )

    def _calibrated(self) -> Method:
        """The config with its target."""
        config = MosaicConfig() if self.config is None else self.config
        epsilon, delta = self.epsilon, self.delta
        if not config.is_private or config.target is not None:
            if epsilon is not None or delta is not None:
                reason = (
                    "the config is calibrated already"
                    if config.is_private
                    else f"a {type(config).__name__} has none"
                )
                raise ConfigError(
                    f"epsilon={epsilon} and delta={delta} are given, but {reason}; leave them out "
                    "or change the config."
                )
            return config
        if not config.needs_delta:
            delta = delta or 0.0
        if epsilon is None or delta is None:
            raise ConfigError(
                f"epsilon={epsilon} and delta={delta}: give both, e.g. epsilon=3, delta=1e-7; "
                "to train without privacy use config=NonPrivateConfig()."
            )
        return config.calibrate(epsilon=epsilon, delta=delta)

    def _make_encoder(self, table: object) -> Encoder:
        features = self.features or Hashing()
        plan = features.plan(self.schema) if isinstance(features, Hashing) else features
        reads_labels_alone = self.config is not None and self.config.reads_labels_alone
        if reads_labels_alone and plan.of_role("public"):
            # Such a model never looks at a sensitive column, so predictions need none.
            plan = dataclasses.replace(plan, features=plan.of_role("public"))
        if not plan.vocabularies("public"):
            return build_encoder(plan)
        columns = {feature.column for feature in plan.vocabularies("public")}
        counted = as_polars(table, columns=columns)
        return build_encoder(plan, fit_vocabularies(lambda: iter((counted,)), plan))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Fitted:
    result: FitResult
    encoder: Encoder


_PARAMETERS = (
    *("schema", "epsilon", "delta", "config", "features", "allowed_public"),
    "options",
)


def _examples(arrays: TableArrays) -> ExampleSet:
    return ExampleSet(
        features=arrays.features,
        columns=arrays.schema.roles,
        public_features=arrays.public_features,
        sensitive_features=arrays.sensitive_features,
        labels=arrays.labels,
        units=arrays.units,
    )


def _check_features(features: object, schema: Schema) -> None:
    if features is None or isinstance(features, Hashing):
        (features or Hashing()).plan(schema)
        return
    if not isinstance(features, FeaturePlan):
        raise ConfigError(
            f"features of type {type(features).__name__} must be Hashing(…) or a FeaturePlan."
        )
    if features.schema != schema:
        raise ConfigError(
            "features is a FeaturePlan of another schema than the classifier's; make it from the "
            "same schema."
        )
    if sensitive := features.vocabularies("sensitive"):
        raise ConfigError(
            f"column {sensitive[0].column!r} is sensitive and counting its values for a vocabulary "
            "costs privacy; hash it with HashedFeature, or prepare the data with a "
            "VocabularyPayment, which charges a ledger, and train with tulle.train.fit()."
        )


def _has_fresh_salt(features: Hashing | FeaturePlan | None) -> bool:
    return not isinstance(features, FeaturePlan) and (features or Hashing()).salt is None
