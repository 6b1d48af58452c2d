"""Cost of drawing a batch: python benchmarks/speed/index_drawing.py [--output FILE].

Every sampler draws batches of 16384 from 36 million rows. In the same run, and in
turns, two things are timed that it is measured against: numpy's own choice of as
many rows (uniform, of fixed size), and a reference step, the product of 16384 x 598
features with a 598 x 598 layer in float32. A real step does at least three of those,
forward and backward. One thread (set OMP_NUM_THREADS=1); processor time, so that
other load counts less; the median of several repeats.
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, write_record
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.fixed_size import FixedSize
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.shuffled import ShuffledBatches
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserSampling, group_rows
from tulle.mechanisms.entropy import release_rng

NUM_ROWS, BATCH_SIZE, NUM_FEATURES = 36_000_000, 16384, 598
NUM_REPEATS = 15
DRAWS_PER_REPEAT = 10
ROWS_PER_USER = 3
MAX_SHARE_OF_STEP = 0.05

Draw = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "index_drawing.json")
    output = parser.parse_args().output
    generator = np.random.Generator(np.random.Philox())
    features = generator.random((BATCH_SIZE, NUM_FEATURES), np.float32)
    layer = generator.random((NUM_FEATURES, NUM_FEATURES), np.float32)

    def choose() -> object:
        return generator.choice(NUM_ROWS, BATCH_SIZE, replace=False)

    rows = [
        measure(name, lambda batches=batches: next(batches), choose, lambda: features @ layer)
        for name, batches in samplers().items()
    ]
    print_table(rows)
    facts = {
        "num_rows": NUM_ROWS,
        "batch_size": BATCH_SIZE,
        "num_repeats": NUM_REPEATS,
        "targets": {"share_of_step": MAX_SHARE_OF_STEP},
        "targets_met": all(float(row["share_of_step"]) < MAX_SHARE_OF_STEP for row in rows),
    }
    write_record(output, "drawing the rows of a batch", rows, facts)
    print(f"targets met: {facts['targets_met']}; wrote {output.name}")


def measure(name: str, draw: Draw, choose: Draw, step: Draw) -> dict[str, str | float]:
    # Taken in turns, so that other load on the machine hits all three alike.
    turns = [
        (seconds(draw, DRAWS_PER_REPEAT), seconds(choose, DRAWS_PER_REPEAT), seconds(step, 1))
        for _ in range(NUM_REPEATS + 1)
    ][1:]
    return {
        "sampler": name,
        "milliseconds": round(1e3 * statistics.median(own for own, _, _ in turns), 3),
        "ratio_to_numpy_choice": round(statistics.median(own / n for own, n, _ in turns), 2),
        "share_of_step": round(statistics.median(own / whole for own, _, whole in turns), 4),
        "reference_step_milliseconds": round(
            1e3 * statistics.median(whole for _, _, whole in turns), 1
        ),
    }


def samplers() -> dict[str, Iterator[object]]:
    """As many batches of each sampler as are timed, from operating-system entropy."""
    steps = (NUM_REPEATS + 1) * DRAWS_PER_REPEAT
    prob = BATCH_SIZE / NUM_ROWS
    truncated = TruncatedPoisson.with_headroom(
        num_rows=NUM_ROWS, max_batch_size=BATCH_SIZE, steps=steps
    )
    poisson = Poisson(num_rows=NUM_ROWS, sampling_prob=prob, steps=steps)
    cyclic = CyclicPoisson(num_rows=NUM_ROWS, sampling_prob=prob, num_groups=16, steps=steps)
    fixed = FixedSize(num_rows=NUM_ROWS, batch_size=BATCH_SIZE, steps=steps)
    shuffled = ShuffledBatches(num_rows=NUM_ROWS, batch_size=BATCH_SIZE, epochs=1)
    num_users = NUM_ROWS // ROWS_PER_USER
    users = UserSampling(
        num_users=num_users, sampling_prob=prob, steps=steps, max_rows_per_user=ROWS_PER_USER
    )
    user_rows = group_rows(np.arange(NUM_ROWS) // ROWS_PER_USER)
    rng = release_rng()
    by_name: dict[str, Iterator[object]] = {
        type(sampler).__name__: sampler.batches(rng)
        for sampler in (truncated, poisson, cyclic, fixed, shuffled)
    }
    by_name["UserSampling"] = users.batches(rng, user_rows=user_rows)
    return {name: itertools.islice(batches, steps) for name, batches in by_name.items()}


def seconds(draw: Draw, num_calls: int) -> float:
    """The mean processor time of a call."""
    start = time.process_time()
    for _ in range(num_calls):
        draw()
    return (time.process_time() - start) / num_calls


if __name__ == "__main__":
    main()
