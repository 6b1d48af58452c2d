"""Tables of all training methods, and of the parts of Hybrid, for docs_tables.py."""

import statistics
from collections.abc import Callable, Iterable

from docs_hybrid_expectations import ABLATIONS, LEVERS, verdict

Row = dict
LOSSES = ("auc_loss", "log_loss")
AS_IT_IS = "as it is"


def methods_table(record: Row) -> list[str]:
    """AUC loss of each method above that of training without privacy, for each log."""

    def cell(row: Row, base: Row) -> str:
        above = f"{row['relative_percent']:.1f}%"
        spread = row["stddev"]
        return above if spread is None else f"{above} ± {100 * spread / base['auc_loss']:.1f}"

    lines = []
    for source, rows, base in _logs(record):
        lines += [
            f"{source}, where training without privacy has an AUC loss of {base['auc_loss']:.4f}:",
            "",
            *_by_epsilon(rows, "auc_loss", cell, base),
            "",
        ]
    return [*lines, _measured(record)]


def likelihood_table(record: Row) -> list[str]:
    """Log loss and calibration of each method, for each log."""

    def cell(row: Row, _base: Row) -> str:
        return f"{row['log_loss']:.4f} ({row['calibration']:.2f})"

    lines = []
    for source, rows, base in _logs(record):
        lines += [f"{source}, where training without privacy has {cell(base, base)}:", ""]
        lines += [*_by_epsilon(rows, "log_loss", cell, base), ""]
    return lines[:-1]


def ablations_table(record: Row) -> list[str]:
    """What changing a part of Hybrid does to AUC loss and log loss."""
    rows = {
        (row["variant"], row["source"], row["epsilon"]): row
        for row in sorted(record["summary"], key=lambda row: (row["source"], row["epsilon"]))
    }
    columns = list(dict.fromkeys((source, epsilon) for _, source, epsilon in rows))
    heads = [f"{source}, epsilon {epsilon:g}" for source, epsilon in columns]
    lines = [
        f"| Hybrid | expected | {' | '.join(heads)} | verdict |",
        "|---" * (3 + len(heads)) + "|",
    ]
    for variant in [AS_IT_IS, *ABLATIONS]:
        own = [rows[variant, *column] for column in columns]
        cells = " | ".join(map(_changes, own))
        lines.append(f"| {variant} | {_expected(variant)} | {cells} | {_outcome(variant, own)} |")
    seeds = max(row["seeds"] for row in record["summary"])
    train_rows = sorted({f"{row['train_rows']:,}" for row in record["rows"]})
    return [
        *lines,
        "",
        "AUC loss and log loss as it is, and by how much each part changes them; less is better. "
        "What was expected is the change of the AUC loss. "
        f"Measured {record['date']}, means of {seeds} seeds, models of {' and '.join(train_rows)} "
        "training rows.",
    ]


def levers_table(record: Row) -> list[str]:
    """What larger batches and correlated noise do to DP-SGD."""
    found = {(row["method"], row["epsilon"]): row["auc_loss"] for row in record["summary"]}
    epsilons = list(next(iter(LEVERS.values())))
    heads = [f"epsilon {epsilon:g}: expected | measured" for epsilon in epsilons]
    lines = [f"| method | {' | '.join(heads)} | verdict |", "|---" * (2 + 2 * len(heads)) + "|"]
    for method, expected in LEVERS.items():
        if not all((method, epsilon) in found for epsilon in epsilons):
            continue
        changes = [100 * (found[method, e] / found["dp-sgd", e] - 1) for e in epsilons]
        cells = [
            f"{expected[e]} | {change:+.1f}%" for e, change in zip(epsilons, changes, strict=True)
        ]
        outcome = verdict(list(expected.values()), changes)
        lines.append(f"| {method} | {' | '.join(cells)} | {outcome} |")
    return lines


def steps_table(record: Row) -> list[str]:
    """Private steps after Hybrid, or beside it."""
    groups: dict[tuple, list[Row]] = {}
    for row in record["rows"]:
        groups.setdefault((row["model"], row["hybrid_part"], row["learning_rate"]), []).append(row)
    lines = [
        "| model | Hybrid's part | learning rate | AUC loss "
        "| above Hybrid alone | log loss | calibration |",
        "|---|---|---|---|---|---|---|",
    ]
    alone = statistics.mean(row["auc_loss"] for row in groups["hybrid", 1.0, None])
    for (model, part, rate), rows in sorted(
        groups.items(), key=lambda item: statistics.mean(row["auc_loss"] for row in item[1])
    ):
        auc_loss, log_loss, calibration = (
            statistics.mean(row[key] for row in rows) for key in (*LOSSES, "calibration")
        )
        lines.append(
            f"| {model} | {part:g} | {'' if rate is None else f'{rate:g}'} | {auc_loss:.4f} "
            f"| {100 * (auc_loss / alone - 1):+.1f}% | {log_loss:.4f} | {calibration:.3f} |"
        )
    seeds = len({row["seed"] for row in record["rows"]})
    return [
        *lines,
        "",
        f"Measured {record['date']} on one {record['device']}, epsilon {record['epsilon']:g} for "
        f"everything together, means over {seeds} seeds, {record['rows'][0]['source']}.",
    ]


def _logs(record: Row) -> Iterable[tuple[str, list[Row], Row]]:
    """Name, private rows and the row without privacy of each log."""
    for source in sorted({row["source"] for row in record["summary"]}):
        rows = [row for row in record["summary"] if row["source"] == source]
        (base,) = (row for row in rows if row["epsilon"] is None)
        yield source, [row for row in rows if row["epsilon"] is not None], base


def _by_epsilon(rows: list[Row], key: str, cell: Callable[[Row, Row], str], base: Row) -> list[str]:
    """A line for each method, a column for each epsilon, the least of a column in bold."""
    epsilons = sorted({row["epsilon"] for row in rows})
    found = {(row["method"], row["epsilon"]): row for row in rows}
    best = {e: min(row[key] for row in rows if row["epsilon"] == e) for e in epsilons}

    def written(method: str, epsilon: float) -> str:
        row = found.get((method, epsilon))
        if row is None:
            return ""
        return f"**{cell(row, base)}**" if row[key] == best[epsilon] else cell(row, base)

    lines = [
        f"| method | {' | '.join(f'epsilon {epsilon:g}' for epsilon in epsilons)} |",
        "|---" * (1 + len(epsilons)) + "|",
    ]
    for method in _in_order({row["method"] for row in rows}):
        cells = [written(method, epsilon) for epsilon in epsilons]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


def _in_order(methods: set[str]) -> list[str]:
    """The four methods first, then their variants."""
    order = ["hybrid", "rr", "dp-sgd", "two-phase, paper's split"]
    return [name for name in order if name in methods] + sorted(methods - set(order))


def _changes(row: Row) -> str:
    if row["variant"] == AS_IT_IS:
        return " / ".join(f"{row[key]:.4f}" for key in LOSSES)
    return " / ".join(f"{row[f'{key}_percent']:+.2f}%" for key in LOSSES)


def _expected(variant: str) -> str:
    return "" if variant == AS_IT_IS else str(ABLATIONS[variant])


def _outcome(variant: str, rows: list[Row]) -> str:
    if variant == AS_IT_IS:
        return ""
    return verdict([ABLATIONS[variant]] * len(rows), [row["auc_loss_percent"] for row in rows])


def _measured(record: Row) -> str:
    seeds = min(row["seeds"] for row in record["summary"])
    error = max(row["auc_loss_standard_error"] for row in record["rows"])
    train_rows = max(row["train_rows"] for row in record["rows"])
    spread = "; ± is the standard deviation between them" if seeds > 1 else ""
    return (
        f"Measured {record['date']} on one {record['device']} and {record['machine']['num_cores']} "
        f"cores, torch {record['torch']}, {train_rows:,} training rows, {seeds} "
        f"seed{'s' if seeds > 1 else ''}{spread}. The test rows alone give each AUC loss a "
        f"standard error of at most {error:.4f}."
    )
