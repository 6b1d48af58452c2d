"""The [attribution] table of a measurement's settings."""

from collections.abc import Callable, Mapping
from typing import Any

from tulle.errors import ConfigError
from tulle.measure.attribution.attribution import Attribution
from tulle.measure.attribution.channel_cells import ChannelCells
from tulle.measure.attribution.coalition_values import CoalitionValue
from tulle.measure.attribution.data_driven import ChannelGame
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
from tulle.privacy.fields import check_choice, check_finite, did_you_mean
from tulle.runs.toml_tables import check_table, seconds_of

_SHARED = ("rule", "lookback", "lookback_by_kind", "max_touches", "max_conversions_per_user")
_LEARNT = "data-driven"
_Maker = Callable[[Mapping[str, Any]], Rule]


def read_attribution(table: object) -> Attribution:
    """The attribution that the table describes, strictly."""
    names = {name for names, _ in _RULES.values() for name in names}
    fields = check_table("[attribution]", table, ("rule", "lookback"), (*_SHARED, *sorted(names)))
    own_names, make = _rule_entry(fields["rule"])
    for name in fields:
        if name not in _SHARED and name not in own_names:
            raise ConfigError(
                f"[attribution] {name} is not a setting of rule {fields['rule']!r}; leave it out."
            )
    by_kind = check_table("lookback_by_kind", fields.get("lookback_by_kind", {}), ())
    return Attribution(
        rule=make(fields),
        lookback_seconds=seconds_of("lookback", fields["lookback"]),
        kind_lookback_seconds={
            kind: seconds_of(f"lookback_by_kind.{kind}", length) for kind, length in by_kind.items()
        },
        max_touches=fields.get("max_touches"),
        max_conversions_per_user=fields.get("max_conversions_per_user"),
    )


def read_game(table: object) -> tuple[ChannelGame, float] | None:
    """The model that learns weights of channels and its share of the budget, if there is one."""
    if not isinstance(table, dict) or table.get("rule") != _LEARNT:
        return None
    for name in ("channel", "channels"):
        if name not in table:
            raise ConfigError(
                f"rule {_LEARNT!r} needs channel, a column of the impressions, and channels, the "
                "list of its values."
            )
    cells = ChannelCells(
        channels=_texts("channels", table["channels"]), max_set_size=table.get("max_set_size", 3)
    )
    game = ChannelGame(
        column=table["channel"],
        cells=cells,
        value=check_choice("model", table.get("model", "shapley"), CoalitionValue),
        baseline_rate=table.get("baseline_rate"),
    )
    return game, check_finite("share", table.get("share", 0.2))


def read_rule(name: str) -> Rule:
    """The rule of that name with its default settings."""
    own_names, make = _rule_entry(name)
    if "channel" in own_names:
        raise ConfigError(f"rule {name!r} needs its weights; describe it in a settings file.")
    return make({})


def _rule_entry(name: object) -> tuple[tuple[str, ...], _Maker]:
    if not isinstance(name, str) or name not in _RULES:
        raise ConfigError(
            f"rule={name!r} is unknown{did_you_mean(name, _RULES)}; use one of {', '.join(_RULES)}."
        )
    return _RULES[name]


def _position(fields: Mapping[str, Any]) -> Rule:
    given = {name: check_finite(name, fields[name]) for name in ("first", "last") if name in fields}
    return PositionBased(**given)


def _time_decay(fields: Mapping[str, Any]) -> Rule:
    if "half_life" not in fields:
        return TimeDecay()
    return TimeDecay(half_life_seconds=float(seconds_of("half_life", fields["half_life"])))


def _priority(fields: Mapping[str, Any]) -> Rule:
    kinds = fields.get("kinds")
    return PriorityTouch() if kinds is None else PriorityTouch(kinds=_texts("kinds", kinds))


def _last_n(fields: Mapping[str, Any]) -> Rule:
    weights = fields.get("weights")
    if weights is None:
        return LastN()
    if not isinstance(weights, list):
        raise ConfigError(f"weights={weights!r} must be a list, e.g. [2, 1, 1].")
    return LastN(weights=tuple(check_finite("weights", weight) for weight in weights))


def _channel_weights(fields: Mapping[str, Any]) -> Rule:
    weights = check_table("channel_weights", fields.get("channel_weights"), ())
    if "channel" not in fields:
        raise ConfigError("rule 'channel-weights' needs channel, a column of the impressions.")
    return ChannelWeights(
        column=fields["channel"],
        weights={name: check_finite(f"weight of {name}", w) for name, w in weights.items()},
    )


def _learnt_weights(fields: Mapping[str, Any]) -> Rule:
    """Stands in for what is learnt later: how much noise is needed does not depend on it."""
    read_game(fields)
    return ChannelWeights(column=fields["channel"], weights=dict.fromkeys(fields["channels"], 1.0))


def _texts(name: str, values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{name}={values!r} must be a list of text.")
    return tuple(values)


_RULES: dict[str, tuple[tuple[str, ...], _Maker]] = {
    LastTouch.name: ((), lambda _: LastTouch()),
    FirstTouch.name: ((), lambda _: FirstTouch()),
    Linear.name: ((), lambda _: Linear()),
    PositionBased.name: (("first", "last"), _position),
    TimeDecay.name: (("half_life",), _time_decay),
    PriorityTouch.name: (("kinds",), _priority),
    LastN.name: (("weights",), _last_n),
    ChannelWeights.name: (("channel", "channel_weights"), _channel_weights),
    _LEARNT: (
        ("channel", "channels", "model", "max_set_size", "baseline_rate", "share"),
        _learnt_weights,
    ),
}
