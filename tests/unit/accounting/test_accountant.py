import dataclasses
import math

import pytest

from golden.card.fixed_card import BOTH, make_plan, promise
from tulle.accounting.accountant import (
    claim_epsilon,
    guarantee,
    privacy_curve,
    unamplified_epsilon,
    verify_plan,
)
from tulle.accounting.event_rules import without_amplification
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import Event, Gaussian, PoissonSampled, RandomizedResponse, Repeated
from tulle.privacy.guarantee import Claim
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency, Unit

NOISE = Gaussian(noise_multiplier=6.0)
REPORT = RandomizedResponse(epsilon=2.0, num_values=3)


def plan_with(event: Event, epsilon: float) -> Plan:
    claimed = promise(epsilon, Unit.user(), BOTH)
    return make_plan(event=event, guarantee=claimed, variants=())


def test_what_the_accountant_says_can_be_claimed() -> None:
    found = guarantee(NOISE, delta=1e-7, unit=Unit.user(), adjacency=Adjacency.REPLACE)
    plan = make_plan(event=NOISE, guarantee=found, variants=())
    assert verify_plan(plan) == (found.epsilon,)


def test_a_smaller_epsilon_is_refused_with_the_right_one() -> None:
    least = claim_epsilon(plan_with(NOISE, 99.0).claims[0])
    verify_plan(plan_with(NOISE, least * (1 - 1e-8)))
    with pytest.raises(ConfigError, match=f"gives only epsilon={least:.6g}"):
        verify_plan(plan_with(NOISE, least * (1 - 1e-5)))


def test_a_variant_that_claims_too_much_is_refused() -> None:
    plan = make_plan()
    first, *others = plan.variants
    small = Claim(guarantee=dataclasses.replace(first.guarantee, epsilon=0.01), event=first.event)
    with pytest.raises(ConfigError, match=r"epsilon=0\.01"):
        verify_plan(dataclasses.replace(plan, variants=(small, *others)))


def test_a_finite_claim_for_an_unprotected_event_is_refused() -> None:
    with pytest.raises(ConfigError, match="epsilon=inf"):
        verify_plan(plan_with(events.NonPrivate(), 100.0))


def test_a_claim_of_nothing_passes() -> None:
    assert verify_plan(plan_with(events.NonPrivate(), math.inf)) == (math.inf,)
    certain = dataclasses.replace(promise(1.0, Unit.user(), BOTH), delta=1.0)
    assert verify_plan(make_plan(guarantee=certain, variants=())) == (math.inf,)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (NOISE, NOISE),
        (PoissonSampled(sampling_prob=0.1, event=NOISE), NOISE),
        (
            PoissonSampled(sampling_prob=0.1, event=NOISE, max_rows_per_unit=3),
            Gaussian(noise_multiplier=2.0),
        ),
        (
            events.TruncatedPoissonSampled(
                sampling_prob=0.1, num_rows=100, max_batch_size=50, event=NOISE, max_rows_per_unit=2
            ),
            Gaussian(noise_multiplier=3.0),
        ),
        (events.FixedSizeSampled(batch_size=5, num_rows=50, event=NOISE), NOISE),
        (events.Shuffled(event=REPORT, num_reports=1000), REPORT),
        (
            events.Composed(
                (REPORT, Repeated(event=PoissonSampled(sampling_prob=0.1, event=NOISE), count=9))
            ),
            events.Composed((REPORT, Repeated(event=NOISE, count=9))),
        ),
        (
            events.Parallel(
                events=(events.Shuffled(event=REPORT, num_reports=9), NOISE), parts_are_public=True
            ),
            events.Parallel(events=(REPORT, NOISE), parts_are_public=True),
        ),
        (
            PoissonSampled(
                sampling_prob=0.1,
                event=events.Composed((NOISE, Repeated(event=NOISE, count=2))),
                max_rows_per_unit=2,
            ),
            events.Composed(
                (
                    Gaussian(noise_multiplier=3.0),
                    Repeated(event=Gaussian(noise_multiplier=3.0), count=2),
                )
            ),
        ),
        (
            PoissonSampled(
                sampling_prob=0.1, event=events.DiscreteLaplace(scale=4.0), max_rows_per_unit=2
            ),
            events.DiscreteLaplace(scale=4.0, max_contribution=2),
        ),
        (
            PoissonSampled(sampling_prob=0.1, event=events.NonPrivate(), max_rows_per_unit=2),
            events.NonPrivate(),
        ),
        (
            events.Grouped(event=PoissonSampled(sampling_prob=0.1, event=NOISE), group_size=3),
            events.Grouped(event=NOISE, group_size=3),
        ),
    ],
)
def test_amplification_is_taken_off_wherever_it_is(event: Event, expected: Event) -> None:
    assert without_amplification(event) == expected


@pytest.mark.parametrize("max_rows", [1, 2, 5])
@pytest.mark.parametrize("adjacency", [Adjacency.REPLACE, Adjacency.ADD_OR_REMOVE])
def test_a_sampling_chance_of_one_amplifies_nothing(max_rows: int, adjacency: Adjacency) -> None:
    sampled = PoissonSampled(sampling_prob=1.0, event=NOISE, max_rows_per_unit=max_rows)
    expected = privacy_curve(sampled, adjacency).epsilon(1e-6)
    found = privacy_curve(without_amplification(sampled), adjacency).epsilon(1e-6)
    assert found == pytest.approx(expected, rel=1e-6)


def test_several_rows_of_a_local_randomizer_have_no_known_form() -> None:
    sampled = PoissonSampled(sampling_prob=0.1, event=REPORT, max_rows_per_unit=2)
    with pytest.raises(UnsupportedEventError, match="max_rows_per_unit=2"):
        without_amplification(sampled)


def test_an_epsilon_that_nobody_can_certify_is_infinite() -> None:
    sampled = PoissonSampled(sampling_prob=0.1, event=REPORT, max_rows_per_unit=2)
    claim = Claim(guarantee=promise(1.0, Unit.user(), BOTH), event=sampled)
    assert unamplified_epsilon(claim) == math.inf
