import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from docs_mosaic_expectations import ABLATIONS, Expectation, verdict
from docs_mosaic_figures import auc_loss_figure
from docs_mosaic_tables import ablations_table, likelihood_table, methods_table


def mean_of(method: str, epsilon: float | None, auc_loss: float, log_loss: float) -> dict:
    return {
        "source": "a log",
        "method": method,
        "epsilon": epsilon,
        "auc_loss": auc_loss,
        "stddev": None if epsilon is None else 0.002,
        "relative_percent": 100 * (auc_loss / 0.2 - 1),
        "log_loss": log_loss,
        "calibration": 0.9,
        "seeds": 3,
    }


RECORD = {
    "date": "2026-01-14",
    "rows": [
        {
            "method": method,
            "auc_loss_standard_error": 0.001,
            "train_rows": 1000,
            "num_cores": 2,
            "device": "a card",
            "torch": "2",
        }
        for method in ("mosaic", "rr")
    ],
    "summary": [
        mean_of("nonprivate", None, 0.2, 0.25),
        mean_of("rr", 1.0, 0.26, 0.28),
        mean_of("mosaic", 1.0, 0.21, 0.26),
        mean_of("mosaic", 3.0, 0.205, 0.255),
    ],
}


def test_the_best_method_of_each_epsilon_is_bold_and_mosaic_comes_first() -> None:
    lines = methods_table(RECORD)
    assert "| mosaic | **5.0% ± 1.0** | **2.5% ± 1.0** |" in lines
    assert "| rr | 30.0% ± 1.0 |  |" in lines
    assert lines.index("| rr | 30.0% ± 1.0 |  |") > 4
    assert "without privacy has an AUC loss of 0.2000:" in lines[0]


def test_log_loss_comes_with_calibration() -> None:
    assert "| rr | 0.2800 (0.90) |  |" in likelihood_table(RECORD)


def test_every_part_of_mosaic_has_an_expectation_and_a_verdict() -> None:
    rows = [
        {
            "source": "a log",
            "variant": variant,
            "epsilon": 3.0,
            "auc_loss": 0.2,
            "log_loss": 0.3,
            "auc_loss_percent": 0.1,
            "log_loss_percent": 0.0,
            "seeds": 2,
        }
        for variant in ("as it is", *ABLATIONS)
    ]
    lines = ablations_table({"date": "2026-01-14", "rows": [{"train_rows": 1000}], "summary": rows})
    assert "| as it is |  | 0.2000 / 0.3000 |  |" in lines
    assert "| public columns alone | +5% or more | +0.10% / +0.00% | holds in 0 of 1 |" in lines


@pytest.mark.parametrize(
    ("expectation", "words", "inside", "outside"),
    [
        (Expectation(least=0.5), "+0.5% or more", 0.5, 0.4),
        (Expectation(most=0.0), "+0% or less", -1.0, 0.1),
        (Expectation(least=-0.5, most=0.5), "within 0.5%", 0.5, -0.6),
        (Expectation(least=0.0, most=2.0), "+0% to +2%", 1.0, 2.1),
    ],
)
def test_an_expectation_says_its_range(
    expectation: Expectation, words: str, inside: float, outside: float
) -> None:
    assert str(expectation) == words
    assert verdict([expectation], [inside]) == "holds"
    assert verdict([expectation] * 2, [inside, outside]) == "holds in 1 of 2"


def test_a_figure_names_the_methods_that_were_run() -> None:
    labels = [curve.label for curve in auc_loss_figure(RECORD["summary"]).curves]
    assert labels == ["Mosaic", "randomized labels", "without privacy"]
