"""Records of speed, for docs_benchmarks.py."""

from docs_benchmark import NO_SEED_FOR_TIMES, Benchmark, Row


def _step_targets(record: Row) -> str:
    return _judged(
        [
            (name, record["reached"][name], most)
            for name, most in record["targets"].items()
            if name in record["reached"]
        ]
    )


def _gpu_targets(record: Row) -> str:
    private = [row for row in record["rows"] if row["step"].startswith("tulle private")]
    figures = {
        "private over plain": max(row["over_plain"] for row in private),
        "milliseconds of a private step": max(row["milliseconds"] for row in private),
    }
    return _judged([(name, figures[name], most) for name, most in record["targets"].items()])


def _measure_targets(record: Row) -> str:
    name = "attribution over hand-written SQL"
    return _judged(
        [
            (f"{row['work']} over hand-written SQL", row["time_over_peer"], record["targets"][name])
            for row in record["rows"]
            if row["peer"] == "hand-written SQL"
        ]
    )


def _predict_targets(record: Row) -> str:
    wanted = record["targets"]["rows per second on 2 cores"]
    found = [
        f"{2 * row['rows_per_cpu_second'] / 1e6:.2f} million rows on the {row['log']} log "
        f"({row['what'].removeprefix('tulle, ')})"
        for row in record["rows"]
        if row["what"] in ("tulle, Parquet", "tulle, CSV")
    ]
    single = [row for row in record["rows"] if row["what"] == "tulle, one row"]
    slowest = max(row["microseconds_a_row"] for row in single)
    return (
        f"Two CPU seconds: {', '.join(found)}; {wanted / 1e6:g} million wanted. One row: "
        f"at most {slowest:.0f} µs, {record['targets']['µs a row']} µs wanted."
    )


def _mosaic_targets(record: Row) -> str:
    said = []
    for target in dict.fromkeys(row["target"] for row in record["targets"]):
        own = [row for row in record["targets"] if row["target"] == target]
        found = sorted({f"{row['found']:.2f}" for row in own}, key=float)
        missed = [row["case"] for row in own if row["verdict"] == "missed"]
        verdict = f"missed ({'; '.join(missed)})" if missed else "met"
        span = " to ".join(dict.fromkeys((found[0], found[-1])))
        said.append(f"- {target}: {span}, {own[0]['wanted']} wanted, {verdict}.")
    peer = record["peer_error"] and [f"- There is no LightGBM: {record['peer_error']}."]
    return "\n".join(["Targets:", "", *said, *(peer or [])])


def _judged(figures: list[tuple[str, float, float]]) -> str:
    """Figures beside the most that they should be."""
    said = [
        f"{name}: {figure:.3g}, at most {most:g} wanted{', missed' if figure > most else ''}"
        for name, figure, most in figures
    ]
    return f"Targets. {'; '.join(said)}."


STEP = {
    "model": ("model", "s"),
    "rows": ("num_rows", ",d"),
    "batch": ("batch_size", ",d"),
    "step": ("step", "s"),
    "ms": ("seconds", "ms"),
    "over the limit": ("over_limit", ".2f"),
}
MEASURE = {
    "work": ("work", "s"),
    "impressions": ("num_impressions", ",d"),
    "seconds": ("wall_seconds", ".2f"),
    "peak, GB": ("peak_gb", ".2f"),
    "peer": ("peer", "s"),
    "time over peer": ("time_over_peer", ".2f"),
}

SPEED = {
    "calibration": Benchmark(
        title="Calibration of DP-SGD's noise",
        script="speed/calibration.py",
        measures="The CPU time to find the least noise for a guarantee, compared with "
        "dp-accounting's own PLD accountant. The last column is the noise that tulle "
        "finds divided by that of the peer.",
        columns={
            "steps": ("steps", ",d"),
            "CPU seconds": ("cpu_seconds", ".2f"),
            "times the peer's speed": ("times_as_fast", ".0f"),
            "noise over peer": ("noise_over_peer", ".4f"),
        },
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "dpsgd": Benchmark(
        title="A private step on a CPU",
        script="speed/dpsgd.py",
        options="--peer-python PEER",
        measures="The time of a step of DP-SGD on models with embedding tables, divided by the "
        "limit: the time of tulle's own step without clipping, noise and momentum of "
        "its tables. PEER is the path of a Python with torch and Opacus.",
        columns=STEP,
        keep=lambda row, _: row["num_rows"] == 2_400_000 and row["batch_size"] == 16384,
        note=_step_targets,
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "dpsgd_noise": Benchmark(
        title="A private step with other noise",
        script="speed/dpsgd.py",
        options='--mode limit --mode "tulle lazy" --mode "tulle dense" --mode "tulle lattice" '
        '--mode "tulle banded" --mode "tulle selected rows" --model mlp --rows 100000 '
        "--rows 2400000 --batch 16384 --steps 6 --no-growth "
        "--output benchmarks/published/dpsgd_noise.json",
        measures="The same for noise on a lattice, correlated noise and selected rows.",
        columns=STEP,
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "dpsgd_gpu": Benchmark(
        title="A private step on a GPU",
        script="speed/dpsgd_gpu.py",
        measures="The time of a step divided by that of tulle's own step without privacy. The "
        "floor is the least time that the bytes and operations of a step can take.",
        columns={
            "rows": ("num_rows", ",d"),
            "step": ("step", "s"),
            "ms": ("milliseconds", ".2f"),
            "over plain": ("over_plain", ".2f"),
            "floor, ms": ("floor_milliseconds", ".2f"),
            "peak, GB": ("peak_gigabytes", ".1f"),
        },
        note=_gpu_targets,
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "samplers": Benchmark(
        title="Exact samplers",
        script="speed/samplers.py",
        measures="The number of exact draws per second, divided by that of numpy's sampler of "
        "the nearest distribution, which is neither exact nor secure, and by the rate "
        "of the operating system's entropy.",
        columns={
            "noise": ("law", "s"),
            "million draws a second": ("draws_per_second", "M"),
            "over numpy": ("ratio_to_numpy", ".2f"),
            "over the entropy limit": ("ratio_to_entropy_limit", ".2f"),
        },
        keep=lambda row, record: row["size"] == max(each["size"] for each in record["rows"]),
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "index_drawing": Benchmark(
        title="Drawing the rows of a batch",
        script="speed/index_drawing.py",
        measures="The CPU time of each sampler for one batch, divided by the time in which "
        "numpy chooses as many rows, and as a share of a reference step.",
        columns={
            "sampler": ("sampler", "s"),
            "CPU ms": ("milliseconds", ".2f"),
            "over numpy's choice": ("ratio_to_numpy_choice", ".1f"),
            "share of the step": ("share_of_step", ".1%"),
        },
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "encoding": Benchmark(
        title="Feature encoding",
        script="speed/encoding.py",
        measures="The speed of turning text columns into feature ids on one thread, divided by "
        "that of polars' own hash, which is not stable between versions.",
        columns={
            "what": ("what", "s"),
            "a second": ("per_second", ",d"),
            "over polars' hash": ("ratio_to_polars_hash", ".2f"),
        },
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "mosaic_speed": Benchmark(
        title="Training of Mosaic",
        script="speed/mosaic.py",
        options="--clicks CLICKS.parquet",
        measures="The time and memory of training Mosaic at epsilon 3 beside LightGBM without "
        "privacy (100 trees of 63 leaves, hashed ids as categorical columns), on the same rows "
        "with the same cores. Making LightGBM's own data set is part of its time. Memory is "
        "anonymous memory beyond what was there when the data were open, mapped files left out. "
        "AUC losses are those of held-out rows. A table of cells that "
        "is measured in two rounds counts twice, and one pass over the rows is enough for a scan.",
        columns={
            "log": ("log", "s"),
            "rows": ("num_rows", ",d"),
            "cores": ("num_cores", "d"),
            "seconds": ("mosaic_seconds", ",.1f"),
            "LightGBM": ("lightgbm_seconds", ",.1f"),
            "time over LightGBM": ("time_over_lightgbm", ".2f"),
            "memory, MB": ("mosaic_memory_bytes", "MB"),
            "LightGBM's": ("lightgbm_memory_bytes", "MB"),
            "AUC loss": ("mosaic_auc_loss", ".4f"),
            "that of LightGBM": ("lightgbm_auc_loss", ".4f"),
            "tables": ("mosaic_tables", ",d"),
            "scans": ("mosaic_scans", "d"),
        },
        note=_mosaic_targets,
        no_seed="none; noise is drawn as in use.",
    ),
    "predict": Benchmark(
        title="Predictions",
        script="speed/predict.py",
        measures="The speed of predicting a million rows of a synthetic log with a model of "
        "Mosaic, from files with two threads, beside the same model in DuckDB's SQL and "
        "in onnxruntime; and one row at a time. CPU seconds are those of all threads: "
        "where the machine does other work too, twice the rows a CPU second are what "
        "two free cores do. The last column is the CPU time divided by that of tulle, "
        "from Parquet or for one row.",
        columns={
            "log": ("log", "s"),
            "what": ("what", "s"),
            "rows a second": ("rows_per_second", ",d"),
            "rows a CPU second": ("rows_per_cpu_second", ",d"),
            "over tulle": ("cpu_over_tulle", ".2f"),
        },
        note=_predict_targets,
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "prepare": Benchmark(
        title="Preparing a log",
        script="speed/prepare.py",
        options="--rows 1000000 --rows 4000000 --rows 40000000",
        measures="The speed of turning a log in the layout of Criteo Display into a prepared "
        "dataset, divided by that of a plain conversion to Parquet by polars.",
        columns={
            "rows": ("num_rows", ",d"),
            "rows a second": ("rows_per_second", ",d"),
            "peak, MB": ("peak_bytes", "MB"),
            "speed over polars": ("ratio_to_polars_conversion", ".2f"),
        },
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "synth_speed": Benchmark(
        title="Synthetic logs",
        script="speed/synth.py",
        measures="The rows per second of each synthetic log, as arrays and as files, and the "
        "rate divided by that of numpy's random words.",
        columns={
            "shape": ("shape", "s"),
            "rows a second": ("rows_per_second", ",.0f"),
            "CPU rate over the limit": ("cpu_rate_over_limit", ".2f"),
            "as text": ("written_txt", ",.0f"),
            "as Parquet": ("written_parquet", ",.0f"),
        },
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "label_release": Benchmark(
        title="Release of labels",
        script="speed/label_release.py",
        measures="The rows per second of a release of noisy labels, divided by those of a copy "
        "of the table by polars.",
        columns={
            "case": ("case", "s"),
            "columns": ("num_columns", "d"),
            "rows a second": ("rows_per_second", ",d"),
            "speed over polars' copy": ("ratio_to_polars_copy", ".2f"),
            "peak, MB": ("peak_bytes", "MB"),
        },
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "label_solvers": Benchmark(
        title="Design of label mechanisms",
        script="speed/label_solvers.py",
        measures="The CPU time to design bins and unbiased randomizers and to draw from them, "
        "as a share of limits that were set beforehand. The slowest cases are shown.",
        columns={
            "task": ("task", "s"),
            "size": ("size", ",d"),
            "epsilon": ("epsilon", "g"),
            "CPU seconds": ("cpu_seconds", ".3f"),
            "share of the limit": ("share_of_limit", ".0%"),
        },
        keep=lambda row, record: row["share_of_limit"] >= record["worst_share_of_limit"] / 2,
        no_seed=NO_SEED_FOR_TIMES,
    ),
    "measure": Benchmark(
        title="Measurement",
        script="speed/measure.py",
        options="--peer-python PEER --output benchmarks/published/measure.json",
        measures="The time of attribution divided by that of hand-written SQL for the same "
        "totals, and the time of bounded slice counts divided by that of PipelineDP "
        "on one machine. PEER is the path of a Python with PipelineDP.",
        columns=MEASURE,
        note=_measure_targets,
    ),
    "measure_large": Benchmark(
        title="Measurement under a limit on memory",
        script="speed/measure.py",
        options="--large 100000000 --output benchmarks/published/measure_large.json",
        measures="The time of attribution and of bounded counts on a long log, measured once, "
        "with a limit on the memory of DuckDB.",
        columns={key: MEASURE[key] for key in ("work", "impressions", "seconds", "peak, GB")},
    ),
    "select_speed": Benchmark(
        title="Selection",
        script="speed/select_speed.py",
        options="--opendp-python PEER --diffprivlib-python PEER",
        measures="The number of auctions decided per second. The peers decide one auction per "
        "call; `one at a time` is tulle used in the same way.",
        columns={
            "choice": ("choice", "s"),
            "peer": ("peer", "s"),
            "peer, a second": ("peer_per_second", ",.0f"),
            "tulle, a second": ("per_second", ",.0f"),
            "one at a time": ("single_per_second", ",.0f"),
            "times as fast": ("times_as_fast", ".0f"),
        },
        rows="peers",
    ),
}
