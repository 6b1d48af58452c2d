"""From which epsilon on one mechanism is at least as good as another."""

from collections.abc import Sequence


def overtaking_epsilon(
    epsilons: Sequence[float], values: Sequence[float], others: Sequence[float]
) -> float | None:
    """The least epsilon from which on `values` are never below `others`; None if there is none.

    Args:
      epsilons: Rising.
      values: Of the mechanism that may overtake, one for each epsilon.
      others: Of the mechanism it is compared with.
    """
    found = None
    for epsilon, value, other in reversed(list(zip(epsilons, values, others, strict=True))):
        if value < other:
            break
        found = epsilon
    return found
