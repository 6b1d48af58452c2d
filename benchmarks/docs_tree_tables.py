"""Tables about trees, level budgets and clips, for docs_tables.py."""

Row = dict


def level_budgets_table(record: Row) -> list[str]:
    """Relative error by split of the budget, one line for each tree."""
    lines = [
        "| tree | conversions | leaves only | uniform, each level alone | uniform "
        "| cube root, each level alone | cube root | optimised | shares of the optimum |",
        "|---" * 9 + "|",
    ]
    columns = ("leaf_only", "uniform_raw", "uniform", "cube_root_raw", "cube_root", "optimised")
    for row in record["rows"]:
        least = min(row[name] for name in columns)
        cells = [_cell(row[name], is_least=row[name] == least) for name in columns]
        lines.append(
            f"| {row['tree']} | {row['conversions']:,} | {' | '.join(cells)} "
            f"| {row['optimised_shares']} |"
        )
    facts = (
        f"Means over {record['trees']} trees; epsilon {record['epsilon']:g}, tau "
        f"{record['tau']:g}, root mean square over the levels. Computed {record['date']}, seed "
        f"{record['seed']}, numpy {record['versions']['numpy']}, "
        f"scipy {record['versions']['scipy']}."
    )
    return [*lines, "", facts]


def clip_shares_table(record: Row) -> list[str]:
    """Relative error by choice of clips, one line for each set and epsilon."""
    lines = [
        "| set | epsilon | optimised | clip at 90%, equal shares | clip at 95%, equal shares "
        "| optimised over the better one | in the paper |",
        "|---" * 7 + "|",
    ]
    for row in record["rows"]:
        in_the_paper = "" if row["in_the_paper"] is None else f"{row['in_the_paper']:.2f}"
        lines.append(
            f"| {row['set']} | {row['epsilon']:g} | {row['optimised']:.3f} "
            f"| {row['quantile_90']:.3f} | {row['quantile_95']:.3f} "
            f"| {row['over_best_baseline']:.2f} | {in_the_paper} |"
        )
    facts = (
        f"Means over {record['pairs']} pairs of sets: chosen on one, judged on the other. "
        f"{record['max_per_impression']} conversions an impression at most. Computed "
        f"{record['date']}, seed {record['seed']}, numpy {record['versions']['numpy']}, "
        f"scipy {record['versions']['scipy']}."
    )
    return [*lines, "", facts]


def _cell(error: float, *, is_least: bool) -> str:
    return f"**{error:.3f}**" if is_least else f"{error:.3f}"
