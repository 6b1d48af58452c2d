"""Tables of all training methods, and of the parts of Mosaic, for docs_tables.py."""

from collections.abc import Callable, Iterable

from docs_mosaic_expectations import ABLATIONS, verdict

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


def daily_table(record: Row) -> list[str]:
    """Day-ahead losses of models from scratch and continued, by stretches of days."""
    lines = [
        "| days | AUC loss, from scratch | AUC loss, continued | difference "
        "| log loss, from scratch | log loss, continued | calibration, continued |",
        "|---|---|---|---|---|---|---|",
    ]
    rows, first = record["rows"], record["first_days_left_out"]
    last = max(row["day"] for row in rows)
    edges = [(0, first - 1), (first, 30), (31, 60), (61, last), (first, last)]
    for begin, end in edges:
        own = [row for row in rows if begin <= row["day"] <= end]
        kinds = [
            [row for row in own if row["training"] == kind]
            for kind in ("from scratch", "continued")
        ]
        losses, logs = ([_mean(kind, name) for kind in kinds] for name in ("auc_loss", "log_loss"))
        name = f"all after the first {first}" if (begin, end) == edges[-1] else f"{begin} to {end}"
        lines.append(
            f"| {name} | {losses[0]:.4f} | {losses[1]:.4f} "
            f"| {100 * (losses[1] / losses[0] - 1):+.1f}% "
            f"| {logs[0]:.4f} | {logs[1]:.4f} | {_mean(kinds[1], 'calibration'):.3f} |"
        )
    seeds = [
        len({row["seed"] for row in rows if row["training"] == kind})
        for kind in ("from scratch", "continued")
    ]
    number = f"{seeds[0]} seeds" if seeds[0] == seeds[1] else f"{seeds[0]} and {seeds[1]} seeds"
    rows_a_day = sum(row["num_rows"] for row in rows) / len(rows)
    (kept,) = {row["keep_evidence"] for row in rows if row["training"] == "continued"}
    return [
        *lines,
        "",
        f"Each model is trained on one day at epsilon {record['epsilon']:g} (delta "
        f"{record['delta']:g}), about {rows_a_day:,.0f} rows, and tested on all rows of the next "
        f"day. Means of {number}; continued with --keep-evidence {kept:g}. "
        f"Measured {record['date']}.",
    ]


def users_table(record: Row) -> list[str]:
    """AUC loss with single rows and with whole users as units, on the same rows."""
    lines = [
        "| log | epsilon | rows as units | users as units | difference | calibration by rows "
        "| calibration by users |",
        "|---|---|---|---|---|---|---|",
    ]
    found: dict[tuple[str, float], dict[str, list[Row]]] = {}
    for row in record["rows"]:
        units = found.setdefault((row["log"], row["epsilon"]), {})
        units.setdefault(row["unit"], []).append(row)
    bases = {
        log: _mean(units["none"], "auc_loss")
        for (log, _), units in found.items()
        if "none" in units
    }
    for (log, epsilon), units in found.items():
        if "none" in units:
            continue
        rows, users = (_mean(units[unit], "auc_loss") for unit in ("row", "user"))
        base = bases.get(log)
        above = [
            "" if base is None else f" ({100 * (loss / base - 1):+.1f}%)" for loss in (rows, users)
        ]
        lines.append(
            f"| {log} | {epsilon:g} | {rows:.4f}{above[0]} | {users:.4f}{above[1]} "
            f"| {100 * (users / rows - 1):+.2f}% | {_calibrations(units['row'])} "
            f"| {_calibrations(units['user'])} |"
        )
    sizes = "; ".join(
        f"{log}: {row['num_rows']:,} rows of {row['num_users']:,} users"
        for log, row in {row["log"]: row for row in record["rows"]}.items()
    )
    seeds = len({row["seed"] for row in record["rows"]})
    return [
        *lines,
        "",
        f"AUC losses, means of {seeds} seeds; in brackets above training without privacy, where "
        "that was run. Calibrations are those of the rows of users with 1, with 2, and with 3 or "
        f"more rows, of one seed. Test rows are those of other users. {sizes}. "
        f"Measured {record['date']}.",
    ]


def _calibrations(rows: list[Row]) -> str:
    """Mean calibrations of users with 1, 2, and 3 or more rows."""
    key = "calibration_by_rows"
    means = zip(*(row[key] for row in rows if key in row), strict=True)
    return " / ".join(f"{sum(some) / len(some):.2f}" for some in means)


_KNOWN = {"hashed": "no table", "values": "known values", "facts": "known values and facts"}


def known_values_table(record: Row) -> list[str]:
    """AUC loss and log loss without a table of values, with the values alone, and with facts."""
    found: dict[tuple[str, float], dict[str, list[Row]]] = {}
    for row in record["rows"]:
        ways = found.setdefault((row["public"], row["epsilon"]), {})
        ways.setdefault(row["known"], []).append(row)
    lines = [
        f"| public columns | epsilon | {' | '.join(_KNOWN.values())} | facts against no table |",
        "|---|---|---|---|---|---|",
    ]
    for (public, epsilon), ways in found.items():
        losses = {name: [_mean(ways[name], loss) for loss in _LOSSES] for name in _KNOWN}
        cells = [f"{auc:.4f}, {log:.4f}" for auc, log in losses.values()]
        auc, log = (
            100 * (facts / none - 1)
            for facts, none in zip(losses["facts"], losses["hashed"], strict=True)
        )
        lines.append(f"| {public} | {epsilon:g} | {' | '.join(cells)} | {auc:+.1f}%, {log:+.2f}% |")
    seeds = len({row["seed"] for row in record["rows"]})
    return [
        *lines,
        "",
        f"AUC loss and log loss, means of {seeds} seeds; {record['num_rows']:,} rows to train on, "
        f"{record['num_test_rows']:,} of other users to test on, {record['num_known']:,} known "
        f"audiences. Measured {record['date']}.",
    ]


_LOSSES = ("auc_loss", "log_loss")


def few_rows_table(record: Row) -> list[str]:
    """AUC loss and log loss on few rows, and what the plan said."""
    lines = [
        "| log | rows | epsilon | AUC loss: Mosaic | randomized labels | log loss: Mosaic "
        "| randomized labels | label rate | plan |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    found: dict[tuple[str, int, float], dict[str, list[Row]]] = {}
    for row in record["rows"]:
        place = (row["log"], row["num_rows"], row["epsilon"])
        found.setdefault(place, {}).setdefault(row["method"], []).append(row)
    logs = list(dict.fromkeys(row["log"] for row in record["rows"]))
    for place in sorted(found, key=lambda place: (logs.index(place[0]), *place[1:])):
        log, num_rows, epsilon = place
        methods = found[place]
        mosaic, labels, rate = methods["mosaic"], methods["rr"], methods["label rate"]
        said = "few" if all(row["plan_says_few"] for row in mosaic) else ""
        plan = "refused" if all(row["is_refused"] for row in mosaic) else said
        aucs = [_mean(rows, "auc_loss") for rows in (mosaic, labels)]
        losses = [_mean(rows, "log_loss") for rows in (mosaic, labels, rate)]
        lines.append(
            f"| {log} | {num_rows:,} | {epsilon:g} | {_best(aucs, '.3f')} "
            f"| {_best(losses, '.4f')} | {plan} |"
        )
    seeds = {
        (row["num_rows"], row["epsilon"]): len({other["seed"] for other in methods["mosaic"]})
        for methods in found.values()
        for row in methods["mosaic"]
    }
    few, many = min(seeds.values()), max(seeds.values())
    number = f"{many}" if few == many else f"{few} to {many}"
    return [
        *lines,
        "",
        f"Means of {number} draws of rows, the least in bold; the label rate has an AUC loss of "
        "0.5. The plan said of some rows beforehand that they are few. Measured "
        f"{record['date']}.",
    ]


def _best(losses: list[float], form: str) -> str:
    return " | ".join(
        f"**{loss:{form}}**" if loss == min(losses) else f"{loss:{form}}" for loss in losses
    )


def _mean(rows: Iterable[Row], name: str) -> float:
    values = [row[name] for row in rows]
    return sum(values) / len(values)


def likelihood_table(record: Row) -> list[str]:
    """Log loss and calibration of each method, for each log."""

    def cell(row: Row, _base: Row) -> str:
        return f"{row['log_loss']:.4f} ({row['calibration']:.2f})"

    lines = []
    for source, rows, base in _logs(record):
        lines += [f"{source}, where training without privacy has {cell(base, base)}:", ""]
        lines += [*_by_epsilon(rows, "log_loss", cell, base), ""]
    return lines[:-1]


def values_table(record: Row) -> list[str]:
    """R2, calibration and bidding utility of predicted amounts, by method and epsilon."""
    lines = [
        "| method | epsilon | mean squared error | R2 | calibration | error by decile | utility |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in record["summary"]:
        epsilon = "none" if row["epsilon"] is None else f"{row['epsilon']:g}"
        spread = row["r_squared_stddev"]
        explained = f"{100 * row['r_squared']:.1f}%"
        explained += "" if spread is None else f" ± {100 * spread:.1f}"
        lines.append(
            f"| {row['method']} | {epsilon} | {row['mean_squared_error']:,.0f} | {explained} "
            f"| {row['calibration']:.2f} | {row['calibration_error']:.2f} "
            f"| {row['bidding_over_constant']:.3f} |"
        )
    first = record["rows"][0]
    return [
        *lines,
        "",
        "Calibration is the mean prediction over the mean label, the error by decile is in euros, "
        "and the utility is a multiple of what bidding the mean label everywhere earns. "
        f"Measured {record['date']}; {first['train_rows']:,} training and "
        f"{first['test_rows']:,} test rows, means of {len(record['seeds'])} seeds; ± is the "
        "standard deviation between seeds.",
    ]


def classes_table(record: Row) -> list[str]:
    """Log loss, accuracy and AUC of predicted classes, by method and epsilon."""
    lines = [
        "| method | epsilon | log loss | of class frequencies | accuracy | AUC |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["summary"]:
        epsilon = "none" if row["epsilon"] is None else f"{row['epsilon']:g}"
        spread = row["log_loss_stddev"]
        loss = f"{row['log_loss']:.4f}" + ("" if spread is None else f" ± {spread:.4f}")
        part = f"{100 * row['normalised_cross_entropy']:.1f}%"
        lines.append(
            f"| {row['method']} | {epsilon} | {loss} | {part} | {100 * row['accuracy']:.1f}% "
            f"| {row['auc']:.3f} |"
        )
    first = record["rows"][0]
    return [
        *lines,
        "",
        "Percentages of log loss are of that of the frequencies of classes; the AUC is the mean "
        f"over classes. Measured {record['date']}; {first['train_rows']:,} training and "
        f"{first['test_rows']:,} test rows, means of {len(record['seeds'])} seeds; ± is the "
        "standard deviation between seeds.",
    ]


def ablations_table(record: Row) -> list[str]:
    """What changing a part of Mosaic does to AUC loss and log loss."""
    rows = {
        (row["variant"], row["source"], row["epsilon"]): row
        for row in sorted(record["summary"], key=lambda row: (row["source"], row["epsilon"]))
    }
    tried = {variant for variant, *_ in rows}
    variants = [variant for variant in (AS_IT_IS, *ABLATIONS) if variant in tried]
    columns = list(dict.fromkeys((source, epsilon) for _, source, epsilon in rows))
    heads = [f"{source}, epsilon {epsilon:g}" for source, epsilon in columns]
    lines = [
        f"| Mosaic | expected | {' | '.join(heads)} | verdict |",
        "|---" * (3 + len(heads)) + "|",
    ]
    for variant in variants:
        own = [rows.get((variant, *column)) for column in columns]
        cells = " | ".join("" if row is None else _changes(row) for row in own)
        outcome = _outcome(variant, [row for row in own if row is not None])
        lines.append(f"| {variant} | {_expected(variant)} | {cells} | {outcome} |")
    seeds = max(row["seeds"] for row in record["summary"])
    runs = "one seed" if seeds == 1 else f"means of {seeds} seeds"
    train_rows = sorted({f"{row['train_rows']:,}" for row in record["rows"]})
    return [
        *lines,
        "",
        "AUC loss and log loss as it is, and by how much each part changes them; less is better. "
        "What was expected is the change of the AUC loss. "
        f"Measured {record['date']}, {runs}, models of {' and '.join(train_rows)} training rows.",
    ]


def rounds_table(record: Row) -> list[str]:
    """Losses, scans and tables with the tables of a round one by one, and in one scan."""
    lines = [
        "| log | epsilon | AUC loss, one by one | one scan a round | change | change of log loss "
        "| calibration | scans | tables |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in record["summary"]:
        changes = [
            f"{row[f'{name}_percent']:+.2f}% ± {row[f'{name}_percent_stddev']:.2f}"
            for name in LOSSES
        ]
        pairs = [
            f"{row[f'{name}_before']:{form}} → {row[name]:{form}}"
            for name, form in (("calibration", ".3f"), ("scans", ".0f"), ("tables", ".0f"))
        ]
        lines.append(
            f"| {row['source']} | {row['epsilon']:g} | {row['auc_loss_before']:.4f} "
            f"| {row['auc_loss']:.4f} | {' | '.join((*changes, *pairs))} |"
        )
    (seeds,) = {row["seeds"] for row in record["summary"]}
    train_rows = sorted({f"{row['train_rows']:,}" for row in record["rows"]})
    commits = " and ".join(record["commits"].values())
    return [
        *lines,
        "",
        f"Models of {' and '.join(train_rows)} training rows, judged on a tenth of the training "
        f"rows that they have not seen, with the same plans and seeds: means of {seeds} seeds, ± "
        "the standard deviation of a change between seeds. A table that is measured in two rounds "
        f"counts twice. Measured {record['date']}, commits {commits}.",
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
    order = ["mosaic", "rr", "dp-sgd", "hybrid, paper's split"]
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
    error = max(row["auc_loss_standard_error"] for row in record["rows"])
    train_rows = max(row["train_rows"] for row in record["rows"])
    cores = {row["num_cores"] for row in record["rows"] if _is_mosaic(row)}
    other = next(row for row in record["rows"] if not _is_mosaic(row))
    return (
        f"Measured {record['date']}, Mosaic on {' or '.join(map(str, sorted(cores)))} cores, the "
        f"others on one {other['device']} with torch {other['torch']}; {train_rows:,} training "
        f"rows. {_seeds(record)} The test rows alone give each AUC loss a standard error of at "
        f"most {error:.4f}."
    )


def _seeds(record: Row) -> str:
    """How many runs a figure is the mean of."""
    numbers = sorted({row["seeds"] for row in record["summary"]})
    runs = " to ".join(map(str, dict.fromkeys([numbers[0], numbers[-1]])))
    return f"Means of {runs} seeds; ± is the standard deviation between seeds."


def _is_mosaic(row: Row) -> bool:
    return bool(row["method"] == "mosaic")
