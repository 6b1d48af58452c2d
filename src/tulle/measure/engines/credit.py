"""Rules of attribution as SQL over the touches of one moment and their positions."""

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
from tulle.measure.engines.matching import Matching
from tulle.measure.engines.positions import position_steps
from tulle.measure.engines.sql_text import column_list, equal_columns, float_literal


def all_credit_steps(
    matching: Matching, rules: Sequence[Rule], *, has_asof_join: bool, keeps_steps: bool = True
) -> list[Step]:
    """From the log to `credited`, by the fastest way that is right.

    Args:
      matching: Who matches.
      rules: One credit column each.
      has_asof_join: Of the engine.
      keeps_steps: Whether the engine runs a step once that is read several times.
    """
    before = [*matching.moment_steps(), *matching.near_steps()]
    has_one_lookback = not matching.attribution.kind_lookback_seconds
    if has_asof_join and has_one_lookback and list(rules) == [LastTouch()]:
        return [*before, *last_touch_steps(matching)]
    return [*before, *credited_steps(matching, rules, keeps_steps=keeps_steps)]


def credited_steps(matching: Matching, rules: Sequence[Rule], *, keeps_steps: bool) -> list[Step]:
    """Touches that have a share of a moment's conversions by any rule: r0, r1, … of each rule."""
    shares = ", ".join(f"{_credit(rule, index)} AS r{index}" for index, rule in enumerate(rules))
    kept = column_list((*matching.moment_keys, "num", "it", *matching.carried))
    names = [f"r{index}" for index in range(len(rules))]
    shared = f"SELECT {kept}, {shares} FROM positions"
    any_credit = " OR ".join(f"{name} > 0" for name in names)
    return [
        *position_steps(matching, rules, keeps_steps=keeps_steps),
        Step("credited", f"SELECT * FROM ({shared}) AS shared WHERE {any_credit}"),
    ]


def last_touch_steps(matching: Matching) -> list[Step]:
    """The same for the last touch alone, by the join that finds the latest row before another.

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
