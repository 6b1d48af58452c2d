import dataclasses

import pytest

from tulle.accounting.accountant import calibrate_noise, pld_epsilon, verify_plan
from tulle.accounting.sampling import MOST_ROWS_PER_UNIT
from tulle.errors import ConfigError
from tulle.privacy.events import (
    Composed,
    EpsilonDelta,
    Event,
    Gaussian,
    Grouped,
    NonPrivate,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    TruncatedPoissonSampled,
)
from tulle.privacy.units import Adjacency, Owner, Scope
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.hybrid import HybridConfig
from tulle.train.methods.method import Accounting, Method
from tulle.train.methods.private_steps import StepsMethod
from tulle.train.methods.randomized_labels import RandomizedLabelsConfig
from tulle.train.methods.train_plan import make_train_plan
from tulle.train.settings.phases import ExplicitSplit, PrivatePhase, RatioSplit
from tulle.train.settings.units import (
    MOST_ROWS_PER_USER,
    ExampleLevel,
    RowChoice,
    UserAccounting,
    UserLevel,
)
from unit.train.small_data import (
    FEATURES,
    dp_sgd,
    label_projection,
    make_shape,
    nonprivate,
    private_phase,
    randomized_labels,
    two_phase,
)

SHAPE = make_shape(400, num_users=200)
VOCABULARY = Gaussian(noise_multiplier=4.0)


def room_for(expected_size: int, deviations: float = 6) -> int:
    """The batch size whose expected batch is `expected_size`."""
    return round(expected_size + deviations * expected_size**0.5)


def searched(config: StepsMethod, **changes: object) -> StepsMethod:
    """The same config with its noise left to find."""
    phase = private_phase(noise_multiplier=None)
    return dataclasses.replace(config, private_phase=phase, **changes)


@pytest.mark.parametrize(
    ("num_rows", "epochs", "epsilon", "steps", "joint_noise"),
    [
        # Joint replace composition of labels and steps at delta 1e-7, batches of 16384 rows.
        pytest.param(
            *(36_000_000, 1, 3.0, 2197, 0.6636),
            marks=pytest.mark.long("the noise of a run of the paper's size"),
        ),
        (12_800_000, 1, 1.0, 781, 0.9457),
    ],
)
def test_two_phases_get_the_noise_of_joint_composition(
    num_rows: int, epochs: int, epsilon: float, steps: int, joint_noise: float
) -> None:
    phase = PrivatePhase(epochs=epochs, batch_size=room_for(16384))
    config = HybridConfig(private_phase=phase, unit=ExampleLevel())
    config = config.calibrate(epsilon=epsilon, delta=1e-7)
    plan = make_train_plan(config, make_shape(num_rows))

    def event(noise: float) -> Event:
        assert plan.sampler is not None
        labels = RandomizedResponse(epsilon=min(0.6 * epsilon, 3))
        return Composed((labels, plan.sampler.event(Gaussian(noise_multiplier=noise))))

    least = calibrate_noise(event, epsilon=epsilon, delta=1e-7, adjacency=Adjacency.REPLACE)
    assert plan.num_private_steps == steps
    assert plan.noise_multiplier == pytest.approx(least, rel=3e-4)
    assert plan.noise_multiplier == pytest.approx(joint_noise, rel=0.01)


PRIVATE_CONFIGS: dict[str, Method] = {
    "two-phase": searched(two_phase()),
    "two-phase with given noise": two_phase(),
    "two-phase by ratio": searched(two_phase(split=RatioSplit(label_share=0.25))),
    "two-phase, all to labels": two_phase(split=RatioSplit(label_share=1.0)),
    "two-phase, none to labels": searched(two_phase(split=RatioSplit(label_share=0.0))),
    "rr": randomized_labels(),
    "rr of users": randomized_labels(unit=UserLevel(max_labels_per_user=3)),
    "dp-sgd": searched(dp_sgd()),
    "label projection": searched(label_projection()),
    "label projection with given noise": label_projection(),
    "label projection of users": searched(label_projection(unit=UserLevel(max_rows_per_user=2))),
    "as the papers": searched(two_phase(accounting=Accounting.PAPER_RDP)),
    "as the papers, all to labels": two_phase(
        accounting=Accounting.PAPER_RDP, split=RatioSplit(label_share=1.0)
    ),
    "as the papers, users": searched(
        dp_sgd(
            accounting=Accounting.PAPER_RDP,
            unit=UserLevel(max_rows_per_user=2, accounting=UserAccounting.GROUP_PRIVACY),
        )
    ),
    **{
        f"two-phase, {accounting.value}": searched(
            two_phase(
                unit=UserLevel(max_rows_per_user=2, max_labels_per_user=2, accounting=accounting)
            )
        )
        for accounting in UserAccounting
    },
}


@pytest.mark.parametrize("name", PRIVATE_CONFIGS)
def test_every_plan_claims_its_target_and_no_more_than_its_event_gives(name: str) -> None:
    config = PRIVATE_CONFIGS[name]
    plan = make_train_plan(config, SHAPE)
    spent = verify_plan(plan.privacy)
    assert config.target is not None
    guarantee = plan.privacy.guarantee
    if "given noise" in name:
        assert guarantee.epsilon == pytest.approx(spent[0], rel=1e-9)
    else:
        assert guarantee.epsilon == config.target.epsilon
        # Not much more noise than needed either; the papers' Renyi account is wasteful.
        assert spent[0] >= guarantee.epsilon * (0.8 if "papers" in name else 0.999)
    assert guarantee.delta == (config.target.delta if plan.sampler else 0.0)
    assert (guarantee.unit.owner is Owner.USER) == isinstance(config.unit, UserLevel)


def test_sensitive_columns_cost_the_private_steps_alone() -> None:
    plan = make_train_plan(two_phase(), SHAPE)
    assert plan.sampler is not None
    assert plan.noise_multiplier is not None
    (claim,) = plan.privacy.variants
    steps = plan.sampler.event(Gaussian(noise_multiplier=plan.noise_multiplier))
    alone = pld_epsilon(steps, 1e-5, Adjacency.REPLACE)
    assert claim.guarantee.scope is Scope.SENSITIVE_COLUMNS
    assert claim.guarantee.epsilon == pytest.approx(alone, rel=1e-9)
    assert claim.guarantee.epsilon < plan.privacy.guarantee.epsilon - 1
    assert claim.event == steps


def test_labels_of_two_phases_get_their_share_and_the_event_holds_both_phases() -> None:
    plan = make_train_plan(two_phase(), SHAPE)
    assert plan.method.label_epsilon == pytest.approx(3.0)
    assert isinstance(plan.privacy.event, Composed)
    labels, steps = plan.privacy.event.events
    assert labels == RandomizedResponse(epsilon=3.0)
    assert isinstance(steps, Repeated)
    assert steps.count == plan.num_private_steps


def test_labels_of_a_user_share_the_epsilon_of_labels() -> None:
    unit = UserLevel(max_labels_per_user=3)
    plan = make_train_plan(randomized_labels(unit=unit), SHAPE)
    assert plan.method.label_epsilon == pytest.approx(1.0)
    assert plan.privacy.event == Repeated(event=RandomizedResponse(epsilon=1.0), count=3)


def test_randomized_labels_need_no_delta_and_ignore_sensitive_columns() -> None:
    config = RandomizedLabelsConfig(unit=ExampleLevel()).calibrate(epsilon=2.0, delta=1e-3)
    plan = make_train_plan(config, SHAPE)
    assert plan.privacy.guarantee.delta == 0
    assert plan.privacy.guarantee.scope is Scope.LABELS
    assert plan.privacy.columns.sensitive == ()
    assert set(plan.privacy.columns.ignored) >= {"age", "visits"}
    assert (plan.sampler, plan.noise_multiplier, plan.reads_sensitive) == (None, None, False)
    assert plan.privacy.event == RandomizedResponse(epsilon=2.0)


def test_dp_sgd_spends_everything_on_steps() -> None:
    config = searched(dp_sgd())
    plan = make_train_plan(config, SHAPE)

    def event(noise: float) -> Event:
        assert plan.sampler is not None
        return plan.sampler.event(Gaussian(noise_multiplier=noise))

    least = calibrate_noise(event, epsilon=5.0, delta=1e-5, adjacency=Adjacency.REPLACE)
    assert plan.noise_multiplier == pytest.approx(least, rel=1e-9)
    assert plan.method.label_epsilon is None
    assert plan.privacy.variants == ()
    assert plan.privacy.guarantee.scope is Scope.LABELS_AND_SENSITIVE_COLUMNS


def test_given_noise_decides_epsilon() -> None:
    quiet, loud = (
        make_train_plan(dp_sgd(private_phase=private_phase(noise_multiplier=noise)), SHAPE)
        for noise in (0.8, 3.0)
    )
    assert (quiet.noise_multiplier, loud.noise_multiplier) == (0.8, 3.0)
    assert loud.privacy.guarantee.epsilon < 5.0 < quiet.privacy.guarantee.epsilon


def test_a_baseline_promises_nothing() -> None:
    plan = make_train_plan(nonprivate(), SHAPE)
    assert plan.privacy.event == NonPrivate()
    assert not plan.privacy.is_private


def test_the_papers_account_says_add_or_remove_and_shows_what_replace_costs() -> None:
    plan = make_train_plan(searched(two_phase(accounting=Accounting.PAPER_RDP)), SHAPE)
    columns_alone, replaced = plan.privacy.variants
    headline = plan.privacy.guarantee
    assert headline.adjacency is Adjacency.ADD_OR_REMOVE
    assert columns_alone.guarantee.scope is Scope.SENSITIVE_COLUMNS
    assert replaced.guarantee.adjacency is Adjacency.REPLACE
    assert replaced.guarantee.epsilon > headline.epsilon
    sound = make_train_plan(searched(two_phase()), SHAPE)
    assert sound.privacy.guarantee.adjacency is Adjacency.REPLACE


def test_epsilon_so_far_rises_to_the_headline() -> None:
    plan = make_train_plan(two_phase(private_phase=private_phase(noise_multiplier=1.0)), SHAPE)
    marks = [step for step, _ in plan.epsilon_milestones]
    so_far = [plan.epsilon_by(step) for step in range(plan.num_private_steps + 1)]
    assert marks[-1] == plan.num_private_steps
    assert so_far == sorted(so_far)
    assert so_far[0] < so_far[-1] == plan.privacy.guarantee.epsilon
    # Halfway through, the steps so far are accounted exactly.
    mark, epsilon = plan.epsilon_milestones[3]
    assert plan.sampler is not None
    half = dataclasses.replace(plan.sampler, steps=mark).event(Gaussian(noise_multiplier=1.0))
    event = Composed((RandomizedResponse(epsilon=3.0), half))
    assert epsilon == pytest.approx(pld_epsilon(event, 1e-5, Adjacency.REPLACE), rel=1e-9)


@pytest.mark.parametrize(
    ("accounting", "max_rows", "epsilon", "tolerance"),
    [
        # At sampling chance 1e-3, noise 1, 1000 steps, delta 1e-6, under replace.
        (UserAccounting.SEVERAL_ROWS, 2, 0.5702, 0.005),
        (UserAccounting.SEVERAL_ROWS, 5, 1.5282, 0.005),
        (UserAccounting.GROUP_PRIVACY, 2, 0.573, 0.01),
        (UserAccounting.GROUP_PRIVACY, 5, 1.564, 0.01),
        (UserAccounting.CLIPPED_USERS, 5, 0.2713, 0.005),
    ],
)
def test_users_cost_what_the_reference_table_says(
    accounting: UserAccounting, max_rows: int, epsilon: float, tolerance: float
) -> None:
    deviations = {
        UserAccounting.SEVERAL_ROWS: 7,
        UserAccounting.GROUP_PRIVACY: 6 * 1.04**4,  # more room than for one row
        UserAccounting.CLIPPED_USERS: 0,
    }
    batch_size = room_for(10_000, deviations[accounting])
    phase = PrivatePhase(epochs=1.0, batch_size=batch_size, noise_multiplier=1.0)
    unit = UserLevel(max_rows_per_user=max_rows, accounting=accounting)
    config = DpSgdConfig(private_phase=phase, unit=unit).calibrate(epsilon=1.0, delta=1e-6)
    plan = make_train_plan(config, make_shape(10_000_000, num_users=10_000_000))
    assert plan.num_private_steps == 1000
    assert plan.privacy.guarantee.epsilon == pytest.approx(epsilon, rel=tolerance)


@pytest.mark.parametrize("batch_size", [24, 64, 256, None])
@pytest.mark.parametrize(("max_rows", "delta"), [(2, 1e-9), (5, 1e-6)])
@pytest.mark.parametrize("accounting", [UserAccounting.SEVERAL_ROWS, UserAccounting.GROUP_PRIVACY])
def test_cut_batches_cost_users_with_several_rows_next_to_nothing(
    accounting: UserAccounting, max_rows: int, delta: float, batch_size: int | None
) -> None:
    """With seven deviations of room and small batches it was up to twenty times as much."""
    shape = make_shape(20_000, num_users=9_000)
    unit = UserLevel(max_rows_per_user=max_rows, accounting=accounting)
    phase = PrivatePhase(epochs=2.0, batch_size=batch_size, noise_multiplier=0.9 * max_rows)
    config = DpSgdConfig(private_phase=phase, unit=unit).calibrate(epsilon=3.0, delta=delta)
    plan = make_train_plan(config, shape)
    least = pld_epsilon(never_cut(plan.privacy.event), delta, Adjacency.REPLACE)
    assert least * (1 - 1e-6) <= plan.privacy.guarantee.epsilon <= 1.02 * least


def never_cut(event: Event) -> Event:
    """The same steps without a largest batch."""
    if isinstance(event, TruncatedPoissonSampled):
        return PoissonSampled(
            sampling_prob=event.sampling_prob,
            event=event.event,
            max_rows_per_unit=event.max_rows_per_unit,
        )
    assert isinstance(event, Repeated | Grouped)
    return dataclasses.replace(event, event=never_cut(event.event))


def test_a_batch_without_room_for_a_user_is_refused_with_one_that_has() -> None:
    unit = UserLevel(max_rows_per_user=5)
    for batch_size, match in ((4, "must be >= max_rows_per_user=5"), (6, "raise it to 72")):
        phase = private_phase(batch_size=batch_size, noise_multiplier=4.0)
        with pytest.raises(ConfigError, match=rf"batch_size={batch_size} .*{match}"):
            make_train_plan(dp_sgd(private_phase=phase, unit=unit), SHAPE)
    roomy = private_phase(batch_size=72, noise_multiplier=4.0)
    plan = make_train_plan(dp_sgd(private_phase=roomy, unit=unit), SHAPE)
    assert plan.sampler is not None
    assert plan.sampler.expected_size > 1


def test_vocabularies_are_in_the_event_and_leave_less_for_the_steps() -> None:
    config = searched(two_phase())
    shape = dataclasses.replace(SHAPE, vocabulary_event=VOCABULARY)
    bare, paid = make_train_plan(config, SHAPE), make_train_plan(config, shape)
    assert isinstance(paid.privacy.event, Composed)
    assert VOCABULARY in paid.privacy.event.events
    assert bare.noise_multiplier is not None
    assert paid.noise_multiplier is not None
    assert paid.noise_multiplier > bare.noise_multiplier * 1.01
    assert paid.privacy.guarantee == bare.privacy.guarantee
    (alone,) = paid.privacy.variants
    assert isinstance(alone.event, Composed)
    assert VOCABULARY in alone.event.events
    verify_plan(paid.privacy)


def test_randomized_labels_do_not_look_at_vocabularies_of_sensitive_columns() -> None:
    shape = dataclasses.replace(SHAPE, vocabulary_event=VOCABULARY)
    plan = make_train_plan(randomized_labels(), shape)
    assert plan.privacy.event == RandomizedResponse(epsilon=3.0)


def refused(config: Method, message: str, shape: object = SHAPE) -> None:
    with pytest.raises(ConfigError, match=message):
        make_train_plan(config, shape)  # type: ignore[arg-type]


def test_vocabularies_paid_for_examples_are_refused_for_users() -> None:
    shape = dataclasses.replace(SHAPE, vocabulary_event=VOCABULARY)
    refused(two_phase(unit=UserLevel()), "one example, not for one user", shape)


def test_a_target_that_labels_and_vocabularies_use_up_is_refused() -> None:
    shape = dataclasses.replace(SHAPE, vocabulary_event=Gaussian(noise_multiplier=0.5))
    refused(searched(two_phase()), "leaves nothing for private steps", shape)


def test_vocabularies_that_need_more_delta_name_it_as_the_way_out() -> None:
    event = EpsilonDelta(epsilon=0.1, delta=1e-4)
    shape = dataclasses.replace(SHAPE, vocabulary_event=event)
    for config in (searched(two_phase()), searched(dp_sgd())):
        refused(
            config, r"vocabularies alone need delta > 0.0001; raise delta, or .* smaller", shape
        )
    enough = searched(dp_sgd()).calibrate(epsilon=5.0, delta=1e-3)
    assert make_train_plan(enough, shape).privacy.guarantee.delta == 1e-3


def test_users_with_many_rows_get_noise_that_meets_the_target() -> None:
    phase = private_phase(noise_multiplier=None, epochs=1.0, batch_size=4000)
    config = dp_sgd(private_phase=phase, unit=UserLevel(max_rows_per_user=100))
    shape = make_shape(20_000, num_users=200)
    plan = make_train_plan(config, shape)
    assert plan.sampler is not None
    spent = pld_epsilon(plan.privacy.event, 1e-5, Adjacency.REPLACE)
    assert 0.999 * 5.0 < spent <= 5.0
    marks = [step for step, _ in plan.epsilon_milestones]
    assert len(marks) == 4
    assert marks[-1] == plan.num_private_steps


def test_more_rows_of_a_user_than_can_be_accounted_are_refused() -> None:
    assert MOST_ROWS_PER_USER == MOST_ROWS_PER_UNIT
    most = UserLevel(max_rows_per_user=MOST_ROWS_PER_USER)
    for changes in (
        {},
        {"choice": RowChoice.RANDOM},
        {"accounting": UserAccounting.CLIPPED_USERS},
    ):
        with pytest.raises(ConfigError, match=r"max_rows_per_user=10001 must be <= 10000"):
            dataclasses.replace(most, max_rows_per_user=MOST_ROWS_PER_USER + 1, **changes)
    clipped = UserLevel(
        max_rows_per_user=10**6,
        accounting=UserAccounting.CLIPPED_USERS,
        choice=RowChoice.RANDOM,
    )
    plan = make_train_plan(searched(dp_sgd(unit=clipped)), SHAPE)
    assert plan.privacy.guarantee.epsilon == 5.0


def test_a_share_of_labels_above_epsilon_is_refused() -> None:
    refused(two_phase(split=ExplicitSplit(epsilon_of_labels=6.0)), "must be <= epsilon=5.0")


def test_delta_zero_is_refused_for_private_steps() -> None:
    refused(searched(two_phase()).calibrate(epsilon=3.0, delta=0.0), "delta=0.0 is out of reach")
    refused(dp_sgd().calibrate(epsilon=3.0, delta=0.0), "delta=0.0 is out of reach")


@pytest.mark.parametrize("config", [two_phase(), dp_sgd(), randomized_labels()])
def test_a_config_without_a_target_makes_no_plan(config: Method) -> None:
    refused(dataclasses.replace(config, target=None), "has no target; call calibrate")


@pytest.mark.parametrize("config", [two_phase(), randomized_labels()])
def test_labels_alone_need_public_features(config: Method) -> None:
    refused(
        config,
        "there are none; use MosaicConfig or DpSgdConfig",
        dataclasses.replace(SHAPE, features=FEATURES[3:]),
    )


@pytest.mark.parametrize("accounting", Accounting)
def test_a_batch_above_the_data_is_refused(accounting: Accounting) -> None:
    phase = private_phase(noise_multiplier=1.0, batch_size=401)
    refused(dp_sgd(private_phase=phase, accounting=accounting), "batch_size=401 must be <=.*400")


def test_a_batch_above_the_users_is_refused() -> None:
    unit = UserLevel(max_rows_per_user=2, accounting=UserAccounting.CLIPPED_USERS)
    phase = private_phase(noise_multiplier=1.0, batch_size=201)
    refused(dp_sgd(private_phase=phase, unit=unit), "batch_size=201 must be <= .*users, 200")


def test_users_need_a_unit_column() -> None:
    refused(two_phase(unit=UserLevel()), "needs data with a unit column", make_shape(400))


def test_the_papers_account_for_users_by_group_privacy_alone() -> None:
    config = two_phase(unit=UserLevel(), accounting=Accounting.PAPER_RDP)
    refused(config, "set accounting=UserAccounting.GROUP_PRIVACY")


def test_a_delta_that_would_allow_to_publish_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"delta=0\.5 must be from 0 to 0\.01"):
        dp_sgd().calibrate(epsilon=3.0, delta=0.5)
