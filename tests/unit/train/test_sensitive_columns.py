"""What trains on randomized labels cannot see sensitive columns or true labels."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tulle.train.examples import ExampleSet
from tulle.train.fitting import fit
from tulle.train.methods import hybrid, private_training
from tulle.train.methods import randomized_labels as randomized_labels_method
from tulle.train.models.trained_towers import build_model
from tulle.train.run_context import RunOptions
from tulle.train.settings.phases import EarlyStopping
from tulle.train.settings.units import UserLevel
from tulle.train.steps import plain_training
from unit.train.small_data import (
    SMALL_MLP,
    dp_sgd,
    label_phase,
    make_examples,
    planned,
    randomized_labels,
    two_phase,
)

EXAMPLES = make_examples(400)
TEST = make_examples(1000, seed=1)


class CrashError(Exception):
    """The process dies here."""


class GuardedArray(np.ndarray):
    """An array that cannot be looked at while it is guarded."""

    is_guarded = False

    def __getitem__(self, *arguments: Any) -> Any:
        return self._allowed().__getitem__(*arguments)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [i._allowed() if isinstance(i, GuardedArray) else i for i in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        self._allowed()
        return super().__array_function__(function, types, args, options)

    def __len__(self) -> int:
        return len(self._allowed())

    def min(self, *arguments: Any, **options: Any) -> Any:
        return self._allowed().min(*arguments, **options)

    def max(self, *arguments: Any, **options: Any) -> Any:
        return self._allowed().max(*arguments, **options)

    def astype(self, *arguments: Any, **options: Any) -> Any:
        return self._allowed().astype(*arguments, **options)

    def tobytes(self, *arguments: Any) -> Any:
        return self._allowed().tobytes(*arguments)

    def _allowed(self) -> Any:
        if GuardedArray.is_guarded:
            raise AssertionError("a sensitive column was read")
        return self.view(np.ndarray)


class GuardedObject:
    """Not even its type is one that anything could be read from."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("a sensitive column was read")

    def __len__(self) -> int:
        raise AssertionError("a sensitive column was read")

    def __getitem__(self, rows: Any) -> Any:
        raise AssertionError("a sensitive column was read")


def guarded() -> ExampleSet:
    sensitive = EXAMPLES.sensitive_features.view(GuardedArray)
    return dataclasses.replace(EXAMPLES, sensitive_features=sensitive)


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards sensitive columns while the phase of labels runs."""
    whole = randomized_labels_method.train_on_labels

    def guarding(*arguments: Any) -> None:
        GuardedArray.is_guarded = True
        try:
            whole(*arguments)
        finally:
            GuardedArray.is_guarded = False

    for module in (hybrid, randomized_labels_method):
        monkeypatch.setattr(module, "train_on_labels", guarding)


@pytest.mark.usefixtures("guard")
def test_the_phase_of_labels_reads_no_sensitive_column() -> None:
    stopping = label_phase(early_stopping=EarlyStopping(validation_share=0.2))
    result = fit(guarded(), two_phase(label_phase=stopping), options=RunOptions(seed=0))
    assert not result.model.is_truncated


def test_the_guard_notices_private_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = private_training.train_privately

    def guarding(*arguments: Any) -> Any:
        GuardedArray.is_guarded = True
        try:
            return whole(*arguments)
        finally:
            GuardedArray.is_guarded = False

    monkeypatch.setattr(private_training, "train_privately", guarding)
    with pytest.raises(AssertionError, match="sensitive column was read"):
        fit(guarded(), planned(two_phase()))


def test_the_warm_start_is_the_same_whatever_the_sensitive_columns_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts: list[dict[str, torch.Tensor]] = []

    def noting(model: Any, *_: object) -> None:
        starts.append({name: values.clone() for name, values in model.parameters.items()})
        raise CrashError

    monkeypatch.setattr(private_training, "train_privately", noting)
    zeros = np.zeros_like(EXAMPLES.sensitive_features)
    for examples in (EXAMPLES, dataclasses.replace(EXAMPLES, sensitive_features=zeros)):
        with pytest.raises(CrashError):
            fit(examples, planned(two_phase(model=SMALL_MLP)), options=RunOptions(seed=0))
    first, second = starts
    untrained = build_model(SMALL_MLP, EXAMPLES.features, seed=0).parameters
    assert all(torch.equal(first[name], second[name]) for name in first)
    for name in first:
        is_sensitive = name.startswith("sensitive.")
        assert torch.equal(first[name], untrained[name]) == is_sensitive, name


@pytest.mark.parametrize("in_folder", [False, True])
def test_randomized_labels_alone_never_touch_a_sensitive_column(
    tmp_path: Path, in_folder: bool
) -> None:
    examples = dataclasses.replace(EXAMPLES, sensitive_features=GuardedObject())  # type: ignore[arg-type]
    test = dataclasses.replace(TEST, sensitive_features=GuardedObject())  # type: ignore[arg-type]
    options = RunOptions(folder=tmp_path / "run" if in_folder else None)
    result = fit(examples, randomized_labels(), test=test, options=options)
    assert result.model.predict_proba(test).shape == (1000,)
    with pytest.raises(AssertionError, match="sensitive column was read"):
        fit(examples, planned(dp_sgd()))


def reachable(root: object) -> list[np.ndarray]:
    """Every array that can be got at from an object: fields, containers and views' bases."""
    found: list[np.ndarray] = []
    seen: set[int] = set()
    todo = [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            found.append(thing)
            todo.append(thing.base)
        elif isinstance(thing, dict):
            todo += [*thing.keys(), *thing.values()]
        elif isinstance(thing, (list, tuple, set)):
            todo += thing
        todo += list(getattr(thing, "__dict__", {}).values())
    return found


def test_nothing_given_to_the_phase_of_labels_leads_to_what_is_protected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[ExampleSet] = []

    def noting(_model: object, examples: ExampleSet, *_: object) -> None:
        given.append(examples)

    monkeypatch.setattr(plain_training, "train_plain", noting)
    unit = UserLevel(max_rows_per_user=1)
    for config in (two_phase(), randomized_labels(), randomized_labels(unit=unit)):
        fit(EXAMPLES, config)
        arrays = reachable(given[-1])
        assert any(np.shares_memory(a, EXAMPLES.public_features) for a in arrays)
        for protected in (EXAMPLES.sensitive_features, EXAMPLES.labels):
            assert protected is not None
            assert not any(np.shares_memory(a, protected) for a in arrays)
        assert not any(a.shape == (400,) and (a == EXAMPLES.labels).all() for a in arrays)
    # The search would have found them.
    assert any(np.shares_memory(a, EXAMPLES.labels) for a in reachable(EXAMPLES))
