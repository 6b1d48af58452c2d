"""The [mechanism] table of a selection's settings: a mechanism in plain data, both ways."""

from collections.abc import Callable, Mapping
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy.fields import check_choice, check_count, check_finite, did_you_mean
from tulle.runs.toml_tables import check_flag, check_table
from tulle.select.baselines.greedy import NonPersonalised
from tulle.select.baselines.noisy_max import Calibration, NoiseKind, NoisyMax
from tulle.select.baselines.score_bounds import ClippedScores, ScaledScores
from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.floors.shortlist import AllCandidates, Cutoff, Shortlist, TopCandidates
from tulle.select.planner.adaptive_shortlist import AdaptiveTop
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.slots import SlotMechanism

DecidingMechanism = FloorMechanism | NoisyMax | NonPersonalised | SlotMechanism
"""Those that decisions can be drawn by; others are for comparisons."""

_SHORTLISTS = ("num_finalists", "gamma", "private_stddev")
_RESPONSE, _NOISY_MAX, _NON_PERSONALISED = "randomized-response", "noisy-max", "non-personalised"


def read_mechanism(table: object) -> DecidingMechanism:
    """The mechanism that the table describes, strictly.

    Raises:
      ConfigError: A setting is unknown, missing or wrong, or the mechanism is not private.
    """
    kind = check_table("[mechanism]", table, ("kind",))["kind"]
    if not isinstance(kind, str) or kind not in _KINDS:
        if kind == "greedy":
            raise ConfigError(
                "kind='greedy' protects nobody; it is for comparisons (tulle select simulate)."
            )
        raise ConfigError(
            f"[mechanism] kind={kind!r} is unknown{did_you_mean(kind, _KINDS)}; use one of "
            f"{', '.join(_KINDS)}."
        )
    required, optional, make = _KINDS[kind]
    return make(check_table(f"[mechanism] of kind {kind!r}", table, ("kind", *required), optional))


def mechanism_table(mechanism: DecidingMechanism) -> dict[str, Any]:
    """The table that `read_mechanism` makes this mechanism of.

    Raises:
      ConfigError: It is one for comparisons alone.
    """
    if isinstance(mechanism, NonPersonalised):
        return {"kind": _NON_PERSONALISED}
    if isinstance(mechanism, NoisyMax):
        bound = mechanism.score_bound
        if isinstance(bound, ScaledScores | ClippedScores):
            table: dict[str, Any] = {
                "kind": _NOISY_MAX,
                "epsilon": mechanism.epsilon,
                "noise": mechanism.noise.value,
                "calibration": mechanism.calibration.value,
            }
            if isinstance(bound, ClippedScores):
                table["width"] = bound.width
            return table | _shortlist_table(mechanism.shortlist, mechanism.epsilon)
        raise ConfigError(f"mechanism {mechanism.name!r} is for comparisons, not for decisions.")
    table = {"kind": _RESPONSE, "epsilon": mechanism.epsilon}
    if isinstance(mechanism, SlotMechanism):
        table["num_slots"] = mechanism.num_slots
    elif mechanism.num_boosted != 1:
        table["num_boosted"] = mechanism.num_boosted
    return table | _shortlist_table(mechanism.shortlist, mechanism.epsilon)


def _response(fields: Mapping[str, Any]) -> DecidingMechanism:
    epsilon = check_finite("epsilon", fields["epsilon"])
    shortlist = _shortlist(fields, epsilon)
    num_slots = check_count("num_slots", fields.get("num_slots", 1))
    num_boosted = check_count("num_boosted", fields.get("num_boosted", 1))
    if num_slots == 1:
        return FloorMechanism(epsilon=epsilon, shortlist=shortlist, num_boosted=num_boosted)
    if num_boosted != 1:
        raise ConfigError("num_boosted is for one slot; leave it or num_slots out.")
    return SlotMechanism(epsilon=epsilon, num_slots=num_slots, shortlist=shortlist)


def _noisy_max(fields: Mapping[str, Any]) -> DecidingMechanism:
    epsilon = check_finite("epsilon", fields["epsilon"])
    width = fields.get("width")
    return NoisyMax(
        epsilon=epsilon,
        noise=check_choice("noise", fields.get("noise", "exponential"), NoiseKind),
        score_bound=(
            ScaledScores() if width is None else ClippedScores(width=check_finite("width", width))
        ),
        calibration=check_choice("calibration", fields.get("calibration", "standard"), Calibration),
        shortlist=_shortlist(fields, epsilon),
        monotonic=check_flag("monotonic", fields.get("monotonic", False)),
    )


def _shortlist(fields: Mapping[str, Any], epsilon: float) -> Shortlist:
    given = [name for name in _SHORTLISTS if name in fields]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} are two shortlists; leave one out.")
    if not given:
        return AllCandidates()
    value = fields[given[0]]
    if given[0] == "num_finalists":
        return TopCandidates(num_finalists=check_count("num_finalists", value))
    if given[0] == "gamma":
        return Cutoff(gamma=check_finite("gamma", value))
    prior = LogitNormalPrior(private_stddev=check_finite("private_stddev", value))
    return AdaptiveTop(epsilon=epsilon, prior=prior)


def _shortlist_table(shortlist: Shortlist, epsilon: float) -> dict[str, Any]:
    if isinstance(shortlist, AllCandidates):
        return {}
    if isinstance(shortlist, TopCandidates):
        return {"num_finalists": shortlist.num_finalists}
    if isinstance(shortlist, Cutoff):
        return {"gamma": shortlist.gamma}
    if isinstance(shortlist, AdaptiveTop):
        if shortlist.epsilon != epsilon:
            raise ConfigError(
                f"the shortlist is for epsilon={shortlist.epsilon} and the mechanism has "
                f"epsilon={epsilon}; plan both for the same."
            )
        return {"private_stddev": shortlist.prior.private_stddev}
    raise ConfigError(f"shortlist {shortlist.name!r} has no settings; use one of tulle's.")


_KINDS: dict[
    str, tuple[tuple[str, ...], tuple[str, ...], Callable[[Mapping[str, Any]], DecidingMechanism]]
] = {
    _RESPONSE: (("epsilon",), (*_SHORTLISTS, "num_boosted", "num_slots"), _response),
    _NOISY_MAX: (
        ("epsilon",),
        (*_SHORTLISTS, "noise", "width", "calibration", "monotonic"),
        _noisy_max,
    ),
    _NON_PERSONALISED: ((), (), lambda _: NonPersonalised()),
}
