"""Rules of attribution as SQL over the touches of one moment and their positions.

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
    FirstTouch,
    LastN,
    LastTouch,
    Linear,
    PositionBased,
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
"""Most halvings after which a weight by age has 32 bits or more (of the 40 of `WEIGHT_STEPS`), and
so needs no comparison with the newest."""
_LEAST_PRIORITY = -1e308
"""Priority of an impression without one: below all others."""
_RANK_STEP = 1 << 57
"""Step of a rank, beyond all times in microseconds, so that a rank outweighs them."""
_MAX_RANKS = 30
"""Most kinds that are ranked by sums: 30 steps of 2^57 fit into 64 bits."""
_CHANNEL = f"COALESCE(CAST(channel AS VARCHAR), {text_literal(NULL_TEXT)})"
"""Text of the channel of a touch."""


def all_credit_steps(
    matching: Matching, rules: Sequence[Rule], *, has_asof_join: bool, keeps_steps: bool = True
) -> list[Step]:
    """Steps from the log to `credited`, by the fastest way that is right.

    It has the touches with a share of a moment's conversions by any rule, which is r0, r1, ….

    Args:
      matching: Who matches.
      rules: One credit column each.
      has_asof_join: Whether the engine has an ASOF join.
      keeps_steps: Whether the engine runs a step once that is read several times.
    """
    before = [*matching.moment_steps(), *matching.near_steps()]
    has_one_lookback = not matching.attribution.kind_lookback_seconds
    if has_asof_join and has_one_lookback and list(rules) == [LastTouch()]:
        return [*before, *_last_touch_steps(matching)]
    shares = ", ".join(f"{_credit(rule, index)} AS r{index}" for index, rule in enumerate(rules))
    kept = column_list((*matching.moment_keys, "num", "it", *matching.carried))
    any_credit = " OR ".join(f"r{index} > 0" for index in range(len(rules)))
    shared = f"SELECT {kept}, {shares} FROM positions"
    return [
        *before,
        *_position_steps(matching, rules, keeps_steps=keeps_steps),
        Step("credited", f"SELECT * FROM ({shared}) AS shared WHERE {any_credit}"),
    ]


def _last_touch_steps(matching: Matching) -> list[Step]:
    """Steps of the last touch alone, by the join that finds the latest row before another.

    That join finds a time. Few times have more than one impression; which of them it is follows
    by the order of ties, a hash that would cost more than the join if all rows had it.
    Right only if all kinds have one lookback: the latest may be too old while an older one of
    another kind is not.
    """
    keys = matching.tables.match_keys
    latest = (
        f"SELECT {column_list(keys, 'm')}, m.t AS ct, m.num, i.t AS it FROM moments m "
        f"ASOF JOIN near i ON {equal_columns('m', 'i', keys)} AND m.t >= i.t "
        f"WHERE {matching.within_lookback()}"
    )
    moment = matching.moment_keys
    own = [f"m.{name}" for name in (*moment, "num", "it")]
    found = (
        f"SELECT {column_list([*own, *(f'i.{name}' for name in matching.carried)])} "
        f"FROM latest m JOIN imp i ON {equal_columns('m', 'i', keys)} AND m.it = i.t"
    )
    several = f"SELECT {column_list(moment)} FROM found GROUP BY {column_list(moment)}"
    same = equal_columns("o", "i", moment)
    kept = (*moment, "num", "it", *matching.carried)
    ranked = (
        f"SELECT {column_list(kept, 'i')}, "
        f"ROW_NUMBER() OVER (PARTITION BY {column_list(moment, 'i')} "
        f"ORDER BY {matching.order_of_ties(time='it')} DESC) AS place "
        f"FROM found i JOIN several o ON {same}"
    )
    credited = (
        f"SELECT {column_list(kept, 'i')}, CAST(1 AS DOUBLE) AS r0 FROM found i "
        f"WHERE NOT EXISTS (SELECT 1 FROM several o WHERE {same}) UNION ALL "
        f"SELECT {column_list(kept)}, CAST(1 AS DOUBLE) AS r0 FROM ({ranked}) AS ranked "
        "WHERE place = 1"
    )
    return [
        Step("latest", latest),
        Step("found", found),
        Step("several", f"{several} HAVING COUNT(*) > 1"),
        Step("credited", credited),
    ]


def _position_steps(matching: Matching, rules: Sequence[Rule], *, keeps_steps: bool) -> list[Step]:
    """Steps from `moments` and `imp` to `positions`.

    Its columns beside those of touches: front (1 is the first), touches (how many), and by the
    number of the rule weight0, weights0 (their sum), place0 (1 is the most important).
    Where front is neither 1 nor touches it may be any number between, unless a rule asks.
    Sums read the touches several times, which pays only where an engine keeps them.
    """
    if keeps_steps and _can_be_summed(matching, rules):
        return _summed(matching, rules)
    return [*matching.touch_steps(), *_windowed(matching, rules, source="touches")]


def _credit(rule: Rule, index: int) -> str:
    match rule:
        case LastTouch():
            return "CASE WHEN front = touches THEN CAST(1 AS DOUBLE) ELSE CAST(0 AS DOUBLE) END"
        case FirstTouch():
            return "CASE WHEN front = 1 THEN CAST(1 AS DOUBLE) ELSE CAST(0 AS DOUBLE) END"
        case Linear():
            return "CAST(1 AS DOUBLE) / CAST(touches AS DOUBLE)"
        case PositionBased():
            return _position_credit(rule)
        case PriorityTouch():
            return f"CASE WHEN place{index} = 1 THEN CAST(1 AS DOUBLE) ELSE CAST(0 AS DOUBLE) END"
        case LastN():
            return _last_n_credit(rule)
        case TimeDecay() | ChannelWeights():
            return f"CAST(weight{index} AS DOUBLE) / CAST(weights{index} AS DOUBLE)"


def _position_credit(rule: PositionBased) -> str:
    first, last = rule.first, rule.last
    between = max(0.0, 1.0 - first - last)
    return (
        "CASE WHEN touches = 1 THEN CAST(1 AS DOUBLE) "
        f"WHEN touches = 2 AND front = 1 THEN {float_literal(first / (first + last))} "
        f"WHEN touches = 2 THEN {float_literal(last / (first + last))} "
        f"WHEN front = 1 THEN {float_literal(first)} "
        f"WHEN front = touches THEN {float_literal(last)} "
        f"ELSE {float_literal(between)} / CAST(touches - 2 AS DOUBLE) END"
    )


def _last_n_credit(rule: LastN) -> str:
    weights = " ".join(
        f"WHEN {back} THEN {float_literal(weight)}" for back, weight in enumerate(rule.weights)
    )
    sums = " ".join(
        f"WHEN {number} THEN {float_literal(sum(rule.weights[:number]))}"
        for number in range(1, len(rule.weights))
    )
    total = float_literal(sum(rule.weights))
    shared = f"CASE touches {sums} ELSE {total} END" if sums else total
    return f"(CASE touches - front {weights} ELSE CAST(0 AS DOUBLE) END) / ({shared})"


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
