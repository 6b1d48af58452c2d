"""Every mechanism that decides is plain data, both ways, and nothing else is taken."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.select.baselines.greedy import NonPersonalised
from tulle.select.baselines.noisy_max import Calibration, NoiseKind, NoisyMax
from tulle.select.baselines.score_bounds import ClippedScores, ScaledScores
from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.floors.shortlist import AllCandidates, Cutoff, TopCandidates
from tulle.select.mechanism_table import DecidingMechanism, mechanism_table, read_mechanism
from tulle.select.planner.adaptive_shortlist import AdaptiveTop
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.slots import SlotMechanism

EPSILONS = st.floats(0.01, 10)


@st.composite
def mechanisms(draw: st.DrawFn) -> DecidingMechanism:
    """Any mechanism of any kind."""
    kind = draw(st.sampled_from(["response", "slots", "noisy max", "non-personalised"]))
    epsilon = draw(EPSILONS)
    shortlist: Any = draw(
        st.one_of(
            st.just(AllCandidates()),
            st.builds(TopCandidates, num_finalists=st.integers(1, 30)),
            st.builds(Cutoff, gamma=st.floats(0, 1)),
            st.floats(0.01, 2.5).map(
                lambda stddev: AdaptiveTop(
                    epsilon=epsilon, prior=LogitNormalPrior(private_stddev=stddev)
                )
            ),
        )
    )
    if kind == "response":
        num_boosted = draw(st.integers(1, 4))
        return FloorMechanism(epsilon=epsilon, shortlist=shortlist, num_boosted=num_boosted)
    if kind == "slots":
        num_slots = draw(st.integers(2, 5))
        return SlotMechanism(epsilon=epsilon, shortlist=shortlist, num_slots=num_slots)
    if kind == "noisy max":
        widths = st.builds(ClippedScores, width=st.floats(0.01, 5))
        return NoisyMax(
            epsilon=epsilon,
            noise=draw(st.sampled_from(NoiseKind)),
            score_bound=draw(st.one_of(st.just(ScaledScores()), widths)),
            calibration=draw(st.sampled_from(Calibration)),
            shortlist=shortlist,
        )
    return NonPersonalised()


@given(mechanism=mechanisms())
def test_every_mechanism_is_read_back_as_it_was(mechanism: DecidingMechanism) -> None:
    assert read_mechanism(mechanism_table(mechanism)) == mechanism


def test_a_setting_that_is_lost_would_be_seen() -> None:
    mechanism = FloorMechanism(epsilon=1.0, shortlist=Cutoff(gamma=0.5), num_boosted=2)
    table = mechanism_table(mechanism)
    for name in set(table) - {"kind", "epsilon"}:
        assert read_mechanism({key: table[key] for key in table if key != name}) != mechanism


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"kind": "greedy"}, "protects nobody"),
        ({"kind": "randomised-response", "epsilon": 1}, "did you mean 'randomized-response'?"),
        ({"kind": ["noisy-max"], "epsilon": 1}, "is unknown"),
        ({"kind": 3}, "is unknown"),
        ({"epsilon": 1}, "needs the setting 'kind'"),
        ("rr", "must be a table"),
        ({"kind": "randomized-response"}, "needs the setting 'epsilon'"),
        ({"kind": "randomized-response", "epsilon": 1, "gama": 1}, "did you mean 'gamma'?"),
        ({"kind": "randomized-response", "epsilon": 1, "noise": "laplace"}, "no setting 'noise'"),
        ({"kind": "noisy-max", "epsilon": 1, "monotonic": True}, "up to twice epsilon"),
        ({"kind": "noisy-max", "epsilon": 1, "num_slots": 2}, "no setting 'num_slots'"),
        ({"kind": "noisy-max", "epsilon": 1, "noise": "gaussian"}, "noise"),
        ({"kind": "non-personalised", "epsilon": 1}, "no setting 'epsilon'"),
        (
            {"kind": "randomized-response", "epsilon": 1, "gamma": 0.5, "num_finalists": 3},
            "num_finalists and gamma are two shortlists",
        ),
        (
            {"kind": "randomized-response", "epsilon": 1, "num_slots": 2, "num_boosted": 2},
            "num_boosted is for one slot",
        ),
        ({"kind": "randomized-response", "epsilon": math.inf}, "epsilon=inf"),
        ({"kind": "randomized-response", "epsilon": "1"}, "epsilon='1'"),
        ({"kind": "randomized-response", "epsilon": True}, "epsilon=True"),
        ({"kind": "randomized-response", "epsilon": -1}, "epsilon=-1"),
        ({"kind": "randomized-response", "epsilon": 1, "num_finalists": 1.5}, "num_finalists=1.5"),
        ({"kind": "randomized-response", "epsilon": 1, "gamma": 2}, "gamma=2"),
    ],
)
def test_wrong_tables_are_refused_with_the_reason(table: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        read_mechanism(table)


def test_monotonic_scores_are_refused_where_devices_are_replaced() -> None:
    with pytest.raises(ConfigError, match="would spend up to twice epsilon"):
        NoisyMax(epsilon=1.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores(), monotonic=True)
