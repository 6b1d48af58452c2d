"""What devices remember of their decisions, and the little of it that may leave them.

The exact chance of a choice is private: under randomized response it says whether the ad was the
device's favourite. Together with the choice it undoes the protection of the decision.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import (
    Auctions,
    BoolArray,
    FloatArray,
    IntArray,
    check_click_probs,
)

EXPORTED_COLUMNS = ("user", "ad", "clicked")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DecisionLog:
    """Decisions of some auctions. Sensitive, but for users, choices and what was personalised."""

    users: IntArray
    """[auctions], whose device decided."""
    choices: IntArray
    """[auctions], the place of the chosen candidate in the arrays of all candidates."""
    raw_clicks: BoolArray = dataclasses.field(repr=False)
    """[auctions], whether the chosen ad was clicked."""
    raw_scores: FloatArray = dataclasses.field(repr=False)
    """[candidates], by which the device decided."""
    raw_target_scores: FloatArray | None = dataclasses.field(default=None, repr=False)
    """[candidates], by which the evaluated rule would decide; None: the same."""
    raw_model_clicks: FloatArray | None = dataclasses.field(default=None, repr=False)
    """[candidates], the device's predicted chances of a click, for a doubly robust estimate;
    None: the server's prediction."""
    is_personalised: BoolArray | None = None
    """[auctions], public: False where the server's winner was shown without a draw; None: all."""

    def __post_init__(self) -> None:
        for name in ("users", "choices", "raw_clicks", "is_personalised"):
            column = getattr(self, name)
            if column is not None and column.shape != self.users.shape:
                raise DataError(f"{name} must have one entry for each decision.")
        for name in ("raw_clicks", "is_personalised"):
            column = getattr(self, name)
            if column is not None and column.dtype != np.bool_:
                raise DataError(f"{name} must be True or False, not {column.dtype}.")
        if self.raw_model_clicks is not None:
            check_click_probs("raw_model_clicks", self.raw_model_clicks)

    def check(self, auctions: Auctions) -> None:
        """Refuses a log that is not of these auctions."""
        if self.users.shape != (len(auctions),):
            raise DataError("the log must have one decision for each auction.")
        if np.any(self.choices < auctions.offsets[:-1]) or np.any(
            self.choices >= auctions.offsets[1:]
        ):
            raise DataError("every choice must be a candidate of its own auction.")
        for name in ("raw_scores", "raw_target_scores", "raw_model_clicks"):
            column = getattr(self, name)
            if column is not None and column.shape != auctions.bids.shape:
                raise DataError(f"{name} must have one entry for each of the candidates.")


def exported_columns(
    auctions: Auctions, log: DecisionLog, columns: Sequence[str]
) -> dict[str, npt.NDArray[np.generic]]:
    """What a server may log of each decision.

    Privacy:
      The ad is what the decision released to a server that knows the sender; behind a shuffler
      nothing of this leaves, the shuffler passes on the ads of a cell. A click is Type II data:
      nothing here protects it. Everything else stays on the device.

    Raises:
      ConfigError: A column would reveal the device's favourite.
    """
    log.check(auctions)
    if unknown := [name for name in columns if name not in EXPORTED_COLUMNS]:
        raise ConfigError(
            f"column {unknown[0]!r} must not leave a device: with the choice, its exact chance or "
            "a score tells which ad the device favoured. Export "
            f"{', '.join(EXPORTED_COLUMNS)}; for estimates use OnDeviceEvaluation."
        )
    known = {"user": log.users, "ad": auctions.ads[log.choices], "clicked": log.raw_clicks}
    return {name: known[name] for name in columns}
