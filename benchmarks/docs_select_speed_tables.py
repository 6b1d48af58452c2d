"""The tables of selection's speed, from what benchmarks/speed/select_speed.py published."""

from typing import Any

Row = dict[str, Any]


def select_speed_table(record: Row) -> list[str]:
    """Every work with its target, and choices a second next to those of two libraries."""
    lines = ["| work | auctions | thousand a second | at least |", "|---|---|---|---|"]
    for row in record["rows"]:
        target = "" if row["target"] is None else _thousands(row["target"])
        lines.append(
            f"| {row['work']} | {row['num_auctions']:,} | {_thousands(row['per_second'])} "
            f"| {target} |"
        )
    machine, versions = record["machine"], record["versions"]
    return [
        *lines,
        "",
        f"Auctions of {record['least_size']} to {record['largest_size']} candidates, epsilon "
        f"{record['epsilon']:g} where no other is named. With words of the operating system "
        f"randomized response has {record['speed_over_seeded']:.0%} of its speed with seeded ones.",
        *(_peers(record["peers"], record["peer_versions"]) if record["peers"] else []),
        "",
        f"Measured {record['date']} on {machine['num_cores']} cores of {machine['processor']}, "
        f"seed {record['seed']}, Python {versions['python']}, numpy {versions['numpy']}; medians "
        f"of {record['repeats']} turns.",
    ]


def _peers(rows: list[Row], versions: dict[str, str]) -> list[str]:
    lines = [
        "| choice | peer | its thousand a second | ours | ours, a call for each auction "
        "| times as fast, all in one call |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['choice']} | {row['peer']} {versions[row['peer']]} "
            f"| {_thousands(row['peer_per_second'])} | {_thousands(row['per_second'])} "
            f"| {_thousands(row['single_per_second'])} | {row['times_as_fast']:.0f} |"
        )
    return [
        "",
        *lines,
        "",
        f"The same {rows[0]['num_auctions']:,} auctions for all. Peers take one auction a call and "
        "get scaled scores and favourites ready-made; ours takes all auctions in one call, except "
        "in the last column but one.",
    ]


def _thousands(per_second: float) -> str:
    thousands = per_second / 1e3
    return f"{thousands:,.0f}" if thousands >= 100 else f"{thousands:,.1f}"
