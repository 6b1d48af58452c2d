"""Every command is compared with the call in Python that it makes, or says why it is not."""

from collections.abc import Iterator
from typing import Any

import typer.main

from end_to_end import test_same_words, test_same_words_data, test_same_words_serve
from tulle.cli.main import app

COMPARED = {
    "account dpsgd": "test_account",
    "account gaussian": "test_account",
    "account hybrid": "test_account",
    "account laplace": "test_account",
    "account plan": "test_account_plan",
    "account rr": "test_account",
    "account shuffle": "test_account",
    "account user": "test_account",
    "audit attacks": "test_audit_attacks",
    "audit mechanisms": "test_audit_mechanisms",
    "audit step": "test_audit_step",
    "audit train": "test_audit_train",
    "budget check": "test_budgets",
    "budget create": "test_budgets",
    "budget show": "test_budgets",
    "budget spend": "test_budgets",
    "data auctions": "test_data_auctions",
    "data describe": "test_data_describe",
    "data prepare": "test_data_prepare",
    "data synth": "test_data_synth",
    "explain": "test_explain",
    "export": "test_export",
    "labels evaluate": "test_labels_evaluate",
    "labels plan": "test_labels_plan_of_one_mechanism",
    "labels release": "test_labels_release",
    "measure attribute": "test_measure_attribute",
    "measure clips": "test_measure_clips",
    "measure count": "test_measure_one_question",
    "measure plan": "test_measure_plan_and_run",
    "measure reach": "test_measure_one_question",
    "measure run": "test_measure_plan_and_run",
    "measure simulate event": "test_measure_simulate",
    "measure simulate summary": "test_measure_simulate",
    "measure simulate w3c": "test_measure_simulate",
    "measure w3c-conformance": "test_measure_w3c_conformance",
    "plan": "test_plan",
    "predict": "test_predict",
    "report": "test_report",
    "select bill": "test_select_decide_bill_and_evaluate",
    "select decide": "test_select_decide_bill_and_evaluate",
    "select evaluate": "test_select_decide_bill_and_evaluate",
    "select plan": "test_select_plan",
    "select simulate": "test_select_simulate",
    "train": "test_train",
}
"""Commands and the test that holds them beside their call, in one of the files below."""
FILES = (test_same_words, test_same_words_data, test_same_words_serve)
ALONE = {
    "account two-phase": "the name that account hybrid had before",
    "demo": "shows other commands one after the other",
    "reproduce": "runs experiments of the lab, which are no calls of the product",
    "studio": "serves pages until it is stopped",
}
"""Commands without a call of their own, and why."""


def all_commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words)
        return
    for word, each in inner.items():
        yield from all_commands(each, (*words, word))


def test_every_command_is_compared_or_named_with_a_reason() -> None:
    listed = [*COMPARED, *ALONE]
    assert sorted(listed) == sorted(all_commands(typer.main.get_command(app)))


def test_the_tests_that_compare_are_there() -> None:
    tests = {name for file in FILES for name in vars(file)}
    assert [name for name in COMPARED.values() if name not in tests] == []
    assert all(reason.strip() for reason in ALONE.values())
