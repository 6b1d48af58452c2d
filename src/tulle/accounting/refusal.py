"""Reason why a spend was refused, and the least noise with which it would not have been."""

import dataclasses
import decimal
import functools
import math
from collections.abc import Callable, Sequence

from tulle.accounting.budget import Account, BudgetState
from tulle.errors import BudgetExceededError, TulleError
from tulle.privacy.events import Event
from tulle.privacy.guarantee import BINARY_NOISE, round_down, round_up

MAX_NOISE_FACTOR = 4096.0
"""Largest factor on the noise that is tried: with more, nothing of a release would be left."""
_BRACKET = 16.0
"""Factor by which the search for a noise that fits goes up."""
_PRECISION = 1e-3
"""Relative precision of the advice, which is rounded to the side that fits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    """What a refused spend asked for, what was left, and what would fit."""

    asked_epsilon: float
    """How much the spend would add to what is spent, at the delta of the budget."""
    state: BudgetState
    """The budget that refused."""
    least_noise_factor: float | None
    """Least factor on the noise with which every budget accepts; None if no noise helps."""
    fitting_event: Event | None
    """The event with that noise."""

    @property
    def left_epsilon(self) -> float:
        """What was left of the budget."""
        return self.state.left_epsilon

    def __str__(self) -> str:
        budget = self.state.budget
        where = [f"delta={budget.delta:g}", f"budget {budget.name!r}"]
        if self.state.window_bounds is not None:
            start, end = self.state.window_bounds
            where.append(f"window {start:%Y-%m-%dT%H:%MZ} to {end:%Y-%m-%dT%H:%MZ}")
        return (
            f"this release needs epsilon={_shown(round_up, self.asked_epsilon)}, "
            f"unit '{budget.unit}' has {_shown(round_down, self.left_epsilon)} of "
            f"{budget.epsilon:.4g} left ({', '.join(where)}). {self._way_out()}"
        )

    def _way_out(self) -> str:
        if self.least_noise_factor is None or self.fitting_event is None:
            elsewhere = "about another window" if self.state.window_bounds else "with less in it"
            return f"No noise makes it fit; a release {elsewhere} may."
        from tulle.accounting.event_rules import noise_setting

        setting = noise_setting(self.fitting_event)
        if setting is None:
            factor = _shown(round_up, self.least_noise_factor)
            return f"Least noise that fits: all noise times {factor}."
        name, value = setting
        rounded = round_down if name == "epsilon" else round_up
        return f"Least noise that fits: {name}={_shown(rounded, value)}."


class SpendRefusedError(BudgetExceededError):
    """A spend does not fit into a budget. Nothing was spent; `refusal` says what would fit."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal

    def __str__(self) -> str:
        return str(self.refusal)

    @property
    def asked_epsilon(self) -> float:
        """How much the spend would have added."""
        return self.refusal.asked_epsilon

    @property
    def left_epsilon(self) -> float:
        """What is left of the budget that refused."""
        return self.refusal.left_epsilon

    @property
    def least_noise_factor(self) -> float | None:
        """Least factor on the noise with which the spend fits; None if no noise helps."""
        return self.refusal.least_noise_factor


def explain_refusal(event: Event, accounts: Sequence[Account], refusing: Account) -> Refusal:
    """Weighs a refused event: slow (many compositions), so never call it under a lock.

    Args:
      event: What was to be spent.
      accounts: All accounts that it would be charged to.
      refusing: The one of them that refused.
    """
    from tulle.accounting.event_rules import with_noise_scaled

    state = refusing.state()
    asked = refusing.budget.cost(refusing.after(event).spent)
    if math.isfinite(state.spent_epsilon):
        asked -= state.spent_epsilon
    factor = least_noise_factor(event, functools.partial(_fits_all, accounts))
    return Refusal(
        asked_epsilon=asked,
        state=state,
        least_noise_factor=factor,
        fitting_event=None if factor is None else with_noise_scaled(event, factor),
    )


def least_noise_factor(event: Event, fits: Callable[[Event], bool]) -> float | None:
    """The least factor on the noise of `event` with which it fits, to one part in a thousand.

    Rounded to the side that fits; None if not even MAX_NOISE_FACTOR fits.

    Args:
      event: What is to be spent.
      fits: Whether an event fits. What fits must also fit with more noise.
    """
    from tulle.accounting.event_rules import with_noise_scaled

    if fits(event):
        return 1.0
    low, high = 1.0, _BRACKET
    while not fits(with_noise_scaled(event, high)):
        if high >= MAX_NOISE_FACTOR:
            return None
        low, high = high, min(_BRACKET * high, MAX_NOISE_FACTOR)
    while high > low * (1 + _PRECISION):
        middle = math.sqrt(low * high)
        if fits(with_noise_scaled(event, middle)):
            high = middle
        else:
            low = middle
    return high


def _fits_all(accounts: Sequence[Account], event: Event) -> bool:
    try:
        return all(account.fits(event) for account in accounts)
    except TulleError:  # noise too large for the accountant is no advice to give
        return False


def _shown(rounded: Callable[..., float], value: float) -> str:
    """Four digits on the safe side, without an exponent, as settings are written."""
    if math.isinf(value):
        return "inf"
    printed = rounded(value, 4, slack=BINARY_NOISE)
    return f"{decimal.Decimal(repr(printed)).normalize():f}"
