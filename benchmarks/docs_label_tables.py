"""Tables about noisy labels, for docs_tables.py."""

from collections.abc import Iterable

Row = dict


def label_quality_table(record: Row) -> list[str]:
    """AUC loss and relative log likelihood by setting, epsilons as columns."""
    means = record["summary"]
    epsilons = _epsilons(means)
    lines = [
        f"| model | unit | noise | training | {' | '.join(f'{e:g}' for e in epsilons)} |",
        "|---" * (4 + len(epsilons)) + "|",
    ]
    for row in means:
        if row["epsilon"] is None:
            empty = " |" * (len(epsilons) - 1)
            lines.append(f"| {row['model']} | | none | | {_quality_cell(row)} |{empty}")
    settings = dict.fromkeys(_setting(row) for row in means if row["epsilon"] is not None)
    found = {(_setting(row), row["epsilon"]): row for row in means}
    for setting in settings:
        cells = [_quality_cell(found.get((setting, epsilon))) for epsilon in epsilons]
        lines.append(f"| {' | '.join((*setting, *cells))} |")
    return [*lines, "", _quality_facts(record), "", *_verdicts(record)]


def label_value_table(record: Row) -> list[str]:
    """Test error and error of single labels by mechanism, epsilons as columns."""
    lines = []
    for source in dict.fromkeys(row["source"] for row in record["summary"]):
        means = [row for row in record["summary"] if row["source"] == source]
        epsilons = _epsilons(means)
        (plain,) = [row for row in means if row["epsilon"] is None]
        constant = next(r["constant_test_mse"] for r in record["rows"] if r["source"] == source)
        lines += [
            f"{source[0].upper()}{source[1:]}: {plain['test_mse']:,.0f} without noise, "
            f"{constant:,.0f} for a constant.",
            "",
            f"| mechanism | {' | '.join(f'{e:g}' for e in epsilons)} |",
            "|---" * (1 + len(epsilons)) + "|",
        ]
        found = {(row["mechanism"], row["epsilon"]): row for row in means}
        for name in dict.fromkeys(row["mechanism"] for row in means if row["epsilon"] is not None):
            cells = [_value_cell(found[name, epsilon]) for epsilon in epsilons]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    train_rows = max(row["train_rows"] for row in record["rows"])
    return [
        *lines,
        f"Test mean squared error, and in brackets that of single noisy labels. Measured "
        f"{record['date']} with {len(record['seeds'])} seeds; up to {train_rows:,} training rows.",
        "",
        *_verdicts(record),
    ]


def label_release_table(record: Row) -> list[str]:
    """Speed of a release, against its limit and a plain copy."""
    lines = [
        "| release | public columns | million rows a second | over polars' copy | peak, MB |",
        "|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        lines.append(
            f"| {row['case']} | {row['num_columns']} | {row['rows_per_second'] / 1e6:.2f} "
            f"| {row['ratio_to_polars_copy']:.2f} | {row['peak_bytes'] / 1e6:,.0f} |"
        )
    limit = record["targets"]["rows_per_second"] / 1e6
    machine = record["machine"]
    return [
        *lines,
        "",
        f"{record['rows'][0]['num_rows']:,} rows; the limit for randomized response on a Parquet "
        f"table is {limit:g} million rows a second. Measured {record['date']} on "
        f"{machine['num_cores']} cores of {machine['processor']}, polars "
        f"{record['versions']['polars']}.",
    ]


def label_solvers_table(record: Row) -> list[str]:
    """The slowest epsilon of each task."""
    slowest: dict[tuple, Row] = {}
    for row in record["rows"]:
        task = (row["task"], row["size"])
        if task not in slowest or row["cpu_seconds"] > slowest[task]["cpu_seconds"]:
            slowest[task] = row
    lines = [
        "| task | size | slowest epsilon | CPU seconds | share of the limit |",
        "|---|---|---|---|---|",
    ]
    for (task, size), row in slowest.items():
        lines.append(
            f"| {task} | {size:,} | {row['epsilon']:g} | {row['cpu_seconds']:.3g} "
            f"| {row['share_of_limit']:.2f} |"
        )
    return [
        *lines,
        "",
        f"Measured {record['date']} on one thread of {record['machine']['processor']}, numpy "
        f"{record['versions']['numpy']}, scipy {record['versions']['scipy']}.",
    ]


def _verdicts(record: Row) -> list[str]:
    """What was claimed, and whether it held."""
    has_sources = len({row["source"] for row in record["verdicts"]}) > 1
    lines = [
        ("| log " if has_sources else "") + "| claim | held | where it did not |",
        "|---" * (3 + has_sources) + "|",
    ]
    for row in record["verdicts"]:
        missed = [f"{figure['epsilon']:g}" for figure in row["figures"] if not figure["holds"]]
        tried = ", ".join(f"{figure['epsilon']:g}" for figure in row["figures"])
        lines.append(
            (f"| {row['source']} " if has_sources else "")
            + f"| {row['claim']} (epsilon {tried}) | {_held(row)} | {', '.join(missed)} |"
        )
    return lines


def _held(row: Row) -> str:
    if not row["holds"]:
        return "no"
    words = {True: "yes", False: "yes, some gaps within noise", None: "yes, one seed"}
    return words[row["holds_beyond_noise"]]


def _setting(row: Row) -> tuple[str, str, str, str]:
    return row["model"], row["unit"], row["noise"], row["correction"]


def _epsilons(means: Iterable[Row]) -> list[float]:
    return sorted({row["epsilon"] for row in means if row["epsilon"] is not None})


def _quality_cell(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{row['auc_loss']:.4f} / {row['relative_log_likelihood']:.3f}"


def _value_cell(row: Row) -> str:
    return f"{row['test_mse']:,.0f} ({_short(row['noisy_label_mse'])})"


def _short(number: float) -> str:
    return f"{number / 1e3:,.0f}k" if number >= 1e4 else f"{number:,.0f}"


def _quality_facts(record: Row) -> str:
    devices = ", ".join(sorted({row["device"] for row in record["rows"]}))
    seeds = sorted({row["seeds"] for row in record["summary"]})
    shown = f"{seeds[0]} to {seeds[-1]} seeds" if len(seeds) > 1 else f"{seeds[0]} seeds"
    spread = max(row["stddev"] or 0.0 for row in record["summary"])
    train_rows = max(row["train_rows"] for row in record["rows"])
    return (
        f"AUC loss / relative log likelihood, epsilons as columns. Measured {record['date']} on "
        f"{devices}; {shown}, {train_rows:,} training rows. Between seeds the AUC loss has a "
        f"standard deviation of at most {spread:.4f}."
    )
