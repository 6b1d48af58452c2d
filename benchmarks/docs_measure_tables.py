"""The tables of docs/measure.md, from what benchmarks/speed/measure.py published."""


def measure_table(record: dict) -> list[str]:
    """Time and memory of each work, and its time over that of a peer."""
    lines = [
        "| work | impressions | seconds | peak, GB | peer | time over peer |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        ratio = row["time_over_peer"]
        lines.append(
            f"{_own_cells(row)} {row['peer'] or ''} | {'' if ratio is None else f'{ratio:.2f}'} |"
        )
    peer = f", {record['peer']}" if "peer" in record else ""
    turns = f"Median times and highest peaks of {record['repeats']} turns."
    return [*lines, "", f"{_machine(record)}{peer}. {turns}"]


def measure_large_table(record: dict) -> list[str]:
    """Time and memory of each work on a log that does not fit in memory."""
    lines = ["| work | impressions | seconds | peak, GB |", "|---|---|---|---|"]
    lines += [_own_cells(row) for row in record["rows"]]
    return [*lines, "", f"{_machine(record)}. One turn each."]


def _own_cells(row: dict) -> str:
    return (
        f"| {row['work']} | {row['num_impressions']:,} | {row['wall_seconds']:.2f} "
        f"| {row['peak_gb']:.2f} |"
    )


def _machine(record: dict) -> str:
    machine, versions = record["machine"], record["versions"]
    return (
        f"Measured {record['date']} on {machine['num_cores']} cores of {machine['processor']}, "
        f"seed {record['seed']}, Python {versions['python']}, DuckDB {versions['duckdb']}"
    )
