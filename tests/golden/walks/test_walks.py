"""Seeded runs of the six main journeys, compared with what they wrote when they were frozen.

Each journey runs the command line in an empty folder and gathers what it printed and what it
wrote: plan, settings, record, card, and a summary of weights and tables. Everything must stay as
it is stored beside this file, to the letter; numbers with a point may differ by rounding, since
other processors add in other orders. A change on purpose is stored again by

    TULLE_WRITE_GOLDEN=1 pytest tests/golden/walks

and the commit says what changed for whom.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file

from tulle.cli.main import run_with

_HERE = Path(__file__).parent
_MOST_RELATIVE_DIFFERENCE = 1e-6
"""Bounds what rounding on another processor may change; a wrong noise scale differs by far more."""
_FLOAT = re.compile(r"-?\d+\.\d+(?:e-?\d+)?|-?\d+e-?\d+")
_VOLATILE = (
    (re.compile(r'"(run_id|release_id|entry|inode|seconds)": ("[^"]*"|[\d.e-]+)'), r'"\1": "…"'),
    (re.compile(r'"(dp-accounting|duckdb|numpy|polars|safetensors|scipy|sqlglot|torch)": "[^"]*"'),
     r'"\1": "…"'),
    (re.compile(r"(dp-accounting|duckdb|numpy|polars|safetensors|scipy|sqlglot|torch) \d[\w.+]*"),
     r"\1 …"),
    (re.compile(r'"(tulle_version|python_version|platform|created_at)": "[^"]*"'), r'"\1": "…"'),
    (re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?"), "…time…"),
    (re.compile(r"tulle \d+\.\d+\.\d+\S*, Python \S+, [^\n|]*"), "…versions…"),
    (re.compile(r"(\nseconds +)[\d.]+"), r"\1…"),
    # Over the last bits of floats, which another processor may round otherwise.
    (re.compile(r'(\n "fingerprint": )"[0-9a-f]{64}"'), r'\1"…"'),
)  # fmt: skip
_TEXTS = (".json", ".jsonl", ".toml", ".md", ".sql", ".csv")

_CAMPAIGNS = """
[log]
impressions = "log/impressions.csv"
conversions = "log/conversions.csv"

[columns]
user = "user"
advertiser = "advertiser"

[attribution]
rule = "last-touch"
lookback = "7 days"

[privacy]
unit = "user"
epsilon = 2.0

[[query]]
name = "by region"
measure = "conversions"
slices = ["geo"]
keys = { geo = ["region-1", "region-2", "region-3"] }
max_per_slice = 2
max_slices_per_unit = 1

[[query]]
name = "reach"
measure = "reach"
max_frequency = 5
"""


def _train(options: str) -> str:
    _run("budget create ledger.db --name rows --unit example --adjacency replace --epsilon 4 "
         "--delta 1e-4 --purpose training")  # fmt: skip
    return _run(
        "train --epsilon 3 --delta 1e-5 --seed 7 --output runs/run --ledger ledger.db --quiet "
        + options
    )


def _train_mosaic() -> str:
    return _train("--data synth:search --rows 20000")


def _train_dp_sgd() -> str:
    return _train("--data synth:search --rows 2000 --method dp-sgd --epochs 1 --batch-size 256")


def _measure() -> str:
    _run("data synth impressions --rows 800 --seed 1 --output log")
    Path("campaigns.toml").write_text(_CAMPAIGNS, encoding="utf-8")
    _run("budget create ledger.db --name users --unit user --adjacency add-remove --epsilon 3 "
         "--delta 0 --purpose measure")  # fmt: skip
    return _run("measure run campaigns.toml --out results --ledger ledger.db --seed 7")


def _labels() -> str:
    _run("data synth attribution --rows 800 --seed 1 --output log.parquet")
    _run("budget create ledger.db --name buyers --unit example --adjacency replace --epsilon 2 "
         "--delta 0 --purpose labels")  # fmt: skip
    return _run("labels release log.parquet --layout attribution --mechanism rr --epsilon 2 "
                "--out noisy.parquet --ledger ledger.db --seed 7")  # fmt: skip


def _select() -> str:
    _run("data synth auctions --rows 300 --seed 1 --output auctions.parquet")
    _run("select plan auctions.parquet --epsilon 3 --private-stddev 0.6 --consent everyone "
         "--out selection.toml")  # fmt: skip
    return _run("select decide selection.toml auctions.parquet --out choices.parquet --seed 7")


def _budget() -> str:
    _run("budget create ledger.db --name ads --unit 'user per 7 days' --adjacency add-remove "
         "--epsilon 1 --delta 1e-6 --purpose measure")  # fmt: skip
    _run("""budget spend ledger.db --purpose measure --at 2026-01-14 """
         """--event '{"kind": "DiscreteLaplace", "scale": 2.0}'""")  # fmt: skip
    return _run("budget show ledger.db --at 2026-01-14 --json")


WALKS: dict[str, Callable[[], str]] = {
    "train-mosaic": _train_mosaic,
    "train-dp-sgd": _train_dp_sgd,
    "measure-run": _measure,
    "labels-release": _labels,
    "select-decide": _select,
    "budget-spend": _budget,
}


@pytest.mark.parametrize("name", WALKS)
def test_a_journey_writes_what_it_always_wrote(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = WALKS[name]()
    found = _without_volatile(f"=== printed\n{printed}\n{_gathered(tmp_path)}", tmp_path)
    stored = _HERE / f"{name}.txt"
    if os.environ.get("TULLE_WRITE_GOLDEN"):
        stored.write_text(found, encoding="utf-8")
    assert_alike(found, stored.read_text(encoding="utf-8"))


def test_the_comparison_notices_a_word_and_a_number() -> None:
    text = "noise 1.25 on a lattice\nsum 0.0\n"
    assert_alike(text.replace("1.25", "1.2500001"), text)
    for wrong in ("1.25001", "1.3", "1.25 "):
        with pytest.raises(AssertionError):
            assert_alike(text.replace("1.25", wrong), text)
    with pytest.raises(AssertionError):
        assert_alike(text.replace("lattice", "grid"), text)
    with pytest.raises(AssertionError):
        assert_alike(text + "more\n", text)


def assert_alike(found: str, stored: str) -> None:
    """Compares texts to the letter, but numbers with a point up to rounding."""
    for place, (one, other) in enumerate(
        zip(found.splitlines(), stored.splitlines(), strict=False)
    ):
        assert _FLOAT.sub("#", one) == _FLOAT.sub("#", other), f"line {place + 1}"
        for left, right in zip(_FLOAT.findall(one), _FLOAT.findall(other), strict=True):
            assert math.isclose(
                float(left), float(right), rel_tol=_MOST_RELATIVE_DIFFERENCE, abs_tol=1e-9
            ), f"line {place + 1}: {one!r} was {other!r}"
    assert found.count("\n") == stored.count("\n"), "lines came or went"


def _run(line: str) -> str:
    """Runs one command, which must succeed, and returns what it printed on standard output."""
    import shlex

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_with(shlex.split(line))
    assert code == 0, err.getvalue()
    return out.getvalue()


def _gathered(folder: Path) -> str:
    """All that a journey left, file by file: texts whole, tables and weights as summaries."""
    skipped = ("log", "auctions.parquet", "log.parquet")
    parts = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name.split("/")[0] in skipped or "/." in f"/{name}":
            continue
        if path.suffix in _TEXTS:
            text = path.read_text(encoding="utf-8")
        elif path.suffix == ".safetensors":
            text = _tensor_summary(path)
        elif path.suffix == ".parquet":
            table = pl.read_parquet(path)
            text = f"{table.schema}\n{table.write_csv(float_precision=9)[:4000]}"
        elif path.suffix == ".py":
            text = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            continue
        parts.append(f"=== {name}\n{text.rstrip()}\n")
    return "\n".join(parts)


def _tensor_summary(path: Path) -> str:
    lines = []
    for name, tensor in sorted(load_file(path).items()):
        values = np.asarray(tensor, dtype=np.float64)
        size = float(np.abs(values).sum())
        lines.append(f"{name} {tensor.dtype} {list(tensor.shape)} size {size:.7e}")
    return "\n".join(lines)


def _without_volatile(text: str, folder: Path) -> str:
    """Replaces what differs from run to run or machine to machine by a mark."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, mark in _VOLATILE:
        text = pattern.sub(mark, text)
    return "\n".join(_short(line) for line in text.splitlines()) + "\n"


def _short(line: str) -> str:
    """Cuts a line of JSON that nobody would read in a difference to its digest and its head."""
    if len(line) <= 2000:
        return line
    try:
        canonical = json.dumps(json.loads(line), sort_keys=True)
    except ValueError:
        canonical = line
    return f"{line[:200]}… sha256 {hashlib.sha256(canonical.encode()).hexdigest()}"
