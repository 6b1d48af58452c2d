"""Curves of all training methods over epsilon: python benchmarks/docs_mosaic_figures.py.

Written from the published records into docs/, one figure for each log and loss.
"""

import pathlib
import sys
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from record import PUBLISHED, read_record
from tulle.report.html.chart_svg import write_charts
from tulle.report.html.charts import Axis, Curve, CurveChart

DOCS = PUBLISHED.parents[1] / "docs"
RECORDS = ("hybrid_real", "hybrid_synth")
METHODS = {
    "mosaic": "Mosaic",
    "rr": "randomized labels",
    "dp-sgd": "DP-SGD",
    "hybrid, paper's split": "Hybrid",
}
REAL = "criteo search, real clicks"
_WEEK = 7


def main() -> None:
    for name, chart in figures():
        write_charts(DOCS / name, [chart])
        print(name)


def figures() -> Iterator[tuple[str, CurveChart]]:
    """File name and chart of each figure."""
    for record in RECORDS:
        rows = read_record(PUBLISHED / f"{record}.json")["summary"]
        for source in sorted({row["source"] for row in rows}):
            own = [row for row in rows if row["source"] == source]
            yield f"mosaic-{_file_word(source)}.svg", auc_loss_figure(own)
            if source == REAL:
                yield f"mosaic-{_file_word(source)}-log-loss.svg", log_loss_figure(own)
    daily = read_record(PUBLISHED / "mosaic_daily.json")["rows"]
    yield "mosaic-daily.svg", daily_figure(daily)


def daily_figure(rows: list[dict]) -> CurveChart:
    """AUC loss on the next day, as means of weeks, from scratch and continued."""
    weeks = max(row["day"] for row in rows) // _WEEK
    curves = []
    for kind in ("from scratch", "continued"):
        means = []
        for week in range(weeks):
            days = range(week * _WEEK, (week + 1) * _WEEK)
            own = [r["auc_loss"] for r in rows if r["training"] == kind and r["day"] in days]
            means.append(sum(own) / len(own))
        xs = tuple(float(week + 1) for week in range(weeks))
        curves.append(Curve(label=kind, xs=xs, ys=tuple(means)))
    return CurveChart(
        name="A model for each day at epsilon 1",
        x_axis=Axis(name="week"),
        y_axis=Axis(name="AUC loss on the next day"),
        curves=tuple(curves),
    )


def auc_loss_figure(rows: list[dict]) -> CurveChart:
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


def log_loss_figure(rows: list[dict]) -> CurveChart:
    """Log loss over epsilon."""
    (base,) = (row["log_loss"] for row in rows if row["epsilon"] is None)
    points = {
        method: [(row["epsilon"], row["log_loss"], 0.0) for row in _of(method, rows)]
        for method in METHODS
    }
    return _curves(points, "log loss", base)


def _curves(
    points: dict[str, list[tuple[float, float, float]]], y_name: str, base: float
) -> CurveChart:
    epsilons = [epsilon for found in points.values() for epsilon, _, _ in found]
    curves = [
        Curve(
            label=METHODS[method],
            xs=tuple(epsilon for epsilon, _, _ in found),
            ys=tuple(loss for _, loss, _ in found),
            ranges=tuple((loss - spread, loss + spread) for _, loss, spread in found)
            if any(spread for _, _, spread in found)
            else (),
        )
        for method, found in points.items()
    ]
    ends = (min(epsilons), max(epsilons))
    level = Curve(label="without privacy", xs=ends, ys=(base, base), is_reference=True)
    return CurveChart(
        name="Training methods over epsilon",
        x_axis=Axis(name="epsilon", is_log=True),
        y_axis=Axis(name=y_name),
        curves=(*curves, level),
    )


def _of(method: str, rows: list[dict]) -> list[dict]:
    found = [row for row in rows if row["method"] == method]
    return sorted(found, key=lambda row: row["epsilon"])


def _file_word(source: str) -> str:
    return "real" if source == REAL else source.replace(":", "-")


if __name__ == "__main__":
    main()
