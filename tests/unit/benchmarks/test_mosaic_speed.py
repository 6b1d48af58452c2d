import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "speed"))

import mosaic

import docs_benchmarks
from docs_speed_list import SPEED
from mosaic_scans import scans_and_tables
from tulle.train.run_context import Progress

MILLION = 1_000_000


def turn_of(seconds: float, *, memory: float = 5e8) -> dict[str, object]:
    return {
        "seconds": seconds,
        "cpu_seconds": seconds,
        "memory_bytes": memory,
        "maxrss_bytes": 2 * memory,
        "auc_loss": 0.2,
        "log_loss": 0.4,
        "tables": 40,
        "scans": 11,
        "dataset_seconds": 1.0,
    }


def row_of(
    num_rows: int, num_cores: int, seconds: float, peer: float | None = 100.0, memory: float = 5e8
) -> dict[str, object]:
    others = [] if peer is None else [turn_of(peer)]
    named = {"log": mosaic.DISPLAY, "num_rows": num_rows, "num_cores": num_cores}
    found = mosaic.figures([turn_of(seconds, memory=memory)], others, num_rows)
    return named | {"num_repeats": 1} | found


def verdicts(rows: list[dict[str, object]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in mosaic.judged(rows):
        found.setdefault(row["target"], set()).add(row["verdict"])
    return found


def test_every_target_is_met_by_figures_that_reach_it() -> None:
    rows = [
        row_of(MILLION, 1, 20.0),
        row_of(MILLION, 2, 11.7),
        row_of(4 * MILLION, 1, 50.0),
        row_of(4 * MILLION, 2, 29.0, memory=1e9),
    ]
    assert verdicts(rows) == {
        "time over LightGBM": {"met"},
        "speed of two cores over one": {"met"},
        "memory, GB": {"met"},
        "time per row, longest log over shortest": {"met"},
    }


@pytest.mark.parametrize(
    ("target", "changed"),
    [
        ("time over LightGBM", row_of(4 * MILLION, 1, 50.5)),
        ("memory, GB", row_of(4 * MILLION, 1, 50.0, memory=1.01e9)),
        ("time per row, longest log over shortest", row_of(4 * MILLION, 1, 44.5)),
        ("speed of two cores over one", row_of(4 * MILLION, 1, 40.0)),
    ],
)
def test_a_target_that_is_missed_by_a_little_is_called_missed(
    target: str, changed: dict[str, object]
) -> None:
    rows = [row_of(MILLION, 1, 10.0), changed, row_of(4 * MILLION, 2, 25.0)]
    assert "missed" in verdicts(rows)[target]


def test_longer_logs_may_use_more_memory() -> None:
    rows = [row_of(40 * MILLION, 1, 400.0, memory=5e9)]
    assert "memory, GB" not in verdicts(rows)


def test_without_lightgbm_ratios_are_left_out_and_the_page_says_why() -> None:
    rows = [row_of(MILLION, number, 10.0 / number, None) for number in (1, 2)]
    assert "time over LightGBM" not in verdicts(rows)
    record = record_of(rows, peer_error="it could not be installed: no network")
    section = section_of(record)
    assert (
        "| synth:display | 1,000,000 | 1 | 10.0 |  |  | 500 |  | 0.2000 |  | 40 | 11 |" in section
    )
    assert "There is no LightGBM: it could not be installed: no network." in section


def test_the_page_shows_both_and_what_was_missed() -> None:
    rows = [row_of(MILLION, 1, 60.0)]
    record = record_of(rows, peer_versions={"lightgbm": "4.7.0"})
    section = section_of(record)
    assert "| 60.0 | 100.0 | 0.60 | 500 | 500 | 0.2000 | 0.2000 | 40 | 11 |" in section
    case = "synth:display, 1,000,000 rows, 1 core"
    assert f"- time over LightGBM: 0.60, at most 0.5 wanted, missed ({case})." in section
    assert "- memory, GB: 0.50, at most 1 wanted, met." in section
    assert "; peer: lightgbm 4.7.0." in section


def section_of(record: dict[str, object]) -> str:
    name = "mosaic_speed"
    return "\n".join(docs_benchmarks._section(name, SPEED[name], record))


def record_of(rows: list[dict[str, object]], **facts: object) -> dict[str, object]:
    machine = {"processor": "a processor", "num_cores": 2}
    named = {"date": "2026-01-14", "machine": machine, "versions": {"python": "3.11"}}
    named |= {"peer_versions": {}, "peer_error": "", "rows": rows}
    return named | {"targets": mosaic.judged(rows)} | facts


def test_a_core_that_others_used_as_well_is_noticed() -> None:
    rows = [row_of(MILLION, number, 10.0) for number in (1, 2)]
    assert mosaic.least_share_of_core(rows) == 1.0
    rows[0]["lightgbm_cpu_seconds"] = 80.0
    rows[1]["mosaic_cpu_seconds"] = 1.0
    assert mosaic.least_share_of_core(rows) == pytest.approx(0.8)


def test_scans_and_tables_are_those_that_a_run_reports() -> None:
    def report(about: str) -> Progress:
        return Progress(
            phase="cells",
            step=1,
            num_steps=3,
            examples_per_second=1.0,
            loss=None,
            epsilon=1.0,
            about=about,
        )

    abouts = ["public values, 12 tables", "public values, 5 tables", "level"]
    assert scans_and_tables([report(about) for about in abouts]) == (3, 17)
