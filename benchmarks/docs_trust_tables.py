"""Tables about trust models, for docs_tables.py."""

from collections.abc import Callable

Row = dict


def trust_models_table(record: Row) -> list[str]:
    """Standard deviations of a count over users, and of counts over epsilon."""
    users = [row for row in record["rows"] if row["curve"] == "users"]
    counts = [row for row in record["rows"] if row["curve"] == "epsilon"]
    buckets = [row for row in record["rows"] if row["curve"] == "histogram"]
    bucket = buckets[0]
    return [
        f"One count at epsilon {users[0]['epsilon']:g}, by number of users:",
        "",
        *_table(users, lambda row: f"{row['num_users']:,}"),
        "",
        f"One count of {counts[0]['num_users']:,} users, by epsilon:",
        "",
        *_table(counts, lambda row: f"{row['epsilon']:g}"),
        "",
        f"One of {bucket['num_values']} buckets, {bucket['num_users']:,} users, by epsilon:",
        "",
        *_table(buckets, lambda row: f"{row['epsilon']:g}"),
        "",
        *_messages(bucket, buckets),
        "",
        f"Standard deviations, exact by formula, for delta {record['delta']:g} where one is needed "
        f"and all users honest, under {record['adjacency']}. A counted value is held by half of "
        f"the users, a bucket by one in {bucket['num_values']}. Computed {record['date']}.",
    ]


def _table(rows: list[Row], column: Callable[[Row], str]) -> list[str]:
    columns = list(dict.fromkeys(column(row) for row in rows))
    by_method: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        by_method.setdefault((row["trust"], row["method"]), []).append(_number(row["stddev"]))
    return [
        f"| trust | method | {' | '.join(columns)} |",
        "|---" * (2 + len(columns)) + "|",
        *(
            f"| {trust} | {method} | {' | '.join(cells)} |"
            for (trust, method), cells in by_method.items()
        ),
    ]


def _messages(bucket: Row, buckets: list[Row]) -> list[str]:
    messages = {row["messages_per_user"] for row in buckets if row["method"] == "split-and-mix"}
    local = {row["epsilon"]: row["local_epsilon"] for row in buckets if row["local_epsilon"]}
    return [
        f"Split-and-mix sends {max(messages):,} short messages a user for {bucket['num_values']} "
        f"buckets. One shuffled report has an epsilon of {local[1.0]:.1f} on its own where all "
        "of them together have 1."
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
