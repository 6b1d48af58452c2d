"""Every mechanism that decides is plain data, both ways, and nothing else is taken."""

import math
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
from tulle.privacy.units import Unit
from tulle.select.billing.prices import PricingRule
from tulle.select.decision_accounting import Shuffle, UserReports
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import NonPersonalised
from tulle.select.mechanisms.noisy_max import (
    Calibration,
    ClippedScores,
    NoisyMax,
    ScaledScores,
)
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.shortlists import AllCandidates, Cutoff, TopCandidates
from tulle.select.mechanisms.slots import SlotMechanism
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.shortlist_outcomes import AdaptiveTop
from tulle.select.selection_config import (
    Consent,
    DecidingMechanism,
    Pricing,
    SelectionConfig,
    SelectionPrivacy,
    shows_one_ad,
)
from tulle.select.settings import mechanism_table, read_settings, settings_of, settings_text

EPSILONS = st.floats(0.01, 10)


def read_mechanism(table: Any) -> DecidingMechanism:
    data = {"mechanism": table, "privacy": {"unit": "impression"}}
    return settings_of(data, name="one").mechanism


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
    assume(not shows_one_ad(mechanism))  # such a selection is refused for another reason
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


MINIMAL = """
[mechanism]
kind = "randomized-response"
epsilon = 2
[privacy]
unit = "impression"
"""


@st.composite
def selections(draw: st.DrawFn) -> SelectionConfig:
    """Any selection that is not refused."""
    mechanism: DecidingMechanism = draw(mechanisms())
    shortlist = getattr(mechanism, "shortlist", None)
    assume(shortlist not in (TopCandidates(num_finalists=1), Cutoff(gamma=0.0)))
    is_by_user = draw(st.booleans())
    reserve = draw(st.floats(0, 100))
    pricing = Pricing(rule=draw(st.sampled_from(PricingRule)), reserve=reserve)
    shuffle: dict[str, Any] = {}
    if isinstance(mechanism, FloorMechanism) and draw(st.booleans()):
        shuffle = {
            "min_cell_size": draw(st.integers(1, 10**6)),
            "user_reports": draw(st.sampled_from(UserReports)),
        }
    if shuffle or draw(st.booleans()):
        pricing = Pricing(rule="posted", reserve=reserve)
    return SelectionConfig(
        name=draw(
            st.text(
                st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), min_size=1
            ).filter(str.strip)
        ),
        mechanism=mechanism,
        privacy=SelectionPrivacy(
            unit=Unit.user() if is_by_user else Unit.impression(),
            max_decisions_per_user=draw(st.integers(1, 1000)) if is_by_user else None,
            least_finalists=draw(st.integers(2, 20)),
            delta=draw(st.floats(1e-12, 0.1)) if shuffle else 0.0,
            consent=draw(st.sampled_from(Consent)),
            planned_on_devices=draw(st.booleans()),
            **shuffle,
        ),
        pricing=pricing,
    )


@given(config=selections())
def test_what_is_written_is_read_back_as_the_same_selection(config: SelectionConfig) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "selection.toml"
        path.write_text(settings_text(config), encoding="utf-8")
        assert read_settings(path) == config


def test_what_is_not_said_has_the_careful_default(tmp_path: Path) -> None:
    path = tmp_path / "mobile.toml"
    path.write_text(MINIMAL)
    config = read_settings(path)
    assert config.name == "mobile"
    assert config.privacy.consent is Consent.COLUMN
    assert config.privacy.least_finalists == 2
    assert config.privacy.delta == 0
    assert config.privacy.shuffle is None
    assert config.pricing == Pricing()
    assert config.mechanism == FloorMechanism(epsilon=2.0)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("[mechanism]", "[mechanisms]", "did you mean 'mechanism'?"),
        ("[privacy]", "[pricing]\nrules = 'posted'\n[privacy]", "did you mean 'rule'?"),
        ("[privacy]", "[pricing]\nrule = 'third-price'\n[privacy]", "or 'posted'"),
        ("[privacy]", "[pricing]\nreserve = -1\n[privacy]", "reserve=-1"),
        ("[privacy]", "[pricing]\nreserve = '1'\n[privacy]", "reserve='1'"),
        ('unit = "impression"', "", "[privacy] needs the setting 'unit'"),
        ('unit = "impression"', "unit = 3", "unit"),
        ('unit = "impression"', 'unit = "user"', "needs max_decisions_per_user"),
        ('unit = "impression"', 'unit = "user per day"', "is not for selection"),
        ("unit =", "monotonic = true\nunit =", "no setting 'monotonic'"),
        ("unit =", "min_cel_size = 10\nunit =", "did you mean 'min_cell_size'?"),
        ("unit =", "min_cell_size = 10\nunit =", "Use 'posted'"),
        ("unit =", "min_cell_size = 0\nunit =", "min_cell_size=0"),
        ("unit =", "user_reports = 'several per cell'\nunit =", "give min_cell_size too"),
        ("unit =", "consent = 'nobody'\nunit =", "consent"),
        ("unit =", "consent = true\nunit =", "consent"),
        ("unit =", "candidates = 'device'\nunit =", "if private data decide which ads take part"),
        ("unit =", "delta = '1e-6'\nunit =", "delta='1e-6'"),
        ('"randomized-response"', '"greedy"', "protects nobody"),
        ("epsilon = 2", "epsilon = 2\nname =", "is not TOML"),
    ],
)
def test_mistakes_are_named_with_the_way_out(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    path = tmp_path / "selection.toml"
    path.write_text(MINIMAL.replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape(problem)):
        read_settings(path)


def test_shuffled_reports_of_posted_prices_need_a_delta(tmp_path: Path) -> None:
    path = tmp_path / "selection.toml"
    shuffled = MINIMAL + "min_cell_size = 50\n"
    path.write_text(f"{shuffled}[pricing]\nrule = 'posted'\n")
    with pytest.raises(ConfigError, match="up to a delta > 0"):
        read_settings(path)
    path.write_text(f"{shuffled}delta = 1e-6\n[pricing]\nrule = 'posted'\n")
    assert read_settings(path).privacy.shuffle == Shuffle(min_cell_size=50)


def test_a_file_that_is_not_there_is_an_error_of_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.toml does not exist"):
        read_settings(tmp_path / "none.toml")
