"""Folders made by method_jobs.py: their plans, and their rows to train and to test on."""

import concurrent.futures
import contextlib
import functools
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dataset_archive import unpack
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.splits import split_at_random
from tulle.train import ExampleSet

SPLIT_SHARES = (0.8, 0.2)
DEVELOPMENT_SHARES = (0.9, 0.1)
DEVELOPMENT_KEY = hashlib.sha256(b"development split of the training rows").digest()


def read_jobs(folder: Path) -> list[dict]:
    """The jobs of a folder, each with its source, the key of its split, a name and a plan."""
    lines = (folder / "jobs.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@contextlib.contextmanager
def unpacked(folders: Sequence[Path]) -> Iterator[dict[Path, Path]]:
    """Where the data of each folder are, until the end."""
    with tempfile.TemporaryDirectory() as work:
        data = {folder: Path(work) / str(place) for place, folder in enumerate(folders)}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda folder: unpack(folder / "data.zip", data[folder]), folders))
        yield data


@functools.cache
def open_rows(data: str, split_key: str) -> tuple[ExampleSet, ExampleSet]:
    """Training and test rows."""
    dataset = PreparedDataset.open(Path(data))
    train, test = _split(dataset, split_key)
    return ExampleSet.of(dataset, train), ExampleSet.of(dataset, test)


@functools.cache
def open_development_rows(data: str, split_key: str) -> tuple[ExampleSet, ExampleSet]:
    """Nine tenths and one tenth of the training rows; test rows stay untouched."""
    dataset = PreparedDataset.open(Path(data))
    rows, _ = _split(dataset, split_key)
    most, rest = split_at_random(len(rows), fractions=DEVELOPMENT_SHARES, key=DEVELOPMENT_KEY)
    return ExampleSet.of(dataset, rows[most]), ExampleSet.of(dataset, rows[rest])


def _split(dataset: PreparedDataset, split_key: str) -> list:
    key = bytes.fromhex(split_key)
    return split_at_random(dataset.num_rows, fractions=SPLIT_SHARES, key=key)
