"""Published and independently computed values of amplification by shuffling."""

import math
from typing import Any

import pytest

from tulle.accounting.shuffling import blanket_epsilon, clones_epsilon, clones_epsilon_closed_form
from tulle.errors import ConfigError

DELTA = 1e-6

# Central epsilon at delta = 1e-6, computed with separate code (one FFT per epsilon
# for the blanket; binomial sums for the clones) and printed to three digits.
# num_reports, local_epsilon, closed form, clones, then K = 2, 4, 15, 100.
TABLE = [
    (10**4, 1.0, ".214", ".0530", ".0432", ".0343", ".0192", ".0072"),
    (10**4, 3.0, ".824", ".321", ".226", ".215", ".174", ".089"),
    (10**4, 5.0, None, "1.152", ".742", ".736", ".702", ".541"),
    (10**6, 1.0, ".0235", ".00433", ".00351", ".00277", ".00152", ".00054"),
    (10**6, 3.0, ".119", ".0269", ".0190", ".0181", ".0146", ".0074"),
    (10**6, 5.0, ".319", ".0865", ".0598", ".0594", ".0572", ".0456"),
]


def printed(text: str) -> object:
    """Equal after rounding to the printed digits."""
    return pytest.approx(float(text), abs=0.5 * 10.0 ** -len(text.partition(".")[2]))


@pytest.mark.parametrize("row", TABLE)
def test_the_blanket_gives_the_table(row: tuple[Any, ...]) -> None:
    num_reports, local_epsilon = row[:2]
    for num_values, text in zip((2, 4, 15, 100), row[4:], strict=True):
        epsilon = blanket_epsilon(
            DELTA, local_epsilon=local_epsilon, num_values=num_values, num_reports=num_reports
        )
        assert epsilon == printed(text), f"K={num_values}"


@pytest.mark.parametrize("row", TABLE)
def test_the_clones_give_the_table(row: tuple[Any, ...]) -> None:
    cell = {"local_epsilon": row[1], "num_reports": row[0]}
    assert clones_epsilon(DELTA, **cell) == printed(row[3])


@pytest.mark.parametrize("row", TABLE)
def test_the_closed_form_gives_the_table(row: tuple[Any, ...]) -> None:
    cell = {"local_epsilon": row[1], "num_reports": row[0]}
    if row[2] is None:
        with pytest.raises(ConfigError, match="use clones_epsilon"):
            clones_epsilon_closed_form(DELTA, **cell)
    else:
        assert clones_epsilon_closed_form(DELTA, **cell) == printed(row[2])


def test_the_clones_lie_in_the_bracket_of_the_authors_program() -> None:
    """README of apple/ml-shuffling-amplification: between 0.16754 and 0.17279."""
    epsilon = clones_epsilon(DELTA, local_epsilon=4.0, num_reports=10**5)
    assert epsilon == pytest.approx(0.16977, abs=1e-5)
    assert 0.16754 < epsilon < 0.17279


def test_the_closed_form_is_the_theorem_and_below_the_authors_program() -> None:
    """The program prints 0.5378040242374512: it has a larger factor than Theorem 3.1."""
    odds, num_reports = math.exp(4.0), 10**5
    spread = 8 * math.sqrt(odds * math.log(4 / DELTA) / num_reports) + 8 * odds / num_reports
    factor = (1 - 1 / odds) / (1 + 1 / (odds * (1 + spread)))
    assert math.log1p(factor * spread) == pytest.approx(0.5378040242374512, abs=1e-15)
    ours = clones_epsilon_closed_form(DELTA, local_epsilon=4.0, num_reports=num_reports)
    assert ours == pytest.approx(0.5346339916517077, abs=1e-15)
