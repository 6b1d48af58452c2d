"""The table of docs/measure.md, from what benchmarks/speed/measure.py published."""


def measure_table(record: dict) -> list[str]:
    """Time and memory of each work, and its time over that of a peer."""
    lines = [
        "| work | impressions | seconds | peak, GB | peer | time over peer |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        ratio = row["time_over_peer"]
        lines.append(
            f"| {row['work']} | {row['num_impressions']:,} | {row['wall_seconds']:.2f} "
            f"| {row['peak_gb']:.2f} | {row['peer'] or ''} "
            f"| {'' if ratio is None else f'{ratio:.2f}'} |"
        )
    versions = record["versions"]
    machine = record["machine"]
    peer = f", {record['peer']}" if "peer" in record else ""
    return [
        *lines,
        "",
        f"Measured {record['date']} on {machine['num_cores']} cores of {machine['processor']}, "
        f"Python {versions['python']}, DuckDB {versions['duckdb']}{peer}. Medians of "
        f"{record['repeats']} turns, one turn where memory is limited; seed {record['seed']}.",
    ]
