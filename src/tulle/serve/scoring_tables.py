"""A model of tables in the form that all exports are made of: what each value of a column adds.

A feature turns a value into an id by its rule, and ids that the model does not tell apart are one
group. SQL and ONNX cannot compute the salted hash of a text, so they need the values: a table of
the caller says which there are. A value that is in no such table counts as the group that most ids
are in, which is that of rare values, and exports count how many values of a row were such.
"""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.features.column_features import KnownValuesFeature
from tulle.data.features.encoder import Encoder
from tulle.data.features.id_names import values_by_column
from tulle.data.features.id_rules import HashRule, RuledFeature, VocabularyRule, rules_of
from tulle.data.schema import Kind
from tulle.data.tables.kinds import as_text
from tulle.errors import ConfigError
from tulle.serve.served_model import ModelLike, served_model
from tulle.train.methods.mosaic.fused_cells import FusedCells

FloatArray = NDArray[np.float64]

MISSING_TEXT = ""
"""Text that stands for a missing value: empty text is missing wherever tulle reads it."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScoringFeature:
    """A feature, and what its ids add."""

    feature: RuledFeature
    effects: Mapping[int, FloatArray]
    """Change of log odds for each id, by the number of the head that it is for."""
    steps: Mapping[int, NDArray[np.int32]]
    """Part of the place of the cell for each id, by the number of the crossed table."""
    ids_by_text: Mapping[str, int] | None = None
    """Ids of the values that are known, `MISSING_TEXT` among them; None if ids follow from numbers,
    or if no values were given."""

    @property
    def is_hashed(self) -> bool:
        """True if an id follows from the hash of a text."""
        return isinstance(self.feature.rule, HashRule | VocabularyRule)

    @functools.cached_property
    def rest_id(self) -> int:
        """An id of the group that values belong to which nobody named."""
        rule = self.feature.rule
        if isinstance(rule, VocabularyRule):
            return rule.unknown_id
        numbers = [*self.effects.values(), *self.steps.values()]
        signatures = np.stack([np.asarray(one, np.float64) for one in numbers], axis=1)
        own = signatures[: rule.num_bins] if isinstance(rule, HashRule) else signatures
        _, first, counts = np.unique(own, axis=0, return_index=True, return_counts=True)
        return int(first[counts.argmax()])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScoringTables:
    """A whole model."""

    cells: FusedCells
    features: tuple[ScoringFeature, ...]
    """The features that the model looks at."""
    crossed: tuple[tuple[int, FloatArray], ...]
    """Number of the head and weights of the cells of each crossed table."""

    @property
    def biases(self) -> list[float]:
        """Log odds of each head before anything is added."""
        return [head.bias for head in self.cells.heads]


def scoring_tables(model: ModelLike, values: object = None) -> ScoringTables:
    """Brings a model into the form of exports.

    Args:
      model: Folder of a model or of a training run, or what `tulle.load` and `fit` give.
      values: A table or files with the values of hashed columns that are known; None: none are.

    Privacy:
      Reads the model, which was released, and `values`, which leave with the export as they are:
      values of sensitive columns must be public. A table that looks like the log is refused.

    Raises:
      ConfigError: The model is no model of tables.
      DataError: `values` has no column of the model, or looks like a log.
    """
    served = served_model(model)
    if served.cells is None:
        raise ConfigError(
            f"a model of kind {served.model.kind!r} is no sum of tables and cannot be exported; "
            "train with method mosaic, or use the folder's load_model.py with PyTorch."
        )
    known = {} if values is None else values_by_column(served.encoder, values)
    rules, cells = rules_of(served.encoder), served.cells
    crossed = [(number, table) for number, head in enumerate(cells.heads) for table in head.crossed]
    features = []
    for place in cells.columns:
        feature = rules[place]
        features.append(
            ScoringFeature(
                feature=feature,
                effects={
                    number: head.effects[place]
                    for number, head in enumerate(cells.heads)
                    if place in head.effects
                },
                steps={
                    number: table.steps[place]
                    for number, (_, table) in enumerate(crossed)
                    if place in table.steps
                },
                ids_by_text=_ids_by_text(served.encoder, place, feature, known.get(feature.column)),
            )
        )
    return ScoringTables(
        cells=cells,
        features=tuple(features),
        crossed=tuple((number, table.weights) for number, table in crossed),
    )


def check_known(tables: ScoringTables, form: str) -> None:
    """Refuses a form that needs values where none are known.

    Raises:
      ConfigError: A hashed column has no values, or is one of real numbers.
    """
    for one in tables.features:
        if not one.is_hashed:
            continue
        if one.feature.kind is Kind.REAL:
            raise ConfigError(
                f"column {one.feature.column!r} holds real numbers whose texts are hashed, and "
                f"{form} has no such texts; train with bins of the number, or export form='json'."
            )
        if one.ids_by_text is None:
            raise ConfigError(
                f"column {one.feature.column!r} is hashed, and {form} cannot compute hashes of "
                "texts: give values=… with a table of its values that may be public, such as a "
                "catalogue, or export form='json', which needs none."
            )


def _ids_by_text(
    encoder: Encoder, place: int, feature: RuledFeature, values: pl.Series | None
) -> dict[str, int] | None:
    """Ids of the texts of known values; None if ids follow from numbers or no value is known.

    Args:
      encoder: What makes ids of columns.
      place: Place of the feature among all.
      feature: The feature.
      values: Values of its column; None if there are none.
    """
    rule = feature.rule
    if not isinstance(rule, HashRule | VocabularyRule):
        return None
    declared = encoder.plan.schema.known_values.get(feature.column)
    known = pl.Series([False, True]) if feature.kind is Kind.BOOLEAN else values
    if isinstance(encoder.placed[place].settings, KnownValuesFeature) and declared is not None:
        known = pl.Series(declared.values, dtype=pl.String)  # all others are one
    if known is None:
        return None
    known = known.drop_nulls()
    texts = as_text(known, feature.kind).to_list()
    ids = encoder.ids_of(place, known).tolist()
    found = {text: one for text, one in zip(texts, ids, strict=True) if text}
    return {MISSING_TEXT: rule.id_of(None), **found}
