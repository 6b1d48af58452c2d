"""Published and independently computed values of amplification by shuffling."""

from typing import Any

import pytest

from tulle.accounting.shuffling import clones_blanket, profile_epsilon, response_blanket

DELTA = 1e-6

# Central epsilon at delta = 1e-6, computed with separate code (one FFT per epsilon
# for the blanket; binomial sums for the clones) and printed to three digits.
# num_reports, local_epsilon, clones, then K = 2, 4, 15, 100.
TABLE = [
    (10**4, 1.0, ".0530", ".0432", ".0343", ".0192", ".0072"),
    (10**4, 3.0, ".321", ".226", ".215", ".174", ".089"),
    (10**4, 5.0, "1.152", ".742", ".736", ".702", ".541"),
    (10**6, 1.0, ".00433", ".00351", ".00277", ".00152", ".00054"),
    (10**6, 3.0, ".0269", ".0190", ".0181", ".0146", ".0074"),
    (10**6, 5.0, ".0865", ".0598", ".0594", ".0572", ".0456"),
]


def printed(text: str) -> object:
    """Equal after rounding to the printed digits."""
    return pytest.approx(float(text), abs=0.5 * 10.0 ** -len(text.partition(".")[2]))


@pytest.mark.parametrize("row", TABLE)
def test_the_blanket_gives_the_table(row: tuple[Any, ...]) -> None:
    num_reports, local_epsilon = row[:2]
    for num_values, text in zip((2, 4, 15, 100), row[3:], strict=True):
        epsilon = profile_epsilon(response_blanket(local_epsilon, num_values, num_reports), DELTA)
        assert epsilon == printed(text), f"K={num_values}"


@pytest.mark.parametrize("row", TABLE)
def test_the_clones_give_the_table(row: tuple[Any, ...]) -> None:
    num_reports, local_epsilon = row[:2]
    epsilon = profile_epsilon(clones_blanket(local_epsilon, num_reports), DELTA)
    assert epsilon == printed(row[2])


def test_the_clones_lie_in_the_bracket_of_the_authors_program() -> None:
    """README of apple/ml-shuffling-amplification: between 0.16754 and 0.17279."""
    epsilon = profile_epsilon(clones_blanket(4.0, 10**5), DELTA)
    assert epsilon == pytest.approx(0.16977, abs=1e-5)
    assert 0.16754 < epsilon < 0.17279
