"""Errors of counts by trust model: python benchmarks/quality/trust_models.py.

Standard deviations of one count over the number of users and over epsilon, and of one bucket of a
large histogram. They are exact formulas of the mechanisms at their settings; simulations that
agree with them are among the tests. No data are read.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, versions, write_record
from tulle.lab.trust.central_counts import (
    CentralGaussianConfig,
    CentralLaplaceConfig,
    ValueCountsConfig,
)
from tulle.lab.trust.local_counts import (
    LocalLaplaceConfig,
    LocalRapporConfig,
    LocalResponseConfig,
    LocalSubsetConfig,
)
from tulle.lab.trust.shuffled_counts import MixedCountsConfig, ShuffledResponseConfig
from tulle.report.html.chart_svg import write_charts
from tulle.report.html.charts import Axis, Curve, CurveChart

DOCS = PUBLISHED.parents[1] / "docs"
DELTA = 2e-9
USERS = tuple(10**power for power in range(2, 9))
EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
COUNT_USERS, COUNT_EPSILON = 1_000_000, 1.0
HISTOGRAM_USERS, HISTOGRAM_VALUES = 60_000_000, 915


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "trust_models.json")
    parser.add_argument("--plots", type=Path, default=DOCS, help="Folder of the two plots.")
    options = parser.parse_args()
    rows = [row for users in USERS for row in errors("users", COUNT_EPSILON, users, 2)]
    rows += [row for epsilon in EPSILONS for row in errors("epsilon", epsilon, COUNT_USERS, 2)]
    for epsilon in EPSILONS:
        rows += errors("histogram", epsilon, HISTOGRAM_USERS, HISTOGRAM_VALUES)
    print_table(rows)
    facts = {
        "versions": versions("numpy", "scipy"),
        "delta": DELTA,
        "adjacency": "replace",
        "seed": None,
        "frequency": {"count": 0.5, "histogram": 1 / HISTOGRAM_VALUES},
        "honest_users": "all",
    }
    write_record(options.output, "errors of counts by trust model", rows, facts)
    write_plots(options.plots, rows)


def write_plots(folder: Path, rows: list[dict[str, object]]) -> None:
    """The error of a count over users, and of a bucket over epsilon."""
    for curve, key, setting_name in (
        ("users", "num_users", f"users, at epsilon {COUNT_EPSILON:g}"),
        ("histogram", "epsilon", f"epsilon, {HISTOGRAM_USERS:,} users, {HISTOGRAM_VALUES} buckets"),
    ):
        points: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row["curve"] == curve:
                name = f"{row['trust']}: {row['method']}"
                points.setdefault(name, []).append((row[key], row["stddev"]))
        chart = CurveChart(
            name="Error of a count by trust model",
            x_axis=Axis(name=setting_name, is_log=True),
            y_axis=Axis(name="standard deviation of a count", is_log=True),
            curves=tuple(
                Curve(label=name, xs=tuple(x for x, _ in found), ys=tuple(y for _, y in found))
                for name, found in points.items()
            ),
        )
        write_charts(folder / f"trust-models-{curve}.svg", [chart])


def errors(curve: str, epsilon: float, num_users: int, num_values: int) -> list[dict[str, object]]:
    """One row for each method."""
    found = []
    for method, config in methods(epsilon, num_users, num_values).items():
        is_shuffled = isinstance(config, ShuffledResponseConfig)
        is_mixed = isinstance(config, MixedCountsConfig)
        found.append(
            {
                "curve": curve,
                "trust": config.trust_model.value,
                "method": method,
                "epsilon": epsilon,
                "num_users": num_users,
                "num_values": num_values,
                "stddev": config.expected_stddev(1 / num_values),
                "local_epsilon": round(config.local_epsilon, 4) if is_shuffled else None,
                "messages_per_user": config.messages_per_user if is_mixed else 1,
            }
        )
    return found


def methods(epsilon: float, num_users: int, num_values: int) -> dict[str, ValueCountsConfig]:
    """Every way to count, with the same guarantee."""
    pure = {"epsilon": epsilon, "num_users": num_users, "num_values": num_values}
    with_delta = pure | {"delta": DELTA}
    return {
        "discrete Laplace": CentralLaplaceConfig(**pure),
        "Gaussian": CentralGaussianConfig(**with_delta),
        "split-and-mix": MixedCountsConfig(**with_delta, min_honest_users=num_users),
        "shuffled response": ShuffledResponseConfig(**with_delta, min_honest_users=num_users),
        "randomized response": LocalResponseConfig(**pure),
        "subset selection": LocalSubsetConfig(**pure),
        "RAPPOR": LocalRapporConfig(**pure),
        "Laplace on each device": LocalLaplaceConfig(**pure),
    }


if __name__ == "__main__":
    main()
