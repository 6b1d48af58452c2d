import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EPSILONS = {0.5, 1.0, 3.0, 8.0, 12.0}
LEAST_SEEDS = 3


def summary_of(record: str) -> list[dict[str, object]]:
    path = ROOT / "benchmarks" / "published" / f"{record}.json"
    rows: list[dict[str, object]] = json.loads(path.read_text())["summary"]
    return rows


@pytest.mark.parametrize(
    ("record", "num_logs"), [("hybrid_real", 1), ("hybrid_synth", 3)], ids=["real", "synthetic"]
)
def test_the_methods_were_run_at_every_epsilon(record: str, num_logs: int) -> None:
    rows = summary_of(record)
    sources = {row["source"] for row in rows}
    assert len(sources) == num_logs
    for source in sources:
        for method in ("hybrid", "rr", "dp-sgd", "two-phase, paper's split"):
            own = [row for row in rows if (row["source"], row["method"]) == (source, method)]
            assert {row["epsilon"] for row in own} == EPSILONS, (source, method)
    assert all(row["seeds"] >= LEAST_SEEDS for row in rows)


@pytest.mark.parametrize("loss", ["auc_loss", "log_loss"])
@pytest.mark.parametrize("record", ["hybrid_real", "hybrid_synth"])
def test_hybrid_loses_less_than_every_other_private_method(record: str, loss: str) -> None:
    rows = [row for row in summary_of(record) if row["epsilon"] is not None]
    for own in (row for row in rows if row["method"] == "hybrid"):
        for other in rows:
            same = (other["source"], other["epsilon"]) == (own["source"], own["epsilon"])
            if same and other["method"] != "hybrid":
                assert own[loss] < other[loss], (own["source"], own["epsilon"], other["method"])


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0, 12.0])
def test_on_real_clicks_hybrid_loses_less_than_half_of_what_dp_sgd_loses(epsilon: float) -> None:
    rows = [row for row in summary_of("hybrid_real") if row["epsilon"] == epsilon]
    losses = {str(row["method"]): float(str(row["relative_percent"])) for row in rows}
    of_dpsgd = min(loss for method, loss in losses.items() if method.startswith("dp-sgd"))
    assert losses["hybrid"] < of_dpsgd / 2
