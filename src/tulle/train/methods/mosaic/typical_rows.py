"""Rows that stand in for all rows between two scans of the data. Nothing in them is raw.

A round measures all of its tables in one scan, with the same predictions. Tables overlap: where one
explains what another one shows, the other one must not explain it again. So the tables of a round
are fitted one after the other, each with predictions that know the tables before it. How the change
of one table moves the predictions in the cells of another is told by typical rows, without another
look at the data:

- Their public columns are those of real rows, a weighted sample of them, which are public.
- Their sensitive columns are drawn from the noisy counts of their values, each on its own. That
  takes them to be independent of all other columns, which they are not. But a pair of columns has
  a table of its own, in which every row is counted as it is: what is assumed matters only where a
  table is corrected for another one of the same round, and the next scan shows what was wrong.

All of it follows from public columns and noisy counts, so nothing here can cost privacy. The draws
are no noise, and the same in every run.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.candidate_table import CandidateTable
from tulle.train.methods.mosaic.cell_likelihood import NoisyCells
from tulle.train.methods.mosaic.cell_model import CellPart, cells_of_rows, sigmoid
from tulle.train.methods.mosaic.cell_sums import LOG_ODDS_BITS

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Ids = NDArray[Any]
"""Whole numbers of any width: ids of rows in memory have as few bytes as they take."""

_NUM_TYPICAL = 1 << 17
"""About how many typical rows there are, if there are so many rows. With a quarter of them the AUC
loss was the same on three logs of 700,000 to 800,000 rows."""
_SEED = 2026
"""Seed of the draws, which are no noise: any number would do."""
_OWN_ROWS = 3.0
"""Number of typical rows by which a cell is taken to move as its own weight alone says, beside the
typical rows that are in it: a cell of few of them is not moved by chance."""
_HASH_BITS = 31
"""Bits of a hash: two of them fit one number of 64 bits with its sign."""
_PRIME = (1 << _HASH_BITS) - 1
"""Hashes are remainders of this prime: their products with a factor fit 62 bits."""
_FACTORS = (1_226_874_159, 1_847_294_537)
"""Factors of the two hashes of a row, numbers below the prime without a pattern."""


class TypicalRows:
    """A weighted sample of the rows, with predictions that follow the tables of a round.

    Args:
      public: [rows] for each public column: ids.
      weights: [rows]: number of rows that each stands for.
      rate: Typical prediction.
    """

    def __init__(self, public: Sequence[Ids], weights: FloatArray, *, rate: float) -> None:
        self._ids = {("public", column): ids for column, ids in enumerate(public)}
        self._weights, self._rate = weights, rate
        self._log_odds = self._then = np.zeros(len(weights), np.int32)

    def draw(self, columns: Sequence[FloatArray]) -> None:
        """Draws the sensitive columns from the probabilities of their ids."""
        rng = np.random.default_rng(_SEED)
        for column, probs in enumerate(columns):
            # Evenly spaced numbers in a random order: the draws have the wanted frequencies.
            number, sums = len(self._weights), np.cumsum(probs)
            places = (rng.permutation(number) + 0.5) / number * sums[-1]
            drawn = np.searchsorted(sums, places, side="right")
            self._ids["sensitive", column] = np.minimum(drawn, len(probs) - 1).astype(np.int32)

    def begin_round(self, bias: int, tables: Iterable[tuple[CandidateTable, Ids]]) -> None:
        """Predicts as the model did while the sums of the round were made.

        Args:
          bias: Bias of the model, in steps.
          tables: Its tables with their weights, in steps.
        """
        log_odds = np.full(len(self._weights), bias, np.int32)
        for table, weights in tables:
            if weights.any():
                log_odds += weights[self._cells(table.parts)]
        self._log_odds, self._then = log_odds, log_odds.copy()

    def add(self, table: CandidateTable, steps: Ids) -> None:
        """Adds steps to the log odds of the cells of a table."""
        self._log_odds += steps[self._cells(table.parts)]

    def corrected(self, table: CandidateTable, noisy: NoisyCells, own: Ids | None) -> NoisyCells:
        """The sums of a table with the predictions of now, as far as other tables move them.

        Args:
          table: The table.
          noisy: Its sums, with the predictions that there were when the round began.
          own: [cells]: weights of the table to leave out, in steps; None: none.
        """
        factors = self._factors(table, own)
        moved = factors - 1
        stddev = np.asarray(noisy.predicted_stddev)
        # Residuals are labels less predictions: what predictions gain, they lose. The noise on a
        # sum of predictions goes along.
        return dataclasses.replace(
            noisy,
            residuals=noisy.residuals - moved * noisy.predicted,
            predicted=factors * noisy.predicted,
            residual_stddev=np.hypot(noisy.residual_stddev, moved * stddev),
            predicted_stddev=factors * stddev,
        )

    def _factors(self, table: CandidateTable, own: Ids | None) -> FloatArray:
        """Predictions of now over those of then, in each cell of a table."""
        cells, log_odds = self._cells(table.parts), self._log_odds
        moved = np.ones(table.num_cells)
        if own is not None and own.any():
            log_odds = log_odds - own[cells]
            odds = self._rate / (1 - self._rate) * np.exp(-np.ldexp(own, -LOG_ODDS_BITS))
            moved = odds / (1 + odds) / self._rate
        prior = _OWN_ROWS * float(self._weights.mean()) * self._rate
        then, now = (
            np.bincount(cells, self._weights * _probs(steps), minlength=table.num_cells)
            for steps in (self._then, log_odds)
        )
        factors: FloatArray = (now + prior * moved) / (then + prior)
        return factors

    def _cells(self, parts: Sequence[CellPart]) -> IntArray:
        return cells_of_rows(parts, [self._ids[part.role, part.column] for part in parts])


def typical_rows(public: Sequence[Ids], num_rows: int, *, rate: float) -> TypicalRows:
    """Chooses typical rows by their public columns, whatever the order of the rows.

    Args:
      public: [rows] for each public column: ids of all rows. There may be no such column.
      num_rows: Number of all rows.
      rate: Typical prediction.

    Privacy:
      Public columns are public; nothing else may be given here.
    """
    keys = _row_keys(public) if public else np.zeros(num_rows, np.int64)
    distinct, places, counts = np.unique(keys, return_index=True, return_counts=True)
    # Rows that occur n times are taken with the probability n / each, by their hash.
    each = max(1, num_rows // _NUM_TYPICAL)
    chosen = (distinct >> _HASH_BITS) * each < counts * _PRIME
    if not chosen.any():
        chosen = counts == counts.max()
    # Those that stand for many rows are divided, so that each gets sensitive values of its own.
    counts = counts[chosen]
    times = -(-counts // each)
    weights = np.repeat(np.maximum(counts, each) / times, times)
    places = np.repeat(places[chosen], times)
    return TypicalRows([ids[places] for ids in public], weights, rate=rate)


def _row_keys(columns: Sequence[Ids]) -> IntArray:
    """Two hashes of the ids of each row as one number of 62 bits; the first has the high bits."""
    # Sums, products and remainders of whole numbers below 2^62: every engine gets the same.
    keys = np.zeros(len(columns[0]), np.int64)
    for factor in _FACTORS:
        hashes = np.zeros(len(columns[0]), np.int64)
        for ids in columns:
            hashes += ids
            hashes += 1
            hashes %= _PRIME
            hashes *= factor
            hashes %= _PRIME
        keys <<= _HASH_BITS
        keys |= hashes
    return keys


def _probs(log_odds: Ids) -> FloatArray:
    return sigmoid(np.ldexp(log_odds.astype(np.float64), -LOG_ODDS_BITS))
