"""What events cost: guarantees, calibrated noise, ledgers and budgets."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.accounting.accountant import (
        calibrate_noise,
        calibrate_steps,
        guarantee,
        privacy_curve,
        verify_plan,
    )
    from tulle.accounting.answers import Accountant, NoiseAnswer
    from tulle.accounting.budget import Budget, BudgetState
    from tulle.accounting.ledger import Ledger
    from tulle.accounting.refusal import SpendRefusedError
    from tulle.accounting.training_events import BatchSampling, dpsgd_event, two_phase_event
    from tulle.accounting.verbs import (
        ask_dpsgd,
        ask_gaussian,
        ask_hybrid,
        ask_laplace,
        ask_randomized_response,
        ask_shuffle,
        ask_user,
    )

__all__ = [
    "Accountant",
    "BatchSampling",
    "Budget",
    "BudgetState",
    "Ledger",
    "NoiseAnswer",
    "SpendRefusedError",
    "ask_dpsgd",
    "ask_gaussian",
    "ask_hybrid",
    "ask_laplace",
    "ask_randomized_response",
    "ask_shuffle",
    "ask_user",
    "calibrate_noise",
    "calibrate_steps",
    "dpsgd_event",
    "guarantee",
    "privacy_curve",
    "two_phase_event",
    "verify_plan",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
