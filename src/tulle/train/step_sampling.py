"""Which batches private steps are drawn from: rows or users, and how many steps."""

import dataclasses
from typing import TYPE_CHECKING, TypeGuard

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserSampling
from tulle.errors import ConfigError
from tulle.privacy.cut_batches import CUT_SHARE_OF_DELTA
from tulle.train.settings.phases import PrivatePhase
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.settings.units import DataShape, UnitLevel, UserAccounting, UserLevel

if TYPE_CHECKING:
    from tulle.train.methods.method import Target

_USUAL_BATCH_SIZE = 16384
"""Expected batch size where none is chosen and rows are many."""
_LEAST_CUT_PROB = 1e-30
"""Smallest probability that a batch is cut. Where delta is smaller still, more room in a batch
would not be noticed."""
_LEAST_BATCHES = 4
"""Number of batches that would hold all rows where rows are few: a plan then chooses a fourth of
the rows as its batch size."""


def choose_sampler(
    unit: UnitLevel | None,
    phase: PrivatePhase,
    shape: DataShape,
    *,
    target: "Target | None" = None,
    is_paper: bool = False,
) -> StepSampler:
    """Truncated Poisson batches of rows; whole users if they are clipped as such.

    Correlated noise needs groups of rows that take turns, as many as it has bands.

    Args:
      unit: Whom the run protects.
      phase: Batch size, epochs and noise of the private steps.
      shape: Numbers of rows and users.
      target: Target whose delta bounds the probability that batches are cut; None for the default.
      is_paper: The papers' accounting covers plain Poisson batches, so reproductions get those.
    """
    batch_size = chosen_batch_size(unit, phase, shape)
    if _are_users_clipped(unit):
        return _user_sampling(unit, phase, batch_size, shape)
    num_rows = shape.num_private_rows
    _check_batch_size(batch_size, num_rows, "training rows")
    if phase.noise.num_groups is not None:
        return _cyclic(phase, batch_size, phase.noise.num_groups, num_rows)
    if is_paper:
        return Poisson(
            num_rows=num_rows,
            sampling_prob=batch_size / num_rows,
            steps=_num_steps(phase, num_rows, batch_size),
        )
    return _truncated(unit, phase, batch_size, num_rows, max_cut_prob=_most_cut_prob(unit, target))


def chosen_batch_size(unit: UnitLevel | None, phase: PrivatePhase, shape: DataShape) -> int:
    """The batch size of the settings, or else the usual one, less where rows or users are few.

    Args:
      unit: What is protected together; None for single rows.
      phase: Settings of the private steps, whose batch size may be None.
      shape: Numbers of rows and users.
    """
    if phase.batch_size is not None:
        return phase.batch_size
    num_units = (shape.num_users or 1) if _are_users_clipped(unit) else shape.num_private_rows
    num_units //= phase.noise.num_groups or 1
    return fitting_batch_size(_USUAL_BATCH_SIZE, num_units)


def fitting_batch_size(batch_size: int, num_units: int) -> int:
    """A batch size that leaves several batches, where there are few rows or users."""
    return min(batch_size, max(1, num_units // _LEAST_BATCHES))


def _are_users_clipped(unit: UnitLevel | None) -> TypeGuard[UserLevel]:
    return isinstance(unit, UserLevel) and unit.accounting is UserAccounting.CLIPPED_USERS


def _rows_in_event(unit: UnitLevel | None) -> int:
    if isinstance(unit, UserLevel) and unit.accounting is UserAccounting.SEVERAL_ROWS:
        return unit.max_rows_per_user
    return 1


def _truncated(
    unit: UnitLevel | None,
    phase: PrivatePhase,
    batch_size: int,
    num_rows: int,
    *,
    max_cut_prob: float | None,
) -> TruncatedPoisson:
    """Batches with room enough for the number of steps, which grows as they hold less."""
    max_rows, steps = _rows_in_event(unit), 1
    if batch_size < max_rows:
        raise ConfigError(
            f"batch_size={batch_size} must be >= max_rows_per_user={max_rows}, and should be much "
            "larger; raise it, or bound users to fewer rows."
        )
    while True:
        sampler = TruncatedPoisson.with_headroom(
            num_rows=num_rows,
            max_batch_size=batch_size,
            steps=steps,
            max_rows_per_unit=max_rows,
            max_cut_prob=max_cut_prob,
        )
        if max_rows > 1 and sampler.expected_size < 1:
            raise ConfigError(
                f"batch_size={batch_size} leaves room for less than one row beside the "
                f"max_rows_per_user={max_rows} of one user; raise it to {8 * max_rows + 32} or "
                "more, or bound users to fewer rows."
            )
        needed = _num_steps(phase, num_rows, sampler.expected_size)
        if needed <= steps:
            return dataclasses.replace(sampler, steps=needed)
        steps = needed


def _most_cut_prob(unit: UnitLevel | None, target: "Target | None") -> float | None:
    """Largest probability that a batch of the run is cut, where users have several rows.

    A cut batch is then accounted without amplification, or by group privacy, which asks less
    delta of a single row than the user has.
    """
    if not isinstance(unit, UserLevel) or unit.max_rows_per_user == 1 or target is None:
        return None
    # A delta of zero is refused by name when noise is looked for.
    return max(CUT_SHARE_OF_DELTA * target.delta, _LEAST_CUT_PROB)


def _cyclic(phase: PrivatePhase, batch_size: int, num_bands: int, num_rows: int) -> CyclicPoisson:
    steps = _num_steps(phase, num_rows, batch_size)
    if batch_size * num_bands > num_rows:
        raise ConfigError(
            f"batch_size={batch_size} times num_bands={num_bands} must be <= the number of "
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
        sampling_prob=batch_size / num_rows,
        num_groups=num_bands,
        steps=steps,
    )


def _user_sampling(
    unit: UserLevel, phase: PrivatePhase, batch_size: int, shape: DataShape
) -> UserSampling:
    num_users = shape.num_users
    if num_users is None:
        raise ConfigError("num_users=None: clipped users need data with a unit column.")
    _check_batch_size(batch_size, num_users, "users")
    return UserSampling(
        num_users=num_users,
        sampling_prob=batch_size / num_users,
        steps=_num_steps(phase, num_users, batch_size),
        max_rows_per_user=unit.max_rows_per_user,
    )


def _check_batch_size(batch_size: int, limit: int, what: str) -> None:
    if batch_size > limit:
        raise ConfigError(
            f"batch_size={batch_size} must be <= the number of {what}, {limit}; lower it, or "
            "leave it out."
        )


def _num_steps(phase: PrivatePhase, num_units: int, expected_size: float) -> int:
    return max(1, round(phase.epochs * num_units / expected_size))
