import dataclasses
import math

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.event_json import event_to_json
from tulle.privacy.events import Composed, Event, Gaussian, Parallel, Repeated

GAUSSIAN = Gaussian(noise_multiplier=1.0)


def test_events_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        GAUSSIAN.noise_multiplier = 0.1  # type: ignore[misc]


@pytest.mark.parametrize("noise", [0.0, -1.0, math.nan, math.inf, -math.inf, True, "1", None])
@pytest.mark.parametrize("cls", [events.Gaussian, events.Laplace])
def test_noise_is_a_positive_number(cls: type[Event], noise: object) -> None:
    with pytest.raises(ConfigError, match="noise_multiplier"):
        cls(noise_multiplier=noise)  # type: ignore[call-arg]


def test_no_noise_points_to_the_unprotected_event() -> None:
    with pytest.raises(ConfigError, match="NonPrivate"):
        Gaussian(noise_multiplier=0.0)


@pytest.mark.parametrize("factor", [0.0, 0.99, 2.01, math.nan, -1.0])
@pytest.mark.parametrize(
    "make",
    [
        lambda f: Gaussian(noise_multiplier=1.0, replace_factor=f),
        lambda f: events.Laplace(noise_multiplier=1.0, replace_factor=f),
        lambda f: events.DiscreteLaplace(scale=1.0, replace_factor=f),
        lambda f: events.DiscreteGaussian(scale=1.0, replace_factor=f),
    ],
)
def test_a_replaced_unit_moves_a_sum_by_one_to_two_contributions(make, factor: float) -> None:
    with pytest.raises(ConfigError, match="replace_factor"):
        make(factor)


@pytest.mark.parametrize("prob", [0.0, -0.1, 1.0001, math.nan, True])
def test_a_sampling_prob_is_above_zero_and_at_most_one(prob: object) -> None:
    with pytest.raises(ConfigError, match="sampling_prob"):
        events.PoissonSampled(sampling_prob=prob, event=GAUSSIAN)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -1, 1.0, 1.5, True, "2", None])
def test_counts_are_whole_and_positive(count: object) -> None:
    with pytest.raises(ConfigError, match="count"):
        Repeated(event=GAUSSIAN, count=count)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_contribution"):
        events.DiscreteLaplace(scale=1.0, max_contribution=count)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="num_reports"):
        events.Shuffled(event=GAUSSIAN, num_reports=count)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_bits", [64, 1500, 40_000])
def test_counts_beyond_64_bits_are_refused_and_not_printed(num_bits: int) -> None:
    count = 2 ** (num_bits - 1)
    for name, make in (
        ("count", lambda: Repeated(event=GAUSSIAN, count=count)),
        ("num_values", lambda: events.RandomizedResponse(epsilon=1.0, num_values=count)),
        ("max_contribution", lambda: events.DiscreteLaplace(scale=1.0, max_contribution=count)),
        ("num_reports", lambda: events.Shuffled(event=GAUSSIAN, num_reports=count)),
        ("group_size", lambda: events.Grouped(event=GAUSSIAN, group_size=count)),
        (
            "max_rows_per_unit",
            lambda: events.PoissonSampled(
                sampling_prob=0.1, event=GAUSSIAN, max_rows_per_unit=count
            ),
        ),
    ):
        with pytest.raises(ConfigError, match=f"^{name} must be <= {2**63 - 1}") as refused:
            make()
        assert len(str(refused.value)) < 200
    assert Repeated(event=GAUSSIAN, count=2**63 - 1).count == 2**63 - 1


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2.0, math.nan])
def test_a_delta_is_below_one(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta"):
        events.EpsilonDelta(epsilon=1.0, delta=delta)
    with pytest.raises(ConfigError, match="delta"):
        events.KeySelection(epsilon=1.0, delta=delta)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: events.RandomizedResponse(epsilon=1.0, num_values=1), "num_values"),
        (lambda: events.SubsetSelection(epsilon=1.0, num_values=3, subset_size=3), "subset_size"),
        (
            lambda: events.FixedSizeSampled(batch_size=11, num_rows=10, event=GAUSSIAN),
            "batch_size",
        ),
        (
            lambda: events.TruncatedPoissonSampled(
                sampling_prob=0.1, num_rows=10, max_batch_size=11, event=GAUSSIAN
            ),
            "max_batch_size",
        ),
        (
            lambda: events.TruncatedPoissonSampled(
                sampling_prob=0.1,
                num_rows=10,
                max_batch_size=5,
                event=GAUSSIAN,
                max_rows_per_unit=11,
            ),
            "max_rows_per_unit",
        ),
        (lambda: Parallel(events=(), parts_are_public=True), "events"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(make, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()


@pytest.mark.parametrize("public", ["no", "false", "", 0, 1, None, 0.5])
def test_whether_parts_are_public_is_true_or_false(public: object) -> None:
    """A text is true in Python: "no" would claim that units cannot move between parts."""
    with pytest.raises(ConfigError, match="parts_are_public"):
        Parallel(events=(GAUSSIAN,), parts_are_public=public)  # type: ignore[arg-type]


@pytest.mark.parametrize("inner", [None, "Gaussian", 1.0, Gaussian, {"kind": "Gaussian"}])
def test_events_hold_events_only(inner: object) -> None:
    with pytest.raises(ConfigError, match="event"):
        Repeated(event=inner, count=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"events\[1\]"):
        Composed((GAUSSIAN, inner))  # type: ignore[arg-type]


def test_lists_become_tuples_so_that_events_stay_hashable() -> None:
    from_list = Composed([GAUSSIAN, GAUSSIAN])  # type: ignore[arg-type]
    assert from_list == Composed((GAUSSIAN, GAUSSIAN))
    assert hash(from_list) == hash(Composed((GAUSSIAN, GAUSSIAN)))


def test_whole_and_numpy_numbers_are_the_same_events() -> None:
    whole, numpy_one = Gaussian(noise_multiplier=1), Gaussian(noise_multiplier=np.float64(1.0))
    assert whole == GAUSSIAN == numpy_one
    assert hash(whole) == hash(GAUSSIAN) == hash(numpy_one)
    assert event_to_json(whole) == event_to_json(GAUSSIAN) == event_to_json(numpy_one)


def test_settings_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        Gaussian(1.0)  # type: ignore[misc]
    with pytest.raises(TypeError):
        Parallel((GAUSSIAN,), True)  # type: ignore[misc]
    with pytest.raises(TypeError):
        Parallel(events=(GAUSSIAN,))  # type: ignore[call-arg]


def test_without_any_part_a_composition_is_no_release() -> None:
    assert Composed() == Composed(())
    assert Composed() != events.NonPrivate()
