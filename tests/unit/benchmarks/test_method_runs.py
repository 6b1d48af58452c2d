import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "quality"))

import method_runs
import mosaic_ablations
import mosaic_rounds


def job_of(name: str, epsilon: float | None) -> dict:
    return {
        "source": "a log",
        "name": name,
        "plan": {
            "method": {"method": name.partition(",")[0]},
            "epsilon": epsilon,
            "shape": {"num_label_rows": 1000, "features": ["a", "b"]},
        },
    }


JOBS = [
    job_of("nonprivate", None),
    job_of("rr", 1.0),
    job_of("dp-sgd, 4 bands", 1.0),
    job_of("mosaic", 1.0),
    job_of("mosaic", 8.0),
]


def made(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[tuple]:
    lines = "".join(json.dumps(job) + "\n" for job in JOBS)
    (folder / "jobs.jsonl").write_text(lines)
    monkeypatch.setattr(sys, "argv", ["method_runs.py", str(folder), *words])
    jobs = method_runs.make_jobs(method_runs._options(), {folder: folder})
    return [(*method_runs.job_identity(job)[1:], job.on_device) for job in jobs]


def test_seeds_come_one_after_the_other_and_long_runs_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = made(tmp_path, monkeypatch, "--seeds", "2", "--epsilons", "1")
    names = ["mosaic", "dp-sgd, 4 bands", "nonprivate", "rr"]
    assert [(name, seed) for name, _, seed, _ in jobs] == [
        (name, seed) for seed in (0, 1) for name in names
    ]


def test_mosaic_runs_on_cores_and_the_other_methods_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = made(tmp_path, monkeypatch, "--device", "cuda")
    assert {name: on_device for name, _, _, on_device in jobs} == {
        "mosaic": False,
        "dp-sgd, 4 bands": True,
        "nonprivate": True,
        "rr": True,
    }


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--methods", "rr", "mosaic"), ["mosaic", "mosaic", "rr"]),
        (("--only", "bands"), ["dp-sgd, 4 bands"]),
        (("--epsilons", "8"), ["mosaic", "nonprivate"]),
    ],
)
def test_only_what_was_asked_for_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], names: list[str]
) -> None:
    assert [name for name, _, _, _ in made(tmp_path, monkeypatch, *words)] == names


def test_another_seed_starts_with_other_weights_where_there_are_any() -> None:
    plan = {"method": {"method": "rr", "initial_seed": 0}, "epsilon": 1.0}
    assert method_runs.with_initial_seed(plan, 3) == {
        "method": {"method": "rr", "initial_seed": 3},
        "epsilon": 1.0,
    }
    without = {"method": {"method": "mosaic", "cells": {}}, "epsilon": 1.0}
    assert method_runs.with_initial_seed(without, 3) == without


def test_a_part_of_mosaic_is_compared_on_the_same_seeds() -> None:
    losses = {("as it is", 0): 0.2, ("as it is", 1): 0.4, ("less", 0): 0.21}
    rows = [
        {
            "source": "a log",
            "variant": variant,
            "epsilon": 1.0,
            "seed": seed,
            "auc_loss": loss,
            "log_loss": loss,
            "calibration": 1.0,
        }
        for (variant, seed), loss in losses.items()
    ]
    _, less = mosaic_ablations.summary(rows)
    assert less["auc_loss_percent"] == pytest.approx(5.0)
    assert less["seeds"] == 1


def test_the_first_part_of_mosaic_is_mosaic_itself_and_no_two_are_the_same() -> None:
    variants = list(mosaic_ablations.VARIANTS.values())
    assert variants[0] == mosaic_ablations.CellSettings()
    assert len({str(cells) for cells in variants}) == len(variants)


def test_rounds_are_compared_on_seeds_that_both_versions_have() -> None:
    losses = {
        ("one after the other", 0): 0.2,
        ("one scan a round", 0): 0.202,
        ("one after the other", 1): 0.4,
        ("one scan a round", 1): 0.396,
        ("one after the other", 2): 0.9,
    }
    rows = [
        dict.fromkeys(mosaic_rounds.FIGURES, 1.0)
        | {"source": source, "version": version, "epsilon": 1.0, "seed": seed, "auc_loss": loss}
        for source in ("a log", "another log")
        for (version, seed), loss in losses.items()
    ]
    one, _, both = mosaic_rounds.summary(rows)
    assert one["auc_loss_before"] == pytest.approx(0.3)
    assert one["auc_loss_percent"] == pytest.approx(0.0)
    assert one["auc_loss_percent_stddev"] == pytest.approx(2**0.5)
    assert both["source"] == mosaic_rounds.ALL_LOGS
    assert both["auc_loss_percent_stddev"] == pytest.approx(1.0)
    assert {row["seeds"] for row in (one, both)} == {2}


def test_the_first_run_of_a_comparison_has_no_summary_yet() -> None:
    row = {"source": "a log", "version": "one scan a round", "epsilon": 1.0, "seed": 0}
    assert mosaic_rounds.summary([row]) == []
