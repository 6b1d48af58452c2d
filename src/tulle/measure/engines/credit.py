"""Rules of attribution as SQL over the touches of one moment.

Sums of weights are sums of whole numbers. A sum of floats depends on the order in which an
engine adds, and so, by its last digits, on the rows of other users; a sum of integers does not.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

import functools
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
"""Up to here a weight by age has 32 bits and more, and needs no comparison with the newest."""
_LEAST_PRIORITY = -1e308
_CHANNEL = f"COALESCE(CAST(channel AS VARCHAR), {text_literal(NULL_TEXT)})"


def all_credit_steps(
    matching: Matching, rules: Sequence[Rule], *, has_asof_join: bool
) -> list[Step]:
    """From the log to `credited`, by the fastest way that is right."""
    before = [*matching.moment_steps(), *matching.near_steps()]
    has_one_lookback = not matching.attribution.kind_lookback_seconds
    if has_asof_join and has_one_lookback and list(rules) == [LastTouch()]:
        return [*before, *last_touch_steps(matching)]
    return [*before, *matching.touch_steps(), *credited_steps(matching, rules)]


def credited_steps(matching: Matching, rules: Sequence[Rule]) -> list[Step]:
    """Touches that have a share of a moment's conversions by any rule: r0, r1, … of each rule."""
    inner = _Positions(matching, rules)
    shares = ", ".join(f"{_credit(rule, index)} AS r{index}" for index, rule in enumerate(rules))
    kept = column_list((*matching.moment_keys, "num", "it", *matching.carried))
    names = [f"r{index}" for index in range(len(rules))]
    shared = f"SELECT {kept}, {shares} FROM positions"
    any_credit = " OR ".join(f"{name} > 0" for name in names)
    return [
        *inner.steps(),
        Step("credited", f"SELECT * FROM ({shared}) AS shared WHERE {any_credit}"),
    ]


def last_touch_steps(matching: Matching) -> list[Step]:
    """The same for the last touch alone, by the join that finds the latest row before another.

    That join finds a time; which impression of that time it is follows by the order of ties.
    Right only if all kinds have one lookback: the latest may be too old while an older one of
    another kind is not.
    """
    keys = matching.tables.match_keys
    latest = (
        f"SELECT {column_list(keys, 'm')}, m.t AS ct, m.num, i.t AS it FROM moments m "
        f"ASOF JOIN near i ON {equal_columns('m', 'i', keys)} AND m.t >= i.t "
        f"WHERE {matching.within_lookback()}"
    )
    kept = (*matching.moment_keys, "num", "it", *matching.carried)
    taken = [f"m.{name}" for name in (*matching.moment_keys, "num", "it")]
    taken += [f"i.{name}" for name in matching.carried]
    ranked = (
        f"SELECT {column_list(taken)}, "
        f"ROW_NUMBER() OVER (PARTITION BY {column_list(matching.moment_keys, 'm')} "
        f"ORDER BY {matching.order_of_ties()} DESC) AS place "
        f"FROM latest m JOIN near i ON {equal_columns('m', 'i', keys)} AND m.it = i.t"
    )
    credited = (
        f"SELECT {column_list(kept)}, CAST(1 AS DOUBLE) AS r0 FROM ({ranked}) AS ranked "
        "WHERE place = 1"
    )
    return [Step("latest", latest), Step("credited", credited)]


class _Positions:
    """The step that numbers the touches of a moment, with no more windows than rules need."""

    def __init__(self, matching: Matching, rules: Sequence[Rule]) -> None:
        self._matching = matching
        self._rules = rules
        partition = f"PARTITION BY {column_list(matching.moment_keys)}"
        self._in_order = f"OVER ({partition} ORDER BY it, tie)"
        self._over_all = (
            f"OVER ({partition} ORDER BY it, tie "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
        )
        self._partition = partition

    def steps(self) -> list[Step]:
        lookback = self._matching.attribution.lookback_seconds
        needs_newest = any(_needs_newest(rule, lookback) for rule in self._rules)
        columns = ["*"]
        if any(
            isinstance(rule, (FirstTouch, PositionBased, LastTouch, LastN)) for rule in self._rules
        ):
            columns.append(f"ROW_NUMBER() {self._in_order} AS front")
        if any(isinstance(rule, (Linear, PositionBased, LastTouch, LastN)) for rule in self._rules):
            columns.append(f"COUNT(*) {self._over_all} AS touches")
        columns += [
            f"ROW_NUMBER() OVER ({self._partition} ORDER BY {_importance(rule, self._matching)}) "
            f"AS place{index}"
            for index, rule in enumerate(self._rules)
            if isinstance(rule, PriorityTouch)
        ]
        weigh = functools.partial(_weight, lookback=lookback)
        plain = [(index, rule) for index, rule in enumerate(self._rules) if weigh(rule) is not None]
        if not needs_newest:
            columns += [f"{weigh(rule)} AS weight{index}" for index, rule in plain]
            columns += [
                f"SUM({weigh(rule)}) {self._over_all} AS weights{index}" for index, rule in plain
            ]
            return [Step("positions", f"SELECT {', '.join(columns)} FROM touches")]
        columns.append(f"MAX(it) {self._over_all} AS newest")
        weights = [f"{weigh(rule)} AS weight{index}" for index, rule in plain]
        sums = [f"SUM(weight{index}) {self._over_all} AS weights{index}" for index, _ in plain]
        placed = f"SELECT {', '.join(columns)} FROM touches"
        weighed = f"SELECT *, {', '.join(weights)} FROM ({placed}) AS placed"
        return [Step("positions", f"SELECT *, {', '.join(sums)} FROM ({weighed}) AS weighed")]


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


def _importance(rule: PriorityTouch, matching: Matching) -> str:
    order = []
    if "kind" in matching.carried and rule.kinds:
        cases = " ".join(
            f"WHEN {text_literal(kind)} THEN {rank}" for rank, kind in enumerate(rule.kinds)
        )
        order.append(f"CASE CAST(kind AS VARCHAR) {cases} ELSE {len(rule.kinds)} END")
    if "priority" in matching.carried:
        least = float_literal(_LEAST_PRIORITY)
        order.append(f"COALESCE(CAST(priority AS DOUBLE), {least}) DESC")
    return ", ".join([*order, "it DESC", "tie DESC"])


def _needs_newest(rule: Rule, lookback: int) -> bool:
    return isinstance(rule, TimeDecay) and lookback > _MAX_PLAIN_HALVINGS * rule.half_life_seconds


def _weight(rule: Rule, *, lookback: int) -> str | None:
    if isinstance(rule, TimeDecay):
        reference = "newest" if _needs_newest(rule, lookback) else "ct"
        halvings = (
            f"CAST(it - {reference} AS DOUBLE) / {float_literal(rule.half_life_seconds * MICROS)}"
        )
        power = f"POW(CAST(2 AS DOUBLE), {halvings}) * {float_literal(WEIGHT_STEPS)}"
        return f"CAST(FLOOR({power}) AS BIGINT)"
    if isinstance(rule, ChannelWeights):
        largest = max(*rule.weights.values(), rule.other_weight)
        cases = " ".join(
            f"WHEN {text_literal(channel)} THEN {_whole(weight / largest)}"
            for channel, weight in rule.weights.items()
        )
        other = _whole(rule.other_weight / largest)
        return f"CAST(CASE {_CHANNEL} {cases} ELSE {other} END AS BIGINT)"
    return None


def _whole(weight: float) -> int:
    return max(1, round(weight * WEIGHT_STEPS))
