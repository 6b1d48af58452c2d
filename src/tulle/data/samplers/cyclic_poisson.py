"""Poisson batches from one group of rows at a time, for correlated noise.

Rows are in b groups; step t samples from group t mod b, with b times the probability.
So a row can take part in every b-th step only. If the noise of a step is
correlated with fewer than b later ones (a matrix with b bands), the steps of one
row touch separate parts of the noise.
"""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from tulle.data.samplers.batch import (
    Batch,
    SamplingStream,
    check_at_most,
    check_first_step,
    check_noise,
    check_sampling_prob,
    unpadded_batch,
)
from tulle.data.samplers.poisson import accounted_prob, sample_rows
from tulle.data.samplers.shuffled import RowGroups
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event, FixedSizeSampled, PoissonSampled, Repeated
from tulle.privacy.fields import check_count


@dataclasses.dataclass(frozen=True, kw_only=True)
class CyclicPoisson:
    """Settings of cyclic Poisson batches. Every field is public information.

    A unit owns one row: several could be in several groups.
    """

    physical_size: ClassVar[None] = None
    """Batches are as long as they have rows."""

    num_rows: int
    sampling_prob: float
    """Expected batch size over `num_rows`; within its group a row has num_groups times this."""
    num_groups: int
    steps: int
    group_seed: int = 0
    """Seed that picks the groups. They are public: a run must keep them when it goes on."""

    def __post_init__(self) -> None:
        for name in ("num_rows", "num_groups", "steps"):
            check_count(name, getattr(self, name))
        check_count("group_seed", self.group_seed, least=0)
        check_at_most("num_groups", self.num_groups, "num_rows", self.num_rows)
        check_sampling_prob("sampling_prob", self.sampling_prob)
        if self.group_sampling_prob > 1:
            raise ConfigError(
                f"sampling_prob={self.sampling_prob} must be <= 1 / num_groups="
                f"{1 / self.num_groups:g}: a row enters its group's batch with num_groups times "
                "this probability. Lower it or take fewer groups."
            )

    @property
    def group_sampling_prob(self) -> float:
        """Probability that a row enters a batch of its group."""
        return self.sampling_prob * self.num_groups

    @property
    def expected_size(self) -> float:
        """Expected rows in a batch, up to one row of its group; the public divisor."""
        return self.sampling_prob * self.num_rows

    @property
    def max_participations(self) -> int:
        """Most steps that one row can take part in."""
        return -(-self.steps // self.num_groups)

    @property
    def groups(self) -> RowGroups:
        """Which rows belong together."""
        return RowGroups(num_rows=self.num_rows, num_groups=self.num_groups, seed=self.group_seed)

    def event(self, noise: Event, *, num_bands: int = 1) -> Event:
        """What all steps cost.

        A row is in one group, which has its turn ceil(steps / num_groups) times; at
        each of them it enters with `group_sampling_prob`. With noise C^-1 z and a
        lower triangular C of at most `num_groups` bands, the columns of C at these
        steps have no row in common, so each turn is a sampled Gaussian of its own
        (Choquette-Choo et al. 2023, arXiv 2306.08153).

        Args:
          noise: Noise of one step. With correlated noise: relative to the largest
            contribution times the largest column norm of C.
          num_bands: Bands of C; 1 for independent noise.
        """
        check_noise(noise)
        check_count("num_bands", num_bands)
        check_at_most("num_bands", num_bands, "num_groups", self.num_groups)
        turn: Event = PoissonSampled(
            sampling_prob=accounted_prob(self.group_sampling_prob), event=noise
        )
        if self.num_groups > 1:
            # Groups follow the places of rows: a batch of fixed size that holds every row says
            # so, and is refused under add-or-remove.
            turn = FixedSizeSampled(batch_size=self.num_rows, num_rows=self.num_rows, event=turn)
        return Repeated(event=turn, count=self.max_participations)

    def batches(self, rng: NoiseSource, *, first_step: int = 0) -> Iterator[Batch]:
        """The batches from `first_step` on, from fresh entropy and the same groups.

        Args:
          rng: Source of the key of the coins. Sensitive: never log or save its state.
          first_step: Steps that are done already, after an interruption.

        Privacy:
          Unit: the owner of one row; replace, and any adjacency with one group. Event:
          `event(noise, num_bands=…)`. Relies on: batches stay secret, each is used in
          one step, and the groups never change.
        """
        check_first_step(first_step, self.steps)
        return self._draw(SamplingStream(rng), first_step)

    def _draw(self, stream: SamplingStream, first_step: int) -> Iterator[Batch]:
        groups = self.groups
        for step in range(first_step, self.steps):
            runs = sample_rows(groups.num_runs, self.group_sampling_prob, rng=stream)
            rows = groups.rows_of(step % self.num_groups, runs)
            yield unpadded_batch(rows, self.expected_size)
