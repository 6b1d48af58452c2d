"""What tests of exported models share: ids to ask them, a process without tulle, cut files."""

import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tulle.data.prepared.feature import PreparedFeature

ALONE = """
import importlib.abc, json, sys

class Fence(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tulle", "safetensors"):
            raise ImportError(f"{name} must not be imported")

sys.meta_path.insert(0, Fence())
for name in ("tulle", "safetensors"):
    try:
        __import__(name)
    except ImportError:
        continue
    sys.exit("the fence has a hole")
import torch
answers = []
for folder, public, sensitive in json.load(sys.stdin):
    sys.path.insert(0, folder)
    import load_model
    model = load_model.load_model()
    ids = [torch.tensor(p, dtype=torch.int64).reshape(len(p), -1) for p in (public, sensitive) if p]
    logits = model(*ids)
    logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert torch.equal(model.predict_proba(*ids), torch.sigmoid(logits.detach()))
    answers.append(logits.tolist())
    del sys.modules["load_model"], sys.path[0]
json.dump(answers, sys.stdout)
"""


CELLS_ALONE = """
import importlib.abc, json, sys

class Fence(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tulle", "safetensors", "torch"):
            raise ImportError(f"{name} must not be imported")

sys.meta_path.insert(0, Fence())
import numpy as np
answers = []
for folder, public, sensitive in json.load(sys.stdin):
    sys.path.insert(0, folder)
    import load_model
    model = load_model.load_model()
    ids = [np.array(part).reshape(len(part), -1) for part in (public, sensitive) if part]
    log_odds = model.log_odds(*ids)
    np.testing.assert_allclose(model.predict_proba(*ids), 1 / (1 + np.exp(-log_odds)), rtol=1e-12)
    answers.append(log_odds.tolist())
    del sys.modules["load_model"], sys.path[0]
json.dump(answers, sys.stdout)
"""


def feature(name: str, role: str, num_ids: int, table: str | None = None) -> PreparedFeature:
    return PreparedFeature(name=name, role=role, num_ids=num_ids, table=table or name)


SEPARATE = (
    feature("a", "public", 30),
    feature("b", "public", 2),
    feature("c", "public", 31),
    feature("d", "sensitive", 7),
    feature("e", "sensitive", 40),
)
PUBLIC_ONLY = SEPARATE[:3]


def ids_of(role: str, features: tuple[PreparedFeature, ...], num_rows: int = 50) -> Tensor:
    """Random ids; the first row has the largest of each feature, the next has equal ones."""
    sizes = [f.num_ids for f in features if f.role == role]
    generator = torch.Generator().manual_seed(3)
    columns = [torch.randint(size, (num_rows,), generator=generator) for size in sizes]
    ids = torch.stack(columns, 1) if sizes else torch.empty(num_rows, 0, dtype=torch.int64)
    ids[0] = torch.tensor(sizes) - 1
    ids[1] = min(sizes, default=1) - 1
    return ids


def cell_logits_alone(asked: Sequence[object], folder: Path) -> list[list[float]]:
    """What folders of models of cells give in a process that has numpy alone."""
    return logits_alone(asked, folder, script=CELLS_ALONE)


def logits_alone(
    asked: Sequence[object], folder: Path, *, script: str = ALONE
) -> list[list[float]]:
    """What folders of models give in a process that has neither tulle nor safetensors.

    Args:
      asked: Folder, public ids and sensitive ids or None, as plain data, for each model.
      folder: Where the process runs.
      script: What the process does.
    """
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[list[float]] = json.loads(done.stdout)
    return answers


def header_and_data(path: Path) -> tuple[dict[str, Any], bytes]:
    """The two parts of a safetensors file."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def rewritten(header: dict[str, object], data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data
