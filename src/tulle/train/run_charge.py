"""Charging a run to a ledger, once, before anything is drawn from the data."""

from tulle.errors import ConfigError
from tulle.privacy.units import Adjacency
from tulle.runs.folder import RunFolder
from tulle.train.run_options import LedgerCharge
from tulle.train.train_plan import TrainPlan


def charge_run(plan: TrainPlan, charge: LedgerCharge | None, *, folder: RunFolder | None) -> None:
    """Puts the cost of a run on the books; a run that goes on has paid already.

    Vocabularies were charged when they were made and are not charged again.

    Raises:
      SpendRefusedError: A budget does not cover it. Nothing was spent.
    """
    if charge is None:
        return
    _refuse_baseline(plan)
    _check_budgets(charge)
    note = "training" if folder is None else f"training run {folder.run_id}"
    if folder is not None and _is_paid(charge, note):
        return
    spend = charge.ledger.spend(
        plan.charged_event,
        purpose=charge.purpose,
        note=note,
        unit=plan.privacy.guarantee.unit,
        at=charge.at,
        until=charge.until,
    )
    # Entering it marks it as released: from here on it counts, whatever happens.
    with spend:
        pass


def check_charge(plan: TrainPlan, charge: LedgerCharge | None) -> None:
    """Refuses what the ledger would refuse, before anything is written.

    Raises:
      SpendRefusedError: A budget does not cover it.
      ConfigError: It is a baseline, which no budget can cover.
    """
    if charge is not None:
        _refuse_baseline(plan)
        _check_budgets(charge)
        charge.ledger.check(
            plan.charged_event,
            purpose=charge.purpose,
            unit=plan.privacy.guarantee.unit,
            at=charge.at,
            until=charge.until,
        )


def _refuse_baseline(plan: TrainPlan) -> None:
    if not plan.method.is_private:
        raise ConfigError("a run without privacy cannot be charged; leave the ledger out.")


def _check_budgets(charge: LedgerCharge) -> None:
    """Public columns and numbers of rows are used as they are: only replace speaks of that."""
    for budget in charge.ledger.budgets():
        if budget.counts(charge.purpose) and budget.adjacency is not Adjacency.REPLACE:
            raise ConfigError(
                f"budget {budget.name!r} counts under {budget.adjacency.value}, and training "
                "protects labels and sensitive columns under replace; charge it to a budget with "
                "adjacency replace."
            )


def _is_paid(charge: LedgerCharge, note: str) -> bool:
    budgets = [b for b in charge.ledger.budgets() if b.counts(charge.purpose)]
    return any(
        spend.request.note == note for b in budgets for spend in charge.ledger.spends(b.name)
    )
