"""Curves of all training methods over epsilon: python benchmarks/docs_mosaic_figures.py.

Written from the published records into docs/, one figure for each log and loss.
"""

import pathlib
import sys
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from record import PUBLISHED, read_record
from tulle.report.svg_figures import COLORS, LINES, MARKERS, new_figure, svg_text, write_plot

DOCS = PUBLISHED.parents[1] / "docs"
RECORDS = ("hybrid_real", "hybrid_synth")
METHODS = {
    "mosaic": "Mosaic",
    "rr": "randomized labels",
    "dp-sgd": "DP-SGD",
    "hybrid, paper's split": "Hybrid",
}
REAL = "criteo search, real clicks"


def main() -> None:
    for name, svg in figures():
        write_plot(DOCS / name, svg)
        print(name)


def figures() -> Iterator[tuple[str, str]]:
    """File name and text of each figure."""
    for record in RECORDS:
        rows = read_record(PUBLISHED / f"{record}.json")["summary"]
        for source in sorted({row["source"] for row in rows}):
            own = [row for row in rows if row["source"] == source]
            yield f"mosaic-{_file_word(source)}.svg", auc_loss_figure(own)
            if source == REAL:
                yield f"mosaic-{_file_word(source)}-log-loss.svg", log_loss_figure(own)


def auc_loss_figure(rows: list[dict]) -> str:
    """Relative AUC loss over epsilon, with the spread between seeds."""
    (base,) = (row["auc_loss"] for row in rows if row["epsilon"] is None)
    points = {
        method: [
            (row["epsilon"], row["relative_percent"], 100 * (row["stddev"] or 0.0) / base)
            for row in _of(method, rows)
        ]
        for method in METHODS
    }
    return _curves(points, "AUC loss above training without privacy, %", 0.0)


def log_loss_figure(rows: list[dict]) -> str:
    """Log loss over epsilon."""
    (base,) = (row["log_loss"] for row in rows if row["epsilon"] is None)
    points = {
        method: [(row["epsilon"], row["log_loss"], 0.0) for row in _of(method, rows)]
        for method in METHODS
    }
    return _curves(points, "log loss", base)


def _curves(points: dict[str, list[tuple[float, float, float]]], y_label: str, base: float) -> str:
    epsilons = sorted({epsilon for found in points.values() for epsilon, _, _ in found})
    with new_figure("") as (figure, axes):
        for place, (method, found) in enumerate(points.items()):
            if found:
                x, y, spread = zip(*found, strict=True)
                axes.errorbar(
                    x,
                    y,
                    yerr=spread,
                    label=METHODS[method],
                    color=COLORS[place],
                    marker=MARKERS[place],
                    linestyle=LINES[place % len(LINES)],
                    capsize=3,
                )
        axes.axhline(base, color="#888888", linewidth=1, label="without privacy")
        axes.set_xscale("log")
        axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("epsilon")
        axes.set_ylabel(y_label)
        axes.legend()
        return svg_text(figure, "")


def _of(method: str, rows: list[dict]) -> list[dict]:
    found = [row for row in rows if row["method"] == method]
    return sorted(found, key=lambda row: row["epsilon"])


def _file_word(source: str) -> str:
    return "real" if source == REAL else source.replace(":", "-")


if __name__ == "__main__":
    main()
