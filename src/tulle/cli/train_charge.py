"""Who pays for a training run."""

from pathlib import Path
from typing import TYPE_CHECKING

from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.train.run_options import LedgerCharge
    from tulle.train.train_plan import TrainPlan


def training_charge(
    made: "TrainPlan", ledger_file: Path | None, purpose: str | None, *, is_resumed: bool = False
) -> "LedgerCharge | None":
    """The ledger that pays; None without one.

    What it would refuse is refused before anything is written. A run that goes on was charged.

    Raises:
      ConfigError: The run has no privacy.
      BudgetExceededError: The run does not fit.
    """
    from tulle.accounting.ledger import Ledger
    from tulle.train.run_options import LedgerCharge

    if ledger_file is None:
        return None
    if not made.method.is_private:
        raise ConfigError("a run without privacy cannot be charged; leave out --ledger.")
    ledger, purpose = Ledger.open(ledger_file), purpose or "training"
    if not is_resumed:
        ledger.check(made.charged_event, purpose=purpose, unit=made.guarantee.unit)
    return LedgerCharge(ledger=ledger, purpose=purpose)
