"""`tulle explain` prints tables, effects and one prediction, and refuses what it cannot show."""

import json
from pathlib import Path

import pytest

from tulle.cli.main import run_with
from unit.train.explained_clicks import clicks, trained_on_clicks

ROW = clicks().row(0, named=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    trained_on_clicks().save(folder / "model")
    clicks().select("site").unique().write_csv(folder / "sites.csv")
    clicks().head(1).write_parquet(folder / "row.parquet")
    (folder / "row.json").write_text(json.dumps(ROW))
    return folder


def explain(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code = run_with(["explain", *map(str, words)])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    return shown.out


def test_tables_effects_and_contributions_are_printed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--column", "site", "--values", folder / "sites.csv", "--row", json.dumps(ROW))
    shown = explain(capsys, folder / "model", *words)
    explanation = trained_on_clicks().explain()
    for table in explanation.tables:
        assert f"{table.name} " in shown
        assert f"{100 * (table.share or 0):.1f}%" in shown
    assert "site 11" in shown
    assert f"site = {ROW['site']}" in shown
    assert f"{explanation.contributions(ROW).probability:.4f}" in shown


@pytest.mark.parametrize("name", ["row.parquet", "row.json"])
def test_a_row_may_be_in_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    found = json.loads(explain(capsys, folder / "model", "--row", folder / name, "--json"))
    wanted = trained_on_clicks().explain().contributions(ROW)
    assert found["contributions"] == json.loads(json.dumps(wanted.to_dict()))


def test_the_page_is_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = explain(capsys, folder / "model", "--output", tmp_path / "page.html")
    assert f"written: {tmp_path / 'page.html'}" in shown
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--column", "sites"], 2, "--column 'sites' is not in the model (did you mean 'site'?)"),
        (["--row", '{"site": "site 1"}'], 4, "the row has no column 'device'; give its value"),
        (["--row", "[1]"], 4, "[1]"),
        (["--row", "{"], 2, "the row is not JSON"),
        (["--output", "page.txt"], 2, "must end in .html or .json"),
        (["--values", "nothing.csv"], 4, "nothing.csv"),
        (["--part", "rate"], 2, "'rate' is not in the model"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    assert run_with(["explain", str(folder / "model"), *words]) == code
    assert message in capsys.readouterr().err
