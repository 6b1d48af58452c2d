"""One Gaussian noise budget, given out in shares.

A share is a fraction w of the budget. A release of sensitivity s with share w tells as much as one
with noise of standard deviation s * noise_multiplier / sqrt(w). Shares may be chosen by what was
released before. As long as they add up to at most 1, all releases together tell no more than one
number of sensitivity 1 with noise of standard deviation noise_multiplier. The reason: each release
is what a Brownian motion with the data's drift shows over a time w, and all of them are its path up
to time 1 (the privacy filter of Smith and Thakurta 2022).

The noise is the same for all shares. What a share decides is how much rows weigh: the squares of
the weights of a row, over all releases that it spends the share on, add up to at most w. Rows may
divide the share differently, but none spends more than the others. Where whole users are protected,
the rows of a user together may spend what otherwise one row may (`row_parts`).

Nothing of this is rounded in favour of a release. Weights are whole numbers of steps, a power of
two that is small against the noise. A row is charged for the weight that it has in the sum, after
rounding, and budget, shares and charges are counted in whole squared steps. Noise is rounded to
whole steps by an exact sampler and added to sums of whole steps, so that no bit of a sum tells more
than the noise allows (`mechanisms.lattice`). The proof is in docs/theory/mosaic.md.

Tables of K classes have half of the budget each, since no unit can cost more than the shares of two
of them (`ClassShares`).
"""

import math
import os
from collections.abc import Callable
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import check_scale, rounded_up
from tulle.mechanisms.gaussian import sample_rounded_normal
from tulle.train.methods.mosaic.cell_kernels import loops_over_rows
from tulle.train.methods.mosaic.cell_sums import LABEL_SENSITIVITY, ROW_SENSITIVITY
from tulle.train.methods.mosaic.kept_releases import KeptReleases
from tulle.train.methods.mosaic.row_numbers import MOST_CHARGED, Cells, Costs, IntArray

FloatArray = NDArray[np.float64]

_NOISE_BITS = 27
"""Noise on sums of rows has 2^26 to 2^27 steps. So rounding to steps adds nothing to speak of, and
the exact sampler is as fast as it is for coarser noise; at 2^30 it takes twice as long."""
_MOST_WEIGHT_BITS = MOST_CHARGED.bit_length() - 1
"""A weight of 1 has at most 2^30 steps, so that its product with a probability fits 64 bits."""
_LEAST_WEIGHT_BITS = 16
"""A weight of 1 has at least 2^16 steps, however large the noise is: small weights need them."""
_MAX_SUM = 1 << 62
"""Largest sum in steps: with its noise, which has at most 2^45 steps, it fits 64 bits."""
_LABELS_OF_A_UNIT = 2
"""Number of classes whose tables see another label if one label is replaced: the old and the new
one. The c of `most_predicted` makes whole rows cost no more than that many shares."""


class _OwnedBudget:
    """A budget that one process spends once.

    It cannot be copied, pickled or used in a forked process, which would spend it a second time,
    and printing it says nothing.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    def check_own_process(self) -> None:
        """Refuses a budget that came over by a fork. To be called before anything is drawn."""
        if os.getpid() != self._process:
            raise RunStateError(
                "the noise budget is that of another process, which would spend it, too. Train "
                "in one process."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __reduce__(self) -> NoReturn:
        raise RunStateError(
            "a noise budget must not be copied or saved: what is spent of one copy would not be "
            "spent of the other."
        )


class NoiseShares(_OwnedBudget):
    """Draws noise and keeps count of what is left. Make one object for each run and process."""

    def __init__(
        self, noise_multiplier: float, *, rng: NoiseSource, kept: KeptReleases | None = None
    ) -> None:
        """Starts a budget.

        Args:
          noise_multiplier: Noise multiplier of the whole budget, for sensitivity 1.
          rng: Source of all noise. Sensitive: never log or save its state.
          kept: Where releases are put on disk, and those of earlier tries found; None: nowhere.
        """
        super().__init__()
        self._kept = kept
        if not (math.isfinite(noise_multiplier) and noise_multiplier > 0):
            raise ConfigError(f"noise_multiplier={noise_multiplier} must be a number above 0.")
        self._noise_multiplier, self._rng = noise_multiplier, rng
        wanted = _NOISE_BITS - math.frexp(ROW_SENSITIVITY * noise_multiplier)[1]
        self.weight_bits = max(_LEAST_WEIGHT_BITS, min(wanted, _MOST_WEIGHT_BITS))
        """A weight of 1 has 2^weight_bits steps. Public, as the noise multiplier is."""
        check_scale("noise in steps", self._noise_steps(ROW_SENSITIVITY))
        self._left = self._whole = 1 << 2 * self.weight_bits

    @property
    def left(self) -> float:
        """Share of the budget that has not been given out."""
        return self._left / self._whole

    def begin_rows(self) -> None:
        """Notes that from now on whole rows are hidden, and no longer labels alone."""
        # The whole budget is the same for both.

    def of_classes(
        self, num_classes: int, *, label_share: float, row_share: float
    ) -> list["ClassShares"]:
        """Takes a share from the budget for the tables of classes, one set of tables each.

        Args:
          num_classes: Number of classes, at least 2; each row is of one of them.
          label_share: Share that each class may spend while labels alone are hidden.
          row_share: Share that each class may spend once whole rows are hidden.

        Privacy:
          Unit: that of the run. Event: twice the sum of both shares, whatever the number of
          classes. Relies on: `ClassShares`.

        Raises:
          ConfigError: Less is left than is asked for.
        """
        if num_classes < _LABELS_OF_A_UNIT:
            raise ConfigError(f"num_classes={num_classes} must be at least {_LABELS_OF_A_UNIT}.")
        whole = self._take(_LABELS_OF_A_UNIT * (label_share + row_share))
        labels = int(math.ldexp(label_share, 2 * self.weight_bits))
        rows = whole // _LABELS_OF_A_UNIT - labels
        return [
            ClassShares(
                self._noise_multiplier,
                rng=self._rng,
                noisy=self._noisy,
                label_steps=labels,
                row_steps=rows,
            )
            for _ in range(num_classes)
        ]

    @property
    def step(self) -> float:
        """Size of a step, in which weights, sums and noise are whole numbers."""
        return math.ldexp(1.0, -self.weight_bits)

    def stddev(self, share: float, sensitivity: float) -> float:
        """Standard deviation of the noise on a sum with this share, if rows had a weight of 1."""
        if not 0 < share <= 1:
            raise ConfigError(f"share={share} must be above 0, at most 1.")
        return sensitivity * self._noise_multiplier / math.sqrt(share)

    def release(
        self, raw_sums: Callable[[np.int64], IntArray], *, sensitivity: float, share: float
    ) -> FloatArray:
        """Takes a share from the budget, and then adds noise to sums that all units spend it on.

        Args:
          raw_sums: Function from the weight of a unit, in steps, to the raw sums in steps. The rows
            of a unit together have at most this weight.
          sensitivity: Largest L2 distance of all sums together if one unit is replaced and the
            weight is 1.
          share: Share of the budget for this release.

        Returns:
          The noisy sums, as if units had a weight of 1.

        Privacy:
          Unit and adjacency: those of `sensitivity`. Event: this share of one Gaussian.

        Raises:
          ConfigError: Less is left than is asked for.
        """
        weight = math.isqrt(self._take(share))
        if weight == 0:
            raise ConfigError(f"share={share:.6g} leaves rows no weight; ask for more.")
        noisy: FloatArray = self._noisy(raw_sums(np.int64(weight)), sensitivity) / weight
        return noisy

    def for_rows(
        self, share: float, limits: Callable[[int], IntArray], *, sensitivity: float
    ) -> "RowShares":
        """Takes a share from the budget that each row then spends on its own.

        Args:
          share: Share of the budget that each unit may spend.
          limits: Function from this share, in squared steps, to the part of it that each row may
            spend; the whole share, if each row is a unit (`row_parts`).
          sensitivity: Largest L2 distance of all releases together, if one unit is replaced and
            no row spends more than its part of a share of 1.

        Raises:
          ConfigError: Less is left than is asked for.
        """

        def noisy(raw: IntArray) -> IntArray:
            return self._noisy(raw, sensitivity)

        return RowShares(limits(self._take(share)), noisy)

    def _take(self, share: float) -> int:
        """Deducts a share before anything is released, so that a failure can only over-count.

        Returns:
          What was taken, in squared steps: the largest sum of squares of a row's weights.
        """
        # A forked process would count the same budget twice.
        self.check_own_process()
        self.stddev(share, 1.0)
        # Exact: the float is multiplied by a power of two, and the fraction is dropped.
        allowance = int(math.ldexp(share, 2 * self.weight_bits))
        if allowance > self._left:
            raise ConfigError(
                f"share={share:.6g} is more than the {self._left / self._whole:.6g} that is left "
                "of the noise budget; ask for less."
            )
        self._left -= allowance
        return allowance

    def _noise_steps(self, sensitivity: float) -> float:
        """Standard deviation of the noise in steps, never below the exact product."""
        return math.ldexp(rounded_up(sensitivity * self._noise_multiplier), self.weight_bits)

    def _noisy(self, raw: IntArray, sensitivity: float) -> IntArray:
        """Adds noise. Precondition: the caller has already deducted what rows spend."""
        self.check_own_process()
        # Floats would carry low bits of the rows through the noise.
        if raw.dtype != np.int64 or not (
            raw.min(initial=0) >= -_MAX_SUM and raw.max(initial=0) <= _MAX_SUM
        ):
            raise ConfigError("noise is added to whole numbers of at most 2^62 alone.")
        asked = {"sensitivity": sensitivity, "left": self._left}
        if self._kept is not None:
            earlier = self._kept.taken_up(raw.shape, **asked)
            if earlier is not None:
                return earlier
        noise = sample_rounded_normal(self._noise_steps(sensitivity), raw.shape, rng=self._rng)
        noise += raw
        if self._kept is not None:
            self._kept.keep(noise, **asked)
        return noise


def class_share(share: float) -> float:
    """What the tables of each class may spend of a share that they have together."""
    return share / _LABELS_OF_A_UNIT


class ClassShares(NoiseShares):
    """What the tables of one class may spend, of a budget that all classes share.

    The tables of class k learn whether a label is k. A label that is replaced changes that for at
    most two classes, so labels cost the shares of two classes. Once whole rows are hidden, a row
    that is replaced adds to the tables of all classes, but little where its label is another one:
    with the c of `most_predicted` all of it costs no more than two shares either. The two bounds
    hold for shares of either kind apart, so that what a class does not spend on labels is lost, and
    never spent on rows.

    Args:
      noise_multiplier: Noise multiplier of the whole budget.
      rng: Source of all noise.
      noisy: Function that adds noise to sums of a sensitivity.
      label_steps: What may be spent while labels alone are hidden, in squared steps.
      row_steps: What may be spent once whole rows are hidden.
    """

    def __init__(
        self,
        noise_multiplier: float,
        *,
        rng: NoiseSource,
        noisy: Callable[[IntArray, float], IntArray],
        label_steps: int,
        row_steps: int,
    ) -> None:
        super().__init__(noise_multiplier, rng=rng)
        self._left, self._rows_left, self._added = label_steps, row_steps, noisy
        self._sensitivity = LABEL_SENSITIVITY

    @property
    def left(self) -> float:
        """Share that has not been given out, of the whole budget and of both kinds together."""
        return (self._left + self._rows_left) / self._whole

    def begin_rows(self) -> None:
        """Lets whole rows be hidden from now on; what is left for labels alone is lost."""
        if self._sensitivity == LABEL_SENSITIVITY:
            self._sensitivity = ROW_SENSITIVITY
            self._left, self._rows_left = self._rows_left, 0

    def _noisy(self, raw: IntArray, sensitivity: float) -> IntArray:
        """Adds noise, for the sensitivity of what is hidden now."""
        if sensitivity != self._sensitivity:
            raise ConfigError(
                f"sums of sensitivity {sensitivity:.6g} cannot be released by shares for "
                f"{self._sensitivity:.6g}; call begin_rows() before sensitive columns are used."
            )
        return self._added(raw, sensitivity)


class RowShares(_OwnedBudget):
    """A share that every row spends on its own. Sensitive, as what rows have spent may be.

    It cannot be copied: a copy would let rows spend their share a second time.

    Args:
      limits: [rows]: what each row may spend, in squared steps.
      noisy: Function that adds noise to raw sums.
    """

    def __init__(self, limits: IntArray, noisy: Callable[[IntArray], IntArray]) -> None:
        super().__init__()
        self._limits = limits
        self._spent = np.zeros(len(limits), np.int64)
        self._noisy, self._is_closed = noisy, False

    def close(self) -> None:
        """Lets no row spend any more, and forgets what rows have spent, 8 bytes for each."""
        self._is_closed, self._spent = True, np.zeros(0, np.int64)

    def weights(
        self, wanted: IntArray, cells: Cells, totals: IntArray, costs: Costs = None
    ) -> IntArray:
        """The weight of each row in steps: sqrt(limit * wanted / (total * cost)), rounded down.

        Args:
          wanted: [cells]: priority of each cell of a table, a whole number below 2^53.
          cells: [rows]: cell of each row.
          totals: [rows]: sum of the priorities of the cells that each row is in, over all tables.
          costs: What a squared weight of 1 costs each row in this table.
        """
        # Product, quotient, square root: IEEE floats, which every engine rounds alike. They err by
        # less than 2^-49 of the result, which is at most 2^30: by far less than the one step that
        # is taken off, so that squares never add up to more than the limit.
        loops = loops_over_rows(len(cells))
        return loops.weights(wanted, cells, totals, self._limits, costs)

    def release(
        self,
        raw_sums: Callable[[IntArray], IntArray],
        *,
        weights: IntArray,
        costs: Costs = None,
    ) -> IntArray:
        """Adds noise to sums of weighted rows, after each row has paid for its weight.

        Args:
          raw_sums: Function from the weights of rows to their raw sums in steps.
          weights: [rows]: weight of each row in steps. It may depend on the row itself and on
            earlier releases, never on other rows but by what is public.
          costs: What a squared weight of 1 costs each row in these sums.

        Returns:
          The noisy sums, in steps.

        Privacy:
          Unit and adjacency: those of the sensitivity that the share was taken with. Event: all
          releases together are that share of one Gaussian.

        Raises:
          ConfigError: A row would spend more than its share.
          RunStateError: The share was closed.
        """
        if self._is_closed:
            raise RunStateError("these rows can spend no more: take another share for them.")
        if weights.dtype == np.int64 and self._pay(weights, costs):
            return self._noisy(raw_sums(weights))
        raise ConfigError("a row would spend more than its share; ask for smaller weights.")

    def _pay(self, weights: IntArray, costs: Costs) -> bool:
        """Charges all rows for their weights, and returns False if that is too much for one."""
        loops = loops_over_rows(len(weights))
        return loops.pay(weights, self._limits, self._spent, costs)
