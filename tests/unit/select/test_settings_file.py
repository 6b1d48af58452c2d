"""A settings file says the same selection to every step."""

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
from tulle.privacy.units import Unit
from tulle.select.billing.prices import PricingRule
from tulle.select.decision_accounting import Shuffle, UserReports
from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.floors.shortlist import Cutoff, TopCandidates
from tulle.select.mechanism_table import DecidingMechanism
from tulle.select.selection_config import Consent, Pricing, SelectionConfig
from tulle.select.settings_file import read_settings, settings_text
from unit.select.test_mechanism_table import mechanisms

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
    shuffle = None
    if isinstance(mechanism, FloorMechanism) and draw(st.booleans()):
        shuffle = draw(
            st.builds(
                Shuffle,
                min_cell_size=st.integers(1, 10**6),
                user_reports=st.sampled_from(UserReports),
            )
        )
    if shuffle is not None or draw(st.booleans()):
        pricing = Pricing(is_posted=True, reserve=reserve)
    return SelectionConfig(
        name=draw(
            st.text(
                st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), min_size=1
            ).filter(str.strip)
        ),
        mechanism=mechanism,
        unit=Unit.user() if is_by_user else Unit.impression(),
        max_decisions_per_user=draw(st.integers(1, 1000)) if is_by_user else None,
        least_finalists=draw(st.integers(2, 20)),
        delta=draw(st.floats(1e-12, 0.1)) if shuffle is not None else 0.0,
        shuffle=shuffle,
        pricing=pricing,
        consent=draw(st.sampled_from(Consent)),
        is_planned_on_devices=draw(st.booleans()),
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
    assert config.consent is Consent.COLUMN
    assert config.least_finalists == 2
    assert config.delta == 0
    assert config.shuffle is None
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
    assert read_settings(path).shuffle == Shuffle(min_cell_size=50)


def test_a_file_that_is_not_there_is_an_error_of_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.toml does not exist"):
        read_settings(tmp_path / "none.toml")
