"""Tables of the docs from the published records: python benchmarks/docs_tables.py.

A page holds a pair of comments around each table; what is between them is written anew. A test
checks that the pages are up to date.
"""

import pathlib
import re
import sys
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from docs_label_tables import (
    label_quality_table,
    label_release_table,
    label_solvers_table,
    label_value_table,
)
from docs_measure_tables import measure_large_table, measure_table
from docs_mosaic_tables import (
    ablations_table,
    classes_table,
    daily_table,
    few_rows_table,
    known_values_table,
    likelihood_table,
    methods_table,
    rounds_table,
    users_table,
    values_table,
)
from docs_reach_tables import reach_table
from docs_select_speed_tables import select_speed_table
from docs_select_tables import selection_table
from docs_tree_tables import clip_shares_table, level_budgets_table
from docs_trust_tables import trust_models_table
from record import PUBLISHED, read_record

ROOT = pathlib.Path(__file__).resolve().parents[1]


def calibration_table(record: dict) -> list[str]:
    lines = [
        "| steps | noise multiplier | CPU seconds | times the peer's speed | noise over peer |",
        "|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        lines.append(
            f"| {row['steps']:,} | {row['noise_multiplier']:.4f} | {row['cpu_seconds']:.2f} "
            f"| {row['times_as_fast']:.0f} | {row['noise_over_peer']:.4f} |"
        )
    return [*lines, "", _machine(record), f"Peer: {record['peer']}."]


def samplers_table(record: dict) -> list[str]:
    largest = max(row["size"] for row in record["rows"])
    lines = [
        "| noise | million draws a second | over numpy, inexact | over the entropy limit |",
        "|---|---|---|---|",
    ]
    for row in record["rows"]:
        if row["size"] == largest:
            lines.append(
                f"| {row['law']} | {row['draws_per_second'] / 1e6:.1f} "
                f"| {row['ratio_to_numpy']:.2f} | {row['ratio_to_entropy_limit']:.2f} |"
            )
    return [*lines, "", _machine(record)]


def prepare_table(record: dict) -> list[str]:
    lines = [
        "| rows | thousand rows a second | peak memory, MB | speed over polars' conversion |",
        "|---|---|---|---|",
    ]
    for row in record["rows"]:
        lines.append(
            f"| {row['num_rows']:,} | {row['rows_per_second'] / 1e3:.0f} "
            f"| {row['peak_bytes'] / 1e6:.0f} | {row['ratio_to_polars_conversion']:.2f} |"
        )
    return [*lines, "", _machine(record, f"{record['machine']['num_cores']} cores")]


def numeric_columns_table(record: dict) -> list[str]:
    lines = ["| columns of numbers | epsilon | AUC |", "|---|---|---|"]
    for row in record["rows"]:
        found = f"{row['auc']:.4f} ± {row['auc_deviation']:.4f}"
        lines.append(f"| {row['columns']} | {row['epsilon']:g} | {found} |")
    truth = record["rows"][0]["auc_of_truth"]
    return [
        *lines,
        "",
        _machine(record),
        f"{record['rows_of_a_log']:,} rows, {record['test_rows']:,} of them to test on; means and "
        f"standard deviations over {record['seeds']} logs. The true probabilities have an AUC of "
        f"{truth:.4f}.",
    ]


def index_drawing_table(record: dict) -> list[str]:
    lines = ["| sampler | CPU milliseconds a batch | share of the step |", "|---|---|---|"]
    for row in record["rows"]:
        lines.append(
            f"| `{row['sampler']}` | {row['milliseconds']:.2f} | {row['share_of_step']:.1%} |"
        )
    return [*lines, "", _machine(record)]


def model_size_table(record: dict) -> list[str]:
    lines = [
        "| model | public tower | threshold | sensitive ids | AUC loss | log loss |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(record["summary"], key=lambda row: (row["model"], row["public_tower"])):
        lines.append(
            f"| {row['model']} | {row['public_tower']} | {row['threshold']:,} "
            f"| {row['sensitive_ids']:,} | {row['auc_loss']:.4f} ({row['auc_loss_percent']:+.2f}%) "
            f"| {row['log_loss']:.4f} ({row['log_loss_percent']:+.2f}%) |"
        )
    spread = max(100 * row["auc_loss_stddev"] / row["auc_loss"] for row in record["summary"])
    return [
        *lines,
        "",
        _machine(record, f"{record['machine']['num_cores']} cores"),
        f"{record['num_rows']:,} rows, epsilon {record['epsilon']:g} with the vocabulary in it, "
        f"{record['private_epochs']:g} epochs of private steps, means of {record['seeds']} seeds. "
        f"Between seeds the AUC loss has a standard deviation of up to {spread:.2f}%.",
    ]


def dpsgd_table(record: dict) -> list[str]:
    steps = list(dict.fromkeys(row["step"] for row in record["rows"]))
    tasks: dict[tuple, dict[str, dict]] = {}
    for row in record["rows"]:
        task = (row["model"], row["batch_size"], row["num_rows"], row["unique_rows"])
        tasks.setdefault(task, {})[row["step"]] = row
    lines = [
        f"| model | batch | rows | read by a batch | {' | '.join(steps)} | peak above model, GB |",
        "|---" * (5 + len(steps)) + "|",
    ]
    for (model, batch_size, num_rows, unique_rows), found in tasks.items():
        cells = [_step_cell(found.get(step)) for step in steps]
        lines.append(
            f"| {model} | {batch_size:,} | {num_rows:,} | {unique_rows:,} | {' | '.join(cells)} "
            f"| {_gigabytes_above(found.get('tulle lazy'))} |"
        )
    lines += ["", "| target | at most | reached |", "|---|---|---|"]
    for name, most in record["targets"].items():
        reached = record["reached"].get(name)
        lines.append(f"| {name} | {most:g} | {'' if reached is None else f'{reached:.2f}'} |")
    used = f"{record['num_threads']} thread{'s' if record['num_threads'] > 1 else ''}"
    peers = ", ".join(f"{name} {version}" for name, version in record["peer_versions"].items())
    return [
        *lines,
        "",
        f"Milliseconds a step, and in brackets times the limit. {_machine(record, used)} "
        f"torch {record['versions']['torch']}; Opacus with {peers or 'nothing: not measured'}.",
    ]


def dpsgd_noise_table(record: dict) -> list[str]:
    lines = ["| rows | noise | ms a step | over the limit | peak, GB |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['num_rows']:,} | {row['step'].removeprefix('tulle ')} "
        f"| {1e3 * row['seconds']:,.0f} | {row['over_limit']:.2f} "
        f"| {row['peak_bytes'] / 1e9:.2f} |"
        for row in record["rows"]
    ]
    used = f"{record['num_threads']} threads"
    return [*lines, "", f"Perceptron, batches of 16,384. {_machine(record, used)}"]


def dpsgd_gpu_table(record: dict) -> list[str]:
    lines = [
        "| rows | step | ms a step | over plain | floor, ms | peak, GB |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['num_rows']:,} | {row['step']} | {row['milliseconds']:.2f} "
        f"| {row['over_plain']:.2f} | {row['floor_milliseconds']:.2f} "
        f"| {row['peak_gigabytes']:.1f} |"
        for row in record["rows"]
    ]
    limits = record["limits"]
    return [
        *lines,
        "",
        f"Batches of {record['batch_size']:,} of {record['num_examples']:,} examples with 39 "
        f"features, a perceptron of three layers of 598. {record['gpu']}, torch "
        f"{record['versions']['torch']}, {record['date']}. A large copy moves "
        f"{limits['copy_bytes_per_second'] / 1e12:.2f} TB/s, a large product does "
        f"{limits['bfloat16_flops_per_second'] / 1e12:.0f} (bfloat16) and "
        f"{limits['tf32_flops_per_second'] / 1e12:.0f} (TF32) TFLOP/s.",
    ]


def banded_noise_table(record: dict) -> list[str]:
    bands = list(dict.fromkeys(row["num_bands"] for row in record["rows"]))
    tasks: dict[tuple, list[float]] = {}
    for row in record["rows"]:
        tasks.setdefault((row["epochs"], row["epsilon"]), []).append(row["noise_left"])
    lines = [
        f"| epochs | epsilon | {' | '.join(f'{number} bands' for number in bands)} |",
        "|---" * (2 + len(bands)) + "|",
    ]
    for (epochs, epsilon), left in tasks.items():
        cells = [f"**{value:.2f}**" if value == min(left) else f"{value:.2f}" for value in left]
        lines.append(f"| {epochs} | {epsilon:g} | {' | '.join(cells)} |")
    return lines


def mutants_table(record: dict) -> list[str]:
    lines = ["| area | mutants | noticed | survive | survived at first |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['area']} | {row['mutants']} | {row['caught'] + row['timeout']} "
        f"| {row['survived']} | {row['survived_at_first']} |"
        for row in record["summary"]
    ]
    return [
        *lines,
        "",
        f"Sample of seed {record['seed']}, {record['date']}; "
        f"{record['summary'][-1]['timeout']} of those noticed did not end.",
    ]


TABLES: dict[str, tuple[str, Callable[[dict], list[str]]]] = {
    "calibration": ("accounting.md", calibration_table),
    "samplers": ("mechanisms.md", samplers_table),
    "prepare": ("data.md", prepare_table),
    "numeric_columns": ("data.md", numeric_columns_table),
    "index_drawing": ("data.md", index_drawing_table),
    "hybrid_real": ("mosaic.md", methods_table),
    "hybrid_synth": ("mosaic.md", methods_table),
    "mosaic_users": ("mosaic.md", users_table),
    "known_values": ("mosaic.md", known_values_table),
    "mosaic_daily": ("mosaic.md", daily_table),
    "few_rows": ("mosaic.md", few_rows_table),
    "hybrid_ablations": ("mosaic.md", ablations_table),
    "mosaic_rounds": ("mosaic.md", rounds_table),
    "hybrid_real likelihood": ("training-quality.md", likelihood_table),
    "hybrid_synth likelihood": ("training-quality.md", likelihood_table),
    "mosaic_values": ("values.md", values_table),
    "mosaic_classes": ("classes.md", classes_table),
    "model_size": ("training-quality.md", model_size_table),
    "banded_noise": ("correlated-noise.md", banded_noise_table),
    "dpsgd": ("fast-private-steps.md", dpsgd_table),
    "dpsgd_noise": ("fast-private-steps.md", dpsgd_noise_table),
    "dpsgd_gpu": ("fast-private-steps.md", dpsgd_gpu_table),
    "label_solvers": ("label-mechanisms.md", label_solvers_table),
    "label_release": ("label-mechanisms.md", label_release_table),
    "labels_real": ("label-quality.md", label_quality_table),
    "labels_synth": ("label-quality.md", label_quality_table),
    "labels_values": ("label-quality.md", label_value_table),
    "level_budgets": ("hierarchies.md", level_budgets_table),
    "clip_shares": ("budget-optimisation.md", clip_shares_table),
    "reach": ("reach.md", reach_table),
    "trust_models": ("trust-models.md", trust_models_table),
    "measure": ("measure.md", measure_table),
    "selection": ("selection-results.md", selection_table),
    "select_speed": ("select.md", select_speed_table),
    "measure_large": ("measure.md", measure_large_table),
    "mutants": ("audits.md", mutants_table),
}
"""By mark: the name of a record, and what of it is shown if there are several tables."""
NOT_MEASURED = ["No figures have been published yet."]


def page_with_table(name: str) -> tuple[pathlib.Path, str]:
    """The page of a table, and its text with the table as published."""
    page_name, make_table = TABLES[name]
    page = ROOT / "docs" / page_name
    published = PUBLISHED / f"{name.partition(' ')[0]}.json"
    is_there = published.exists()
    table = "\n".join(make_table(read_record(published)) if is_there else NOT_MEASURED)
    marks = re.compile(f"<!-- {name} -->.*<!-- end {name} -->", re.DOTALL)
    text, count = marks.subn(f"<!-- {name} -->\n\n{table}\n\n<!-- end {name} -->", page.read_text())
    if count != 1:
        raise SystemExit(f"{page_name} needs one pair of comments for {name}, has {count}.")
    return page, text


def main() -> None:
    for name in TABLES:
        page, text = page_with_table(name)
        page.write_text(text)
        print(f"{page.name}: {name}")


def _step_cell(row: dict | None) -> str:
    if row is None:
        return ""
    ratio = "" if row["over_limit"] is None else f" ({row['over_limit']:.2f})"
    return f"{row['seconds'] * 1e3:.{1 if row['seconds'] < 0.1 else 0}f}{ratio}"


def _gigabytes_above(row: dict | None) -> str:
    if row is None or row["peak_bytes"] is None:
        return ""
    return f"{(row['peak_bytes'] - row['model_bytes']) / 1e9:.2f}"


def _machine(record: dict, used: str = "one thread") -> str:
    return (
        f"Measured {record['date']} on {used} of {record['machine']['processor']}, "
        f"Python {record['versions']['python']}, numpy {record['versions']['numpy']}."
    )


if __name__ == "__main__":
    main()
