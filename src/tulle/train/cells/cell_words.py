"""What a training plan says of cells: sentence, settings, bounds and assumptions."""

from tulle.privacy.conditions import Assumption, Bound, Status
from tulle.privacy.fields import canonical_json
from tulle.privacy.settings import Scalar
from tulle.train.cells.cell_settings import CellSettings
from tulle.train.cells.cell_sums import LABEL_SENSITIVITY, ROW_SENSITIVITY
from tulle.train.noise_words import FLOATING_POINT


def cells_sentence() -> str:
    """What will run, for a reader who knows neither papers nor code."""
    return (
        "Rows are grouped into cells by the values of one to three columns. Labels and "
        "predictions are summed over each cell with Gaussian noise, grouping after grouping, "
        "and what the sums differ by corrects the predictions of the cell. Public columns come "
        "first, with noise that hides labels; from the first sensitive column on the noise hides "
        "labels and sensitive columns together. There are no batches: every sum is over all rows."
    )


def cells_settings(settings: CellSettings, noise_multiplier: float | None) -> dict[str, Scalar]:
    """All that decides what is summed and with how much noise."""
    return {
        "cells": canonical_json(settings.to_dict()),
        "noise": "shares of one gaussian",
        "noise_arithmetic": FLOATING_POINT,
        "noise_multiplier": noise_multiplier,
    }


def cells_bounds() -> tuple[Bound, ...]:
    """Most cells that one row adds to, and most that replacing it changes in a round of tables."""
    weights = "squares of the weights of a row in all tables of a round add up to at most its share"
    return (
        Bound(
            what="cells of each table that one row adds to",
            limit=1,
            where="a row has one value of each column, and a cell is one combination of values",
        ),
        Bound(
            what="L2 distance of the sums of all tables of a round of share 1 together, before a "
            "sensitive column was used, if the label of one row is replaced",
            limit=LABEL_SENSITIVITY,
            where="labels are 0 or 1; cells and predictions depend on public columns until then; "
            + weights,
        ),
        Bound(
            what="L2 distance of the sums of all tables of a later round of share 1 together, or "
            "of the counts of the values of one sensitive column, if one row is replaced",
            limit=ROW_SENSITIVITY,
            where="rows with high predictions count less, so that what a row adds to both sums "
            "of its cell is bounded together; " + weights,
        ),
    )


def cells_bounds_of_one_table() -> tuple[Bound, ...]:
    """The bounds as plans of version 0.1.0 state them: true, but of one table where all are meant.

    Such plans can still be run.
    """
    return (
        Bound(
            what="cells of a table that one row adds to",
            limit=1,
            where="a row has one value of each column, and a cell is one combination of values",
        ),
        Bound(
            what="L2 distance of the sums of a table before a sensitive column was used, if the "
            "label of one row is replaced",
            limit=LABEL_SENSITIVITY,
            where="labels are 0 or 1; cells and predictions depend on public columns until then",
        ),
        Bound(
            what="L2 distance of the sums of a later table, or of the counts of the values of a "
            "sensitive column, if one row is replaced",
            limit=ROW_SENSITIVITY,
            where="rows with high predictions count less, so that what a row adds to both sums "
            "of its cell is bounded together",
        ),
    )


def cells_assumptions() -> tuple[Assumption, ...]:
    """On what the claim rests, each with what makes it true."""
    return (
        _enforced(
            "All noisy sums and counts together cost one Gaussian release.",
            "each has a share of it, and more noise the smaller the share; one object counts the "
            "shares and refuses to draw once they add up to 1",
        ),
        _enforced(
            "Which cells there are tells nothing about sensitive values but by noisy counts.",
            "values of sensitive columns are chosen by counts that have their noise, and every "
            "possible cell of a table gets noise, whether a row is in it or not",
        ),
        _enforced(
            "A run that was interrupted releases one model.",
            "nothing that was summed is written before the model is done; it is then kept before "
            "anything else and read back when the run goes on, and never made twice",
        ),
    )


def _enforced(statement: str, evidence: str) -> Assumption:
    return Assumption(statement=statement, status=Status.ENFORCED, evidence=evidence)
