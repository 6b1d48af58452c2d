"""Which batches private steps are drawn from: rows or users, and how many steps."""

import dataclasses
from typing import TYPE_CHECKING

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserSampling
from tulle.errors import ConfigError
from tulle.train.configs import Accounting, StepsConfig
from tulle.train.data_shape import DataShape
from tulle.train.phases import PrivatePhase
from tulle.train.step_noise import BandedNoise
from tulle.train.unit_level import UserAccounting, UserLevel

if TYPE_CHECKING:
    from tulle.train.train_plan import StepSampler

_LEAST_BATCHES = 4


def choose_sampler(config: StepsConfig, shape: DataShape) -> "StepSampler":
    """Truncated Poisson batches of rows; whole users if they are clipped as such.

    The papers' accounting covers plain Poisson batches, so reproductions get those. Correlated
    noise needs groups of rows that take turns, as many as it has bands.
    """
    unit, phase = config.unit, config.private_phase
    accounting = unit.accounting if isinstance(unit, UserLevel) else None
    if isinstance(unit, UserLevel) and accounting is UserAccounting.CLIPPED_USERS:
        return _user_sampling(unit, phase, shape)
    num_rows = shape.num_private_rows
    _check_batch_size(phase, num_rows, "training rows")
    if isinstance(phase.noise, BandedNoise):
        return _cyclic(phase, phase.noise.num_bands, num_rows)
    if config.accounting is Accounting.PAPER_RDP:
        return Poisson(
            num_rows=num_rows,
            sampling_prob=phase.batch_size / num_rows,
            steps=_num_steps(phase, num_rows, phase.batch_size),
        )
    one_step = TruncatedPoisson.with_headroom(
        num_rows=num_rows,
        max_batch_size=phase.batch_size,
        steps=1,
        max_rows_per_unit=_rows_in_event(config),
    )
    steps = _num_steps(phase, num_rows, one_step.expected_size)
    return dataclasses.replace(one_step, steps=steps)


def fitting_batch_size(batch_size: int, num_units: int) -> int:
    """A batch size that leaves several batches, where there are few rows or users."""
    return min(batch_size, max(1, num_units // _LEAST_BATCHES))


def _rows_in_event(config: StepsConfig) -> int:
    unit = config.unit
    if isinstance(unit, UserLevel) and unit.accounting is UserAccounting.SEVERAL_ROWS:
        return unit.max_rows_per_user
    return 1


def _cyclic(phase: PrivatePhase, num_bands: int, num_rows: int) -> CyclicPoisson:
    steps = _num_steps(phase, num_rows, phase.batch_size)
    if phase.batch_size * num_bands > num_rows:
        raise ConfigError(
            f"batch_size={phase.batch_size} times num_bands={num_bands} must be <= the number of "
            f"training rows, {num_rows}: each batch comes from one of {num_bands} groups. Lower "
            "one of both."
        )
    if num_bands > steps:
        raise ConfigError(
            f"num_bands={num_bands} must be <= the number of private steps, {steps}: take fewer "
            "bands, smaller batches or more epochs."
        )
    return CyclicPoisson(
        num_rows=num_rows,
        sampling_prob=phase.batch_size / num_rows,
        num_groups=num_bands,
        steps=steps,
    )


def _user_sampling(unit: UserLevel, phase: PrivatePhase, shape: DataShape) -> UserSampling:
    num_users = shape.num_users
    if num_users is None:
        raise ConfigError("num_users=None: clipped users need data with a unit column.")
    _check_batch_size(phase, num_users, "users")
    return UserSampling(
        num_users=num_users,
        sampling_prob=phase.batch_size / num_users,
        steps=_num_steps(phase, num_users, phase.batch_size),
        max_rows_per_user=unit.max_rows_per_user,
    )


def _check_batch_size(phase: PrivatePhase, limit: int, what: str) -> None:
    if phase.batch_size > limit:
        raise ConfigError(
            f"batch_size={phase.batch_size} must be <= the number of {what}, {limit}; lower it."
        )


def _num_steps(phase: PrivatePhase, num_units: int, expected_size: float) -> int:
    return max(1, round(phase.epochs * num_units / expected_size))
