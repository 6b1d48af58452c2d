import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.lab.browser_reports.summary_reports import sent_reports
from tulle.lab.browser_reports.summary_settings import (
    L1_BUDGET,
    Goal,
    KeyContribution,
    KeyLayout,
    SummarySettings,
    TriggerPiece,
    contributions_of,
)
from tulle.privacy.events import DiscreteLaplace

COUNT = Goal(name="count", budget_share=0.5)
VALUE = Goal(name="value", column="value", max_value=1024, budget_share=0.5)


def test_the_published_example_is_scaled_as_published() -> None:
    settings = SummarySettings(goals=(COUNT, VALUE))
    assert settings.scale([1], COUNT).tolist() == [32768]
    assert settings.scale([52], VALUE).tolist() == [1664]
    assert settings.unscale([32768], COUNT).tolist() == [1]
    assert settings.unscale([1664], VALUE).tolist() == [52]


@pytest.mark.parametrize(("epsilon", "stddev"), [(10, 9268), (64, 1448), (1, 92682)])
def test_noise_has_the_known_size(epsilon: float, stddev: float) -> None:
    settings = SummarySettings(epsilon=epsilon)
    assert round(settings.noise.noise_stddev) == stddev
    with mpmath.workdps(40):
        p = mpmath.exp(-mpmath.mpf(epsilon) / L1_BUDGET)
        exact = mpmath.sqrt(2 * p / (1 - p) ** 2)
        assert settings.noise.noise_stddev == pytest.approx(float(exact), rel=1e-12)


def test_half_the_budget_doubles_the_noise_on_a_count() -> None:
    full, half = SummarySettings(epsilon=10), SummarySettings(goals=(COUNT, VALUE), epsilon=10)
    assert full.noise_stddev(full.goals[0]) == pytest.approx(0.1414, abs=1e-4)
    assert half.noise_stddev(COUNT) == pytest.approx(2 * 0.14142, abs=1e-4)


def test_two_clipped_columns_have_the_error_published_for_them() -> None:
    # Unit test of Aksu et al.'s public code: shares 1:3, clips 5 and 5, epsilon 1.
    goals = (
        Goal(name="a", column="a", max_value=5, budget_share=0.25),
        Goal(name="b", column="b", max_value=5, budget_share=0.75),
    )
    settings = SummarySettings(goals=goals, epsilon=1)
    squares = [settings.noise_stddev(goal) ** 2 for goal in goals]
    assert np.sqrt(np.mean(squares)) == pytest.approx(20 * np.sqrt(10 / 9), rel=1e-9)


def test_one_source_costs_epsilon_for_all_keys() -> None:
    event = SummarySettings(epsilon=2).noise.event()
    assert isinstance(event, DiscreteLaplace)
    assert event.max_contribution == L1_BUDGET
    assert Fraction(event.scale) >= Fraction(L1_BUDGET, 2)


@pytest.mark.parametrize("max_conversions", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("num_goals", [1, 2, 3, 7, 20])
def test_as_many_conversions_fit_as_the_budget_is_divided_by(
    max_conversions: int, num_goals: int
) -> None:
    goals = tuple(Goal(name=f"{i}", budget_share=1 / num_goals) for i in range(num_goals))
    settings = SummarySettings(goals=goals, max_conversions_per_source=max_conversions)
    amount = sum(int(settings.scale([1], goal)[0]) for goal in goals)
    # Rounding may lose one step a goal and conversion, and no more.
    assert L1_BUDGET - max_conversions * (num_goals + 1) < amount * max_conversions <= L1_BUDGET
    assert sent_reports([0] * max_conversions, [amount] * max_conversions).all()


def test_values_are_cut_and_rounded_to_the_nearest_step() -> None:
    settings = SummarySettings(goals=(VALUE,))
    steps = settings.scale([0, 1024, 5000, 0.01, 0.02], VALUE)
    assert steps.tolist() == [0, 32768, 32768, 0, 1]


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_values_that_cannot_be_added_up_are_refused_without_being_shown(value: float) -> None:
    with pytest.raises(DataError, match="'value'") as caught:
        SummarySettings(goals=(VALUE,)).scale([3.25, value], VALUE)
    assert str(value) not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epsilon": 0.0}, r"\(0, 64\]"),
        ({"epsilon": 64.5}, r"\(0, 64\]"),
        ({"goals": ()}, "0 goals"),
        ({"goals": tuple(Goal(name=f"{i}", budget_share=0.01) for i in range(21))}, "21 goals"),
        ({"goals": (COUNT, COUNT)}, "different names"),
        ({"goals": (COUNT, Goal(name="b", budget_share=0.6))}, "more than 1"),
        ({"max_reports_per_source": 21}, "<= 20"),
        ({"max_conversions_per_source": 65537}, "less than 1 of 65536"),
        ({"tau": 0.0}, "tau"),
    ],
)
def test_settings_that_the_service_would_refuse_are_refused(
    wrong: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        SummarySettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"by": ()}, "slice by"),
        ({"max_value": 0.0, "column": "v"}, "max_value"),
        ({"max_value": 2.0}, "needs a column"),
        ({"budget_share": 0.0}, "budget_share"),
        ({"budget_share": 1.5}, "budget_share"),
    ],
)
def test_goals_that_measure_nothing_are_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Goal(name="goal", **wrong)  # type: ignore[arg-type]


def test_the_published_example_gives_its_keys_and_values() -> None:
    # The worked example of the API's explainer of aggregate reports.
    source = {"campaignCounts": 0x159, "geoValue": 0x5}
    trigger = [
        TriggerPiece(piece=0x400, source_keys=("campaignCounts",)),
        TriggerPiece(piece=0xA80, source_keys=("geoValue", "someOtherName")),
    ]
    values = {"campaignCounts": 32768, "geoValue": 1664}
    assert contributions_of(source, trigger, values) == (
        KeyContribution(key=0x559, value=32768),
        KeyContribution(key=0xA85, value=1664),
    )


def test_names_without_a_value_and_values_without_a_name_contribute_nothing() -> None:
    assert contributions_of({"a": 1, "b": 2}, [], {"b": 7, "c": 9}) == (
        KeyContribution(key=2, value=7),
    )


def test_all_pieces_of_a_name_are_united() -> None:
    pieces = [TriggerPiece(piece=bit, source_keys=("a",)) for bit in (0b0110, 0b1100)]
    (made,) = contributions_of({"a": 0b0001}, pieces, {"a": 1})
    assert made.key == 0b1111


def test_a_piece_has_as_many_bits_as_a_key() -> None:
    assert TriggerPiece(piece=2**128 - 1, source_keys=()).piece == 2**128 - 1
    with pytest.raises(ConfigError, match="128 bits"):
        TriggerPiece(piece=2**128, source_keys=())


@pytest.mark.parametrize("value", [0, 65537, -1])
def test_a_value_outside_the_budget_is_refused(value: int) -> None:
    with pytest.raises(ConfigError, match="value of 'a'"):
        contributions_of({"a": 1}, [], {"a": value})


def test_the_twenty_first_contribution_is_refused() -> None:
    names = [f"k{place}" for place in range(21)]
    values = dict.fromkeys(names, 1)
    assert len(contributions_of(dict.fromkeys(names[:20], 1), [], values)) == 20
    with pytest.raises(ConfigError, match="21 contributions"):
        contributions_of(dict.fromkeys(names, 1), [], values)


def test_every_combination_of_fields_has_its_own_key_whichever_side_sets_it() -> None:
    sizes = {"goal": 3, "campaign": 5, "geo": 1, "type": 4}
    layout = KeyLayout(field_sizes=sizes)
    keys = set()
    for goal, campaign, kind in itertools.product(range(3), range(5), range(4)):
        source = layout.piece({"campaign": campaign, "geo": 0})
        trigger = layout.piece({"goal": goal, "type": kind})
        assert source & trigger == 0
        keys.add(source | trigger)
    assert len(keys) == 3 * 5 * 4
    assert max(keys) < 2**layout.num_bits


def test_fields_beyond_128_bits_are_refused() -> None:
    assert KeyLayout(field_sizes={"a": 2**100, "b": 2**28}).num_bits == 128
    with pytest.raises(ConfigError, match="129 bits"):
        KeyLayout(field_sizes={"a": 2**100, "b": 2**28 + 1})


def test_a_code_that_its_field_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 3 values"):
        KeyLayout(field_sizes={"a": 3}).piece({"a": 3})
