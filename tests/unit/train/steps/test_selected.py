"""A step on selected rows: which gradients it has, with how much noise, and what it leaves out."""

import dataclasses
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import DenseGradient, RowGradient, TableReads
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import TOWERS, LogisticRegression
from tulle.train.settings.optimizers import SGD, Adam, Optimizer, RMSprop, Yogi
from tulle.train.settings.step_noise import IndependentNoise, SelectedRows
from tulle.train.steps.host import ModelStep
from tulle.train.steps.places import host_step
from tulle.train.steps.private_step import BatchUnits, StepRelease
from tulle.train.steps.selected import (
    COUNT_STEPS,
    RowCounts,
    RowSelector,
    SelectedStep,
    SelectionNoise,
    count_rows,
    places_of,
)
from tulle.train.steps.step_settings import LOSS_BOUND, Monitored, StepSettings
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.test_tower_model import DATASETS, MODELS, feature
from unit.train.steps.step_reference import (
    EXPECTED_SIZE,
    Case,
    NoNoise,
    make_case,
    release_without_noise,
    step_settings,
    user_units,
)

MIXED = DATASETS["two tables a role"]
SHARE = 0.3
USERS = [1, 3, 2, 3]
PLAIN = SGD(learning_rate=0.1)
# With this little noise a row that two or three examples read is near the threshold.
LITTLE = 0.2


def selecting(settings: StepSettings, *, threshold: float = 1.5) -> StepSettings:
    mechanism = SelectedRows(selection_share=SHARE, threshold=threshold)
    return dataclasses.replace(settings, mechanism=mechanism)


def release(
    case: Case, settings: StepSettings, weights: Tensor, units: BatchUnits | None = None
) -> StepRelease:
    """With coins for rows that nobody reads, and without any noise."""
    step = SelectedStep(case.model, settings, PLAIN, NoNoise(), SeededNoise(3))  # type: ignore[arg-type]
    return step.release(case.batch, weights, units)


def assert_rows_of_the_dense_step(
    case: Case, settings: StepSettings, weights: Tensor, units: BatchUnits | None = None
) -> None:
    found = release(case, selecting(settings), weights, units)
    dense = release_without_noise(case, settings, weights, units)
    wanted = {gradient.name: gradient.values for gradient in dense.gradients}
    assert {gradient.name for gradient in found.gradients} == wanted.keys()
    num_selected = 0
    for gradient in found.gradients:
        whole = wanted[gradient.name]
        if isinstance(gradient, RowGradient):
            assert gradient.name in case.model.tables
            num_selected += len(gradient.rows)
            whole = whole[gradient.rows]
        torch.testing.assert_close(gradient.values, whole, rtol=1e-9, atol=1e-12)
    num_rows = sum(len(wanted[name]) for name in case.model.tables & wanted.keys())
    assert 0 < num_selected < num_rows
    assert found.monitored is not None
    assert dense.monitored is not None
    assert found.monitored.loss == pytest.approx(dense.monitored.loss)
    assert found.monitored.clipped_share == pytest.approx(dense.monitored.clipped_share)


@pytest.mark.parametrize("towers", [TOWERS, TOWERS - {"public"}], ids=["all", "frozen public"])
@pytest.mark.parametrize("model", MODELS)
def test_selected_rows_get_the_clipped_sums_of_the_dense_step(
    model: str, towers: frozenset[str]
) -> None:
    case = make_case(MODELS[model], MIXED)
    settings = step_settings(clip_norm=0.3, noise_multiplier=LITTLE, towers=towers)
    assert_rows_of_the_dense_step(case, settings, torch.ones(9))
    padded = torch.tensor([1.0, 0, 1, 1, 0, 1, 1, 0, 1])
    assert_rows_of_the_dense_step(case, settings, padded)
    assert_rows_of_the_dense_step(
        case, dataclasses.replace(settings, rows_at_a_time=2), torch.ones(9)
    )
    units = user_units(USERS)
    assert_rows_of_the_dense_step(case, settings, units.weights, units)


def test_rows_that_many_examples_read_are_selected_and_the_rest_left_to_coins() -> None:
    case = make_case(MODELS["logistic regression"], MIXED)
    settings = selecting(step_settings(noise_multiplier=LITTLE), threshold=5.0)
    found = release(case, settings, torch.ones(9))
    reads = case.model.reads(case.batch.public_ids, case.batch.sensitive_ids)
    num_features = sum(read.rows.shape[1] for read in reads.tables)
    least = 5.0 * LITTLE / math.sqrt(SHARE) * math.sqrt(num_features)
    selected = {g.name: g.rows.tolist() for g in found.gradients if isinstance(g, RowGradient)}
    for read in reads.tables:
        times = {
            row: sum(row in example for example in read.rows.tolist())
            for row in set(read.rows.flatten().tolist())
        }
        # Without noise, and with coins that fall once in three million times.
        assert selected[read.table] == sorted(row for row in times if times[row] > least)
    assert sum(len(rows) for rows in selected.values()) >= 2


def test_counts_and_gradients_are_asked_for_their_own_noise() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    settings = selecting(step_settings(clip_norm=0.5, noise_multiplier=2.0))
    noise = NoNoise()
    step = SelectedStep(case.model, settings, PLAIN, noise, SeededNoise(3))  # type: ignore[arg-type]
    released = step.release(case.batch, torch.ones(9))
    asked = [stddev for _, stddev in noise.asked]
    num_tables = len(case.model.tables)
    of_counts, of_gradients = 2.0 / math.sqrt(SHARE), 0.5 * 2.0 / math.sqrt(1 - SHARE)
    assert asked[:num_tables] == pytest.approx([of_counts] * num_tables)
    # Every parameter, and the monitor.
    assert asked[num_tables:] == pytest.approx([of_gradients] * (len(case.model.parameters) + 1))
    assert released.monitored is not None
    scale = settings.coordinates.scale
    assert released.monitored.loss_noise == pytest.approx(
        LOSS_BOUND * of_gradients / (scale * EXPECTED_SIZE)
    )


def test_every_selected_row_has_noise_and_no_two_steps_share_it() -> None:
    case = make_case(MODELS["factorization machine"], MIXED)
    rng = SeededNoise(5)
    settings = selecting(step_settings(), threshold=0.5)
    step = SelectedStep(case.model, settings, PLAIN, TrainingNoise(rng), rng)
    raw = release_without_noise(case, settings, torch.ones(9))
    whole = {gradient.name: gradient.values for gradient in raw.gradients}
    noises = []
    for _ in range(2):
        released = step.release(case.batch, torch.ones(9))
        noise = torch.zeros(len(whole["public.table.0"]), 4, dtype=torch.float64)
        for gradient in released.gradients:
            if isinstance(gradient, RowGradient):
                assert ((gradient.values - whole[gradient.name][gradient.rows]) != 0).all()
            if gradient.name == "public.table.0":
                assert isinstance(gradient, RowGradient)
                noise[gradient.rows] = gradient.values - whole[gradient.name][gradient.rows]
        noises.append(noise)
    in_both = (noises[0] != 0) & (noises[1] != 0)
    assert in_both.sum() > 20
    assert not (noises[0] == noises[1])[in_both].any()


@pytest.mark.parametrize("sizes", [None, []], ids=["rows", "users"])
def test_an_empty_batch_selects_by_coins_alone(sizes: list[int] | None) -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED, size=0)
    units = None if sizes is None else user_units(sizes)
    found = release(case, selecting(step_settings(), threshold=0.1), torch.zeros(0), units)
    rows = [gradient for gradient in found.gradients if isinstance(gradient, RowGradient)]
    num_selected = sum(len(gradient.rows) for gradient in rows)
    num_rows = sum(len(case.model.parameters[name]) for name in case.model.tables)
    # The chance is 0.46.
    assert 0.2 * num_rows < num_selected < 0.8 * num_rows
    assert not any(gradient.values.any() for gradient in found.gradients)


def test_tables_that_a_truncated_batch_does_not_read_are_selected_by_coins() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    case.batch = dataclasses.replace(case.batch, sensitive_ids=None)
    found = release(case, selecting(step_settings(), threshold=0.1), torch.ones(9))
    rows = {g.name: g for g in found.gradients if isinstance(g, RowGradient)}
    assert rows.keys() == case.model.tables
    assert len(rows["sensitive.table.0"].rows) > 5
    assert not rows["sensitive.table.0"].values.any()


def test_parameters_outside_tables_get_whole_gradients() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    found = release(case, selecting(step_settings()), torch.ones(9))
    dense = {g.name for g in found.gradients if isinstance(g, DenseGradient)}
    assert dense == case.model.parameters.keys() - case.model.tables


def test_a_model_without_trained_tables_is_refused() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    settings = selecting(step_settings(towers=frozenset({"common"})))
    with pytest.raises(ConfigError, match="needs a trained table"):
        SelectedStep(case.model, settings, PLAIN, TrainingNoise(SeededNoise(1)), SeededNoise(1))


def test_settings_that_select_nothing_are_refused() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    settings = dataclasses.replace(step_settings(), mechanism=IndependentNoise())
    with pytest.raises(ConfigError, match="selects no rows"):
        SelectedStep(case.model, settings, PLAIN, TrainingNoise(SeededNoise(1)), SeededNoise(1))


# Rows by table; few, so that examples and users meet in them.
SIZES = {"public.table.0": 5, "sensitive.table.0": 3}
FEATURES = {"public.table.0": 4, "sensitive.table.0": 2}
NUM_FEATURES = 6

Example = tuple[tuple[int, ...], ...]
Vector = dict[tuple[str, int], int]

examples = st.tuples(
    *[
        st.tuples(*[st.integers(0, SIZES[name] - 1)] * num_reads)
        for name, num_reads in FEATURES.items()
    ]
)


def reads_of(batch: list[Example]) -> list[TableReads]:
    return [
        TableReads(
            table=name,
            rows=torch.tensor([example[place] for example in batch]).reshape(-1, num_reads).long(),
        )
        for place, (name, num_reads) in enumerate(FEATURES.items())
    ]


def counts_of(
    batch: list[Example], weights: Tensor | None = None, sizes: list[int] | None = None
) -> Vector:
    units = None if sizes is None else user_units(sizes)
    counted = count_rows(
        reads_of(batch), torch.ones(len(batch)) if weights is None else weights, units
    )
    return {
        (counts.table, row): count
        for counts in counted
        for row, count in zip(counts.rows.tolist(), counts.counts.tolist(), strict=True)
    }


def distinct_rows(batch: list[Example]) -> set[tuple[str, int]]:
    return {
        (name, row)
        for example in batch
        for name, rows in zip(SIZES, example, strict=True)
        for row in rows
    }


def squared_distance(first: Vector, second: Vector) -> int:
    keys = first.keys() | second.keys()
    return sum((first.get(key, 0) - second.get(key, 0)) ** 2 for key in keys)


def users(batch: list[Example], sizes: list[int]) -> list[list[Example]]:
    ends = np.cumsum(sizes).tolist()
    return [batch[end - size : end] for size, end in zip(sizes, ends, strict=True)]


@given(batch=st.lists(examples, max_size=8))
def test_an_example_adds_one_share_to_each_distinct_row(batch: list[Example]) -> None:
    wanted: Counter[tuple[str, int]] = Counter()
    for example in batch:
        wanted.update(distinct_rows([example]))
    found = counts_of(batch)
    assert found.keys() == wanted.keys()
    for key, times in wanted.items():
        assert found[key] == times * int((COUNT_STEPS - 1) / math.sqrt(NUM_FEATURES))


@given(batch=st.lists(examples, max_size=8), data=st.data())
def test_padding_adds_nothing(batch: list[Example], data: st.DataObject) -> None:
    is_kept = data.draw(st.lists(st.booleans(), min_size=len(batch), max_size=len(batch)))
    weights = torch.tensor(is_kept, dtype=torch.float32)
    kept = [example for example, keep in zip(batch, is_kept, strict=True) if keep]
    assert squared_distance(counts_of(batch, weights), counts_of(kept)) == 0


@given(sizes=st.lists(st.integers(1, 6), max_size=4), data=st.data())
def test_a_user_adds_one_share_to_each_distinct_row_of_all_its_examples(
    sizes: list[int], data: st.DataObject
) -> None:
    size = sum(sizes)
    batch = data.draw(st.lists(examples, min_size=size, max_size=size))
    wanted: Counter[tuple[str, int]] = Counter()
    for user in users(batch, sizes):
        rows = distinct_rows(user)
        share = int((COUNT_STEPS - 1) / math.sqrt(max(NUM_FEATURES, len(rows))))
        wanted.update(dict.fromkeys(rows, share))
    assert squared_distance(counts_of(batch, sizes=sizes), dict(wanted)) == 0


@given(
    rest=st.lists(examples, max_size=6),
    units=st.tuples(examples, examples),
    place=st.integers(0, 6),
)
def test_an_example_moves_the_counts_by_at_most_1(
    rest: list[Example], units: tuple[Example, Example], place: int
) -> None:
    without = counts_of(rest)
    first, second = (counts_of([*rest[:place], unit, *rest[place:]]) for unit in units)
    assert squared_distance(first, without) <= COUNT_STEPS**2
    assert squared_distance(second, without) <= COUNT_STEPS**2
    assert squared_distance(first, second) <= 2 * COUNT_STEPS**2


@given(rest=st.lists(examples, max_size=5), data=st.data())
def test_a_user_moves_the_counts_by_at_most_1(rest: list[Example], data: st.DataObject) -> None:
    owners = [1] * len(rest)
    without = counts_of(rest, sizes=owners)
    moved = []
    for _ in range(2):
        own = data.draw(st.lists(examples, min_size=1, max_size=8))
        moved.append(counts_of([*own, *rest], sizes=[len(own), *owners]))
        assert squared_distance(moved[-1], without) <= COUNT_STEPS**2
    assert squared_distance(*moved) <= 2 * COUNT_STEPS**2


def test_the_bound_is_nearly_met_by_examples_and_users_of_many_rows() -> None:
    example: Example = ((0, 1, 2, 3), (0, 1))
    other: Example = ((4, 4, 4, 4), (2, 2))
    for batch, sizes in (([example], None), ([example, other], [2])):
        length = math.sqrt(squared_distance(counts_of(batch, sizes=sizes), {})) / COUNT_STEPS
        assert 1 - 1e-8 < length <= 1


@pytest.mark.parametrize("num_rows", [1, 2, 3, 39, 1000, 12_345])
def test_the_norm_of_a_user_is_at_most_1_whatever_the_number_of_its_rows(num_rows: int) -> None:
    reads = TableReads(table="t", rows=torch.arange(num_rows)[:, None])
    units = BatchUnits(
        segments=torch.zeros(num_rows, dtype=torch.int64),
        weights=torch.full((num_rows,), 1 / num_rows),
        num_segments=1,
    )
    (counted,) = count_rows([reads], units.weights, units)
    assert sum(count**2 for count in counted.counts.tolist()) <= COUNT_STEPS**2
    assert float(counted.counts.double().norm()) > (1 - 1e-5) * COUNT_STEPS


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 7.7])
def test_counts_and_gradients_cost_what_the_step_costs(
    noise_multiplier: float, share: float
) -> None:
    split = SelectionNoise(
        noise_multiplier=noise_multiplier, selection=SelectedRows(selection_share=share)
    )
    cost = split.count_stddev**-2 + split.gradient_multiplier**-2
    assert cost <= noise_multiplier**-2
    assert cost == pytest.approx(noise_multiplier**-2, rel=1e-12)
    assert split.count_stddev == pytest.approx(noise_multiplier / math.sqrt(share))
    assert split.gradient_multiplier == pytest.approx(noise_multiplier / math.sqrt(1 - share))


def test_an_unread_row_has_the_chance_of_a_normal_above_the_threshold() -> None:
    split = SelectionNoise(noise_multiplier=1.0, selection=SelectedRows(threshold=3.0))
    assert split.unread_prob == pytest.approx(0.0013498980316300945, rel=1e-12)
    assert split.least_count == pytest.approx(3 * split.count_stddev)


def test_a_threshold_beyond_what_coins_can_show_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"threshold=7\.5 must be <= 7"):
        SelectionNoise(noise_multiplier=1.0, selection=SelectedRows(threshold=7.5))


def selector(num_rows: dict[str, int], *, threshold: float, seed: int = 1) -> RowSelector:
    rng = SeededNoise(seed)
    split = SelectionNoise(
        noise_multiplier=1.0, selection=SelectedRows(selection_share=0.5, threshold=threshold)
    )
    return RowSelector(num_rows, split, TrainingNoise(rng), rng)


@given(
    num_rows=st.integers(1, 60),
    data=st.data(),
    threshold=st.sampled_from([0.01, 1.0, 6.9]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60)
def test_selected_rows_are_distinct_in_order_and_in_the_table(
    num_rows: int, data: st.DataObject, threshold: float, seed: int
) -> None:
    rows = sorted(data.draw(st.sets(st.integers(0, num_rows - 1))))
    counted = RowCounts(
        table="t",
        rows=torch.tensor(rows, dtype=torch.int64),
        counts=torch.full((len(rows),), COUNT_STEPS),
    )
    found = selector({"t": num_rows}, threshold=threshold, seed=seed).select([counted])["t"]
    assert found.dtype == torch.int64
    assert found.tolist() == sorted(set(found.tolist()) & set(range(num_rows)))


def test_rows_with_very_high_counts_are_always_selected_and_others_hardly_ever() -> None:
    counted = RowCounts(
        table="t", rows=torch.tensor([3, 17]), counts=torch.full((2,), 1000 * COUNT_STEPS)
    )
    for seed in range(20):
        found = selector({"t": 50}, threshold=6.9, seed=seed).select([counted])["t"]
        assert found.tolist() == [3, 17]


def test_a_batch_without_rows_still_selects() -> None:
    nothing = RowCounts(
        table="t",
        rows=torch.zeros(0, dtype=torch.int64),
        counts=torch.zeros(0, dtype=torch.int64),
    )
    found = selector({"t": 1000}, threshold=1.0).select([nothing])["t"]
    assert 100 < len(found) < 220


def test_places_of_rows_among_others() -> None:
    places, is_there = places_of(torch.tensor([1, 4, 9, 12]), torch.tensor([4, 7, 9]))
    assert is_there.tolist() == [False, True, True, False]
    assert places[is_there].tolist() == [0, 2]
    _, is_there = places_of(torch.tensor([1]), torch.zeros(0, dtype=torch.int64))
    assert is_there.tolist() == [False]


OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Adam(learning_rate=0.1),
    "adam with decay": Adam(learning_rate=0.1, weight_decay=0.3),
    "rmsprop": RMSprop(learning_rate=0.1),
    "yogi": Yogi(learning_rate=0.1),
    "sgd": SGD(learning_rate=0.1),
    "sgd without momentum": SGD(learning_rate=0.1, momentum=0.0),
}
SETTINGS = dataclasses.replace(
    step_settings(clip_norm=0.5, noise_multiplier=0.3),
    mechanism=SelectedRows(selection_share=0.3, threshold=1.0),
)


def start(model: TowerModel, optimizer: Optimizer, seed: int = 1) -> SelectedStep:
    rng = SeededNoise(seed)
    return SelectedStep(model, SETTINGS, optimizer, TrainingNoise(rng), rng)


def take(updates: ModelStep, case: Case, rate: float = 0.1) -> Monitored | None:
    return updates.take(case.batch, torch.ones(len(case.labels)), None, rate)


@pytest.fixture
def selections(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    """What is selected, step after step."""
    seen: list[dict[str, Tensor]] = []
    right = RowSelector.select

    def noting(self: RowSelector, counted: list[RowCounts]) -> dict[str, Tensor]:
        seen.append(right(self, counted))
        return seen[-1]

    monkeypatch.setattr(RowSelector, "select", noting)
    return seen


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_only_selected_rows_change_in_weights_and_state(
    optimizer: str, selections: list[dict[str, Tensor]]
) -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    updates = start(case.model, OPTIMIZERS[optimizer])
    for _ in range(4):
        before = {name: values.clone() for name, values in case.model.parameters.items()}
        old_state = {name: values.clone() for name, values in updates.state().items()}
        take(updates, case)
        for name, rows in selections[-1].items():
            is_selected = torch.zeros(len(before[name]), dtype=torch.bool)
            is_selected[rows] = True
            assert 0 < is_selected.sum() < len(is_selected)
            now = case.model.parameters[name]
            assert torch.equal(now[~is_selected], before[name][~is_selected])
            assert (now != before[name])[is_selected].all()
            for key, values in updates.state().items():
                if key.endswith(f".{name}"):
                    assert torch.equal(values[~is_selected], old_state[key][~is_selected])
                    assert (values != old_state[key])[is_selected].all()
        for name in case.model.parameters.keys() - case.model.tables:
            assert (case.model.parameters[name] != before[name]).all()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_run_goes_on_from_its_state(optimizer: str) -> None:
    cases = [make_case(MODELS["factorization machine"], MIXED) for _ in range(2)]
    settings = OPTIMIZERS[optimizer]
    first = start(cases[0].model, settings)
    for _ in range(3):
        take(first, cases[0])
    saved = {name: values.clone() for name, values in first.state().items()}
    for name, values in cases[0].model.parameters.items():
        cases[1].model.parameters[name].copy_(values)
    # Both go on with the noise of a new process.
    resumed, straight = (start(case.model, settings, seed=9) for case in reversed(cases))
    resumed.load_state(saved)
    straight.load_state(first.state())
    for _ in range(3):
        take(resumed, cases[1])
        take(straight, cases[0])
    for name, values in cases[0].model.parameters.items():
        assert torch.equal(values, cases[1].model.parameters[name])
    for name, values in straight.state().items():
        assert torch.equal(values, resumed.state()[name])
    assert int(resumed.state()["num_steps"]) == 6


def test_the_state_of_another_optimizer_is_refused() -> None:
    case = make_case(MODELS["logistic regression"], MIXED)
    state = start(case.model, OPTIMIZERS["sgd"]).state()
    with pytest.raises(RunStateError, match="optimizer state"):
        start(case.model, OPTIMIZERS["adam"]).load_state(state)


def test_parameters_outside_tables_are_watched_in_every_step() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    settled = start(case.model, OPTIMIZERS["adam"]).settled
    outside = case.model.parameters.keys() - case.model.tables
    assert {id(values) for values in settled} == {
        id(case.model.parameters[name]) for name in outside
    }


def test_users_are_taken_too() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    updates = start(case.model, OPTIMIZERS["adam"])
    units = user_units([4, 2, 3])
    monitored = updates.take(case.batch, units.weights, units, 0.1)
    assert monitored is not None
    assert int(updates.state()["num_steps"]) == 1


def test_frequent_rows_are_learned_under_adam() -> None:
    """10,000 rows, of which a few are read often: their weights find the labels."""
    features = [feature("a", "public", 10_000), feature("b", "sensitive", 10_000)]
    model = build_model(LogisticRegression(), features, seed=0)
    rng = SeededNoise(4)
    settings = dataclasses.replace(
        step_settings(clip_norm=1.0, noise_multiplier=1.0, monitor_share=0.0),
        expected_size=512.0,
        mechanism=SelectedRows(selection_share=0.2, threshold=4.0),
    )
    optimizer = Adam(learning_rate=0.1)
    updates = SelectedStep(model, settings, optimizer, TrainingNoise(rng), rng)
    draws = torch.Generator().manual_seed(2)
    for _ in range(60):
        ids = torch.randint(6, (512, 2), generator=draws)
        labels = (ids[:, 0] % 2).float()
        batch = ExampleBatch(public_ids=ids[:, :1], sensitive_ids=ids[:, 1:], labels=labels)
        updates.take(batch, torch.ones(512), None, 0.1)
    weights = model.parameters["public.table.0"][:, 0]
    learned = weights[:6].reshape(3, 2)
    assert (learned[:, 1] - learned[:, 0] > 2).all()
    # At 4 standard deviations a row that nobody reads is selected in 0.2% of such runs.
    initial = build_model(LogisticRegression(), features, seed=0).parameters["public.table.0"][:, 0]
    assert (weights[6:] != initial[6:]).double().mean() < 0.01


def test_a_plan_with_selected_rows_starts_these_updates() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    rng = SeededNoise(1)
    optimizer = OPTIMIZERS["adam"]
    updates = host_step(case.model, SETTINGS, optimizer, TrainingNoise(rng), rng=rng)
    assert isinstance(updates, SelectedStep)
    assert "fixed seed 1" in updates.noise_description
    assert take(updates, case) is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("sizes", [None, [4, 2, 3]], ids=["rows", "users"])
def test_rows_are_selected_on_a_gpu_too(sizes: list[int] | None) -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    model = build_model(MODELS["semi-sensitive mlp"], MIXED, seed=1, device="cuda")
    units = None if sizes is None else on_gpu(user_units(sizes))
    batch = on_gpu(case.batch)
    updates = start(model, OPTIMIZERS["adam"])
    before = model.parameters["public.table.0"].clone()
    updates.take(batch, torch.ones(9, device="cuda"), units, 0.1)
    has_changed = (model.parameters["public.table.0"] != before).any(1)
    assert 0 < int(has_changed.sum()) < len(has_changed)


def on_gpu(tensors: Any) -> Any:
    moved = {
        field.name: value.cuda()
        for field in dataclasses.fields(tensors)
        if isinstance(value := getattr(tensors, field.name), Tensor)
    }
    return dataclasses.replace(tensors, **moved)
