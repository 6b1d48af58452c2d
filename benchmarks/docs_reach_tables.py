"""The table of docs/reach.md, from what benchmarks/quality/reach.py published."""


def reach_table(record: dict) -> list[str]:
    """The sizes of reach at which each method meets both goals, over all epsilons."""
    epsilons = sorted({row["epsilon"] for row in record["rows"]}, reverse=True)
    methods = list(dict.fromkeys(row["method"] for row in record["rows"]))
    lines = [
        f"| method | {' | '.join(f'epsilon {epsilon:.3g}' for epsilon in epsilons)} |",
        "|---" * (1 + len(epsilons)) + "|",
    ]
    for method in methods:
        cells = [_sizes(record, method, epsilon) for epsilon in epsilons]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    sizes = sorted({row["reach"] for row in record["rows"]})
    criterion = record["criterion"]
    return [
        *lines,
        "",
        f"Tried for a reach of {', '.join(f'{size:,}' for size in sizes)}; "
        f"{record['num_runs']} runs each, {record['max_frequency']} buckets. "
        f"Goals: {criterion['reach_goal']:.0%} of runs "
        f"within {criterion['reach_error']:.0%}, and {criterion['frequency_goal']:.0%} within a "
        f"shuffle distance of {criterion['shuffle_distance']:.0%}; unions release reach alone, "
        f"over {record['num_parties']} parties of whom {record['min_honest_parties']} are relied "
        f"on. Seed {record['seed']}, {record['date']}.",
    ]


def _sizes(record: dict, method: str, epsilon: float) -> str:
    rows = [r for r in record["rows"] if r["method"] == method and r["epsilon"] == epsilon]
    met = [r["reach"] for r in rows if r["reach_passes"] and r["frequency_passes"] is not False]
    if len(met) == len(rows):
        return "all"
    missed = [r["reach"] for r in rows if r["reach"] not in met]
    if not met:
        return "none"
    if max(missed) < min(met):
        return f"from {min(met):,}"
    if max(met) < min(missed):
        return f"up to {max(met):,}"
    is_between = all(size < min(met) or size > max(met) for size in missed)
    return f"{min(met):,} to {max(met):,}" if is_between else f"all but {len(missed)}"
