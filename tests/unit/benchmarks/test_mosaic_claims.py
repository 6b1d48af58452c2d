import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from record import PUBLISHED, read_record, write_record

EPSILONS = {0.5, 1.0, 3.0, 8.0, 12.0}
LEAST_SEEDS = 3


def summary_of(record: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = read_record(PUBLISHED / f"{record}.json")["summary"]
    return rows


@pytest.mark.parametrize(
    ("record", "num_logs"), [("hybrid_real", 1), ("hybrid_synth", 3)], ids=["real", "synthetic"]
)
def test_the_methods_were_run_at_every_epsilon(record: str, num_logs: int) -> None:
    rows = summary_of(record)
    sources = {row["source"] for row in rows}
    assert len(sources) == num_logs
    for source in sources:
        for method in ("mosaic", "rr", "dp-sgd", "hybrid, paper's split"):
            own = [row for row in rows if (row["source"], row["method"]) == (source, method)]
            assert {row["epsilon"] for row in own} == EPSILONS, (source, method)
    assert all(row["seeds"] >= LEAST_SEEDS for row in rows)


@pytest.mark.parametrize("loss", ["auc_loss", "log_loss"])
@pytest.mark.parametrize("record", ["hybrid_real", "hybrid_synth"])
def test_mosaic_loses_less_than_every_other_private_method(record: str, loss: str) -> None:
    rows = [row for row in summary_of(record) if row["epsilon"] is not None]
    for own in (row for row in rows if row["method"] == "mosaic"):
        for other in rows:
            same = (other["source"], other["epsilon"]) == (own["source"], own["epsilon"])
            if same and other["method"] != "mosaic":
                assert own[loss] < other[loss], (own["source"], own["epsilon"], other["method"])


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0, 12.0])
def test_on_real_clicks_mosaic_loses_less_than_half_of_what_dp_sgd_loses(epsilon: float) -> None:
    rows = [row for row in summary_of("hybrid_real") if row["epsilon"] == epsilon]
    losses = {str(row["method"]): float(str(row["relative_percent"])) for row in rows}
    of_dpsgd = min(loss for method, loss in losses.items() if method.startswith("dp-sgd"))
    assert losses["mosaic"] < of_dpsgd / 2


def test_one_scan_a_round_costs_no_quality_on_any_log() -> None:
    rows = summary_of("mosaic_rounds")
    assert {row["epsilon"] for row in rows} == {1.0, 3.0}
    for row in rows:
        of_all = row["source"] == "mean of all logs"
        change = abs(float(str(row["auc_loss_percent"])))
        assert change < (0.25 if of_all else 0.5), (row["source"], row["epsilon"])


def test_one_scan_a_round_is_a_tenth_of_the_scans_or_less() -> None:
    for row in read_record(PUBLISHED / "mosaic_rounds.json")["rows"]:
        if row["version"] == "one scan a round":
            assert row["scans"] <= 11
        else:
            assert row["scans"] >= 100


def test_a_record_says_the_names_of_now_whenever_it_was_written(tmp_path: Path) -> None:
    names = {
        "hybrid": "mosaic",
        "two-phase, paper's split": "hybrid, paper's split",
        "mosaic": "mosaic",
        "hybrid, paper's split": "hybrid, paper's split",
        "dp-sgd, 4 bands": "dp-sgd, 4 bands",
    }
    rows: list[dict[str, object]] = [{"method": name} for name in names]
    write_record(tmp_path / "record.json", "quality", rows, {"summary": rows})
    record = read_record(tmp_path / "record.json")
    for key in ("rows", "summary"):
        assert [row["method"] for row in record[key]] == list(names.values())
