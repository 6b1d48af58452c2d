"""A prepared dataset of a few rows, and the pieces to write it with."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.dataset import Contents, PreparedDataset
from tulle.data.prepared.feature import PreparedFeature
from tulle.data.prepared.writer import DatasetWriter, hold_partial
from tulle.data.schema import Schema

SCHEMA = Schema(
    label="click",
    public=("site", "hour"),
    sensitive=("age",),
    unit="user",
    time="at",
)
CONTENTS = Contents(
    schema=SCHEMA,
    features=(
        PreparedFeature(name="site", role="public", num_ids=50, table="site"),
        PreparedFeature(name="hour", role="public", num_ids=24, table="hour"),
        PreparedFeature(name="age", role="sensitive", num_ids=9, table="age"),
    ),
    num_classes=2,
    encoder_fingerprint="sha256:encoder",
)
SETTINGS: Mapping[str, object] = {"layout": "small", "sources": [["a.csv", 12]]}


def block(start: int, num_rows: int) -> dict[str, NDArray[np.generic]]:
    rows = np.arange(start, start + num_rows)
    return {
        "public_features": np.stack([rows % 50, rows % 24], axis=1).astype(np.int32),
        "sensitive_features": (rows[:, None] % 9).astype(np.int32),
        "labels": (rows % 2).astype(np.float32),
        "units": rows * 1_000_003 - 5,
        "times": rows * 3600,
        "days": (rows // 24).astype(np.int32),
    }


def write_small_dataset(folder: Path, *, num_blocks: int = 3, rows: int = 40) -> PreparedDataset:
    with (
        hold_partial(folder, SETTINGS, resume=True) as partial,
        DatasetWriter(partial, CONTENTS) as writer,
    ):
        for start in range(writer.progress.num_rows, num_blocks * rows, rows):
            writer.append(block(start, rows), position={"row": start + rows}, num_bad_lines=0)
        return writer.finish({"sources": SETTINGS["sources"]})
