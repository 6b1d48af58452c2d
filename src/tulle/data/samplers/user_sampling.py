"""Batches of whole users: each user tosses one coin in every step.

A user who is in brings all rows; their gradients are averaged and clipped
together, so the noise hides a user however many rows there are. Bounding rows
beforehand keeps heavy users from filling the memory, not from being seen.
"""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tulle.data.contribution import checked_unit_ids
from tulle.data.samplers.batch import (
    IntArray,
    SamplingStream,
    WeightArray,
    check_first_step,
    check_noise,
    check_sampling_prob,
)
from tulle.data.samplers.poisson import accounted_prob, sample_rows
from tulle.errors import DataError
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event, PoissonSampled, Repeated
from tulle.privacy.fields import check_count


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserRows:
    """Which rows each user has. Users are numbered in the order of their ids."""

    rows: IntArray
    """All rows, those of a user side by side and in order."""
    starts: IntArray
    """Index at which the rows of each user begin, and at last the number of rows."""

    @property
    def num_users(self) -> int:
        """Users with at least one row."""
        return self.starts.size - 1


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserBatch:
    """The rows of one step by user. Who is in it is secret: never log, save or release it."""

    indices: IntArray
    """Rows, those of a user side by side."""
    segments: IntArray
    """Number of each row's user within the batch: 0, 0, 1, 2, 2, …"""
    weights: WeightArray
    """Weight of each row, 1 / rows of its user: weighted sums over a segment are means."""
    expected_users: float
    """Expected number of users, public and the same in every step: divide by this."""

    @property
    def num_segments(self) -> int:
        """Users in the batch. Secret, and never a divisor."""
        return int(self.segments[-1]) + 1 if self.segments.size else 0

    def __repr__(self) -> str:
        return f"UserBatch(expected_users={self.expected_users})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserSampling:
    """Settings of batches of users. Every field is public information."""

    physical_size: ClassVar[None] = None
    """Batches are as long as they have rows."""

    num_users: int
    sampling_prob: float
    """Probability that one user enters one batch."""
    steps: int
    max_rows_per_user: int
    """Most rows that one user brings; rows are bounded before, see `group_rows`."""

    def __post_init__(self) -> None:
        for name in ("num_users", "steps", "max_rows_per_user"):
            check_count(name, getattr(self, name))
        check_sampling_prob("sampling_prob", self.sampling_prob)

    @property
    def expected_users(self) -> float:
        """Expected users in a batch."""
        return self.sampling_prob * self.num_users

    def event(self, noise: Event) -> Event:
        """What all steps cost a user if each releases `noise`, relative to one user's bound."""
        check_noise(noise)
        step = PoissonSampled(sampling_prob=accounted_prob(self.sampling_prob), event=noise)
        return Repeated(event=step, count=self.steps)

    def batches(
        self, rng: NoiseSource, *, user_rows: UserRows, first_step: int = 0
    ) -> Iterator[UserBatch]:
        """The batches from `first_step` on, from fresh entropy.

        Args:
          rng: Source of the key of the coins. Sensitive: never log or save its state.
          user_rows: Rows of each user, from `group_rows`.
          first_step: Steps that are done already, after an interruption.

        Privacy:
          Unit: user; any adjacency, with a public number of users. Event: `event(noise)`.
          Relies on: each segment is clipped as a whole, batches stay secret, each is
          used in one step, sums are divided by `expected_users`.
        """
        check_first_step(first_step, self.steps)
        self._check_rows(user_rows)
        return self._draw(SamplingStream(rng), user_rows, self.steps - first_step)

    def _draw(
        self, stream: SamplingStream, user_rows: UserRows, num_batches: int
    ) -> Iterator[UserBatch]:
        for _ in range(num_batches):
            users = sample_rows(self.num_users, self.sampling_prob, rng=stream)
            yield batch_of_users(users, user_rows, self.expected_users)

    def _check_rows(self, user_rows: UserRows) -> None:
        if user_rows.num_users != self.num_users:
            raise DataError(
                f"num_users={self.num_users} is not the number of users in user_rows; "
                "set it to user_rows.num_users where the set of users is public."
            )
        if np.diff(user_rows.starts).max() > self.max_rows_per_user:
            raise DataError(
                f"a user has more than max_rows_per_user={self.max_rows_per_user} rows; bound "
                "them first with tulle.data.contribution."
            )


def group_rows(raw_unit_ids: ArrayLike) -> UserRows:
    """Sorts rows by user.

    Args:
      raw_unit_ids: The user of each row, as whole numbers.

    Privacy:
      Releases nothing: the groups are as sensitive as the ids.
    """
    unit_ids = checked_unit_ids(raw_unit_ids)
    if unit_ids.size == 0:
        raise DataError("unit ids are empty; there is nobody to sample.")
    rows = np.argsort(unit_ids, kind="stable")
    ordered = unit_ids[rows]
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    return UserRows(rows=rows, starts=np.append(np.flatnonzero(is_first), rows.size))


def batch_of_users(users: IntArray, user_rows: UserRows, expected_users: float) -> UserBatch:
    """All rows of these users, side by side.

    Args:
      users: Numbers of the users that were drawn.
      user_rows: Rows of every user.
      expected_users: Public divisor of sums over the batch, the same in every step.
    """
    starts = user_rows.starts[users]
    lengths = user_rows.starts[users + 1] - starts
    segments = np.repeat(np.arange(users.size), lengths)
    places = np.arange(segments.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return UserBatch(
        indices=user_rows.rows[np.repeat(starts, lengths) + places],
        segments=segments,
        weights=np.repeat(1 / lengths, lengths).astype(np.float32),
        expected_users=expected_users,
    )
