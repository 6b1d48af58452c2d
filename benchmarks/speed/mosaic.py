"""Speed and memory of training Mosaic beside LightGBM, on the same rows and the same cores.

    python benchmarks/speed/mosaic.py [--rows N] [--clicks CLICKS.parquet] [--output FILE]

Both are trained on prepared datasets that are there already, and take turns in one run, each in a
process of its own that may use one core, then two. Mosaic is trained with its defaults at epsilon
3; LightGBM has no privacy, 100 trees of 63 leaves, hashed ids as native categorical columns, and
its defaults otherwise. The synthetic display log has 39 columns, which are all hashed, the
13 of whole numbers too. CLICKS.parquet is an extract of the Criteo Sponsored Search Conversion Log,
as for method_jobs.py; its number of clicks has bins in order, which LightGBM takes as a number.
AUC losses are those of held-out rows, a twentieth of the log.

Memory is anonymous memory beyond what the process had when the data were open: mapped files do not
count (measured_process.py). LightGBM's input matrix is there before and does not count either.
LightGBM gets a Python environment of its own, made in a cache folder. Without one, the record says
why, and holds Mosaic's figures alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quality"))

from measured_process import run_measured
from method_jobs import prepare_source

from record import PUBLISHED, print_table, write_record
from tulle.data.dataset_cache import cache_folder
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.splits import split_at_random
from tulle.quality import evaluate_predictions

DISPLAY, CLICKS = "synth:display", "criteo search, real clicks"
ROWS = (1_000_000, 4_000_000)
SHORT = 1_000_000
"""Most rows of a log that is measured three times by default; longer ones are measured once."""
HELD_OUT = 0.05
CLICKS_SHARES = (0.8, HELD_OUT, 0.15)
"""Fractions of the clicks to train on (as many as in the comparison of methods), to test on and to
leave out."""
SPLIT_KEY = b"held-out rows of the speed benchmark"
EPSILON, DELTA = 3.0, 1e-7
NUM_TREES, NUM_LEAVES = 100, 63
# The newest of its series that was out when the benchmark was written.
PEER_PACKAGES = ("lightgbm>=4.7,<5", "numpy")
IDLE_LOAD = 0.5
"""Largest load at the start at which nobody else seems to work on this machine. Threads that wait
for each other take many times as long where others use the same cores."""
ALONE = 0.95
"""Least CPU time over wall time, of a training on one core, at which nobody else used that core."""
MOST_TIME = 0.5
"""Most wall time over LightGBM's that is wanted."""
LEAST_OF_TWO_CORES = 1.7
"""Least speed of two cores that is wanted, over that of one."""
MOST_MEMORY_GB, ROWS_OF_MEMORY = 1.0, 4_000_000
"""Most memory beyond the prepared data that is wanted of logs of up to that many rows."""
MOST_GROWTH = 1.1
"""Most time per row of the longest display log that is wanted, over that of the shortest."""
MORE_ROWS = 1.01
"""Factor of rows that a log may have more to train on than was asked for: a random split."""
Row = dict


def main() -> None:
    options = _options()
    load = os.getloadavg()[0]
    if load > IDLE_LOAD:
        print(f"this machine is busy (load {load:.1f}): do not publish this.", file=sys.stderr)
    peer, peer_error = peer_python(options)
    if peer_error:
        print(f"no LightGBM: {peer_error}", file=sys.stderr)
    facts = {
        "epsilon": EPSILON,
        "delta": DELTA,
        "lightgbm": {"num_trees": NUM_TREES, "num_leaves": NUM_LEAVES},
        "load_before": load,
        "peer_versions": {},
        "peer_error": peer_error,
    }
    rows: list[Row] = []
    for log, num_rows, source in sources(options):
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            task = prepared_task(source, num_rows, Path(name))
            repeats = options.repeats or (3 if task["num_rows"] <= MORE_ROWS * SHORT else 1)
            found, facts["peer_versions"] = measured(task, peer, repeats)
        rows += [{"log": log} | row for row in found]
        # After each of them: a long log takes hours.
        shares = {"least_share_of_core": least_share_of_core(rows)}
        named = facts | shares | {"targets": judged(rows)}
        write_record(options.output, "training of Mosaic beside LightGBM", rows, named)
    shown = [name for name in rows[0] if not name.endswith(("log_loss", "maxrss_bytes"))]
    print_table([{name: row[name] for name in shown} for row in rows])
    print_table(judged(rows))
    if (least := least_share_of_core(rows)) < ALONE:
        print(
            f"others used the core, too (share {least:.2f}): do not publish this.", file=sys.stderr
        )
    print(f"wrote {options.output.name}")


def sources(options: argparse.Namespace) -> Iterator[tuple[str, int, str]]:
    """Name, number of rows to make and source of each log."""
    for num_rows in options.rows or ROWS:
        yield DISPLAY, round(num_rows / (1 - HELD_OUT)), DISPLAY
    if options.clicks is not None:
        yield CLICKS, 0, str(options.clicks)


def prepared_task(source: str, num_rows: int, folder: Path) -> Row:
    """A prepared dataset in the folder, and the files of its rows to train and to test on.

    Args:
      source: Name of the log, or path of the clicks.
      num_rows: Number of rows of a synthetic log.
      folder: Where all of it is put.
    """
    dataset = prepare_source(source, num_rows, folder)
    shares = (1 - HELD_OUT, HELD_OUT) if source == DISPLAY else CLICKS_SHARES
    train, test, *_ = split_at_random(dataset.num_rows, fractions=shares, key=SPLIT_KEY)
    paths = {name: str(folder / f"{name}.npy") for name in ("train_rows", "test_rows")}
    np.save(paths["train_rows"], train)
    np.save(paths["test_rows"], test)
    return paths | {
        "data": str(dataset.folder),
        "predictions": str(folder / "predictions.npy"),
        "num_rows": len(train),
        "epsilon": EPSILON,
        "delta": DELTA,
        "num_trees": NUM_TREES,
        "num_leaves": NUM_LEAVES,
    }


def measured(task: Row, peer: Path | None, repeats: int) -> tuple[list[Row], dict[str, str]]:
    """Rows for each number of cores, and the versions of the peer.

    Args:
      task: What `prepared_task` gave.
      peer: Python with LightGBM; None: it is left out.
      repeats: Number of turns.
    """
    numbers = [number for number in (1, 2) if number <= len(os.sched_getaffinity(0))]
    own: dict[int, list[Row]] = {number: [] for number in numbers}
    others: dict[int, list[Row]] = {number: [] for number in numbers}
    for _ in range(repeats):
        for number in numbers:
            own[number].append(turn("mosaic_turn.py", Path(sys.executable), task, number))
            if peer is not None:
                others[number].append(turn("mosaic_peer.py", peer, task, number))
    rows = [
        {"num_rows": task["num_rows"], "num_cores": number, "num_repeats": repeats}
        | figures(own[number], others[number], task["num_rows"])
        for number in numbers
    ]
    return rows, {} if peer is None else others[numbers[0]][0]["versions"]


def turn(script: str, python: Path, task: Row, num_cores: int) -> Row:
    """One training in a process of its own, and how good its predictions are."""
    path = Path(__file__).with_name(script)
    command = [str(python), str(path), json.dumps(task | {"num_cores": num_cores})]
    said = run_measured(command, num_cores)
    print(script, task["num_rows"], num_cores, f"{said['seconds']:.1f} s", flush=True)
    test = np.load(task["test_rows"])
    labels = np.asarray(PreparedDataset.open(task["data"]).labels)[test]
    quality = evaluate_predictions(labels, np.load(task["predictions"]))
    return said | {"auc_loss": quality.auc_loss, "log_loss": quality.log_loss}


def figures(own: list[Row], others: list[Row], num_rows: int) -> Row:
    """Medians of the turns, the largest memory, and the time of Mosaic over that of LightGBM.

    Args:
      own: Turns of Mosaic.
      others: Turns of LightGBM; empty if there is none.
      num_rows: Number of training rows.
    """
    both = {
        f"{name}_{key}": None if not turns else round(whole(one[key] for one in turns), 5)
        for name, turns in (("mosaic", own), ("lightgbm", others))
        for key, whole in _FIGURES.items()
    }
    built = [one["dataset_seconds"] for one in others]
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(own, others, strict=False)]
    return both | {
        "mosaic_microseconds_a_row": round(1e6 * both["mosaic_seconds"] / num_rows, 4),
        "mosaic_tables": own[0]["tables"],
        "mosaic_scans": own[0]["scans"],
        "lightgbm_dataset_seconds": round(statistics.median(built), 5) if built else None,
        "time_over_lightgbm": round(statistics.median(ratios), 4) if ratios else None,
    }


_FIGURES = {
    "seconds": statistics.median,
    "cpu_seconds": statistics.median,
    "memory_bytes": max,
    "maxrss_bytes": max,
    "auc_loss": statistics.median,
    "log_loss": statistics.median,
}


def least_share_of_core(rows: list[Row]) -> float:
    """Least CPU time over wall time of trainings on one core: 1 if they had it to themselves."""
    shares = [
        row[f"{name}_cpu_seconds"] / row[f"{name}_seconds"]
        for row in rows
        for name in ("mosaic", "lightgbm")
        if row["num_cores"] == 1 and row[f"{name}_seconds"] is not None
    ]
    return round(min(shares), 3)


def judged(rows: list[Row]) -> list[Row]:
    """Each target with what was found, and whether it is met. What was not measured is left out."""
    return [
        {
            "target": target,
            "case": case,
            "found": round(found, 3),
            "wanted": f"at {bound} {limit:g}",
            "verdict": "met"
            if found == limit or (found < limit) == (bound == "most")
            else "missed",
        }
        for target, case, found, bound, limit in _found(rows)
    ]


def _found(rows: list[Row]) -> Iterator[tuple[str, str, float, str, float]]:
    for row in rows:
        if row["time_over_lightgbm"] is not None:
            yield "time over LightGBM", _case(row), row["time_over_lightgbm"], "most", MOST_TIME
    pairs = [
        (one, two)
        for one in rows
        for two in rows
        if (one["num_cores"], two["num_cores"]) == (1, 2)
        and (one["log"], one["num_rows"]) == (two["log"], two["num_rows"])
    ]
    for one, two in pairs:
        speed = one["mosaic_seconds"] / two["mosaic_seconds"]
        case = _case(one).rpartition(",")[0]
        yield "speed of two cores over one", case, speed, "least", LEAST_OF_TWO_CORES
    for row in rows:
        if row["num_rows"] <= MORE_ROWS * ROWS_OF_MEMORY:
            memory = row["mosaic_memory_bytes"] / 1e9
            yield "memory, GB", _case(row), memory, "most", MOST_MEMORY_GB
    for number in sorted({row["num_cores"] for row in rows}):
        own = [row for row in rows if (row["log"], row["num_cores"]) == (DISPLAY, number)]
        own.sort(key=lambda row: row["num_rows"])
        if len(own) > 1:
            least, most = (row["mosaic_microseconds_a_row"] for row in (own[0], own[-1]))
            name = "time per row, longest log over shortest"
            yield name, _case(own[-1]), most / least, "most", MOST_GROWTH


def _verdict(found: float, bound: str, limit: float) -> str:
    is_met = found <= limit if bound == "most" else found >= limit
    return "met" if is_met else "missed"


def _case(row: Row) -> str:
    cores = "1 core" if row["num_cores"] == 1 else f"{row['num_cores']} cores"
    return f"{row['log']}, {row['num_rows']:,} rows, {cores}"


def peer_python(options: argparse.Namespace) -> tuple[Path | None, str]:
    """A Python that has LightGBM, made if need be; or why there is none."""
    if options.peer_python is not None:
        return options.peer_python, ""
    folder = options.peer_folder or cache_folder().with_name("tulle-benchmarks") / "lightgbm"
    python = folder / "bin" / "python"
    try:
        if not python.exists():
            venv.create(folder, with_pip=True)
        # Does nothing if they are there.
        install = [str(python), "-m", "pip", "install", "--quiet", *PEER_PACKAGES]
        subprocess.run(install, check=True, capture_output=True, text=True)
        subprocess.run([str(python), "-c", "import lightgbm"], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines() if isinstance(error.stderr, str) else []
        return None, f"it could not be installed: {said[-1] if said else error}"
    return python, ""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, action="append", help="[default: 1000000, 4000000]")
    parser.add_argument("--clicks", type=Path, help="extract of the search log, in Parquet")
    parser.add_argument("--repeats", type=int, help="[default: 3 up to 1,000,000 rows, else 1]")
    parser.add_argument("--peer-python", type=Path, help="interpreter that has lightgbm")
    parser.add_argument("--peer-folder", type=Path, help="where its environment is made")
    parser.add_argument("--folder", type=Path, help="for the logs; needs space")
    parser.add_argument("--output", type=Path, default=PUBLISHED / "mosaic_speed.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
