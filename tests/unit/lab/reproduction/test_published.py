"""Published figures: each has a source, and the published numbers bear out the claims."""

import dataclasses

import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.claims import Verdict
from tulle.lab.reproduction.experiments import EXPERIMENTS
from tulle.lab.reproduction.judging import Findings, OwnFigure, judge
from tulle.lab.reproduction.published import (
    PublishedClaim,
    PublishedTarget,
    Relation,
    published_target,
    published_targets,
    targets_from_toml,
)

TARGETS = published_targets()
SMALL = """
[documents]
paper = "A paper"
[[targets]]
name = "table"
title = "A table"
document = "paper"
[[targets.tables]]
source = "Table 7"
unit = "%"
row_name = "epsilon"
columns = ["one", "other"]
error = 0.5
[targets.tables.rows]
"1" = [3, 4]
"2" = [1, 2]
[targets.tables.errors]
"2" = [0.1, 0.2]
[[targets.claims]]
text = "one is less"
source = "Section 3"
relation = "below"
left = ["one, epsilon 1"]
right = [4.5]
"""


def findings_of(target: PublishedTarget) -> Findings:
    figures = {name: OwnFigure(value=value) for name, value in target.values().items()}
    return Findings(figures=figures)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_figure_and_claim_says_where_it_is_from(target: PublishedTarget) -> None:
    assert target.claims
    assert len(target.document) > 20
    for figure in target.figures:
        assert len(figure.source) > 4, figure.name
        assert figure.unit
        assert figure.error is None or figure.error >= 0
    for claim in target.claims:
        assert len(claim.source) > 4, claim.text
    names = [figure.name for figure in target.figures]
    assert len(names) == len(set(names))
    assert len({claim.text for claim in target.claims}) == len(target.claims)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_published_numbers_never_contradict_the_claims(target: PublishedTarget) -> None:
    for claim in target.claims:
        verdict = judge(claim, findings_of(target)).verdict
        assert verdict is not Verdict.DOES_NOT_HOLD, claim.text


def test_tables_of_the_papers_bear_out_their_claims_and_swapped_ones_do_not() -> None:
    for name in ("ppai24-table1", "ppai24-table2", "ppai24-table3", "ppai24-table5"):
        target = published_target(name)
        for claim in target.claims:
            assert judge(claim, findings_of(target)).verdict is Verdict.HOLDS, claim.text
            swapped = dataclasses.replace(claim, left=claim.right, right=claim.left)
            assert judge(swapped, findings_of(target)).verdict is Verdict.DOES_NOT_HOLD


def test_figures_are_those_of_the_documents() -> None:
    # Read in the documents once more, apart from how the file was made.
    for name, figure, value, error in (
        ("ppai24-table1", "hybrid, epsilon 1", 15.396, 0.007),
        ("ppai24-table1", "AUC loss without privacy", 0.19422, None),
        ("ppai24-table2", "dp-sgd, epsilon 50", 5.965, 0.434),
        ("ppai24-table2", "AUC loss without privacy", 0.15879, None),
        ("ppai24-table3", "rr, cap 10, epsilon 1", 82.281, 3.847),
        ("ppai24-table3", "hybrid, cap 2, epsilon 30", 2.776, 0.402),
        ("ppai24-table5", "hybrid, epsilon 5", 4.968, 0.0),
        ("adkdd24-fig1", "FM, hybrid, epsilon 12", 1.2, None),
        ("adkdd24-fig2", "AUC loss without privacy, FM", 0.2154, None),
        ("adkdd24-fig4", "increase of the AUC loss, a fiftieth", 0.078, None),
        ("labeldp-units", "units, user and publisher, epsilon 3", 2.67, None),
        ("labeldp-units", "user, best cap, epsilon 4", 8.51, None),
        ("apple-fig4", "best gamma, click rate", 0.8, None),
    ):
        figures = {found.name: found for found in published_target(name).figures}
        assert figures[figure].value == value
        assert figures[figure].error == error


def test_every_target_can_be_run_and_every_experiment_is_published() -> None:
    assert set(EXPERIMENTS) == {target.name for target in TARGETS}


def test_a_table_gives_one_figure_a_cell_with_its_own_error_or_the_tables() -> None:
    (target,) = targets_from_toml(SMALL)
    found = {figure.name: (figure.value, figure.error) for figure in target.figures}
    assert found == {
        "one, epsilon 1": (3.0, 0.5),
        "other, epsilon 1": (4.0, 0.5),
        "one, epsilon 2": (1.0, 0.1),
        "other, epsilon 2": (2.0, 0.2),
    }
    assert {figure.source for figure in target.figures} == {"Table 7"}
    assert target.claims[0].names == {"one, epsilon 1"}
    # A figure without a source cannot be read at all.
    with pytest.raises(KeyError, match="source"):
        targets_from_toml(SMALL.replace('source = "Table 7"\n', ""))


def test_an_unknown_target_is_told_what_it_may_have_been() -> None:
    with pytest.raises(ConfigError, match="ppai24-table1"):
        published_target("ppai24-tabel1")


def test_a_claim_needs_as_many_figures_on_both_sides() -> None:
    with pytest.raises(ConfigError, match="2 figures with 1"):
        PublishedClaim(text="t", source="s", relation=Relation.BELOW, left=("a", "b"), right=("c",))
