"""What `pip install tulle` brings is enough to train, keep, load, serve and export Mosaic."""

import subprocess
import sys
from pathlib import Path

from unit.serve.served_logs import make_log

ALONE = """
import importlib.abc, sys

EXTRAS = ("torch", "onnx", "onnxruntime", "sklearn", "pandas", "pyarrow", "pyspark", "datasketches")

class Fence(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"{name} is not here")

sys.meta_path.insert(0, Fence())
import tulle
from tulle.cli.main import run_with

roles = ["--label", "sale", "--public", "campaign", "--public", "shop", "--sensitive", "age"]
unit = ["--unit", "example", "--epsilon", "20", "--delta", "1e-6", "--test-fraction", "0"]
assert run_with(["train", "log.parquet", *roles, *unit, "--output", "run", "--quiet"]) == 0
new = ["new.csv", "--output", "scores.csv", "--keep", "shop", "--quiet"]
assert run_with(["predict", "run", *new]) == 0
assert run_with(["export", "run", "--form", "json", "--output", "model.json"]) == 0
sql = ["--form", "sql", "--dialect", "spark", "--values", "values.csv", "--output", "sql"]
assert run_with(["export", "run", *sql]) == 0
assert run_with(["export", "run", "--form", "onnx", "--output", "model.onnx"]) == 2
model = tulle.load("run")
model.save("saved")
assert 0 < tulle.load("saved").predict_one({"campaign": None, "shop": "x", "age": "10s"}) < 1
"""


def test_mosaic_needs_no_extra(tmp_path: Path) -> None:
    log = make_log(3_000, seed=1).select("sale", "campaign", "shop", "age")
    log.write_parquet(tmp_path / "log.parquet")
    log.drop("sale").head(50).write_csv(tmp_path / "new.csv")
    log.drop("sale").unique().write_csv(tmp_path / "values.csv")
    done = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "needs the package onnx" in done.stderr
    assert (tmp_path / "scores.csv").read_text().count("\n") == 51
