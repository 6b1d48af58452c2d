"""The error that clips and shares of a contribution lead to.

A row spends one contribution on all of its values: value j, clipped at its clip, has a share of
it. A small clip loses what is above it (bias); a large clip or a small share makes the noise larger
in units of the value (variance). With a rest, the column that fills every row up to a
whole contribution, the number of rows is the sum of all columns and needs no share of its own.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tulle.errors import ConfigError
from tulle.measure.clipping.value_history import FloatArray, ValueHistory
from tulle.measure.expected_error import rmsre, root_mean_square
from tulle.measure.slice_jobs import Amount
from tulle.measure.trees.level_noise import TreeBudget


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClipErrors:
    """Relative errors (RMSRE) to expect of values and of the number of rows."""

    values: tuple[float, ...]
    """By value column."""
    count: float

    @property
    def overall(self) -> float:
        """The root mean square over the value columns and the count."""
        return root_mean_square([*self.values, self.count])


def expected_errors(
    history: ValueHistory,
    amounts: Sequence[Amount],
    budget: TreeBudget,
    *,
    has_rest: bool,
    taus: Sequence[float] | None = None,
) -> ClipErrors:
    """The errors that a job with these amounts would have on rows like those of the history.

    Rounding to whole steps and the discreteness of the noise are taken into account.

    Args:
      history: Past rows; its columns are those that `amounts` name.
      amounts: One for each value column, and one without column unless there is a rest.
      budget: Of the whole job.
      has_rest: Whether the job fills each row up to a whole contribution.
      taus: Smallest totals that matter, by value column and last for the count; as a default
        those of the history.

    Privacy:
      Reads nothing but the history.
    """
    scales = checked_taus(history, taus)
    noise = budget.variance(1.0)
    by_column = {amount.column: amount for amount in amounts}
    found = []
    for place, name in enumerate(history.names):
        amount = _amount_of(name, by_column)
        steps = amount.share * budget.steps
        unit = amount.clip / steps
        clipped = np.rint(np.minimum(history.values[:, place] / amount.clip, 1.0) * steps) * unit
        bias = history.true_totals[:, place] - history.kept_totals(clipped)
        variance = (amount.clip / amount.share) ** 2 * noise
        found.append(
            rmsre(history.true_totals[:, place], variance, bias=bias, tau=float(scales[place]))
        )
    if has_rest:
        variance = (len(amounts) + 1) * noise
    else:
        variance = noise / _amount_of(None, by_column).share ** 2
    bias = history.true_counts - history.kept_totals(np.ones(len(history.slices)))
    count = rmsre(history.true_counts, variance, bias=bias, tau=float(scales[-1]))
    return ClipErrors(values=tuple(found), count=count)


def smooth_error(
    history: ValueHistory,
    log_clips: FloatArray,
    logits: FloatArray,
    noise_variance: float,
    taus: FloatArray,
) -> tuple[float, FloatArray]:
    """The mean squared RMSRE of the values, and its gradient by log clips and then logits.

    Shares are the softmax of `logits`, clips and shares any real numbers. The count is left out:
    with a rest it does not depend on either.

    Privacy:
      Reads nothing but the history.
    """
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    num_columns = len(history.names)
    total, by_clip, by_share = 0.0, np.zeros(num_columns), np.zeros(num_columns)
    for place in range(num_columns):
        clip = np.exp(log_clips[place])
        true_totals = history.true_totals[:, place]
        weights = 1 / np.maximum(taus[place], true_totals) ** 2
        column = history.values[:, place]
        bias = true_totals - history.kept_totals(np.minimum(column, clip))
        slope = -clip * history.kept_totals((column > clip).astype(np.float64))
        variance = (clip / shares[place]) ** 2 * noise_variance * float(np.mean(weights))
        total += float(np.mean(weights * bias**2)) + variance
        by_clip[place] = float(np.mean(2 * weights * bias * slope)) + 2 * variance
        by_share[place] = -2 * variance
    by_logit = by_share - shares * by_share.sum()
    return total / num_columns, np.concatenate([by_clip, by_logit]) / num_columns


def checked_taus(history: ValueHistory, taus: Sequence[float] | None) -> FloatArray:
    """The taus as an array, those of the history if None."""
    scales = np.array(history.default_taus() if taus is None else taus, dtype=np.float64)
    if scales.shape != (len(history.names) + 1,) or not np.all(scales > 0):
        raise ConfigError(
            f"taus={scales.tolist()} must be > 0, one for each of the columns "
            f"{', '.join(history.names)} and last one for the count."
        )
    return scales


def _amount_of(column: str | None, by_column: dict[str | None, Amount]) -> Amount:
    if column not in by_column:
        what = "a count" if column is None else f"column {column!r}"
        raise ConfigError(f"amounts have none for {what} of the history; add one.")
    return by_column[column]
