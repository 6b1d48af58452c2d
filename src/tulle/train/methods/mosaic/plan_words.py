"""What plans and cards of Mosaic say: how it works, what bounds its sums, what its proof needs."""

import math

from tulle.privacy.plan import Bound
from tulle.train.methods.method import enforced
from tulle.train.methods.mosaic.cell_sums import (
    LABEL_SENSITIVITY,
    PROBABILITY_BITS,
    ROW_SENSITIVITY,
    most_predicted,
)

SENTENCE = (
    "Rows are grouped into cells by the values of one to three columns. Labels and "
    "predictions are summed over each cell with Gaussian noise, grouping after grouping, "
    "and what the sums differ by corrects the predictions of the cell. Public columns come "
    "first, with noise that hides labels; from the first sensitive column on the noise hides "
    "labels and sensitive columns together. There are no batches: every sum is over all rows."
)
VALUES = (
    " Labels are values from 0 on, and one above the clip counts as {clip:g}, so that no row adds "
    "more than any other could. What the model predicts is the expected value, cut there."
)
CLASSES = (
    " Each of the {number} classes has tables of its own, which learn whether a label is that "
    "class, and half of what counts leave of the noise budget: no row that is replaced, with any "
    "label, costs more than the tables of two classes spend."
)
ARITHMETIC = "exact sums of whole numbers, noise on their lattice"
_WEIGHTS = "squares of the weights of a row in all tables of a round add up to at most its share"


WEIGHTED = (
    " Rows count as column {} says, which is public; a row that counts half as much as the "
    "heaviest moves every sum half as much."
)
_USERS = (
    " All rows of a user take part, and together they weigh what one row may weigh; more rows make "
    "a user's part more exact, not larger."
)
_FULL_ROWS = " Each of k rows of a user weighs 1/max(k, {}); how many there are is public."
_DIVIDED = (
    " Each of k rows weighs 1/k, or 0.71 where the labels of a user are divided by how many of "
    "them are 1 and predictions in sums are cut at 0.366/k; which it is, k and a noisy number say."
)


def sentence_of_users(full_rows: int | None, *, divided: bool) -> str:
    """What a plan says of the rows of a user.

    Args:
      full_rows: Number of rows that a user may have before each weighs less; None if not set.
      divided: True if labels of users may be divided.
    """
    if full_rows is not None and full_rows > 1:
        return _USERS + _FULL_ROWS.format(full_rows)
    return _USERS + (_DIVIDED if divided else "")


# What the proof in docs/theory/mosaic.md rests on, in the words of plans and cards.
def bounds_of_sums(
    *, are_users: bool, weight: str | None, clip: float | None, num_heads: int, divided: bool
) -> tuple[Bound, ...]:
    """Most that one row adds to the sums, or all rows of a user together.

    Args:
      are_users: Whether all rows of a user are protected together.
      weight: Column that says how much each row counts; None if all count the same.
      clip: Largest value that a label counts as; None for labels of 0 and 1.
      num_heads: Number of sets of tables.
      divided: Whether labels of a user may be divided.
    """
    cells = Bound(
        what="cells of each table that one row adds to",
        limit=1,
        where="a row has one value of each column, and a cell is one combination of values",
    )
    relative = Bound(
        what=f"number that column {weight} lets one row count for",
        limit=1,
        where="weights are public, and are divided by the largest; the squared weight that a row "
        "may spend is multiplied by the square of that number",
    )
    labels = "the labels of one user are" if are_users else "the label of one row is"
    what_is = "0 or 1" if clip is None else f"from 0 to 1, values divided by {clip:g} and cut there"
    # With classes the distances are those of one of them; two may see another label.
    of = " of one class" if num_heads > 2 else ""
    classes = Bound(
        what="shares of the tables of classes that one row costs, or all rows of one user together",
        limit=2,
        where="a label that is replaced is another one for two classes; once rows are hidden, one "
        "adds little to the tables of classes that it is not of, as predictions count up to "
        f"{math.ldexp(most_predicted(max(num_heads, 2)), -PROBABILITY_BITS):.4g} alone",
    )
    return (
        cells,
        *(_bounds_of_users(divided=divided) if are_users else ()),
        *((relative,) if weight is not None else ()),
        *((classes,) if num_heads > 2 else ()),
        Bound(
            what=f"L2 distance of the sums of all tables{of} of a round of share 1 together, "
            f"before a sensitive column was used, if {labels} replaced",
            limit=LABEL_SENSITIVITY,
            where=f"labels are {what_is}; cells and predictions depend on public columns until "
            "then; " + _WEIGHTS,
        ),
        Bound(
            what=f"L2 distance of the sums of all tables{of} of a later round of share 1 together, "
            "or of the counts of the values of one sensitive column, if "
            f"{'the rows of one user are' if are_users else 'one row is'} replaced",
            limit=ROW_SENSITIVITY,
            where="rows with high predictions count less, so that what a row adds to both sums "
            "of its cell is bounded together; " + _WEIGHTS,
        ),
    )


ASSUMPTIONS = (
    enforced(
        "All noisy sums and counts together cost one Gaussian release.",
        "each has a share of it, and rows weigh less the smaller the share; one object counts "
        "shares, and what each row spends of them, in whole numbers, and refuses to draw noise "
        "beyond them",
    ),
    enforced(
        "No low bit of a sum, of the bias or of a weight tells more than the noise allows.",
        "labels, predictions and weights are whole numbers when they are summed, rounded so that "
        "the bounds above hold for them; noise is the exactly rounded Gaussian, and nothing but "
        "whole numbers is let through to it",
    ),
    enforced(
        "Which cells there are tells nothing about sensitive values but by noisy counts.",
        "values of sensitive columns are chosen by counts that have their noise, and every "
        "possible cell of a table gets noise, whether a row is in it or not",
    ),
    enforced(
        "A run that was interrupted releases one model.",
        "nothing that was summed is written before the model is done; it is then kept before "
        "anything else and read back when the run goes on, and never made twice",
    ),
)

KNOWN_CLASSES = enforced(
    "Which classes there are tells nothing about labels.",
    "their names are a public setting and are never read from the labels, a label that is none of "
    "them is refused before anything is released, and a class that never occurs has tables too",
)


def _bounds_of_users(*, divided: bool) -> tuple[Bound, ...]:
    """Most that the rows of a user add to sums together.

    Args:
      divided: True if labels of users may be divided.
    """
    together = Bound(
        what="weight of all rows of one user together, where a row that is alone weighs 1; of "
        "rows in different public cells, the sum of their squared weights"
        + ("; of rows whose labels are divided, see below" if divided else ""),
        limit=1,
        where="whose each row is, is public; a row of a user with k rows weighs 1/k, and a row "
        "that shares a public cell with m - 1 others of its user pays m times its squared weight",
    )
    shared = Bound(
        what="sum of the labels of one user with k rows, where they are divided, and of "
        "predictions over 0.366; each row then weighs at most sqrt(1/2)",
        limit=1,
        where="labels of 1 are divided by their number, predictions in sums are cut at 0.366/k, "
        "and the squared weights of a row add up to at most half of the share",
    )
    return (together, shared) if divided else (together,)
