import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.privacy.units import Adjacency, Owner, Scope, TrustModel, Unit
from tulle.privacy.windows import TimeWindows

DAY = 86_400
BEFORE_MARCH = 20_500 * DAY
"""2026-02-16: clocks of Berlin and New York change in the weeks after it, and a month ends."""
LENGTHS = st.one_of(
    st.sampled_from([1, 60, 90, 3600, DAY, 7 * DAY, 28 * DAY]), st.integers(1, 10**9)
).map(TimeWindows)
CALENDARS = st.sampled_from(
    [
        "week",
        "week from sunday",
        "month",
        "7 days from 2026-01-05",
        "14 days from 2026-01-05",
        "28 days from 2026-01-12",
        "day in Europe/Berlin",
        "week in Europe/Berlin",
        "14 days from 2026-01-05 in Europe/Berlin",
        "month in Europe/Berlin",
        "day in America/New_York",
    ]
).map(TimeWindows.parse)
UNITS = st.builds(Unit, st.sampled_from(Owner), st.one_of(st.none(), LENGTHS, CALENDARS))


@given(UNITS)
def test_a_unit_can_be_read_from_what_it_prints(unit: Unit) -> None:
    assert Unit.parse(str(unit)) == unit
    assert Unit.parse(f"  {str(unit).upper()} ") == unit


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("user", Unit.user()),
        ("user per day", Unit.user(days=1)),
        ("user per 7 days", Unit.user(days=7)),
        ("user per week", Unit(Owner.USER, TimeWindows(7 * DAY, 4 * DAY))),
        ("user per week from thursday", Unit.user(days=7)),
        ("user per 2 weeks", Unit.user(days=14)),
        ("user x advertiser per 12 hours", Unit(Owner.USER_ADVERTISER, TimeWindows(DAY // 2))),
        ("user*publisher", Unit.user_publisher()),
        ("user × advertiser", Unit.user_advertiser()),
        ("example", Unit.example()),
    ],
)
def test_common_spellings_are_read(text: str, unit: Unit) -> None:
    assert Unit.parse(text) == unit


@pytest.mark.parametrize(
    "text",
    [
        "",
        "household",
        "advertiser",
        "userxadvertise",
        "user per",
        "user per 0 days",
        "user per -1 days",
        "user per 1.5 days",
        "user per fortnight",
        "user per day per day",
    ],
)
def test_unknown_units_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Unit.parse(text)


@pytest.mark.parametrize("windows", [7 * DAY, 1.0, "7 days", True])
def test_windows_are_of_their_own_type(windows: object) -> None:
    with pytest.raises(ConfigError, match="windows="):
        Unit(Owner.USER, windows)  # type: ignore[arg-type]


@pytest.mark.parametrize("owner", ["user", None, 3])
def test_an_owner_is_no_text(owner: object) -> None:
    with pytest.raises(ConfigError, match="owner"):
        Unit(owner)  # type: ignore[arg-type]


@pytest.mark.parametrize("days", [0, -7, 0.5])
def test_windows_in_days_are_whole_days(days: object) -> None:
    with pytest.raises(ConfigError):
        Unit.user(days=days)  # type: ignore[arg-type]


@given(UNITS)
def test_every_unit_covers_itself_and_every_row_it_owns(unit: Unit) -> None:
    assert unit.covers(unit)
    is_of_one_table = unit.owner in {Owner.IMPRESSION, Owner.CONVERSION}
    assert unit.covers(Unit.example()) is not is_of_one_table


@given(UNITS, UNITS, UNITS)
def test_covering_is_transitive(first: Unit, second: Unit, third: Unit) -> None:
    if first.covers(second) and second.covers(third):
        assert first.covers(third)


@given(UNITS, UNITS)
def test_only_rows_cover_each_other_without_being_equal(first: Unit, second: Unit) -> None:
    if not (first.covers(second) and second.covers(first)) or first == second:
        return
    assert first.owner is second.owner
    if not first.owner.is_one_row:
        # The same windows by other words, e.g. weeks and 7 days from a Monday.
        assert first.windows is not None
        assert second.windows is not None
        assert (first.windows.seconds, first.windows.zone) == (
            second.windows.seconds,
            second.windows.zone,
        )


@given(UNITS, UNITS)
def test_covering_is_what_the_rows_say(outer: Unit, inner: Unit) -> None:
    """On rows of two users, two advertisers and publishers, every 12 hours of some weeks."""
    outer, inner = (Unit(u.owner, rounded(u.windows)) for u in (outer, inner))
    rows = [
        {"user": u, "advertiser": a, "publisher": p, "time": BEFORE_MARCH + t * DAY // 2}
        | dict.fromkeys(("example", "impression", "conversion"), (u, a, p, t))
        for u in range(2)
        for a in range(2)
        for p in range(2)
        for t in range(90)
    ]
    groups: dict[object, set[object]] = {}
    for row in rows:
        groups.setdefault(unit_of(row, inner), set()).add(unit_of(row, outer))
    if outer.covers(inner):
        assert all(len(outers) == 1 for outers in groups.values())


def rounded(windows: TimeWindows | None) -> TimeWindows | None:
    """Windows of any length as some days, so that the rows lie in several."""
    if windows is None or not windows.is_plain or windows.seconds is None:
        return windows
    return TimeWindows(DAY // 2 * (1 + windows.seconds % 24))


def unit_of(row: dict, unit: Unit) -> tuple:
    keys = tuple(row[key] for key in sorted(unit.owner.keys))
    if unit.windows is None:
        return keys
    return (*keys, unit.windows.number(row["time"] * 1_000_000))


@pytest.mark.parametrize(
    ("outer", "inner", "covered"),
    [
        (Unit.user(), Unit.user_advertiser(), True),
        (Unit.user_advertiser(), Unit.user(), False),
        (Unit.user_advertiser(), Unit.user_publisher(), False),
        (Unit.user(days=7), Unit.user(days=1), True),
        (Unit.user(days=7), Unit.user(days=2), False),
        (Unit.user(days=1), Unit.user(days=7), False),
        (Unit.user(), Unit.user(days=7), True),
        (Unit.user(days=7), Unit.user(), False),
        (Unit.user(days=7), Unit.user_advertiser(days=7), True),
        (Unit.user(days=7), Unit.user_advertiser(), False),
        (Unit.example(), Unit.user(), False),
        (Unit.user(days=1), Unit.example(days=30), True),
        (Unit.user(), Unit.impression(), True),
        (Unit.user_publisher(), Unit.impression(), True),
        (Unit.user_publisher(), Unit.conversion(), False),
        (Unit.user_advertiser(days=7), Unit.conversion(), True),
        (Unit.impression(), Unit.conversion(), False),
        (Unit.impression(), Unit.user(), False),
    ],
)
def test_windows_cover_those_that_divide_them(outer: Unit, inner: Unit, covered: bool) -> None:
    assert outer.covers(inner) is covered


@given(st.sampled_from(Scope), st.sampled_from(Scope), st.sampled_from(Scope))
def test_scopes_are_ordered(first: Scope, second: Scope, third: Scope) -> None:
    assert first.covers(first)
    assert Scope.WHOLE_ROWS.covers(first)
    if first.covers(second) and second.covers(third):
        assert first.covers(third)
    if first.covers(second) and second.covers(first):
        assert first is second


def test_labels_and_features_do_not_cover_each_other() -> None:
    assert not Scope.LABELS.covers(Scope.SENSITIVE_COLUMNS)
    assert not Scope.SENSITIVE_COLUMNS.covers(Scope.LABELS)
    assert Scope.LABELS_AND_SENSITIVE_COLUMNS.covers(Scope.LABELS)
    assert not Scope.LABELS_AND_SENSITIVE_COLUMNS.covers(Scope.WHOLE_ROWS)


@pytest.mark.parametrize(
    ("text", "adjacency"),
    [
        ("replace", Adjacency.REPLACE),
        ("Add-Or-Remove", Adjacency.ADD_OR_REMOVE),
        ("add_remove", Adjacency.ADD_OR_REMOVE),
        (" zero_out ", Adjacency.ZERO_OUT),
    ],
)
def test_adjacencies_are_read(text: str, adjacency: Adjacency) -> None:
    assert Adjacency.parse(text) is adjacency
    assert Adjacency.parse(adjacency.value) is adjacency


@pytest.mark.parametrize("text", ["", "substitute", "add", "remove"])
def test_unknown_adjacencies_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="adjacency"):
        Adjacency.parse(text)


def test_every_adjacency_and_trust_model_can_be_explained() -> None:
    assert len({a.meaning for a in Adjacency}) == len(Adjacency)
    assert {t.value for t in TrustModel} == {"central", "local", "shuffle"}


def test_a_row_is_another_word_for_an_example() -> None:
    assert Unit.parse("row") == Unit.example()
    assert Unit.parse(" Row per 7 days") == Unit.example(days=7)
    assert str(Unit.parse("row")) == "example"
