"""One training of LightGBM on a prepared dataset, run by mosaic.py in an environment of its own.

Takes the task as JSON. The ids are read before the clock starts, as numbers of 32 bits, which
LightGBM takes as they are. Hashed ids are native categorical columns, whole numbers that were
hashed among them; bins that lie in order are numbers. What is not named here is left at its
default.
"""

import importlib.metadata
import json
import sys
import time
from pathlib import Path

import lightgbm
import numpy as np
from measured_process import begin, end

Matrix = np.ndarray


def main() -> None:
    task = json.loads(sys.argv[1])
    folder = Path(task["data"])
    head = json.loads((folder / "schema.json").read_text(encoding="utf-8"))
    train, test = (np.load(task[part]) for part in ("train_rows", "test_rows"))
    ids, labels = ids_of(folder, head, train), array(folder, head, "labels")[train]
    categories = [place for place, one in enumerate(head["features"]) if not one.get("order")]
    settings = {
        "objective": "binary",
        "num_leaves": task["num_leaves"],
        "num_threads": task["num_cores"],
        "verbosity": -1,
    }
    clocks = begin()
    start = time.perf_counter()
    data = lightgbm.Dataset(ids, labels, categorical_feature=categories, params=settings)
    data.construct()
    dataset_seconds = time.perf_counter() - start
    model = lightgbm.train(settings, data, num_boost_round=task["num_trees"])
    end(clocks)
    np.save(task["predictions"], model.predict(ids_of(folder, head, test)))
    versions = {name: importlib.metadata.version(name) for name in ("lightgbm", "numpy")}
    facts = {
        "dataset_seconds": dataset_seconds,
        "num_categorical": len(categories),
        "versions": versions,
    }
    print(json.dumps(facts))


def ids_of(folder: Path, head: dict, rows: Matrix) -> Matrix:
    """[rows, features]: the ids, public ones first, as numbers that hold them exactly."""
    names = [name for name in ("public_features", "sensitive_features") if name in head["arrays"]]
    parts = [array(folder, head, name) for name in names]
    ids = np.empty((len(rows), sum(part.shape[1] for part in parts)), np.float32)
    start = 0
    for part in parts:
        ids[:, start : start + part.shape[1]] = part[rows]
        start += part.shape[1]
    return ids


def array(folder: Path, head: dict, name: str) -> Matrix:
    """One array of the dataset, mapped into memory."""
    said = head["arrays"][name]
    return np.memmap(folder / said["file"], said["dtype"], "r", shape=tuple(said["shape"]))


if __name__ == "__main__":
    main()
