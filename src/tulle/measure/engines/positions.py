"""Where each touch of a moment stands, and its share of the moment's weights.

Most rules only ask for the first, the last or the most important touch and for sums, so most
moments need no sorting: minima, maxima and sums of the group tell all. Moments in which two
touches share an extreme, and rules that ask for more, go through windows.

Sums of weights are sums of whole numbers. A sum of floats depends on the order in which an
engine adds, and so, by its last digits, on the rows of other users; a sum of integers does not.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

from collections.abc import Sequence

from tulle.measure.attribution.rules import (
    ChannelWeights,
    LastN,
    PriorityTouch,
    Rule,
    TimeDecay,
)
from tulle.measure.engines.engine import Step
from tulle.measure.engines.log_tables import MICROS, NULL_TEXT
from tulle.measure.engines.matching import Matching
from tulle.measure.engines.sql_text import column_list, equal_columns, float_literal, text_literal

WEIGHT_STEPS = 1 << 40
"""What a weight of 1 is as a whole number."""
_MAX_PLAIN_HALVINGS = 8
"""Up to here a weight by age has 32 bits and more, and needs no comparison with the newest."""
_LEAST_PRIORITY = -1e308
_RANK_STEP = 1 << 57
"""Beyond all times in microseconds, so that a rank outweighs them."""
_MAX_RANKS = 30
_CHANNEL = f"COALESCE(CAST(channel AS VARCHAR), {text_literal(NULL_TEXT)})"


def position_steps(matching: Matching, rules: Sequence[Rule], *, keeps_steps: bool) -> list[Step]:
    """From `moments` and `imp` to `positions`.

    Its columns beside those of touches: front (1 is the first), touches (how many), and by the
    number of the rule weight0, weights0 (their sum), place0 (1 is the most important).
    Where front is neither 1 nor touches it may be any number between, unless a rule asks.
    Sums read the touches several times, which pays only where an engine keeps them.
    """
    if keeps_steps and _can_be_summed(matching, rules):
        return _summed(matching, rules)
    return [*matching.touch_steps(), *_windowed(matching, rules, source="touches")]


def _can_be_summed(matching: Matching, rules: Sequence[Rule]) -> bool:
    if matching.attribution.max_touches is not None:
        return False
    for rule in rules:
        if isinstance(rule, LastN) or _needs_newest(rule, matching):
            return False
        if isinstance(rule, PriorityTouch) and (
            "priority" in matching.carried or len(rule.kinds) > _MAX_RANKS
        ):
            return False
    return True


def _summed(matching: Matching, rules: Sequence[Rule]) -> list[Step]:
    keys = matching.moment_keys
    weights = _weights(matching, rules)
    ranks = [
        (index, f"it - CAST({_kind_rank(rule, matching)} AS BIGINT) * {_RANK_STEP}")
        for index, rule in enumerate(rules)
        if isinstance(rule, PriorityTouch)
    ]
    made = [f"{sql} AS weight{index}" for index, sql in weights]
    made += [f"{sql} AS rank{index}" for index, sql in ranks]
    # Made again at each reading: touches are many, and kept narrow.
    weighed = f"SELECT {column_list(['*', *made])} FROM touches"
    stats = ["COUNT(*) AS touches", "MIN(it) AS first_it", "MAX(it) AS last_it"]
    stats += [f"SUM(weight{index}) AS weights{index}" for index, _ in weights]
    stats += [f"MAX(rank{index}) AS best{index}" for index, _ in ranks]
    sums = f"SELECT {column_list([*keys, *stats])} FROM weighed GROUP BY {column_list(keys)}"
    extremes = ["i.it = s.first_it", "i.it = s.last_it"]
    extremes += [f"i.rank{index} = s.best{index}" for index, _ in ranks]
    shared = " OR ".join(f"SUM(CASE WHEN {sql} THEN 1 ELSE 0 END) > 1" for sql in extremes)
    joined = f"weighed i JOIN moment_sums s ON {equal_columns('i', 's', keys)}"
    unclear = (
        f"SELECT {column_list(keys, 'i')} FROM {joined} "
        f"GROUP BY {column_list(keys, 'i')} HAVING {shared}"
    )
    same = equal_columns("o", "i", keys)
    kept = (*keys, "num", "it", *matching.carried)
    front = "CASE WHEN i.it = s.first_it THEN 1 WHEN i.it = s.last_it THEN s.touches ELSE 2 END"
    found = [f"{front} AS front", "s.touches AS touches"]
    found += [f"i.weight{index} AS weight{index}" for index, _ in weights]
    found += [f"s.weights{index} AS weights{index}" for index, _ in weights]
    found += [
        f"CASE WHEN i.rank{index} = s.best{index} THEN 1 ELSE 2 END AS place{index}"
        for index, _ in ranks
    ]
    clear = (
        f"SELECT {column_list(kept, 'i')}, {column_list(found)} FROM {joined} "
        f"WHERE NOT EXISTS (SELECT 1 FROM unclear o WHERE {same})"
    )
    tied = (
        f"SELECT {column_list(kept, 'i')}, {matching.order_of_ties(time='it')} AS tie "
        f"FROM touches i JOIN unclear o ON {same}"
    )
    names = column_list([*kept, *(part.rpartition(" AS ")[2] for part in found)])
    (sorted_out,) = _windowed(matching, rules, source="tied_touches", name="sorted_out")
    return [
        Step("touches", matching.pairs()),
        Step("weighed", weighed, is_cheap=True),
        Step("moment_sums", sums),
        Step("unclear", unclear),
        Step("tied_touches", tied),
        sorted_out,
        Step("positions", f"{clear} UNION ALL SELECT {names} FROM sorted_out"),
    ]


def _windowed(
    matching: Matching, rules: Sequence[Rule], *, source: str, name: str = "positions"
) -> list[Step]:
    partition = f"PARTITION BY {column_list(matching.moment_keys)}"
    over_all = (
        f"OVER ({partition} ORDER BY it, tie "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
    )
    columns = [
        "*",
        f"ROW_NUMBER() OVER ({partition} ORDER BY it, tie) AS front",
        f"COUNT(*) {over_all} AS touches",
        f"MAX(it) {over_all} AS newest",
    ]
    columns += [
        f"ROW_NUMBER() OVER ({partition} ORDER BY {_importance(rule, matching)}) AS place{index}"
        for index, rule in enumerate(rules)
        if isinstance(rule, PriorityTouch)
    ]
    placed = f"SELECT {column_list(columns)} FROM {source}"
    weights = _weights(matching, rules)
    if not weights:
        return [Step(name, placed)]
    made = column_list([f"{sql} AS weight{index}" for index, sql in weights])
    weighed = f"SELECT *, {made} FROM ({placed}) AS placed"
    sums = column_list([f"SUM(weight{index}) {over_all} AS weights{index}" for index, _ in weights])
    return [Step(name, f"SELECT *, {sums} FROM ({weighed}) AS weighed")]


def _importance(rule: PriorityTouch, matching: Matching) -> str:
    order = [_kind_rank(rule, matching)]
    if "priority" in matching.carried:
        least = float_literal(_LEAST_PRIORITY)
        order.append(f"COALESCE(CAST(priority AS DOUBLE), {least}) DESC")
    return column_list([*order, "it DESC", "tie DESC"])


def _kind_rank(rule: PriorityTouch, matching: Matching) -> str:
    if "kind" not in matching.carried or not rule.kinds:
        return "CASE WHEN it IS NULL THEN 1 ELSE 0 END"
    cases = " ".join(
        f"WHEN {text_literal(kind)} THEN {rank}" for rank, kind in enumerate(rule.kinds)
    )
    return f"CASE CAST(kind AS VARCHAR) {cases} ELSE {len(rule.kinds)} END"


def _needs_newest(rule: Rule, matching: Matching) -> bool:
    lookback = matching.attribution.lookback_seconds
    return isinstance(rule, TimeDecay) and lookback > _MAX_PLAIN_HALVINGS * rule.half_life_seconds


def _weights(matching: Matching, rules: Sequence[Rule]) -> list[tuple[int, str]]:
    return [
        (index, _weight(rule, matching))
        for index, rule in enumerate(rules)
        if isinstance(rule, (TimeDecay, ChannelWeights))
    ]


def _weight(rule: TimeDecay | ChannelWeights, matching: Matching) -> str:
    if isinstance(rule, TimeDecay):
        # Compared with the newest touch where the weights of old ones would all be zero.
        reference = "newest" if _needs_newest(rule, matching) else "ct"
        half_life = float_literal(rule.half_life_seconds * MICROS)
        halvings = f"CAST(it - {reference} AS DOUBLE) / {half_life}"
        power = f"POW(CAST(2 AS DOUBLE), {halvings}) * {float_literal(WEIGHT_STEPS)}"
        return f"CAST(FLOOR({power}) AS BIGINT)"
    largest = max(*rule.weights.values(), rule.other_weight)
    cases = " ".join(
        f"WHEN {text_literal(channel)} THEN {_whole(weight / largest)}"
        for channel, weight in rule.weights.items()
    )
    other = _whole(rule.other_weight / largest)
    return f"CAST(CASE {_CHANNEL} {cases} ELSE {other} END AS BIGINT)"


def _whole(weight: float) -> int:
    return max(1, round(weight * WEIGHT_STEPS))
