"""Means of the value benchmark and which orderings of the published table held.

The claims are those of the comparison of unbiased randomizers with RR-on-Bins on the
Sponsored Search log (Badanidiyuru et al., NeurIPS 2023): among noisy labels those without
bias train the better models, although single labels are much farther from the truth.
"""

import statistics

Row = dict[str, object]

UNBIASED, BINS, BINS_DEBIASED = "unbiased", "rr-on-bins", "rr-on-bins, debiased"
LAPLACE, STAIRCASE = "laplace", "staircase"
CLIPPED = {LAPLACE: "laplace-clipped", STAIRCASE: "staircase-clipped"}

CLAIMS = (
    (UNBIASED, LAPLACE, "test_mse"),
    (UNBIASED, STAIRCASE, "test_mse"),
    (UNBIASED, BINS, "test_mse"),
    (UNBIASED, BINS_DEBIASED, "test_mse"),
    (STAIRCASE, LAPLACE, "test_mse"),
    (LAPLACE, CLIPPED[LAPLACE], "test_mse"),
    (STAIRCASE, CLIPPED[STAIRCASE], "test_mse"),
    (LAPLACE, BINS, "test_mse"),
    (BINS_DEBIASED, BINS, "test_mse"),
    (BINS, UNBIASED, "noisy_label_mse"),
    (UNBIASED, LAPLACE, "noisy_label_mse"),
    (CLIPPED[LAPLACE], LAPLACE, "noisy_label_mse"),
)
"""The first has a smaller figure than the second at every epsilon."""


def summary(rows: list[Row]) -> list[Row]:
    """Means and deviations over seeds, with the error above the model without noise."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault((row["source"], row["mechanism"], row["epsilon"]), []).append(row)
    table = []
    for (source, mechanism, epsilon), group in groups.items():
        base = groups[(source, "none", None)][0]["test_mse"]
        errors = [row["test_mse"] for row in group]
        table.append(
            {
                "source": source,
                "mechanism": mechanism,
                "epsilon": epsilon,
                "test_mse": statistics.mean(errors),
                "stddev": statistics.stdev(errors) if len(errors) > 1 else None,
                "relative_percent": 100 * (statistics.mean(errors) / base - 1),
                "noisy_label_mse": statistics.mean(row["noisy_label_mse"] for row in group),
                "ridge": statistics.median(row["ridge"] for row in group),
                "seeds": len(group),
            }
        )
    return sorted(table, key=lambda row: (row["source"], row["epsilon"] or 0, row["test_mse"]))


def verdicts(means: list[Row]) -> list[Row]:
    """One row for each log and claim."""
    found = {(row["source"], row["mechanism"], row["epsilon"]): row for row in means}
    epsilons = sorted({row["epsilon"] for row in means if row["epsilon"] is not None})
    result = []
    for source in dict.fromkeys(row["source"] for row in means):
        for better, worse, figure in CLAIMS:
            figures = [
                _compared(found[source, better, epsilon], found[source, worse, epsilon], figure)
                for epsilon in epsilons
            ]
            words = {"test_mse": "test error", "noisy_label_mse": "error of single labels"}
            result.append(
                {
                    "source": source,
                    "table": "D",
                    "claim": f"{better} has a smaller {words[figure]} than {worse}",
                    "figure": figure,
                    "holds": all(entry["holds"] for entry in figures),
                    "holds_beyond_noise": all(entry["holds_beyond_noise"] for entry in figures),
                    "figures": figures,
                }
            )
    return result


def _compared(better: Row, worse: Row, figure: str) -> Row:
    gain = worse[figure] - better[figure]
    # Errors of single labels are means over all rows: seeds hardly change them.
    spreads = [(row["stddev"] or 0.0) if figure == "test_mse" else 0.0 for row in (better, worse)]
    noise = sum(s**2 / row["seeds"] for s, row in zip(spreads, (better, worse), strict=True)) ** 0.5
    return {
        "epsilon": better["epsilon"],
        "better": better[figure],
        "worse": worse[figure],
        "holds": gain > 0,
        "holds_beyond_noise": gain > 2 * noise,
    }
