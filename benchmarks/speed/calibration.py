"""Time to calibrate DP-SGD's noise, against dp-accounting's accountant in the same run.

    python benchmarks/speed/calibration.py [--output FILE]

Each side searches the noise multiplier for epsilon = 3, delta = 1e-7 under replace
with batches of 16,384 of 36,000,000 rows. Times are CPU seconds of one thread.
"""

import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import dp_accounting
from dp_accounting import dp_event, pld

from record import PUBLISHED, print_table, versions, write_record
from tulle.accounting.accountant import calibrate_noise, pld_epsilon
from tulle.accounting.training_events import BatchSampling, dpsgd_event
from tulle.privacy.units import Adjacency

EPSILON, DELTA = 3.0, 1e-7
NUM_EXAMPLES, BATCH_SIZE = 36_000_000, 16_384
LIMIT_SECONDS = 2.0


def ours(steps: int) -> float:
    sampling = BatchSampling(num_examples=NUM_EXAMPLES, batch_size=BATCH_SIZE, steps=steps)
    return calibrate_noise(
        lambda noise: dpsgd_event(sampling, noise),
        epsilon=EPSILON,
        delta=DELTA,
        adjacency=Adjacency.REPLACE,
    )


def peer_event(noise: float, steps: int) -> dp_event.DpEvent:
    step = dp_event.PoissonSampledDpEvent(
        BATCH_SIZE / NUM_EXAMPLES, dp_event.GaussianDpEvent(noise)
    )
    return dp_event.SelfComposedDpEvent(step, steps)


def peer_accountant() -> pld.PLDAccountant:
    return pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)


def peer(steps: int) -> float:
    return dp_accounting.calibrate_dp_mechanism(
        peer_accountant,
        lambda noise: peer_event(noise, steps),
        EPSILON,
        DELTA,
        bracket_interval=dp_accounting.LowerEndpointAndGuess(0.3, 1.0),
        tol=1e-4,
    )


def cpu_seconds(function, *arguments) -> tuple[float, float]:
    start = time.process_time()
    result = function(*arguments)
    return result, time.process_time() - start


def measure(steps: int) -> dict[str, float]:
    runs = [cpu_seconds(ours, steps) for _ in range(3)]
    noise, seconds = runs[0][0], sorted(run[1] for run in runs)[1]
    peer_noise, peer_seconds = cpu_seconds(peer, steps)
    sampling = BatchSampling(num_examples=NUM_EXAMPLES, batch_size=BATCH_SIZE, steps=steps)
    at_peer = pld_epsilon(dpsgd_event(sampling, peer_noise), DELTA, Adjacency.REPLACE)
    return {
        "steps": steps,
        "noise_multiplier": noise,
        "peer_noise_multiplier": peer_noise,
        "noise_over_peer": noise / peer_noise,
        "epsilon_at_peer_noise_over_target": at_peer / EPSILON,
        "cpu_seconds": seconds,
        "peer_cpu_seconds": peer_seconds,
        "times_as_fast": peer_seconds / seconds,
        "share_of_limit": seconds / LIMIT_SECONDS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=PUBLISHED / "calibration.json")
    output = parser.parse_args().output
    rows = [measure(steps) for steps in (2_200, 140_625)]
    print_table(rows)
    facts = {
        "peer": "dp-accounting, its PLD accountant at its default grid of 1e-4",
        "limit_cpu_seconds": LIMIT_SECONDS,
        "versions": versions("dp-accounting", "numpy", "scipy"),
    }
    write_record(output, "time to calibrate DP-SGD's noise", rows, facts)


if __name__ == "__main__":
    main()
