"""Every planted fault in accounting is caught; the same checks pass on the right code."""

import inspect
from collections.abc import Callable

import pytest

from contract import accounting_checks, faulty_accounting
from contract.accounting_checks import Accountant
from tulle.accounting.accountant import privacy_curve

Check = Callable[[Accountant], None]
CHECKS: dict[str, Check] = {
    name: function
    for name, function in inspect.getmembers(accounting_checks, inspect.isfunction)
    if name.startswith("check_")
}
FAULTS: dict[str, str] = {
    "count_of_responses_ignored": "check_every_response_counts",
    "largest_loss_wrapped_around": "check_every_response_counts",
    "removal_distance_under_replace": "check_a_replaced_unit_moves_twice",
    "removal_pair_for_a_replaced_row": "check_a_replaced_row_of_a_batch",
    "switched_noise_over_twice_the_bound": "check_a_replaced_row_of_a_batch",
    "rows_beside_a_switch_ignored": "check_a_switched_label_of_a_batch",
    "several_labels_as_one_switch": "check_labels_that_switch_both_ways",
    "fixed_batches_as_poisson": "check_fixed_batches",
    "truncation_ignored": "check_cut_batches",
    "rows_of_a_unit_ignored": "check_all_rows_of_a_unit",
    "group_epsilon_without_its_delta": "check_groups_of_units",
    "infinite_loss_dropped": "check_leaks_add_up",
    "private_parts_as_public": "check_units_that_move_between_parts",
    "one_order_only": "check_both_orders",
    "rounding_taken_for_privacy": "check_deltas_that_rounding_hides",
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_checks_pass_on_the_right_code(name: str) -> None:
    CHECKS[name](privacy_curve)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_caught(fault: str) -> None:
    with pytest.raises(AssertionError):
        CHECKS[FAULTS[fault]](getattr(faulty_accounting, fault))


def test_every_fault_and_every_check_is_listed() -> None:
    planted = {
        name
        for name, function in inspect.getmembers(faulty_accounting, inspect.isfunction)
        if function.__module__ == faulty_accounting.__name__ and not name.startswith("_")
    }
    assert planted == set(FAULTS)
    assert set(FAULTS.values()) == set(CHECKS)
