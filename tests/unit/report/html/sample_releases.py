"""Releases of every kind, small, with names that try to break out of a page."""

import functools
import json
import math
from pathlib import Path
from typing import Any

import polars as pl

from golden.card.fixed_card import PROVENANCE, make_plan
from tulle.labels.label_release import ReleaseRecord
from tulle.measure.queries.answers import AnswerTable
from tulle.measure.queries.measure_record import MeasureRecord
from tulle.privacy.events import Composed, NonPrivate, RandomizedResponse
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency, Scope, Unit
from tulle.report.html.page import Page
from tulle.report.verbs import page_of
from tulle.runs.card import Card, Randomness, build_card, write_card
from tulle.runs.folder import RunFolder
from tulle.runs.record import card_of, read_training
from tulle.select.decisions.chosen_ads import SelectionRecord

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
RUN_FACT = "f00dfacef00dfacef00dfacef00dface"
"""A fact of a run that is not for a page."""


def small_plan(epsilon: float = 2.0) -> Plan:
    """One randomized response, with hostile words wherever a plan has free text."""
    return make_plan(
        name=f"plan {HOSTILE}",
        mechanism=f"Says {HOSTILE}.",
        settings={f"setting {HOSTILE}": HOSTILE, "epsilon": epsilon},
        event=RandomizedResponse(epsilon=epsilon),
        guarantee=Guarantee(
            epsilon=epsilon,
            delta=0.0,
            unit=Unit.example(),
            adjacency=Adjacency.REPLACE,
            scope=Scope.LABELS,
        ),
        variants=(),
    )


@functools.cache
def small_card(epsilon: float = 2.0) -> Card:
    randomness = Randomness(description=f"a die {HOSTILE}", is_secure=True)
    return build_card(small_plan(epsilon), randomness=randomness, provenance=PROVENANCE)


def metrics(auc_loss: float = 0.25) -> dict[str, Any]:
    deciles = [
        {"mean_prediction": 0.05 * n, "mean_label": 0.05 * n + 0.01, "num_rows": 10}
        for n in range(1, 11)
    ]
    return {
        "auc_loss": auc_loss,
        "auc_loss_interval": [auc_loss - 0.02, auc_loss + 0.02],
        "log_loss": 0.4,
        "normalised_cross_entropy": 0.9,
        "calibration": 1.05,
        "deciles": deciles,
        "num_rows": 100,
        "num_positives": 20,
    }


def write_run(
    path: Path,
    *,
    method: str = "hybrid",
    epsilon: float = 2.0,
    seed: int | None = None,
    **changes: Any,
) -> RunFolder:
    """A finished run with its card and records of two phases."""
    plan = small_plan(epsilon)
    if method == "nonprivate":
        guarantee = Guarantee(
            epsilon=math.inf, delta=0.0, unit=Unit.example(), adjacency=Adjacency.REPLACE
        )
        plan = make_plan(event=NonPrivate(), guarantee=guarantee, variants=(), assumptions=())
    folder = RunFolder.create(
        path, settings={"a": 1}, plan=plan, facts={"seed": seed, "data": RUN_FACT}
    )
    for step in range(1, 6):
        folder.records.append({"kind": "step", "phase": "labels", "step": step, "loss": 1 / step})
        private = {"loss": 2 / step, "clipped_share": 0.1 - 0.05 * step, "epsilon": step / 3}
        folder.records.append({"kind": "step", "phase": "private", "step": step, **private})
    result = {
        "format": "tulle training result 1",
        "method": method,
        "epsilon": 2.0,
        "delta": 0.0,
        "label_epsilon": 1.0,
        "noise_multiplier": 2.0,
        "steps": 5,
        "steps_lost": 0,
        "seconds": 1.0,
        "randomness": {"description": "operating system", "is_secure": True},
        "accounting_note": "",
        "reproduction_only": False,
        "test": f"0.2 of the rows {HOSTILE}",
        "metrics": metrics(),
    }
    folder.write_json("result.json", result | changes)
    write_card(folder.path, card_of(read_training(folder)))
    return folder


def measure_record() -> MeasureRecord:
    frame = pl.DataFrame(
        {
            f"geo {HOSTILE}": [None, f"region {HOSTILE}", "b"],
            "metric": ["conversions"] * 3,
            "value": [30.0, 20.0, 10.0],
            "low": [25.0, 12.0, -math.inf],
            "high": [35.0, 28.0, math.inf],
            "noise_stddev": [2.5, 4.0, math.inf],
            "level": [0, 1, 1],
            "nonnegative": [30.5, 20.5, 10.0],
            "measured_value": [33.0, 19.0, 8.0],
            "measured_stddev": [3.0, 4.0, 12.0],
        }
    )
    reach = pl.DataFrame(
        {
            "metric": ["reach", "2+", "3+", "4+"],
            "value": [100.0, 40.0, 12.0, -1.0],
            "low": [90.0, 30.0, 2.0, -11.0],
            "high": [110.0, 50.0, 22.0, 9.0],
            "noise_stddev": [5.0] * 4,
        }
    )
    event = RandomizedResponse(epsilon=1.0)
    return MeasureRecord(
        plan=small_plan(),
        tables=(
            AnswerTable(name=f"by {HOSTILE}", frame=frame, event=event, confidence=0.95),
            AnswerTable(name="reach", frame=reach, event=event, confidence=0.95),
            AnswerTable(name="none", frame=frame.clear(), event=Composed(), confidence=0.95),
        ),
        randomness=f"a die {HOSTILE}",
        is_secure=True,
    )


def labels_record(**mechanism: Any) -> ReleaseRecord:
    chance = 1 / (1 + math.exp(2.0))
    bits = {
        "mechanism": "rr",
        "epsilon": 2.0,
        "prob_if_negative": chance,
        "prob_if_positive": 1 - chance,
        "noise_variance": 0.18,
    }
    return ReleaseRecord(
        plan=small_plan(),
        mechanism=mechanism or bits,
        columns={f"noisy {HOSTILE}": f"The label {HOSTILE}."},
        num_rows=5000,
        table="noisy.parquet",
        table_sha256="0" * 64,
        randomness=f"a die {HOSTILE}",
        is_secure=True,
    )


def selection_record() -> SelectionRecord:
    return SelectionRecord(
        plan=small_plan(),
        settings=f'name = "{HOSTILE}"\n',
        num_requests=100,
        num_without_ad=5,
        num_personalised=80,
        columns={f"ad {HOSTILE}": HOSTILE},
        table="choices.parquet",
        table_sha256="0" * 64,
        randomness=f"a die {HOSTILE}",
        is_secure=True,
    )


def _metrics_of(value: float) -> dict[str, float]:
    return {"click_rate": value, "revenue": value, "surplus": 2 * value, "welfare": 3 * value}


def selection_plan(*, is_from_devices: bool = False) -> dict[str, Any]:
    options = [
        {
            "mechanism": f"response {HOSTILE}",
            "epsilon": epsilon,
            "gamma": gamma,
            "num_finalists": finalists,
            "captured_share": epsilon / 10 + (gamma or 0.0),
            **_metrics_of(0.1),
        }
        for epsilon in (1.0, 3.0)
        for gamma, finalists in ((0.0, None), (0.5, None), (None, 1), (None, 4))
    ]
    return {
        "num_auctions": 2000,
        "objective": "welfare",
        "is_from_devices": is_from_devices,
        "baseline": _metrics_of(0.09),
        "ideal": _metrics_of(0.12),
        "options": options,
        "recommended": [{"for_epsilon": 1.0, **options[1]}, {"for_epsilon": 3.0, **options[5]}],
        "settings": f'name = "{HOSTILE}"\n',
        "decision_guarantee": "epsilon=3",
        "incentives": [
            {"topic": "revenue", "severity": "caution", "text": HOSTILE, "way_out": HOSTILE}
        ],
    }


def simulation() -> dict[str, Any]:
    lifts = {"revenue_lift": -0.2, "surplus_lift": 0.1, "captured_share": 0.5}
    sweep = [
        {"mechanism": mechanism, "epsilon": epsilon, "rule": rule, **lifts}
        for mechanism in (f"response {HOSTILE}", "adaptive")
        for epsilon in (1.0, 3.0, 8.0)
        for rule in ("second-price", "per click")
    ]
    return {
        "simulation": "not a private release",
        "market": f"display {HOSTILE}",
        "num_auctions": 100,
        "gain": 0.18,
        "pricing": [
            {"rule": "second-price", "predictions": p, "revenue_lift": -0.2, "surplus_lift": 0.1}
            for p in ("device", "server")
        ],
        "epsilon_rows": sweep,
        "gamma_rows": [{"epsilon": 1.0, "gamma": g, "captured_share": g} for g in (0.0, 0.5, 1.0)],
        "finalist_rows": [
            {"epsilon": 1.0, "num_finalists": n, "captured_share": n / 4} for n in (1, 2, 4)
        ],
        "claims": [{"claim": HOSTILE, "verdict": "holds", "condition": HOSTILE, "market": "m"}],
    }


def write_releases(folder: Path) -> dict[str, Path]:
    """One release of each kind, by its kind; cards lie beside them."""
    write_run(folder / "run")
    for name in ("measured", "simulated"):
        (folder / name).mkdir()
    (folder / "measured/measurement.json").write_text(measure_record().to_json())
    (folder / "simulated/simulation.json").write_text(json.dumps(simulation()))
    (folder / "noisy.release.json").write_text(labels_record().to_json())
    (folder / "choices.release.json").write_text(selection_record().to_json())
    (folder / "plan.json").write_text(json.dumps(selection_plan()))
    write_card(folder / "measured", small_card())
    for name in ("noisy", "choices"):
        write_card(folder, small_card(), name=f"{name}.card")
    return {
        "run": folder / "run",
        "measurement": folder / "measured",
        "labels": folder / "noisy.parquet",
        "choices": folder / "choices.release.json",
        "plan": folder / "plan.json",
        "simulation": folder / "simulated",
    }


KINDS = ("run", "measurement", "labels", "choices", "plan", "simulation")


def pages(folder: Path) -> dict[str, Page]:
    """The page of each kind; tables are not there and need not be."""
    found = write_releases(folder)
    (folder / "noisy.parquet").write_bytes(b"not a table: pages never read it")
    return {kind: page_of(path) for kind, path in found.items()}
