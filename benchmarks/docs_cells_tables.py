"""Tables about Hybrid, which trains on cells, for docs_tables.py."""

import json
import pathlib

PUBLISHED = pathlib.Path(__file__).resolve().parent / "published"
OTHERS = ("hybrid_real", "hybrid_synth")


def cells_table(record: dict) -> list[str]:
    others = [
        row
        for name in OTHERS
        for row in json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))["summary"]
    ]
    lines = [
        "| log | epsilon | AUC loss | above non-private | log loss | calibration "
        "| best other: above non-private | its log loss |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(record["summary"], key=lambda row: (row["source"], row["epsilon"])):
        same = [
            other
            for other in others
            if (other["source"], other["epsilon"]) == (row["source"], row["epsilon"])
        ]
        best = min(same, key=lambda other: other["auc_loss"], default=None)
        beside = "| | |" if best is None else _beside(best)
        lines.append(
            f"| {row['source']} | {row['epsilon']:g} | {row['auc_loss']:.4f} "
            f"| {row['relative_percent']:.1f}% | {row['log_loss']:.4f} "
            f"| {row['calibration']:.3f} {beside}"
        )
    return [*lines, "", _facts(record)]


def _beside(best: dict) -> str:
    return f"| {best['relative_percent']:.1f}% ({best['method']}) | {best['log_loss']:.4f} |"


def _facts(record: dict) -> str:
    largest = max(row["stddev"] or 0.0 for row in record["summary"])
    seconds = max(row["seconds"] for row in record["rows"])
    seeds = {row["seeds"] for row in record["summary"]}
    machine = record["machine"]
    return (
        f"Measured {record['date']} on {machine['num_cores']} cores of {machine['processor']}, "
        f"means of {min(seeds)} seeds; between seeds the AUC loss has a standard deviation of at "
        f"most {largest:.4f}. The longest run took {seconds:.0f} seconds."
    )
