"""A reproduction: figures side by side, verdicts, and pages that say what they are about."""

import json
import math
from pathlib import Path

import pytest

from tulle.errors import ConfigError, DataError
from tulle.lab.reproduction.published import Findings, OwnFigure
from tulle.lab.reproduction.reproducing import (
    Reproduction,
    ReproductionSettings,
    reproduce,
    reproduction_markdown,
    reproduction_text,
    shown_rows,
)

TARGET = "ppai24-table5"


def run(values: dict[str, float], data: Path | None = None) -> Reproduction:
    figures = {name: OwnFigure(value=value) for name, value in values.items()}
    experiments = {TARGET: lambda _: Findings(figures=figures, setting="a toy log")}
    return reproduce(TARGET, ReproductionSettings(data=data), experiments=experiments)


OURS = {
    "rr, epsilon 3": 9.0,
    "dp-sgd, epsilon 3": 8.0,
    "hybrid, epsilon 3": 7.0,
    "dp-sgd, epsilon 10": 7.0,
    "hybrid, epsilon 10": 7.5,
    "something else": math.inf,
}


def test_ours_stand_beside_the_published_figures() -> None:
    rows = {row.name: row for row in run(OURS).rows}
    assert rows["hybrid, epsilon 3"].to_dict() == {
        "figure": "hybrid, epsilon 3",
        "ours": 7.0,
        "ours_error": None,
        "published": 6.415,
        "published_error": 0.002,
        "unit": "relative AUC loss, %",
        "source": "Table 5, appendix",
    }
    assert rows["hybrid, epsilon 50"].ours is None
    assert rows["something else"].published is None
    assert rows["something else"].to_dict()["ours"] is None


def test_each_claim_gets_its_own_verdict() -> None:
    verdicts = [judgement.verdict.value for judgement in run(OURS).judgements]
    # At epsilon 10 Hybrid is behind, and there is nothing of epsilon 1.
    assert verdicts == ["holds", "does not hold", "not comparable"]
    better = {**OURS, "hybrid, epsilon 10": 6.5, "dp-sgd, epsilon 1": 9, "hybrid, epsilon 1": 10}
    assert [judgement.verdict.value for judgement in run(better).judgements] == ["holds"] * 3


def test_text_and_markdown_name_figures_verdicts_and_sources() -> None:
    found = run(OURS)
    text, page = reproduction_text(found), reproduction_markdown(found)
    for shown in (text, page):
        assert "6.415" in shown
        assert "does not hold" in shown
        assert "Table 5" in shown
        assert "not a private release" in shown.lower()
        assert "a toy log" in shown
        assert "hybrid, epsilon 50" not in shown
    assert "1 holds, 1 does not hold, 1 not comparable" in text
    assert {row.name for row in shown_rows(found)} == set(OURS) - {"something else"}
    table_rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table_rows}) == 1


def test_results_are_plain_data_without_paths(tmp_path: Path) -> None:
    log = tmp_path / "log.tsv"
    log.write_text("")
    facts = run(OURS, data=log).to_dict()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["data"] == "log.tsv"
    assert str(tmp_path) not in json.dumps(facts)
    assert run(OURS).to_dict()["data"] == "synthetic"
    assert "your data" in reproduction_text(run(OURS, data=log))


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.tsv is not there"):
        ReproductionSettings(data=tmp_path / "gone.tsv")
    with pytest.raises(ConfigError, match="seed=-1"):
        ReproductionSettings(seed=-1)
