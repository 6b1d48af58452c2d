"""Speed of predictions: python benchmarks/speed/predict.py [--output FILE].

A model of Mosaic, trained on 100,000 rows of a synthetic log, predicts a million other rows of it:
from Parquet and from CSV, through `tulle.serve.predict`, with two threads. Beside it are the same
model in DuckDB (its SELECT over the same Parquet file) and in onnxruntime (its graph over the same
rows in memory), with as many threads. Then one row at a time, in `predict_one` and onnxruntime.

CPU seconds are those of all threads together: on a machine that does other work as well they say
what two free cores would take. Each figure is the best of several repeats.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["POLARS_MAX_THREADS"] = "2"
os.environ["OMP_NUM_THREADS"] = "1"

import duckdb
import numpy as np
import onnxruntime
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tulle
from record import PUBLISHED, print_table, versions, write_record
from tulle.data.schema import Kind
from tulle.data.synth.writing import write_synthetic

NUM_TRAINED, NUM_ROWS = 100_000, 1_000_000
NUM_THREADS = 2
NUM_REPEATS = 3
SHAPES = ("search", "attribution")
TARGET_ROWS, TARGET_MICROSECONDS = 2_000_000, 200
"""Rows a second on two cores, and the most that one row may take."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "predict.json")
    parser.add_argument("--rows", type=int, default=NUM_ROWS)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for shape in SHAPES:
            rows += measure(shape, Path(place), given.rows)
    print_table(rows)
    facts = {
        "versions": versions("numpy", "polars", "duckdb", "onnxruntime"),
        "num_rows": given.rows,
        "num_threads": NUM_THREADS,
        "num_repeats": NUM_REPEATS,
        "targets": {"rows per second on 2 cores": TARGET_ROWS, "µs a row": TARGET_MICROSECONDS},
    }
    write_record(given.output, "predictions", rows, facts)
    print(f"wrote {given.output.name}")


def measure(shape: str, place: Path, num_rows: int) -> list[dict]:
    """Figures of one synthetic log."""
    run, new = place / f"{shape}-run", place / f"{shape}.parquet"
    tulle.train.fit(
        f"synth:{shape}",
        epsilon=3,
        unit="example",
        rows=NUM_TRAINED,
        synth_seed=1,
        seed=1,
        test=0,
        output=run,
    )
    write_synthetic(shape, new, rows=num_rows, seed=2)
    table = pl.read_parquet(new)
    table.write_csv(new.with_suffix(".csv"))
    model = tulle.load(run)
    served = tulle.serve.export(model, place / f"{shape}.json", form="json")
    looked_at = list(served.columns)
    kinds = {name: model.encoder_.plan.schema.kind(name) for name in looked_at}
    work: dict[str, Callable[[], object]] = {
        f"tulle, {form}": lambda path=path: predict(model, path, place / "scores.parquet")
        for form, path in (("Parquet", new), ("CSV", new.with_suffix(".csv")))
    }
    work["DuckDB, Parquet"] = duckdb_work(model, table, new, place / f"{shape}-sql")
    graph, feeds = onnx_work(model, table, kinds, place / f"{shape}.onnx")
    work["onnxruntime, memory"] = lambda: graph.run(["probability"], feeds)
    found = [figures(shape, what, one, num_rows) for what, one in work.items()]
    some = table.head(2_000).to_dicts()
    single = [{name: array[:1] for name, array in feeds.items()}] * 2_000
    found.append(single_figures(shape, "tulle, one row", model.predict_one, some))
    found.append(
        single_figures(
            shape, "onnxruntime, one row", lambda row: graph.run(["probability"], row), single
        )
    )
    for row in found:
        is_single = row["microseconds_a_row"] is not None
        own = found[len(work)] if is_single else found[0]
        row["cpu_over_tulle"] = round(row["cpu_seconds"] / own["cpu_seconds"], 2)
    return found


def predict(model: object, path: Path, output: Path) -> None:
    output.unlink(missing_ok=True)
    tulle.serve.predict(model, path, output=output)


def duckdb_work(
    model: object, table: pl.DataFrame, new: Path, folder: Path
) -> Callable[[], object]:
    """The SELECT of the model over the file, into another file."""
    values = public_values(model, table)
    tulle.serve.export(model, folder, form="sql", dialect="duckdb", values=values)
    engine = duckdb.connect(config={"threads": NUM_THREADS})
    engine.execute((folder / "create.sql").read_text())
    for path in (folder / "weights").iterdir():
        engine.execute(f"INSERT INTO {path.stem} FROM read_parquet('{path}')")
    engine.execute(f"CREATE VIEW new_rows AS FROM '{new}'")
    select = (folder / "score.sql").read_text().rstrip(";\n")
    # Names and paths are our own.
    query = f"COPY (SELECT probability FROM ({select})) TO '{folder / 'out.parquet'}'"  # noqa: S608
    return lambda: engine.execute(query)


def onnx_work(
    model: object, table: pl.DataFrame, kinds: dict[str, Kind], path: Path
) -> tuple[onnxruntime.InferenceSession, dict[str, np.ndarray]]:
    """The graph of the model, and the rows as it takes them."""
    tulle.serve.export(model, path, form="onnx", values=public_values(model, table))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = NUM_THREADS
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {
        name: table[name].cast(pl.String).fill_null("").to_numpy().astype(object)
        if kind is Kind.CATEGORICAL
        else table[name].cast(pl.Float64).to_numpy()
        for name, kind in kinds.items()
    }
    return session, feeds


def public_values(model: object, table: pl.DataFrame) -> pl.DataFrame:
    """The values of the made-up log, without the columns that say that it is one."""
    schema = model.encoder_.plan.schema  # type: ignore[attr-defined]
    return table.drop(name for name in (schema.label, schema.unit) if name in table.columns)


def figures(shape: str, what: str, work: Callable[[], object], num_rows: int) -> dict:
    wall, cpu = best_of([timed(work) for _ in range(NUM_REPEATS + 1)][1:])
    return {
        "log": shape,
        "what": what,
        "rows_per_second": round(num_rows / wall),
        "rows_per_cpu_second": round(num_rows / cpu),
        "cpu_seconds": round(cpu, 4),
        "microseconds_a_row": None,
    }


def single_figures(shape: str, what: str, work: Callable[[dict], object], rows: list[dict]) -> dict:
    def all_rows() -> None:
        for row in rows:
            work(row)

    wall, cpu = best_of([timed(all_rows) for _ in range(NUM_REPEATS + 1)][1:])
    return {
        "log": shape,
        "what": what,
        "rows_per_second": round(len(rows) / wall),
        "rows_per_cpu_second": round(len(rows) / cpu),
        "cpu_seconds": round(cpu, 4),
        "microseconds_a_row": round(1e6 * wall / len(rows), 1),
    }


def timed(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def best_of(times: list[tuple[float, float]]) -> tuple[float, float]:
    return min(wall for wall, _ in times), min(cpu for _, cpu in times)


if __name__ == "__main__":
    main()
