"""Predictions for one row at a time, in plain Python: what a server asks for each request.

Reading one row as a table takes longer than predicting thousands. Here each value becomes an id by
the rule of its feature, and the ids are looked up. The prediction is the one that the row gets in a
table, to the last bits of its exponential.
"""

import math
from collections.abc import Mapping

from tulle.data.features.encoder import Encoder
from tulle.data.features.id_rules import RuledFeature, id_by_encoder, rules_of
from tulle.errors import DataError
from tulle.privacy.fields import did_you_mean
from tulle.train.methods.mosaic.fused_cells import FusedCells, FusedHead


class SingleRows:
    """A model of cells that takes rows as mappings from the names of columns to values."""

    def __init__(self, cells: FusedCells, encoder: Encoder) -> None:
        """Looks up nothing yet.

        Args:
          cells: The model.
          encoder: What makes ids of columns.
        """
        rules = rules_of(encoder)
        self._model, self._encoder = cells.model, encoder
        self._features = [(place, rules[place]) for place in cells.columns]
        self._heads = [_look_ups(head) for head in cells.heads]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a row must have."""
        return tuple(dict.fromkeys(feature.column for _, feature in self._features))

    def predicted(self, row: Mapping[str, object]) -> float | dict[str, float]:
        """What the model predicts for a row.

        Args:
          row: Values by column; None is missing. Other columns are not looked at.

        Returns:
          The probability of label 1 or the expected value; probabilities by class for classes.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.

        Raises:
          DataError: A column is missing, or a value is none of its column's kind.
        """
        ids = {}
        for place, feature in self._features:
            try:
                value = row[feature.column]
            except KeyError:
                raise _missing(feature.column, row) from None
            ids[place] = self._id(place, feature, value)
        log_odds = []
        for bias, effects, crossed in self._heads:
            total = bias
            for place, effect in effects:
                total += effect(ids[place])
            for weight, steps in crossed:
                total += weight(sum([step(ids[place]) for place, step in steps]))
            log_odds.append(total)
        rates = list(map(_sigmoid, log_odds))
        if self._model.output == "classes":
            whole = math.fsum(rates)
            return dict(zip(self._model.classes, [rate / whole for rate in rates], strict=True))
        product = math.prod(rates)
        return product if self._model.output == "probability" else self._model.scale * product

    def _id(self, place: int, feature: RuledFeature, value: object) -> int:
        plain = feature.plain_value(value)
        if plain is NotImplemented:
            return id_by_encoder(self._encoder, place, value)
        return feature.rule.id_of(plain)  # type: ignore[arg-type]


def _look_ups(head: FusedHead) -> tuple:  # type: ignore[type-arg]
    """The numbers of a head as functions of one id, which are faster than arrays."""
    effects = [(place, values.item) for place, values in head.effects.items()]
    crossed = [
        (table.weights.item, [(place, steps.item) for place, steps in table.steps.items()])
        for table in head.crossed
    ]
    return head.bias, effects, crossed


def _sigmoid(log_odds: float) -> float:
    small = math.exp(-abs(log_odds))
    return (1.0 if log_odds >= 0 else small) / (1.0 + small)


def _missing(column: str, row: Mapping[str, object]) -> DataError:
    return DataError(
        f"the row has no column {column!r}{did_you_mean(column, list(row))}; give it, with None "
        "if its value is missing."
    )
