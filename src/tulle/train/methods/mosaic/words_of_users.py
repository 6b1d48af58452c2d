"""What plans and cards say of users as units of Mosaic."""

from tulle.privacy.plan import Bound

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


def bounds_of_users(*, divided: bool) -> tuple[Bound, ...]:
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
