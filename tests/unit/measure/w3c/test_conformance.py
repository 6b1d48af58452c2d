"""The simulated browser passes conformance cases, and a wrong expectation fails."""

import json
import os
from pathlib import Path

import pytest

from tulle.errors import ConfigError, DataError
from tulle.measure.w3c.conformance import CaseSetup, read_case, run_case, run_file, run_w3c_cases

OWN_CASES = Path(__file__).parent / "cases"
W3C_CASES = Path(
    os.environ.get(
        "TULLE_W3C_CASES",
        str(Path(__file__).parents[5] / "shared" / "conformance" / "w3c-attribution"),
    )
)
CONFIG = json.loads((OWN_CASES / "CONFIG.json").read_text())
BASIC = {
    "events": [
        {
            "seconds": 1,
            "event": "saveImpression",
            "site": "news.example",
            "options": {"histogramIndex": 1},
        },
        {
            "seconds": 2,
            "event": "measureConversion",
            "site": "shop.example",
            "options": {"aggregationService": "https://sums.example", "histogramSize": 2},
            "expected": [0, 1],
        },
    ]
}


def changed(index: int, /, **fields: object) -> dict[str, list[dict[str, object]]]:
    events = [dict(entry) for entry in BASIC["events"]]
    events[index] |= fields
    return {"events": events}


def run(case: object) -> tuple[str, ...]:
    return run_case("case", read_case(case), CaseSetup.from_json(CONFIG)).failures


@pytest.mark.skipif(
    not W3C_CASES.is_dir(),
    reason="no folder of W3C cases; set TULLE_W3C_CASES to one",
)
def test_every_case_of_the_working_group_passes() -> None:
    results = run_w3c_cases(W3C_CASES)
    assert len(results) >= 26
    assert {result.name: result.failures for result in results if not result.is_passed} == {}


def test_every_case_of_our_own_passes() -> None:
    results = run_w3c_cases(OWN_CASES)
    assert len(results) == 6
    assert sum(result.num_events for result in results) > 40
    assert {result.name: result.failures for result in results if not result.is_passed} == {}


def test_a_basic_case_passes() -> None:
    assert run(BASIC) == ()


@pytest.mark.parametrize(
    ("case", "failure"),
    [
        (changed(1, expected=[1, 0]), "at 2 s: expected [1, 0], got [0, 1]"),
        (changed(1, expected="RangeError"), "at 2 s: expected RangeError, got [0, 1]"),
        (
            changed(0, site="localhost"),
            "at 1 s: expected no error, got DOMException SyntaxError",
        ),
        (
            changed(0, site="localhost", expectedError="SyntaxError"),
            "at 1 s: expected SyntaxError, got DOMException SyntaxError",
        ),
        (changed(0, expectedError="RangeError"), "at 1 s: expected RangeError, got no error"),
    ],
)
def test_a_wrong_expectation_fails(case: object, failure: str) -> None:
    assert run(case)[0] == failure


def test_a_case_that_clears_nothing_fails_with_the_reason() -> None:
    clear = {
        "seconds": 3,
        "event": "clearBrowsingHistoryForAttribution",
        "sites": [],
        "forgetVisits": False,
    }
    assert "sites is empty" in run({"events": [*BASIC["events"], clear]})[0]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (changed(1, seconds=1), "later than the one before"),
        (changed(0, seconds=0.5), "seconds=0.5"),
        (changed(0, sites="x"), "did you mean 'site'"),
        (changed(0, event="saveImpresion"), "did you mean 'saveImpression'"),
        (changed(0, options={"histogramIndx": 1}), "did you mean 'histogramIndex'"),
        (changed(0, options={"histogramIndex": -1}), "histogram_index=-1"),
        (changed(1, expected=[0.5]), "expected=0.5"),
        (changed(1, expected={"error": "DOMException"}), "'name'"),
        ({"events": {}}, "must be a list"),
        ({"events": [], "config": {}}, "no key 'config'"),
    ],
)
def test_a_malformed_case_is_refused(case: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_case(case)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"events": [', "cannot be read as JSON"),
        ('{"events": [], "events": []}', "twice"),
        ('{"events": [NaN]}', "NaN"),
    ],
)
def test_a_file_that_is_no_case_is_a_failed_case(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "broken.json").write_text(text)
    result = run_file(tmp_path / "broken.json", CaseSetup.from_json(CONFIG))
    assert not result.is_passed
    assert message in result.failures[0]


def test_comments_may_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text('{"$comment": "a", "$comment": "b", "events": []}')
    assert run_file(tmp_path / "case.json", CaseSetup.from_json(CONFIG)).is_passed


def test_a_folder_without_settings_or_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no CONFIG\.json"):
        run_w3c_cases(tmp_path)
    (tmp_path / "CONFIG.json").write_text(json.dumps(CONFIG))
    (tmp_path / "e2e.schema.json").write_text("{}")
    with pytest.raises(DataError, match="no cases"):
        run_w3c_cases(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"perSitePrivacyBudgt": 1}, "did you mean 'perSitePrivacyBudget'"),
        ({"perSitePrivacyBudget": 0}, "per_site_privacy_budget=0"),
        ({"globalPrivacyBudgetPerEpoch": 5_000_000_000}, "microepsilons"),
        ({"epochStart": 1}, "epoch_fraction=1"),
        ({"aggregationServices": {"https://a.example": "dap-1"}}, "dap-18-histogram"),
        ({"aggregationServices": ["https://a.example"]}, "aggregation_services"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CaseSetup.from_json(CONFIG | changes)
