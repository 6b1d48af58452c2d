"""Tables of an earlier model, carried over to the values and cells of a new run.

The encoder stays the same, so ids mean the same. What changes is which values have cells of their
own: values that the earlier model told apart keep theirs, also on a day without any row of them,
and new ones are added. A new value begins with the weight of "the others", where it was counted
before, and with the spread of its table: nothing is known about it.

The evidence for a weight is how much more is known of it than the spread of its table says: the
difference of two inverse variances. A fraction of it is kept. So the variance grows towards the
square of the spread, which is what an empirical Bayes fit would start from, and the weight shrinks
towards the mean of the table as far as it rests on what was forgotten. Without that, tables that
overlap would drift apart night after night, one up and another down, as sums do not tell which of
them is right. The mean of a table goes to the bias for the same reason. A deviation of 0 says
nothing, so that nothing is known of such a cell.

All of it is post-processing of a released model and of public or noisy counts.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.train.methods.mosaic.candidate_table import CandidateTable, TableIdentity, TableStages
from tulle.train.methods.mosaic.cell_model import CellHead, CellPart, CellTable
from tulle.train.methods.mosaic.cell_sums import LOG_ODDS_BITS, log_odds_steps
from tulle.train.methods.mosaic.column_values import (
    FIRST_FACT,
    FREQUENCY,
    VALUES,
    ColumnValues,
    Ranks,
)
from tulle.train.methods.mosaic.earlier_model import EarlierModel
from tulle.train.methods.mosaic.shrinkage import FittedTable

FloatArray = NDArray[np.float64]

RECOUNT = 0.25
"""Fraction of the share of counts that a run pays which continues from a model: it knows the values
that were frequent, and counts serve to see new ones and to guess sizes."""
_LEAST_SPREAD, _MOST_SPREAD = 0.03, 1.5
"""Range of the spread of a table, as that of the priors of a fit (`cell_likelihood.SPREADS`)."""
_TINY = 1e-12
"""Positive number that stands in for 0 in denominators."""


def is_public(table: CellTable) -> bool:
    """True if a table reads public columns alone, so that it may take part from the start."""
    return all(part.role == "public" for part in table.parts)


def earlier_heads(earlier: EarlierModel | None, num_heads: int) -> "list[EarlierTables | None]":
    """What each head of a run continues from; None for each where there is no earlier model.

    Args:
      earlier: The earlier model.
      num_heads: Number of heads of the run.

    Raises:
      ConfigError: The earlier model has another number of heads, or no deviations.
    """
    if earlier is None:
        return [None] * num_heads
    heads = earlier.model.heads
    if len(heads) != num_heads:
        raise ConfigError(
            f"the model to continue from has {len(heads)} sets of tables and the run {num_heads}; "
            "give the settings that it was trained with."
        )
    kept = earlier.start.keep_evidence
    return [EarlierTables(head, earlier.features, keep_evidence=kept) for head in heads]


class EarlierTables:
    """Bias and tables of one head of an earlier model. Nothing in it is raw.

    Args:
      head: The head.
      features: Features that it was trained on, which are those of the run.
      keep_evidence: Fraction of the evidence for its weights that is kept.

    Raises:
      ConfigError: The model is of a version that kept no standard deviations.
    """

    def __init__(
        self, head: CellHead, features: Sequence[PreparedFeature], *, keep_evidence: float
    ) -> None:
        if any(table.stddevs is None for table in head.tables):
            raise ConfigError(
                "the model to continue from says nothing of the standard deviations of its "
                "weights, as models of version 2 do not; train it anew, and continue from then on."
            )
        self.bias = head.bias
        self._tables, self._features, self._keep_evidence = head.tables, features, keep_evidence

    def ranks(self, feature: PreparedFeature, column: int) -> Ranks:
        """Value of each id of a column in the largest table of it.

        Args:
          feature: The feature of the column.
          column: Place of the column among the features of its role.
        """
        return self._largest(feature, column, VALUES)

    def classes(self, feature: PreparedFeature, column: int) -> Ranks:
        """Frequency class of each id, where there are tables of the coarse form of the column.

        Args:
          feature: The feature of the column.
          column: Place of the column among the features of its role.
        """
        return self._largest(feature, column, FREQUENCY)

    def tables(
        self, role: str, columns: Sequence[ColumnValues], stages: TableStages
    ) -> Iterator[tuple[CandidateTable, FittedTable, float, int]]:
        """Tables with the cells that they have now, what is known of them, spreads, and means.

        Args:
          role: "public" for those of public columns alone, or "sensitive" for all others.
          columns: Values of the columns as they are told apart now.
          stages: Where the tables are kept.
        """
        found: dict[TableIdentity, tuple[CandidateTable, FittedTable, float, int]] = {}
        for earlier in self._tables:
            if is_public(earlier) is not (role == "public"):
                continue
            table = stages.started([self._values_of(part, columns) for part in earlier.parts])
            weights, variances, spread, mean = carried_weights(earlier, table, self._keep_evidence)
            fitted = FittedTable.started(weights, variances)
            if table.identity in found:
                # Two forms of a column may have become the same: their weights add up.
                _, twin, its_spread, its_mean = found[table.identity]
                fitted, spread = twin.joined(fitted), max(spread, its_spread)
                mean += its_mean
            found[table.identity] = table, fitted, spread, mean
        yield from found.values()

    def _largest(self, feature: PreparedFeature, column: int, form: int) -> Ranks:
        parts = [
            part
            for table in self._tables
            for part in table.parts
            if (part.role, part.column) == (feature.role, column)
            and _form_of(part, feature) == form
        ]
        return max(parts, key=lambda part: part.size).lookup if parts else None

    def _values_of(self, part: CellPart, columns: Sequence[ColumnValues]) -> ColumnValues:
        """The values of the column that a part of an earlier table is of, in the same form."""
        features = [feature for feature in self._features if feature.role == part.role]
        form = _form_of(part, features[part.column])
        found = [values for values in columns if values.source == (part.role, part.column)]
        return next((values for values in found if values.form == form), found[0])


def _form_of(part: CellPart, feature: PreparedFeature) -> int:
    """Which form of its column a part is of: single values, frequency classes or a fact."""
    # Bins in order are merged with neighbours, public values never but with the others.
    if part.role == "public" or feature.order:
        return VALUES
    known = part.lookup[feature.first_known : feature.first_known + feature.num_known]
    for place, fact in enumerate(feature.facts):
        num_groups, groups = len(set(fact.groups)), np.array(fact.groups, np.int64)
        if 1 < num_groups < len(known):
            pairs = np.unique(groups * part.size + known)
            if len(pairs) == num_groups:
                return FIRST_FACT + place
    numbers = np.bincount(part.lookup, minlength=part.size)
    return FREQUENCY if (numbers[1:] > 1).any() else VALUES


def carried_weights(
    earlier: CellTable, table: CandidateTable, keep_evidence: float
) -> tuple[NDArray[np.int32], FloatArray, float, int]:
    """Weights, in steps, and variances of the cells of a new table, by an earlier one.

    Args:
      earlier: The table of the earlier model.
      table: The new table, of the same columns.
      keep_evidence: Fraction of the evidence that is kept.

    Returns:
      Both, the spread of the log odds between cells as the earlier model shows it, and the mean
      weight of rows in steps, which is taken out of the weights.
    """
    places, is_new = np.zeros(1, np.int64), np.zeros(1, np.bool_)
    for old, new, values in zip(earlier.parts, table.parts, table.columns, strict=True):
        found, unseen = _earlier_values(old, new, values)
        places = (places[:, None] * old.size + found).ravel()
        is_new = (is_new[:, None] | unseen).ravel()
    stddevs = np.zeros(len(earlier.weights)) if earlier.stddevs is None else earlier.stddevs
    weights = earlier.weights.astype(np.float64)[places]
    squares = np.square(stddevs.astype(np.float64))[places]
    rows = np.where(is_new, 0.0, np.maximum(table.cells.rows, 0.0))
    if not rows.sum() > 0:
        rows = np.ones(len(rows))
    mean = int(log_odds_steps(float(rows @ weights) / float(rows.sum())))
    weights = weights - math.ldexp(mean, -LOG_ODDS_BITS)
    spread = math.sqrt(float(rows @ (weights**2 + squares)) / float(rows.sum()))
    spread = min(max(spread, _LEAST_SPREAD), _MOST_SPREAD)
    # Inverse variances: that of the spread, and what the earlier model knew beyond it.
    least, is_known = 1 / spread**2, ~is_new & (squares > 0)
    evidence = np.where(is_known, np.maximum(1 / np.maximum(squares, _TINY) - least, 0.0), 0.0)
    variances = 1 / (least + keep_evidence * evidence)
    weights *= np.where(is_new, 1.0, keep_evidence * (least + evidence) * variances)
    return log_odds_steps(weights), variances, spread, mean


def _earlier_values(
    old: CellPart, new: CellPart, values: ColumnValues
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Earlier value of each value of a new table, and whether it had none of its own.

    Args:
      old: The column in the earlier table.
      new: The column in the new table.
      values: The values of the column as they are told apart now.
    """
    # Several ids are one value only among the others, in classes, and in merged bins: there the
    # one with most rows speaks for all. Of repeated places the last assignment stays.
    order = np.argsort(values.counts[values.ranks], kind="stable")
    found, is_new = np.zeros(new.size, np.int64), np.zeros(new.size, np.bool_)
    found[new.lookup[order]] = old.lookup[order]
    if values.form != VALUES:
        return found, is_new
    if not values.order:
        found[0] = 0
    # What was counted among the others had no value of its own, unless there were none.
    is_there = np.bincount(new.lookup, minlength=new.size) > 0
    is_new = is_there & (found == 0) & bool((old.lookup == 0).any())
    is_new[0] = False
    return found, is_new
