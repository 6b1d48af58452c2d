"""The noise that papers with Renyi accounting used, to reproduce them. Not a certificate.

Renyi accounting speaks about add-or-remove. Under the replace adjacency of a run the
same noise costs more or less than the paper claims: account for it with
`tulle.accounting.accountant`.
"""

from collections.abc import Callable

from tulle.accounting.calibration import calibrate_noise
from tulle.accounting.rdp import rdp_epsilon
from tulle.privacy.events import Event
from tulle.privacy.units import Adjacency


def calibrate_noise_rdp(
    make_event: Callable[[float], Event], *, epsilon: float, delta: float
) -> float:
    """The least noise at which Renyi accounting claims (epsilon, delta) under add-or-remove.

    To one part in ten thousand, on the side that meets the target.

    Args:
      make_event: Builds the event from its noise; more noise must cost less.
      epsilon: Target, > 0.
      delta: Target, > 0.
    """
    return calibrate_noise(
        make_event,
        epsilon=epsilon,
        delta=delta,
        adjacency=Adjacency.ADD_OR_REMOVE,
        spent_epsilon=rdp_epsilon,
    )
