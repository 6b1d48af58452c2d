"""Samplers that are wrong on purpose. The checks must catch each one.

Each takes the settings of the right sampler and a source, and gives batches.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from tulle.data.samplers.batch import Batch, SamplingStream, padded_batch, unpadded_batch
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson, sample_rows
from tulle.data.samplers.shuffled import ShuffledBatches
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserBatch, UserRows, UserSampling
from tulle.mechanisms.entropy import NoiseSource


def shuffled_batches_under_a_poisson_event(config: Poisson, rng: NoiseSource) -> Iterator[Batch]:
    """The usual data loader: every row once an epoch, all batches of the same size."""
    size = round(config.expected_size)
    stream = SamplingStream(rng)
    order = np.array([], np.int64)
    for _ in range(config.steps):
        if order.size < size:
            order = stream.words(config.num_rows).argsort()
        yield unpadded_batch(np.sort(order[:size]), config.expected_size)
        order = order[size:]


def fixed_size_under_a_poisson_event(config: Poisson, rng: NoiseSource) -> Iterator[Batch]:
    """A uniform batch that always has the expected size."""
    stream = SamplingStream(rng)
    for _ in range(config.steps):
        rows = stream.subset(config.num_rows, round(config.expected_size))
        yield unpadded_batch(rows, config.expected_size)


def the_same_batch_in_every_step(config: Poisson, rng: NoiseSource) -> Iterator[Batch]:
    """Draws once and for all."""
    batch = next(config.batches(rng))
    for _ in range(config.steps):
        yield batch


def every_batch_twice(config: Poisson, rng: NoiseSource) -> Iterator[Batch]:
    """Two processes that share a stream, taken in turn."""
    for batch in config.batches(rng, first_step=config.steps // 2):
        yield batch
        yield batch


def five_percent_too_often(config: Poisson, rng: NoiseSource) -> Iterator[Batch]:
    """A chance that is 5% larger than the one accounted."""
    more = dataclasses.replace(config, sampling_prob=1.05 * config.sampling_prob)
    for batch in more.batches(rng):
        yield unpadded_batch(batch.indices, config.expected_size)


def the_first_row_never_comes(config: Poisson, rng: NoiseSource) -> Iterator[Batch]:
    """Starts behind row 0, as if a skip had at least one row."""
    for batch in config.batches(rng):
        yield unpadded_batch(batch.indices[batch.indices > 0], config.expected_size)


def blocks_of_neighbouring_rows(config: Poisson, rng: NoiseSource) -> Iterator[Batch]:
    """Reads pairs of neighbours together, to save on seeks."""
    stream = SamplingStream(rng)
    for _ in range(config.steps):
        pairs = sample_rows(config.num_rows // 2, config.sampling_prob, rng=stream)
        rows = (2 * pairs[:, None] + np.arange(2)).ravel()
        yield unpadded_batch(rows, config.expected_size)


def truncation_that_keeps_the_first_rows(
    config: TruncatedPoisson, rng: NoiseSource
) -> Iterator[Batch]:
    """Drops what comes last in the log."""
    stream = SamplingStream(rng)
    for _ in range(config.steps):
        rows = sample_rows(config.num_rows, config.sampling_prob, rng=stream)
        kept = rows[: config.max_batch_size]
        yield padded_batch(kept, config.max_batch_size, config.expected_size)


def batches_that_do_not_fit_are_drawn_again(
    config: TruncatedPoisson, rng: NoiseSource
) -> Iterator[Batch]:
    """Avoids truncation by conditioning on a batch that fits."""
    stream = SamplingStream(rng)
    for _ in range(config.steps):
        rows = sample_rows(config.num_rows, config.sampling_prob, rng=stream)
        while rows.size > config.max_batch_size:
            rows = sample_rows(config.num_rows, config.sampling_prob, rng=stream)
        yield padded_batch(rows, config.max_batch_size, config.expected_size)


def division_by_the_drawn_size(config: TruncatedPoisson, rng: NoiseSource) -> Iterator[Batch]:
    """Offers the number of rows that came as the divisor."""
    for batch in config.batches(rng):
        yield dataclasses.replace(batch, expected_size=float(batch.num_sampled))


def padding_that_counts(config: TruncatedPoisson, rng: NoiseSource) -> Iterator[Batch]:
    """Gives the row that padding points at a weight in every free place."""
    for batch in config.batches(rng):
        yield dataclasses.replace(batch, weights=np.ones_like(batch.weights))


def groups_that_change_from_round_to_round(
    config: CyclicPoisson, rng: NoiseSource
) -> Iterator[Batch]:
    """Regroups the rows after every round, so that a row can come in neighbouring steps."""
    for step in range(config.steps):
        regrouped = dataclasses.replace(config, group_seed=step // config.num_groups)
        yield next(regrouped.batches(rng, first_step=step))


def rows_instead_of_users(
    config: UserSampling, rng: NoiseSource, user_rows: UserRows
) -> Iterator[UserBatch]:
    """Tosses a coin for each row, and calls the rows of a user a user."""
    stream = SamplingStream(rng)
    user_of_place = np.repeat(np.arange(config.num_users), np.diff(user_rows.starts))
    for _ in range(config.steps):
        places = sample_rows(user_rows.rows.size, config.sampling_prob, rng=stream)
        _, segments, lengths = np.unique(
            user_of_place[places], return_inverse=True, return_counts=True
        )
        yield UserBatch(
            indices=user_rows.rows[places],
            segments=segments,
            weights=(1 / lengths[segments]).astype(np.float32),
            expected_users=config.expected_users,
        )


def a_new_order_in_the_middle_of_an_epoch(
    config: ShuffledBatches, rng: NoiseSource
) -> Iterator[Batch]:
    """Goes on after an interruption in another order, so that rows come again."""
    middle = config.batches_per_epoch // 2
    for step, batch in enumerate(config.batches(rng)):
        if step == middle:
            break
        yield batch
    other = dataclasses.replace(config, order_seed=config.order_seed + 1)
    yield from other.batches(rng, first_step=middle)
