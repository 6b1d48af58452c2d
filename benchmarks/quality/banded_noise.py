"""Noise that correlation leaves in sums of steps: python benchmarks/quality/banded_noise.py.

The root mean square error of prefix sums under banded noise, over that of independent noise, both
with the least noise multiplier for the same epsilon. No data are read and nothing is trained.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, write_record
from tulle.accounting.accountant import calibrate_noise
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.privacy.events import Gaussian
from tulle.privacy.units import Adjacency
from tulle.train.settings.band_matrix import BandMatrix

NUM_ROWS, BATCH_SIZE, DELTA = 36_000_000, 16384, 1e-7
EPOCHS, EPSILONS, BANDS = (1, 3), (0.4, 1.2, 2.0, 5.0), (2, 8, 16, 64, 256)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "banded_noise.json")
    options = parser.parse_args()
    rows = [row for epochs in EPOCHS for epsilon in EPSILONS for row in measure(epochs, epsilon)]
    print_table(rows)
    facts = {"num_rows": NUM_ROWS, "batch_size": BATCH_SIZE, "delta": DELTA, "adjacency": "replace"}
    write_record(options.output, "noise left in sums under banded noise", rows, facts)


def measure(epochs: int, epsilon: float) -> list[dict[str, object]]:
    """One row for each number of bands."""
    steps = round(epochs * NUM_ROWS / BATCH_SIZE)
    independent = noise_multiplier(steps, epsilon, 1)
    found = []
    for num_bands in BANDS:
        noise = noise_multiplier(steps, epsilon, num_bands)
        error = BandMatrix(num_bands=num_bands, num_steps=steps).prefix_error
        found.append(
            {
                "epochs": epochs,
                "epsilon": epsilon,
                "num_bands": num_bands,
                "noise_multiplier": round(noise, 4),
                "noise_left": round(noise / independent * error, 4),
            }
        )
    return found


def noise_multiplier(steps: int, epsilon: float, num_bands: int) -> float:
    sampler = CyclicPoisson(
        num_rows=NUM_ROWS,
        sampling_prob=BATCH_SIZE / NUM_ROWS,
        num_groups=num_bands,
        steps=steps,
    )
    return calibrate_noise(
        lambda noise: sampler.event(Gaussian(noise_multiplier=noise), num_bands=num_bands),
        epsilon=epsilon,
        delta=DELTA,
        adjacency=Adjacency.REPLACE,
    )


if __name__ == "__main__":
    main()
