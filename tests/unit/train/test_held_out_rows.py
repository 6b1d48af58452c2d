import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tulle.errors import DataError
from tulle.runs.charging import ReleaseCharge
from tulle.train.examples import ExampleSet
from tulle.train.fitting import check_held_out, fit, make_plan
from tulle.train.methods.method import Method
from tulle.train.run_context import RunOptions
from tulle.train.settings.units import UserLevel
from unit.train.small_data import (
    dp_sgd,
    make_examples,
    make_ledger,
    nonprivate,
    private_phase,
    randomized_labels,
    two_phase,
    write_dataset,
)

EXAMPLES = make_examples(400, rows_per_user=4)
FIRST, LAST = np.arange(200), np.arange(200, 400)
USERS = dp_sgd(unit=UserLevel(), private_phase=private_phase(noise_multiplier=1.0, batch_size=40))


@pytest.mark.parametrize("config", [two_phase(), dp_sgd(), randomized_labels()])
def test_rows_that_are_trained_on_are_no_test_rows(config: Method) -> None:
    train = EXAMPLES.select(FIRST)
    plan = make_plan(train, config)
    check_held_out(train, EXAMPLES.select(LAST), plan)
    for test in (train, EXAMPLES, EXAMPLES.select(np.arange(199, 400)), train.select(FIRST[:9])):
        with pytest.raises(DataError, match="trained on"):
            check_held_out(train, test, plan)


def test_a_prepared_dataset_is_known_again(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", EXAMPLES)
    train = ExampleSet.of(dataset, FIRST)
    plan = make_plan(train, dp_sgd())
    check_held_out(train, ExampleSet.of(dataset, LAST), plan)
    with pytest.raises(DataError, match="trained on"):
        check_held_out(train, ExampleSet.of(dataset), plan)


def test_protected_users_have_no_other_rows_to_test_on() -> None:
    train, others = EXAMPLES.select(FIRST[:-2]), EXAMPLES.select(np.arange(198, 400))
    check_held_out(train, others, make_plan(train, dp_sgd()))
    plan = make_plan(train, USERS)
    check_held_out(train, EXAMPLES.select(LAST), plan)
    with pytest.raises(DataError, match="split by user"):
        check_held_out(train, others, plan)


def test_a_baseline_protects_nobody_and_may_look_at_its_own_rows() -> None:
    check_held_out(EXAMPLES, EXAMPLES, make_plan(EXAMPLES, nonprivate()))


def test_test_rows_that_cannot_be_evaluated_cost_nothing(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    test = dataclasses.replace(make_examples(20, seed=1), labels=np.zeros(20, np.float32))
    options = RunOptions(
        folder=tmp_path / "run", charge=ReleaseCharge(ledger=ledger, purpose="training")
    )
    with pytest.raises(DataError, match="both classes"):
        fit(EXAMPLES, dp_sgd(), test=test, options=options)
    assert ledger.spends("all") == ()
    assert not (tmp_path / "run").exists()
