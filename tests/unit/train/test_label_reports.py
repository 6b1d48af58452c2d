"""Randomized labels of training rows: one epsilon each, or one that a user's labels share."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    epsilon_share,
    release_randomized_response,
)
from tulle.mechanisms.thresholds import exponential_bounds
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.events import RandomizedResponse
from tulle.runs.folder import RunFolder
from tulle.train.examples import bound_rows, planned_shape, shape_of
from tulle.train.fitting import fit
from tulle.train.label_training import LabelReports, estimated_rate, with_reports
from tulle.train.run_context import RunOptions
from tulle.train.settings.phases import LabelCorrection
from tulle.train.settings.units import RowChoice, UnitLevel, UserLevel
from unit.train.small_data import label_phase, make_examples, randomized_labels, two_phase

SHARING = UserLevel(max_sharing_labels_per_user=3, choice=RowChoice.FIRST)


def uneven_examples(num_users: int) -> object:
    """Users with 1, 2, 3, 4, 5, 1, 2, ... rows."""
    units = np.repeat(np.arange(num_users), np.arange(num_users) % 5 + 1)
    return dataclasses.replace(make_examples(len(units)), units=units.astype(np.int64))


def test_alone_they_are_the_randomized_response_of_the_mechanisms() -> None:
    examples = make_examples(1000)
    reports = LabelReports(epsilon=0.7)
    config = RandomizedResponseConfig(epsilon=0.7)
    expected = release_randomized_response(
        examples.labels.astype(np.int64), config, rng=SeededNoise(3)
    )
    assert (reports.draw(examples, rng=SeededNoise(3)) == expected).all()
    channel, same = reports.channel(), BinaryChannel.of_response(config)
    assert channel.prob_if_negative == same.prob_if_negative
    assert channel.prob_if_positive == same.prob_if_positive


def worst_ratio(share: float, num_labels: int) -> Fraction:
    """Over all label vectors of a user, all of another, and all reports."""
    channel = RandomizedResponseConfig(epsilon=share).realised_channel()
    vectors = list(itertools.product((0, 1), repeat=num_labels))
    return max(
        math.prod(channel[a][r] / channel[b][r] for a, b, r in zip(*rows, strict=True))
        for rows in itertools.product(vectors, repeat=3)
    )


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.7])
@pytest.mark.parametrize("num_sharing", [1, 2, 3, 4])
def test_a_users_labels_together_cost_no_more_than_the_epsilon_they_share(
    epsilon: float, num_sharing: int
) -> None:
    worst = worst_ratio(epsilon_share(epsilon, num_sharing), num_sharing)
    assert worst <= exponential_bounds(epsilon)[1]
    assert float(worst) == pytest.approx(np.exp(epsilon))
    # Shares of a smaller number, as where the cap of another user is taken, cost more.
    too_much = worst_ratio(epsilon_share(epsilon, max(1, num_sharing - 1)), num_sharing)
    assert too_much > exponential_bounds(epsilon)[1] or num_sharing == 1


@pytest.mark.parametrize("num_sharing", range(1, 50))
def test_shares_never_add_up_to_more(num_sharing: int) -> None:
    for epsilon in (0.1, 1.0, 2.2, 7.3):
        share = Fraction(epsilon_share(epsilon, num_sharing))
        assert Fraction(epsilon) * (1 - Fraction(1, 2**50)) <= num_sharing * share
        assert num_sharing * share <= Fraction(epsilon)


def test_each_row_has_the_chances_of_its_users_number_of_rows() -> None:
    examples = uneven_examples(500)
    rows = bound_rows(examples, randomized_labels(unit=SHARING), bytes(16))
    expected = np.minimum(np.bincount(examples.units), 3)[examples.units[rows.label_rows]]
    assert (rows.labels_sharing == expected).all()
    assert np.bincount(examples.units[rows.label_rows]).max() == 3
    channel = LabelReports(epsilon=2.0, num_sharing=rows.labels_sharing).channel()
    flips = 1 / (1 + np.exp(2.0 / rows.labels_sharing))
    assert channel.prob_if_negative == pytest.approx(flips)
    assert channel.prob_if_positive == pytest.approx(1 - flips)


def test_labels_are_flipped_as_often_as_each_share_says() -> None:
    examples = make_examples(240_000)
    numbers = np.tile([1, 2, 4], 80_000)
    noisy = LabelReports(epsilon=1.5, num_sharing=numbers).draw(examples, rng=SeededNoise(0))
    for number in (1, 2, 4):
        rows = numbers == number
        flips = int((noisy[rows] != examples.labels[rows]).sum())
        flip_prob = 1 / (1 + np.exp(1.5 / number))
        assert binomtest(flips, 80_000, flip_prob).pvalue > 1e-9
        for wrong in (0.95, 1.05):
            assert binomtest(flips, 80_000, wrong * flip_prob).pvalue < 1e-9


def test_the_rate_is_estimated_through_the_channels_of_the_rows() -> None:
    examples = make_examples(200_000)
    drawn = LabelReports(epsilon=1.5, num_sharing=np.tile([1, 2, 4, 5], 50_000))
    noisy = drawn.draw(examples, rng=SeededNoise(1))
    channel = drawn.channel()
    error = float(np.sqrt(channel.mean_variance(0.5).mean() / 200_000))
    assert estimated_rate(noisy, channel) == pytest.approx(examples.labels.mean(), abs=6 * error)
    assert estimated_rate(np.zeros(10, np.uint8), LabelReports(epsilon=1.0).channel()) == 0.001


def test_reports_carry_their_chances_only_if_they_differ() -> None:
    examples = make_examples(4)
    noisy = np.array([0, 1, 1, 0], np.uint8)
    alone = with_reports(examples, noisy, LabelReports(epsilon=1.0).channel())
    assert alone.report_probs is None
    drawn = LabelReports(epsilon=1.0, num_sharing=np.array([1, 1, 2, 2]))
    shared = with_reports(examples, noisy, drawn.channel())
    assert shared.report_probs.shape == (4, 2)
    assert shared.sensitive_features is None
    assert shared.labels.tolist() == [0, 1, 1, 0]
    some = shared.select(np.array([3, 1]))
    assert (some.report_probs == shared.report_probs[[3, 1]]).all()
    # Other labels are of other chances, or of none.
    assert shared.without_sensitive(examples.labels).report_probs is None
    assert shared.without_sensitive(shared.labels).report_probs is shared.report_probs


@pytest.mark.parametrize("choice", [RowChoice.FIRST, RowChoice.RANDOM])
def test_a_plan_charges_one_response_for_labels_that_share(choice: RowChoice) -> None:
    examples = uneven_examples(300)
    unit = UserLevel(max_sharing_labels_per_user=4, choice=choice)
    config = randomized_labels(unit=unit)
    shape = planned_shape(examples, config)
    assert shape == shape_of(examples, bound_rows(examples, config, bytes(16)))
    plan = config.make(shape)
    assert plan.privacy.event == RandomizedResponse(epsilon=3.0)
    assert plan.method.label_epsilon == plan.privacy.guarantee.epsilon == 3.0
    assert [bound.limit for bound in plan.privacy.bounds] == [4]


@pytest.mark.parametrize("correction", [LabelCorrection.FORWARD, LabelCorrection.DEBIASED])
def test_training_on_shared_labels_learns_and_goes_on_with_the_same(
    tmp_path: object, correction: LabelCorrection
) -> None:
    examples, test = uneven_examples(400), make_examples(1000, seed=1)
    is_debiased = correction is LabelCorrection.DEBIASED
    phase = label_phase(correction=correction, weight_rows=is_debiased)
    config = randomized_labels(unit=SHARING, label_phase=phase).calibrate(epsilon=6.0)
    options = RunOptions(folder=tmp_path / "run", seed=1)
    first = fit(examples, config, test=test, options=options)
    assert first.metrics.auc_loss < 0.3
    kept = RunFolder.open(tmp_path / "run").read_array("randomized_labels")
    again = fit(examples, config, test=test, options=dataclasses.replace(options, resume=True))
    assert first.metrics == again.metrics
    assert len(kept) == first.plan.shape.num_label_rows


def test_two_phases_may_share_too() -> None:
    config = two_phase(unit=SHARING)
    result = fit(uneven_examples(200), config, options=RunOptions(seed=0))
    assert (
        RandomizedResponse(epsilon=result.plan.method.label_epsilon)
        in result.plan.privacy.event.events
    )


def test_settings_of_sharing_survive_and_wrong_ones_are_refused() -> None:
    assert settings_from(UnitLevel, plain_data(SHARING), what="unit") == SHARING
    assert "max_sharing_labels_per_user" not in plain_data(UserLevel())
    with pytest.raises(ConfigError, match="two ways"):
        dataclasses.replace(SHARING, max_labels_per_user=2)
    with pytest.raises(ConfigError, match="with replacement"):
        dataclasses.replace(SHARING, choice=RowChoice.WITH_REPLACEMENT)
    with pytest.raises(ConfigError, match="max_sharing_labels_per_user"):
        dataclasses.replace(SHARING, max_sharing_labels_per_user=0)


def test_rows_without_labels_are_refused() -> None:
    unlabelled = dataclasses.replace(make_examples(10), labels=None)
    with pytest.raises(DataError, match="no label column"):
        LabelReports(epsilon=1.0).draw(unlabelled, rng=SeededNoise(0))
