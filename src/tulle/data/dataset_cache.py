"""Prepared datasets that nobody asked for: a cache of logs as arrays, made once and found again.

A log that is trained on is read, encoded and written as memory-mapped arrays. Who trains on the
same files with the same roles and features finds them there. The cache holds raw data: it belongs
to the user alone, and what was not used for a month is removed.

The folder is $TULLE_CACHE, or else tulle below $XDG_CACHE_HOME or ~/.cache.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tulle
from tulle.atomic_files import reporting_disk_errors
from tulle.data.features.encoder import Encoder
from tulle.data.preparation import PrepareConfig, Progress, prepare_log
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.schema import Schema
from tulle.data.source_files import inspect_sources
from tulle.data.synth.writing import write_synthetic
from tulle.data.tables.sources import Log
from tulle.privacy.fields import canonical_json

_LOCK = ".lock"
_NUM_DIGITS = 12
"""48 bits of a digest in a folder's name: two of a thousand folders agree with probability 2e-9."""
_SECONDS_KEPT = 30 * 86_400
"""What nobody used for so long is removed when something new is made."""
_SALT_BYTES = 16
"""The fewest bytes that a salt of feature hashes may have."""


def cache_folder() -> Path:
    """The folder of the cache, which need not exist yet."""
    if chosen := os.environ.get("TULLE_CACHE"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tulle"


def salt_for(log: Log, schema: Schema) -> bytes:
    """A salt for the hashes of features: the same for the same files and roles.

    So a plan, a run and a run that goes on agree on every id without having met. Nothing rests on
    a salt being secret; see `FeaturePlan.salt`.

    Args:
      log: The rows; of a table in memory only the roles count.
      schema: Roles of its columns.
    """
    sources = inspect_sources(log.paths) if log.paths else ()
    text = canonical_json(
        {"files": [source.to_dict() for source in sources], "schema": schema.to_dict()}
    )
    return hashlib.sha256(b"tulle salt\n" + text.encode()).digest()[:_SALT_BYTES]


def prepared_log(
    log: Log,
    encoder: Encoder,
    *,
    cache: Path | None = None,
    config: PrepareConfig | None = None,
    progress: Progress | None = None,
) -> PreparedDataset:
    """The arrays of a log, from the cache if they are there.

    Args:
      log: Files of the rows.
      encoder: What makes ids of columns.
      cache: Folder to keep them in; None: `cache_folder()`.
      config: Labels, units and threads.
      progress: Function that is told how far it has come.

    Privacy:
      What is written is raw data, for this user alone. Nothing is released.

    Raises:
      DataError: The log breaks its layout or schema.
    """
    config = config or PrepareConfig()
    settings = {
        "version": tulle.__version__,
        "paths": [str(path.resolve()) for path in log.paths],
        "files": [source.to_dict() for source in inspect_sources(log.paths)],
        "form": _plain(dataclasses.asdict(log.layout.text_form)),
        "encoder": encoder.fingerprint(),
        "bad lines": log.bad_lines.value,
        "labels": list(config.classes or ()) or config.num_classes,
        "without unit": config.drop_rows_without_unit,
    }
    folder = _entry(cache, log.paths[0].name.partition(".")[0], settings)
    with _alone_in(folder.parent):
        if folder.exists():
            _mark_used(folder)
            return PreparedDataset.open(folder)
        _remove_old(folder.parent)
        return prepare_log(log, encoder, folder, config=config, progress=progress).dataset


def synthetic_log(
    shape: str, *, rows: int, seed: int, cache: Path | None = None, watch: Any = None
) -> Path:
    """The file of a synthetic log, from the cache if it is there. It holds nobody's data.

    Args:
      shape: "display", "attribution", "search" or "taobao".
      rows: Number of rows.
      seed: Fixes the log.
      cache: Folder to keep it in; None: `cache_folder()`.
      watch: Function that is told the number of rows done.
    """
    settings = {"version": tulle.__version__, "shape": shape, "rows": rows, "seed": seed}
    entry = _entry(cache, shape, settings)
    path = entry.with_name(f"{entry.name}.parquet")
    with _alone_in(path.parent):
        if path.exists():
            _mark_used(path)
            return path
        _remove_old(path.parent)
        staged = path.with_name(f".{path.name}")
        staged.unlink(missing_ok=True)  # of a process that was killed
        write_synthetic(shape, staged, rows=rows, seed=seed, watch=watch)
        staged.rename(path)
    return path


def _entry(cache: Path | None, name: str, settings: object) -> Path:
    folder = cache_folder() if cache is None else cache
    with reporting_disk_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256(canonical_json(settings).encode()).hexdigest()[:_NUM_DIGITS]
    return folder / f"{name}-{digest}"


@contextlib.contextmanager
def _alone_in(cache: Path) -> Iterator[None]:
    """Waits for others that make something for the same cache, so that it is made once."""
    with contextlib.ExitStack() as closing:
        with reporting_disk_errors(cache / _LOCK):
            lock = closing.enter_context((cache / _LOCK).open("ab"))
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        yield


def _mark_used(entry: Path) -> None:
    """Notes that an entry was used, without a change of the time by which files are known."""
    os.utime(entry, ns=(time.time_ns(), entry.stat().st_mtime_ns))


def _remove_old(cache: Path) -> None:
    """Removes what was not used for long. What cannot be removed is left alone."""
    oldest = time.time() - _SECONDS_KEPT
    for entry in cache.iterdir():
        with contextlib.suppress(OSError):
            found = entry.stat()
            if entry.name == _LOCK or max(found.st_atime, found.st_mtime) >= oldest:
                continue
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in data.items()
    }
