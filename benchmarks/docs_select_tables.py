"""Tables about ad selection on synthetic markets, for docs_tables.py."""

Row = dict
_NUMBERS = {
    "revenue_lift": "revenue",
    "surplus_lift": "surplus",
    "click_rate_lift": "clicks",
    "server_lift": "server",
    "uninformed_lift": "uninformed",
    "least_difference_of_captured_shares": "ahead by at least",
    "from_epsilon": "from epsilon",
    "best_gamma": "gamma",
    "randomized_response": "response",
    "randomized response": "response",
    "noisy max, scaled": "scaled",
    "noisy max, clipped": "clipped",
    "noisy max, clipped, width tuned": "clipped",
    "randomized response, gamma tuned": "response",
    "adaptive top-k randomized response": "adaptive top-k",
}
"""Short names of what a verdict follows from."""
_NOT_SHARES = {"from_epsilon", "best_gamma"}


def selection_table(record: Row) -> list[str]:
    """Verdicts on claims, captured gains, and the grids of figures 10 and 13."""
    markets = [market["market"] for market in record["markets"]]
    return [
        "### Claims",
        "",
        *_claims(record["claims"], markets),
        "",
        "### Captured gain",
        "",
        *_captured(record),
        "",
        "### Scores without public hints",
        "",
        *_scores(record),
        "",
        "### Candidates, and what devices know",
        "",
        *_grid(record["grid"]),
        "",
        f"{record['num_auctions']:,} auctions a market, {record['num_score_sets']} sets of scores, "
        f"{record['num_grid_auctions']:,} auctions a cell of the last table; seed "
        f"{record['seed']}. Computed {record['date']}.",
    ]


def _claims(claims: list[Row], markets: list[str]) -> list[str]:
    rows: dict[tuple[str, str], dict[str, Row]] = {}
    for claim in claims:
        rows.setdefault((claim["claim"], claim["condition"]), {})[claim["market"]] = claim
    lines = [f"| claim | condition | {' | '.join(markets)} |", "|---" * (2 + len(markets)) + "|"]
    everywhere = []
    for (name, condition), found in rows.items():
        if set(found) == set(markets):
            cells = " | ".join(_verdict(found[market]) for market in markets)
            lines.append(f"| {name} | {condition} | {cells} |")
        else:
            everywhere.append(f"| {name} | {found['all']['verdict']} |")
    return [
        *lines,
        "",
        "Changes of revenue, surplus and clicks are relative; response, clipped, scaled and "
        "adaptive top-k are captured shares of the gain, as in the table below.",
        "",
        "| claim across markets | verdict |",
        "|---|---|",
        *everywhere,
    ]


def _verdict(claim: Row) -> str:
    numbers = ", ".join(
        f"{_NUMBERS.get(name, name)} {_number(name, value)}"
        for name, value in claim["numbers"].items()
    )
    is_refuted = claim["verdict"] == "does not hold"
    text = f"**{claim['verdict']}**" if is_refuted else claim["verdict"]
    return f"{text}: {numbers}"


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "never"
    return f"{value:g}" if name in _NOT_SHARES else f"{100 * value:+.1f}%"


def _captured(record: Row) -> list[str]:
    epsilons = list(dict.fromkeys(row["epsilon"] for row in record["rows"]))
    lines = [
        f"| market | mechanism | {' | '.join(f'{epsilon:g}' for epsilon in epsilons)} |",
        "|---" * (2 + len(epsilons)) + "|",
    ]
    for market in record["markets"]:
        rows = [row for row in record["rows"] if row["market"] == market["market"]]
        for mechanism in dict.fromkeys(row["mechanism"] for row in rows):
            own = [row for row in rows if row["mechanism"] == mechanism]
            # Several widths were tried one by one; the tuned one stands for them.
            if len(own) == len(epsilons):
                cells = " | ".join(f"{100 * row['captured_share']:.1f}" for row in own)
                name = f"{market['market']} (+{100 * market['gain']:.1f}%)"
                lines.append(f"| {name} | {mechanism} | {cells} |")
    return [
        *lines,
        "",
        "Per cent of what greedy selection adds to welfare above the server's winners (in "
        "brackets: how much that is), by epsilon. Standard errors are up to "
        f"{100 * _largest_error(record, is_above=True):.1f} points where the share is above 0, up "
        f"to {100 * _largest_error(record, is_above=False):.0f} below.",
    ]


def _largest_error(record: Row, *, is_above: bool) -> float:
    return max(
        row["captured_share_error"]
        for row in record["rows"]
        if (row["captured_share"] > 0) == is_above
    )


def _scores(record: Row) -> list[str]:
    epsilons = list(dict.fromkeys(row["epsilon"] for row in record["scores"]))
    lines = [
        f"| scores | candidates | mechanism | {' | '.join(f'{e:g}' for e in epsilons)} |",
        "|---" * (3 + len(epsilons)) + "|",
    ]
    cells: dict[tuple, list[str]] = {}
    for row in record["scores"]:
        key = (row["law"], row["num_candidates"], row["mechanism"])
        cells.setdefault(key, []).append(f"{row['mean_score']:.3f}")
    lines += [
        f"| {law} | {size} | {mechanism} | {' | '.join(values)} |"
        for (law, size, mechanism), values in cells.items()
    ]
    return [*lines, "", "Expected score of the choice by epsilon; the best possible is 1 or less."]


def _grid(rows: list[Row]) -> list[str]:
    groups = list(dict.fromkeys(row["group"] for row in rows))
    alphas = list(dict.fromkeys(row["alpha"] for row in rows))
    cells = {(row["group"], row["alpha"]): row["overtaking_epsilon"] for row in rows}
    return [
        f"| alpha | {' | '.join(groups)} |",
        "|---" * (1 + len(groups)) + "|",
        *(
            f"| {alpha:g} | {' | '.join(_epsilon(cells[group, alpha]) for group in groups)} |"
            for alpha in alphas
        ),
        "",
        "Epsilon from which on randomized response over all candidates has a higher click rate "
        "than clipped noisy max with its best width. Alpha is the share that is left of the "
        "difference between device and server.",
    ]


def _epsilon(value: float | None) -> str:
    return "never" if value is None else f"{value:g}"
