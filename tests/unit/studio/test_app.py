import pathlib
from collections.abc import Iterator

import pytest

from tulle.studio.answering import PANELS
from tulle.studio.labels_panel import LABELS, answer_labels
from tulle.studio.panel import defaults
from tulle.studio.select_panel import MARKET_FIELDS, SELECT, answer_selection, auctions_text
from tulle.studio.serving import Studio, StudioConfig
from unit.studio.running_studio import get, get_data, running
from unit.studio.test_stored import make_run


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    folder = tmp_path_factory.mktemp("shown")
    make_run(folder / "runs" / "a run", report="<style>p {}</style><p>page</p>")
    make_run(folder / "outside", report="secret")
    with running(StudioConfig(runs=folder / "runs")) as opened:
        yield opened


def test_the_page_names_only_assets_that_are_there_and_its_own(studio: Studio) -> None:
    status, headers, page = get(studio, "/")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert b"http" not in page
    assert b"<style" not in page
    for name, kind in (("studio.js", "text/javascript"), ("studio.css", "text/css")):
        assert f"/static/{name}".encode() in page
        status, headers, _ = get(studio, f"/static/{name}")
        assert (status, headers["content-type"].split(";")[0]) == (200, kind)


@pytest.mark.parametrize(
    "path",
    [
        *("/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/app.py"),
        *("/runs/..%2foutside/report", "/runs/../outside/report", "/runs/nobody/report"),
        *("/runs/a%20run/card.json", "/api/answers/nothing", "/files/other"),
    ],
)
def test_no_address_leads_to_another_file(studio: Studio, path: str) -> None:
    status, _, body = get(studio, path)
    assert status == 404
    assert b"secret" not in body


def test_a_report_is_shown_without_scripts_and_in_a_sandbox(studio: Studio) -> None:
    status, headers, body = get(studio, "/runs/a%20run/report")
    assert status == 200
    assert body == b"<style>p {}</style><p>page</p>"
    policy = headers["content-security-policy"]
    assert policy.startswith("sandbox; default-src 'none'; style-src 'unsafe-inline'")
    assert "script" not in policy
    assert headers["cache-control"] == "no-store"


def test_panels_are_described_with_their_fields(studio: Studio) -> None:
    described = get_data(studio, "/api/panels")
    assert [panel["name"] for panel in described] == ["train", "measure", "select", "labels"]
    for panel, found in zip(PANELS, described, strict=True):
        assert [f["name"] for f in found["fields"]] == [f.name for f in panel.fields]


def test_an_answer_is_that_of_the_library(studio: Studio) -> None:
    given = defaults(LABELS.fields) | {"epsilon": 1.25}
    found = get_data(studio, "/api/answers/labels", given)
    assert found["flip_prob"] == answer_labels(given).flip_prob


def test_a_bad_setting_is_named_with_its_error(studio: Studio) -> None:
    given = defaults(LABELS.fields) | {"epsilon": -1}
    status, _, _ = get(studio, "/api/answers/labels?epsilon=-1")
    assert status == 400
    found = get_data(studio, "/api/answers/labels", given)
    assert found["field"] == "epsilon"
    assert found["error"].startswith("epsilon=-1 must be a number from 0.05 to 12")


def test_the_auctions_of_an_answer_can_be_saved(studio: Studio) -> None:
    given = defaults(SELECT.fields)
    address = answer_selection(given).downloads["auctions.jsonl"]
    status, _, body = get(studio, address)
    assert status == 200
    market = {field.name: given[field.name] for field in MARKET_FIELDS}
    assert body.decode() == auctions_text(market)
    assert get(studio, "/files/auctions.jsonl?num_candidates=1")[0] == 400


def test_a_folder_that_went_away_is_an_error_on_the_page(tmp_path: pathlib.Path) -> None:
    (tmp_path / "runs").mkdir()
    with running(StudioConfig(runs=tmp_path / "runs")) as opened:
        (tmp_path / "runs").rmdir()
        status, _, _ = get(opened, "/api/runs")
        assert status == 400
        assert "runs" in get_data(opened, "/api/runs")["error"]
