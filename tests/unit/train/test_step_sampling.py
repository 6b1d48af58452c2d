import pytest

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserSampling
from tulle.errors import ConfigError
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.method import Accounting
from tulle.train.settings.step_noise import (
    BandedNoise,
    IndependentNoise,
    LatticeNoise,
    SelectedRows,
    StepNoise,
)
from tulle.train.settings.units import ExampleLevel, UnitLevel, UserAccounting, UserLevel
from unit.train.small_data import dp_sgd, make_shape, private_phase

SHAPE = make_shape(4000, num_users=1000)


def test_rows_come_in_truncated_poisson_batches_with_room() -> None:
    sampler = dp_sgd(private_phase=private_phase(batch_size=400)).sampler(SHAPE)
    assert isinstance(sampler, TruncatedPoisson)
    assert (sampler.num_rows, sampler.max_batch_size, sampler.max_rows_per_unit) == (4000, 400, 1)
    assert sampler.headroom_deviations == pytest.approx(6.0)
    assert sampler.steps == round(2.0 * 4000 / sampler.expected_size)


def test_several_rows_of_a_user_are_in_the_event_and_have_more_room() -> None:
    unit = UserLevel(max_rows_per_user=3)
    sampler = dp_sgd(unit=unit).sampler(SHAPE)
    assert isinstance(sampler, TruncatedPoisson)
    assert sampler.max_rows_per_unit == 3
    assert sampler.headroom_deviations > 7.0


def test_group_privacy_draws_rows_as_if_each_were_its_own_unit() -> None:
    unit = UserLevel(max_rows_per_user=3, accounting=UserAccounting.GROUP_PRIVACY)
    sampler = dp_sgd(unit=unit).sampler(SHAPE)
    assert isinstance(sampler, TruncatedPoisson)
    assert sampler.max_rows_per_unit == 1


def test_clipped_users_are_drawn_as_users() -> None:
    unit = UserLevel(max_rows_per_user=3, accounting=UserAccounting.CLIPPED_USERS)
    sampler = dp_sgd(unit=unit).sampler(SHAPE)
    assert sampler == UserSampling(num_users=1000, sampling_prob=0.1, steps=20, max_rows_per_user=3)


def test_clipped_users_need_a_number_of_users() -> None:
    unit = UserLevel(accounting=UserAccounting.CLIPPED_USERS)
    with pytest.raises(ConfigError, match="unit column"):
        dp_sgd(unit=unit).sampler(make_shape(4000))


def test_reproductions_get_the_batches_that_the_papers_account_for() -> None:
    sampler = dp_sgd(accounting=Accounting.PAPER_RDP).sampler(SHAPE)
    assert sampler == Poisson(num_rows=4000, sampling_prob=0.025, steps=80)


def banded(batch_size: int = 100, **changes: object) -> DpSgdConfig:
    noise = BandedNoise(num_bands=8)
    return dp_sgd(private_phase=private_phase(batch_size=batch_size, noise=noise, **changes))


def test_correlated_noise_gets_groups_that_take_turns() -> None:
    sampler = banded().sampler(SHAPE)
    assert sampler == CyclicPoisson(num_rows=4000, sampling_prob=0.025, num_groups=8, steps=80)


def test_batches_of_a_group_are_no_larger_than_it() -> None:
    assert banded(500).sampler(SHAPE).sampling_prob == 1 / 8
    with pytest.raises(ConfigError, match=r"batch_size=501 times num_bands=8 must be <= .* 4000"):
        banded(501).sampler(SHAPE)


def test_there_are_at_least_as_many_steps_as_bands() -> None:
    assert banded(epochs=0.2).sampler(SHAPE).steps == 8
    with pytest.raises(ConfigError, match="num_bands=8 must be <= the number of private steps, 7"):
        banded(epochs=0.175).sampler(SHAPE)


@pytest.mark.parametrize("noise", [LatticeNoise(), SelectedRows()], ids=str)
def test_other_noise_leaves_the_batches_as_they_are(noise: StepNoise) -> None:
    config = dp_sgd(private_phase=private_phase(noise=noise))
    assert config.sampler(SHAPE) == dp_sgd().sampler(SHAPE)


def test_there_is_at_least_one_step() -> None:
    sampler = dp_sgd(private_phase=private_phase(epochs=1e-6)).sampler(SHAPE)
    assert sampler.steps == 1


@pytest.mark.parametrize(
    ("num_rows", "num_users", "unit", "noise", "batch_size"),
    [
        (3_000, None, ExampleLevel(), IndependentNoise(), 750),
        (3, None, ExampleLevel(), IndependentNoise(), 1),
        (65_535, None, ExampleLevel(), IndependentNoise(), 16_383),
        (1_000_000, None, ExampleLevel(), IndependentNoise(), 16_384),
        (3_000, None, ExampleLevel(), BandedNoise(num_bands=5), 150),
        (4_000, 1_000, UserLevel(), IndependentNoise(), 1_000),
        (
            *(4_000, 1_000, UserLevel(accounting=UserAccounting.CLIPPED_USERS)),
            *(IndependentNoise(), 250),
        ),
    ],
)
def test_a_batch_size_that_nobody_chose_fits_the_data(
    num_rows: int, num_users: int | None, unit: UnitLevel, noise: StepNoise, batch_size: int
) -> None:
    config = dp_sgd(private_phase=private_phase(batch_size=None, noise=noise), unit=unit)
    shape = make_shape(num_rows, num_users=num_users)
    chosen = config.fitted_to(shape)
    assert chosen.private_phase.batch_size == batch_size
    assert config.sampler(shape) == chosen.sampler(shape)


def test_a_batch_size_that_was_chosen_is_kept_or_refused() -> None:
    config = dp_sgd(private_phase=private_phase(batch_size=4_000))
    assert config.fitted_to(SHAPE) == config
    with pytest.raises(
        ConfigError, match=r"batch_size=4000 must be <= .* 3000; lower it, or leave"
    ):
        config.sampler(make_shape(3_000))
