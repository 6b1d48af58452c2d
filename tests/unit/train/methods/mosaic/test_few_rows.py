"""Few rows: what the plan says beforehand, what is refused, and what a constant is worth."""

import dataclasses
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.mechanisms.analytic_gaussian import calibrate_gaussian
from tulle.runs.charging import ReleaseCharge
from tulle.train.classifier import Classifier
from tulle.train.examples import TrainingRows, shape_of
from tulle.train.fitting import fit
from tulle.train.methods.catalogue import chosen_method
from tulle.train.methods.mosaic import cell_training, few_rows
from tulle.train.methods.mosaic.few_rows import (
    check_hope,
    is_hopeless,
    telling_values,
    warning_of_few,
)
from tulle.train.methods.mosaic.method import CellSettings, MosaicConfig
from tulle.train.methods.mosaic.noise_shares import NoiseShares
from tulle.train.methods.mosaic.shrinkage import level_change, posterior_changes
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import RunOptions
from tulle.train.settings.units import DataShape, ExampleLevel, UserLevel
from unit.train.methods.mosaic.test_cell_training import context
from unit.train.methods.mosaic.test_shrinkage import simulated
from unit.train.small_data import FEATURES, make_examples, make_ledger, make_shape

DELTA = 1e-7


def config(epsilon: float, **settings: object) -> MosaicConfig:
    made = MosaicConfig(unit=ExampleLevel(), **settings)  # type: ignore[arg-type]
    return made.calibrate(epsilon=epsilon, delta=DELTA)


def shape_of_columns(num_rows: int, num_columns: int) -> DataShape:
    return dataclasses.replace(
        make_shape(num_rows), features=(FEATURES * num_columns)[:num_columns]
    )


def stands_out(values: int, num_rows: int, num_columns: int, noise: float) -> bool:
    """The rule itself: what a usual effect moves a sum by, against labels and noise."""
    slope = num_rows / values * 0.1 * 0.9
    return (0.5 * slope) ** 2 >= slope + num_columns * noise**2


@given(
    num_rows=st.integers(1, 300_000),
    num_columns=st.integers(1, 60),
    noise=st.floats(0.05, 50.0),
)
def test_as_many_values_are_told_apart_as_stand_out(
    num_rows: int, num_columns: int, noise: float
) -> None:
    found = telling_values(num_rows, num_columns, noise)
    assert found == 0 or stands_out(found, num_rows, num_columns, noise * (1 - 1e-9))
    assert not stands_out(found + 1, num_rows, num_columns, noise * (1 + 1e-9))


@pytest.mark.parametrize(("num_rows", "num_columns"), [(2_000, 20), (5_000, 39), (10_000, 12)])
def test_the_epsilon_that_is_named_would_do_and_half_of_it_would_not(
    num_rows: int, num_columns: int
) -> None:
    shape, noise = shape_of_columns(num_rows, num_columns), calibrate_gaussian(0.3, DELTA)
    text = warning_of_few(shape, noise, DELTA)
    named = float(text.split("epsilon=")[1].split()[0])

    def is_enough(epsilon: float) -> bool:
        noise = calibrate_gaussian(epsilon, DELTA)
        if "least" in text:
            return not is_hopeless(shape, noise)
        return not warning_of_few(shape, noise, DELTA)

    assert is_enough(named)
    assert not is_enough(named / 2)


def test_many_rows_need_no_warning_and_few_users_of_many_rows_do() -> None:
    many = config(1.0).make(make_shape(100_000))
    assert "few_rows" not in many.privacy.settings
    users = MosaicConfig(unit=UserLevel()).calibrate(epsilon=1.0, delta=DELTA)
    plan = users.make(make_shape(100_000, num_users=2_000))
    assert str(plan.privacy.settings["few_rows"]).startswith("2,000 users of 5 columns are few")


def test_no_epsilon_is_named_where_labels_alone_vary_too_much() -> None:
    text = warning_of_few(shape_of_columns(500, 20), calibrate_gaussian(8.0, DELTA), DELTA)
    assert "no epsilon would do, more rows would" in text


def test_the_warning_survives_a_plan_that_is_read_back() -> None:
    plan = config(1.0).make(make_shape(1_200))
    again = TrainPlan.from_json(plan.to_json())
    text = json.loads(again.privacy.to_json())["settings"]["few_rows"]
    assert "1,200 rows of 5 columns" in text
    assert "method rr" in text


def test_a_hopeless_run_is_refused_before_it_is_charged(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    charge = ReleaseCharge(ledger=ledger, purpose="training")
    options = RunOptions(folder=tmp_path / "run", charge=charge)
    examples = make_examples(200, seed=1)
    with pytest.raises(ConfigError, match=r"200 rows of 5 columns are too few.*allow_constant"):
        fit(examples, config(1.0), options=options)
    assert not (tmp_path / "run").exists()
    assert not ledger.spends("all")


def test_what_is_refused_names_the_least_epsilon() -> None:
    noise = calibrate_gaussian(1.0, DELTA)
    with pytest.raises(ConfigError, match=r"epsilon=1\.2 is the least that could do"):
        check_hope(shape_of_columns(800, 20), noise, DELTA)
    check_hope(shape_of_columns(800, 20), calibrate_gaussian(1.2, DELTA), DELTA)


def test_thirty_rows_with_next_to_no_noise_are_not_refused() -> None:
    """Few labels are no reason: the refusal is about noise that nothing can rise above."""
    check_hope(shape_of_columns(30, 3), calibrate_gaussian(1_000.0, DELTA), DELTA)


@pytest.fixture(scope="module")
def constants() -> list[tuple[float, list[float]]]:
    """Rates of constants of a few hundred rows, and what was left of the budget at each release."""
    found = []
    for seed in range(12):
        left: list[float] = []

        class Noted(NoiseShares):
            def _noisy(
                self, raw: np.ndarray, sensitivity: float, left: list[float] = left
            ) -> np.ndarray:
                left.append(self.left)
                return super()._noisy(raw, sensitivity)

        examples = make_examples(300, seed=1)
        plan = config(0.5, allow_constant=True).make(shape_of(examples, TrainingRows()))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cell_training, "NoiseShares", Noted)
            model = cell_training.train_on_cells(examples, plan, context(seed))
        assert not model.tables
        found.append((1 / (1 + math.exp(-model.heads[0].bias)), left))
    return found


def test_a_constant_spends_all_of_the_budget_on_its_level(
    constants: list[tuple[float, list[float]]],
) -> None:
    for _, left in constants:
        assert len(left) == 2
        assert 0 <= left[-1] < 1e-6


def test_the_level_of_a_constant_has_the_noise_of_the_whole_budget(
    constants: list[tuple[float, list[float]]],
) -> None:
    examples = make_examples(300, seed=1)
    assert examples.labels is not None
    errors = np.array([rate for rate, _ in constants]) - examples.labels.mean()
    whole = calibrate_gaussian(0.5, DELTA) / 300
    # Twelve draws: their mean square is within this factor at 1e-9; the first release alone, which
    # has a twentieth of the budget, would be beyond it.
    assert np.sqrt(np.mean(errors**2)) < 2.3 * whole
    assert whole / math.sqrt(0.05) > 2.3 * whole


def test_the_result_says_that_the_model_is_a_constant(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = RunOptions(seed=0, folder=folder)
    result = fit(make_examples(300), config(0.5, allow_constant=True), options=options)
    assert result.remark.startswith("the model is a constant")
    records = (folder / "records.jsonl").read_text(encoding="utf-8")
    assert "the model is a constant" in records
    assert fit(make_examples(2_000), config(8.0), options=RunOptions(seed=0)).remark == ""


def test_estimators_and_verbs_know_the_same_word() -> None:
    classifier = Classifier(epsilon=1.0, allow_constant=True)
    assert classifier.get_params()["allow_constant"] is True
    chosen = chosen_method("mosaic", epsilon=1, delta=None, unit=None, allow_constant=True)
    assert isinstance(chosen, MosaicConfig)
    assert chosen.allow_constant
    with pytest.raises(ConfigError, match=r"allow_constant=True has no meaning for method rr"):
        chosen_method("rr", epsilon=1, delta=None, unit=None, allow_constant=True)


def test_weak_evidence_is_believed_by_its_probability() -> None:
    cells, _ = simulated(400, 20.0, 0.3, 5.0)
    sure = posterior_changes(cells, 0.0).log_odds
    assert sure.any()
    # Far more evidence than is asked for leaves the changes as they are, bit for bit.
    strong = posterior_changes(cells, 0.0, even_evidence=2.0).log_odds
    assert np.array_equal(np.float32(strong), np.float32(sure))
    ratios = [
        posterior_changes(cells, 0.0, even_evidence=even).log_odds[0] / sure[0]
        for even in (0.0, 1e3, 1e6)
    ]
    assert ratios[0] == pytest.approx(1.0)
    assert 0 < ratios[1] < 1e-9
    assert ratios[2] == pytest.approx(0.0, abs=1e-12)


@given(first=st.floats(0.5, 50.0), second=st.floats(0.5, 50.0), residual=st.floats(-20.0, 20.0))
def test_two_releases_of_one_level_are_averaged_by_their_precision(
    first: float, second: float, residual: float
) -> None:
    slope = 1e4
    found = level_change(residual, second, slope, first)
    precisions = (1 / first**2, 1 / second**2)
    assert found * slope == pytest.approx(residual * precisions[1] / sum(precisions), abs=1e-6)


@pytest.mark.parametrize(("num_rows", "are_few"), [(5_000, True), (400_000, False)])
def test_few_rows_leave_tables_of_several_columns_alone(num_rows: int, are_few: bool) -> None:
    assert few_rows.are_few(num_rows, 0.1, 4.68) is are_few


def stage_rules(*, are_few: bool = True, is_started: bool = True) -> few_rows.StageRules:
    return few_rows.StageRules(CellSettings(), FEATURES, are_few=are_few, is_started=is_started)


def test_where_a_run_continues_on_few_rows_stages_get_their_part_for_each_column() -> None:
    settings, numbers = CellSettings().stages, Counter(feature.role for feature in FEATURES)
    assert numbers["public"] != numbers["sensitive"]
    rules = stage_rules()
    assert rules.part("public_values") == settings.public_values * numbers["public"]
    assert rules.part("sensitive_values") == settings.sensitive_values * numbers["sensitive"]
    for stage in ("public_pairs", "sensitive_pairs", "triples"):
        assert rules.part(stage) == 0


@pytest.mark.parametrize("is_started", [False, True])
def test_many_rows_divide_the_budget_as_settings_say(*, is_started: bool) -> None:
    rules, settings = stage_rules(are_few=False, is_started=is_started), CellSettings()
    for place, stage in ((0, "public_values"), (1, "sensitive_pairs"), (2, "triples")):
        assert rules.part(stage) == getattr(settings.stages, stage)
        most = settings.most_screening_shares[place]
        assert rules.first_look(stage) == (getattr(settings.screening, stage), most)


def test_few_rows_from_scratch_divide_stages_as_settings_say_and_look_long() -> None:
    rules = stage_rules(is_started=False)
    assert rules.part("public_values") == CellSettings().stages.public_values
    fraction, most = rules.first_look("public_values")
    assert fraction > CellSettings().screening.public_values
    assert most > CellSettings().most_screening_shares[0]


def test_a_run_from_scratch_on_few_rows_has_no_such_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[bool] = []

    def first_look(self: few_rows.StageRules, stage: str) -> tuple[float, float]:
        started.append(self.is_started)
        return original(self, stage)

    original = few_rows.StageRules.first_look
    monkeypatch.setattr(few_rows.StageRules, "first_look", first_look)
    examples = make_examples(2_000)
    plan = config(1.0).make(shape_of(examples, TrainingRows()))
    cell_training.train_on_cells(examples, plan, context(0))
    assert started
    assert not any(started)
