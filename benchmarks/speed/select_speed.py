"""Speed of selection: python benchmarks/speed/select_speed.py, with both peers if given.

Auctions have 5 to 25 candidates and draws come from the operating system, unless a row says
otherwise. Every work is timed alone, by the median of several turns. The same choices are also
timed in OpenDP and diffprivlib on the first few thousand auctions, if --opendp-python and
--diffprivlib-python name interpreters that have them: they need environments of their own. How
often each chooses the favourite is checked against its exact chance.
"""

import argparse
import dataclasses
import functools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, versions, write_record
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.privacy.units import Unit
from tulle.select.auctions import Auctions, DeviceClicks, FloatArray
from tulle.select.decisions.draws import decide
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import SelectionMechanism, favourites
from tulle.select.mechanisms.noisy_max import NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.shortlists import Cutoff, Shortlist, TopCandidates
from tulle.select.planner.click_prior import LogitNormalPrior, logistic
from tulle.select.planner.shortlist_outcomes import AdaptiveTop
from tulle.select.selection_config import Consent, SelectionConfig, SelectionPrivacy

LEAST_SIZE, LARGEST_SIZE = 5, 25
EPSILON = 3.0
PRIVATE_STDDEV = 0.4
RESPONSE = "randomized response"
TARGETS = {
    RESPONSE: 2_000_000,
    "exact permute-and-flip chances": 100_000,
    "planner's k": 50_000,
    "speed over that with seeded words": 0.8,
}
"""At least; rows in decisions or auctions a second."""


Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """Auctions with the scores of their devices."""

    auctions: Auctions
    device: DeviceClicks
    raw_scores: FloatArray

    def part(self, first: int, last: int) -> "Sample":
        """Auctions from the first to before the last."""
        whole = self.auctions
        offsets = whole.offsets[first : last + 1]
        kept = slice(int(offsets[0]), int(offsets[-1]))
        auctions = Auctions(
            offsets=offsets - offsets[0],
            ads=whole.ads[kept],
            bids=whole.bids[kept],
            server_click_probs=whole.server_click_probs[kept],
        )
        device = DeviceClicks(click_probs=self.device.click_probs[kept])
        return Sample(auctions=auctions, device=device, raw_scores=self.raw_scores[kept])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of every turn."""

    wall: list[float]
    cpu: list[float]


def main() -> None:
    options = parsed_options()
    sample = drawn_sample(options.auctions, options.seed)
    rows, secure_speed = response_rows(sample, options.repeats)
    fifth = sample.part(0, options.auctions // 5)
    rows += other_rows(fifth, options.repeats)
    rows.append(decide_row(fifth, options))
    peers, peer_versions = peer_rows(sample.part(0, options.peer_auctions), options)
    facts = {
        "versions": versions("numpy", "scipy", "polars"),
        "peer_versions": peer_versions,
        "targets": TARGETS,
        "least_size": LEAST_SIZE,
        "largest_size": LARGEST_SIZE,
        "epsilon": EPSILON,
        "repeats": options.repeats,
        "seed": options.seed,
        "speed_over_seeded": secure_speed,
        "peers": peers,
    }
    write_record(options.output, "selection", rows, facts)
    print_table(rows)
    print(f"\nspeed with words of the operating system over seeded ones: {secure_speed:.2f}\n")
    if peers:
        print_table(peers)


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--auctions", type=int, default=1_000_000, help="a fifth for slow works")
    parser.add_argument("--peer-auctions", type=int, default=3_000)
    parser.add_argument("--opendp-python", type=Path, help="interpreter with opendp")
    parser.add_argument("--diffprivlib-python", type=Path, help="interpreter with diffprivlib")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="for files that are removed in the end")
    parser.add_argument("--output", type=Path, default=PUBLISHED / "select_speed.json")
    return parser.parse_args()


def drawn_sample(num_auctions: int, seed: int) -> Sample:
    """Search-like auctions: the server predicts the mean of what devices find."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(LEAST_SIZE, LARGEST_SIZE + 1, num_auctions)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    num_candidates = int(offsets[-1])
    ranks = np.arange(num_candidates) - np.repeat(offsets[:-1], sizes)
    server_probs = logistic(-3.5 + 0.5 * rng.standard_normal(num_candidates))
    auctions = Auctions(
        offsets=offsets,
        ads=1_000 * ranks + rng.integers(0, 1_000, num_candidates),
        bids=np.exp(0.8 * rng.standard_normal(num_candidates)),
        server_click_probs=server_probs,
    )
    public = LogitNormalPrior(private_stddev=PRIVATE_STDDEV).public_logits(server_probs)
    private = PRIVATE_STDDEV * rng.standard_normal(num_candidates)
    device = DeviceClicks(click_probs=logistic(public + private))
    return Sample(auctions=auctions, device=device, raw_scores=device.scores(auctions))


def response_rows(sample: Sample, repeats: int) -> tuple[list[Row], float]:
    """Randomized response; and how fast it is with secure words, over its speed with others."""
    auctions, raw_scores = sample.auctions, sample.raw_scores
    response = FloorMechanism(epsilon=EPSILON)
    seeded = SeededNoise(0)
    secure_times, seeded_times = times_in_turns(
        [
            lambda: response.choose(auctions, raw_scores, rng=release_rng()),
            lambda: response.choose(auctions, raw_scores, rng=seeded),
        ],
        repeats,
    )
    num_auctions = len(auctions)
    rows = [
        row_of(RESPONSE, num_auctions, secure_times, TARGETS[RESPONSE]),
        row_of(f"{RESPONSE}, seeded words", num_auctions, seeded_times),
    ]
    shortlists: tuple[Shortlist, ...] = (TopCandidates(num_finalists=5), Cutoff(gamma=0.8))
    for shortlist in shortlists:
        mechanism = FloorMechanism(epsilon=EPSILON, shortlist=shortlist)
        rows.append(choice_row(f"{RESPONSE}, {shortlist.name}", mechanism, sample, repeats))
    ratios = [b / a for a, b in zip(secure_times.wall, seeded_times.wall, strict=True)]
    return rows, statistics.median(ratios)


def other_rows(sample: Sample, repeats: int) -> list[Row]:
    """Noisy maximum and planner."""
    auctions, raw_scores = sample.auctions, sample.raw_scores
    flip = noisy_max(NoiseKind.EXPONENTIAL)
    (times,) = times_in_turns([lambda: flip.selection_probs(auctions, raw_scores)], repeats)
    name = "exact permute-and-flip chances"
    rows = [
        row_of(name, len(auctions), times, TARGETS[name]),
        choice_row("noisy max, exponential noise", flip, sample, repeats),
        choice_row("noisy max, Gumbel noise", noisy_max(NoiseKind.GUMBEL), sample, repeats),
    ]
    # What devices find differs more in the second, and more finalists pay.
    for epsilon, stddev in ((EPSILON, PRIVATE_STDDEV), (5.0, 1.0)):
        shortlist = AdaptiveTop(epsilon=epsilon, prior=LogitNormalPrior(private_stddev=stddev))
        (times,) = times_in_turns([functools.partial(shortlist.sizes, auctions)], repeats)
        name = f"planner's k, epsilon {epsilon:g}, private stddev {stddev:g}"
        rows.append(row_of(name, len(auctions), times, TARGETS["planner's k"]))
    return rows


def decide_row(sample: Sample, options: argparse.Namespace) -> Row:
    """From a file of candidates to a file of choices, checks and record included."""
    config = SelectionConfig(
        name="speed",
        mechanism=FloorMechanism(epsilon=EPSILON),
        privacy=SelectionPrivacy(unit=Unit.impression(), consent=Consent.EVERYONE),
    )
    auctions = sample.auctions
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        table = {
            "auction_id": np.repeat(np.arange(len(auctions)), auctions.sizes),
            "ad": auctions.ads,
            "bid": auctions.bids,
            "p_server": auctions.server_click_probs,
            "p_device": sample.device.click_probs,
        }
        pl.DataFrame(table).write_parquet(folder / "auctions.parquet")
        outs = iter(range(options.repeats + 1))

        def decide_file() -> None:
            decide(
                config,
                folder / "auctions.parquet",
                folder / f"choices-{next(outs)}.parquet",
                columns=AuctionColumns(),
                rng=release_rng(),
            )

        (times,) = times_in_turns([decide_file], options.repeats)
    return row_of("decide, Parquet to Parquet", len(auctions), times)


def peer_rows(sample: Sample, options: argparse.Namespace) -> tuple[list[Row], dict[str, str]]:
    """Rows of both on the same auctions.

    Peers choose one at a time: they have no other way. So do we for comparison, in a call for
    each auction.
    """
    interpreters = {"opendp": options.opendp_python, "diffprivlib": options.diffprivlib_python}
    mechanisms: dict[str, SelectionMechanism] = {
        RESPONSE: FloorMechanism(epsilon=EPSILON),
        "permute-and-flip": noisy_max(NoiseKind.EXPONENTIAL),
        "exponential mechanism": noisy_max(NoiseKind.GUMBEL),
    }
    ours = {
        name: {
            "per_second": choice_row(name, mechanism, sample, options.repeats)["per_second"],
            "single_per_second": single_choices(mechanism, sample, options.repeats),
        }
        for name, mechanism in mechanisms.items()
    }
    rows: list[Row] = []
    found_versions: dict[str, str] = {}
    for library, interpreter in interpreters.items():
        if interpreter is None:
            continue
        found = run_peer(library, interpreter, sample, options)
        found_versions[library] = found["version"]
        for name, turns in found["rows"].items():
            check_favourites(f"{library}, {name}", mechanisms[name], sample, turns)
            per_second = len(sample.auctions) / statistics.median(turns["seconds"])
            rows.append(
                {
                    "choice": name,
                    "peer": library,
                    "num_auctions": len(sample.auctions),
                    "peer_per_second": per_second,
                    **ours[name],
                    "times_as_fast": ours[name]["per_second"] / per_second,
                }
            )
    return rows, found_versions


def run_peer(library: str, interpreter: Path, sample: Sample, options: argparse.Namespace) -> Row:
    scaled = ScaledScores().bounded(sample.auctions, sample.raw_scores)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        path = Path(name) / "auctions.npz"
        np.savez(path, offsets=sample.auctions.offsets, scores=scaled)
        command = [str(interpreter), str(Path(__file__).with_name("select_peer.py"))]
        command += [library, str(path), str(EPSILON), str(min(options.repeats, 3))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def check_favourites(name: str, mechanism: SelectionMechanism, sample: Sample, turns: Row) -> None:
    """Stops if a peer does not choose by the same law: false alarms below 1e-8."""
    best = favourites(sample.auctions, sample.raw_scores)
    probs = mechanism.selection_probs(sample.auctions, sample.raw_scores)[best]
    num_turns = len(turns["seconds"])
    distance = abs(turns["num_favourites"] - num_turns * probs.sum())
    if distance > 6 * np.sqrt(num_turns * (probs * (1 - probs)).sum()):
        raise SystemExit(f"{name}: favourites are not chosen as often as they should be")


def noisy_max(noise: NoiseKind) -> NoisyMax:
    return NoisyMax(epsilon=EPSILON, noise=noise, score_bound=ScaledScores())


def choice_row(name: str, mechanism: SelectionMechanism, sample: Sample, repeats: int) -> Row:
    auctions, raw_scores = sample.auctions, sample.raw_scores
    (times,) = times_in_turns(
        [lambda: mechanism.choose(auctions, raw_scores, rng=release_rng())], repeats
    )
    return row_of(name, len(auctions), times)


def single_choices(mechanism: SelectionMechanism, sample: Sample, repeats: int) -> float:
    """Choices a second with a call for each auction."""
    singles = [sample.part(number, number + 1) for number in range(len(sample.auctions))]

    def choose_all() -> None:
        rng = release_rng()
        for single in singles:
            mechanism.choose(single.auctions, single.raw_scores, rng=rng)

    (times,) = times_in_turns([choose_all], min(repeats, 3))
    return len(singles) / statistics.median(times.wall)


def times_in_turns(works: list[Callable[[], object]], repeats: int) -> list[Times]:
    """Each work once to warm up, then all of them one after the other, several times."""
    for work in works:
        work()
    times = [Times(wall=[], cpu=[]) for _ in works]
    for _ in range(repeats):
        for work, found in zip(works, times, strict=True):
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            found.wall.append(time.perf_counter() - wall)
            found.cpu.append(time.process_time() - cpu)
    return times


def row_of(name: str, num_auctions: int, times: Times, target: float | None = None) -> Row:
    seconds = statistics.median(times.wall)
    return {
        "work": name,
        "num_auctions": num_auctions,
        "wall_seconds": seconds,
        "cpu_seconds": statistics.median(times.cpu),
        "per_second": num_auctions / seconds,
        "target": target,
    }


if __name__ == "__main__":
    main()
