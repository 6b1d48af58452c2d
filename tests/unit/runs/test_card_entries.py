import dataclasses
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from golden.card.fixed_card import AUDIT, PROVENANCE, UTILITY
from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.guarantee import Interval
from tulle.runs.card_entries import (
    AuditResult,
    Provenance,
    UtilityFigure,
    collect_provenance,
    keyed_fingerprint,
)


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"measured_on": ""},
        {"value": math.nan},
        {"interval": Interval(low=0.0, high=math.inf)},
        {"baseline": math.inf},
        {"baseline_name": ""},
        {"baseline": None},
    ],
)
def test_a_utility_figure_without_meaning_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"\S"):
        dataclasses.replace(UTILITY, **change)


@pytest.mark.parametrize(
    "change",
    [{"lower_bound": -1.0}, {"lower_bound": math.inf}, {"confidence": 1.0}, {"claim": math.nan}],
)
def test_an_audit_without_meaning_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        dataclasses.replace(AUDIT, **change)  # type: ignore[arg-type]


def test_evidence_comes_back_from_its_json() -> None:
    bare = UtilityFigure(name="error", value=0.1, measured_on="public test set")
    baseline = dataclasses.replace(AUDIT, claim=math.inf)
    for figure in (UTILITY, bare):
        data = plain_data(figure, every_field=True)
        assert settings_from(UtilityFigure, data, what="figure", every_field=True) == figure
    assert [AuditResult.from_dict(a.to_dict()) for a in (AUDIT, baseline)] == [AUDIT, baseline]


def test_an_audit_refutes_only_what_it_exceeds() -> None:
    assert not dataclasses.replace(AUDIT, lower_bound=AUDIT.claim).refutes_claim
    assert dataclasses.replace(AUDIT, lower_bound=AUDIT.claim + 0.1).refutes_claim


def test_provenance_of_here_and_now_comes_back_from_its_json() -> None:
    provenance = collect_provenance(settings={"model": "logistic"})
    assert set(provenance.libraries) == {"dp-accounting", "numpy", "scipy"}
    assert abs(datetime.now(UTC) - provenance.created_at) < timedelta(hours=1)
    assert Provenance.from_dict(provenance.to_dict()) == provenance


def test_the_time_of_a_card_is_kept_in_utc() -> None:
    east = datetime(2026, 1, 14, 12, tzinfo=timezone(timedelta(hours=2)))
    provenance = dataclasses.replace(PROVENANCE, created_at=east)
    assert provenance.to_dict()["created_at"] == "2026-01-14T10:00:00+00:00"


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="time zone"):
        dataclasses.replace(PROVENANCE, created_at=datetime(2026, 1, 14))


def test_a_plain_hash_of_the_data_is_refused() -> None:
    with pytest.raises(ConfigError, match="keyed_fingerprint"):
        dataclasses.replace(PROVENANCE, data_fingerprint="0" * 64)


def test_a_keyed_fingerprint_depends_on_data_and_key() -> None:
    keys = (b"a" * 16, b"b" * 16)
    found = {keyed_fingerprint(data, key=key) for data in (b"1", b"2") for key in keys}
    assert len(found) == 4
    with pytest.raises(ConfigError, match="key has 3 bytes"):
        keyed_fingerprint(b"1", key=b"abc")
