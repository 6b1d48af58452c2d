"""Predictions for the rows of files or a table, as a file: read, predicted and written in blocks.

Only columns that the model looks at are read, and those that are to be kept. Memory does not grow
with the number of rows. The file is there as a whole or not at all.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from tulle.atomic_files import short_name, sync_folder
from tulle.data.named_logs import TAOBAO_TABLES, log_as_said
from tulle.data.schema import Schema
from tulle.data.tables.columnar import sink_tables
from tulle.data.tables.layout import Block, Position
from tulle.data.tables.sources import (
    Log,
    LogFiles,
    TableLog,
    block_place,
    placed_unsplit_blocks,
)
from tulle.data.tables.text import LineBlock
from tulle.data.threads import map_in_order
from tulle.errors import ConfigError, RunStateError, reason_of
from tulle.serve.served_model import ModelLike, ServedModel, served_model

FilePath = str | os.PathLike[str]
Watch = Callable[[int, int, int], None]
"""Is told rows done, bytes done and bytes in all."""

_ROW = "row"
_ROWS_PER_BLOCK = 1 << 17
"""Rows that are read at once: enough that fixed costs are small, few enough that memory is."""
_CSV = ".csv"
_SUFFIXES = (".parquet", _CSV)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenPredictions:
    """Where predictions are, and how many."""

    path: Path
    num_rows: int
    columns: tuple[str, ...]
    """Columns of the file: `row` from 0, those that were kept, and predictions."""


def predict(
    model: ModelLike,
    data: object,
    *,
    output: FilePath,
    keep: Sequence[str] = (),
    layout: str | None = None,
    watch: Watch | None = None,
) -> WrittenPredictions:
    """Writes what a model predicts for each row of a log, in the order of the rows.

    Values that training has not seen are no error: they count as rare values do, by the bin that
    their hash falls into or as the rest of a vocabulary.

    Args:
      model: Folder of a model or of a training run, or what `tulle.load` and `fit` give.
      data: Files of a log, or a table of polars, pandas, Arrow or DuckDB. It needs the columns that
        the model looks at and no others; no label.
      output: New file, Parquet or CSV by its ending.
      keep: Columns of the data that the file has beside the predictions, such as an id.
      layout: Name of a public log, where its files have no header.
      watch: Function that is told how far it has come.

    Privacy:
      The model keeps its guarantee for the rows that it was trained on. A prediction is a function
      of the columns of its row: the file is as sensitive as the rows are.

    Raises:
      ConfigError: The output is no Parquet or CSV file, or a kept column has a name of a result.
      DataError: A column is missing, or a value is none of its column's kind.
      RunStateError: The file exists, or cannot be written.
    """
    path = _checked_path(output)
    served = served_model(model)
    results = served.results
    keep = tuple(dict.fromkeys(keep))
    if clash := set(keep) & {_ROW, *results}:
        raise ConfigError(
            f"keep={min(clash)!r} is the name of a column of the results; rename it in the data."
        )
    columns = served.columns
    roles = _reading_schema(served.encoder.plan.schema, columns, keep)
    log = log_as_said(data, None if layout == TAOBAO_TABLES else roles, layout=layout)
    if isinstance(log, LogFiles | TableLog):
        log = dataclasses.replace(log, rows_per_block=_ROWS_PER_BLOCK)
    tables = _predicted_tables(log, served, keep, results, watch)
    none = {_ROW: pl.Int64} | dict.fromkeys(keep, pl.String) | dict.fromkeys(results, pl.Float64)
    with _writing(path) as staged:
        num_rows = _write(staged, tables, pl.DataFrame(schema=none), path.suffix.lower())
    return WrittenPredictions(path=path, num_rows=num_rows, columns=(_ROW, *keep, *results))


def _reading_schema(schema: Schema, columns: Sequence[str], keep: Sequence[str]) -> Schema:
    """Roles to read new rows by. All columns count as sensitive: nothing is released of them."""
    # A model that ended as a constant looks at no column; its rows are counted by any of them.
    read = schema.to_read(set(columns) or set(schema.features))
    kept = tuple(name for name in keep if name not in read.used)
    return dataclasses.replace(read, sensitive=(*read.sensitive, *kept))


def _predicted_tables(
    log: Log, served: ServedModel, keep: Sequence[str], results: Sequence[str], watch: Watch | None
) -> Iterator[pl.DataFrame]:
    sizes = [path.stat().st_size for path in log.paths if path.exists()]
    work = functools.partial(_predicted_block, log, served, keep, results)
    num_rows = 0
    for table, position in map_in_order(work, placed_unsplit_blocks(log)):
        first, num_rows = num_rows, num_rows + len(table)
        rows = np.arange(first, num_rows, dtype=np.int64)
        yield table.select(pl.Series(_ROW, rows), pl.all())
        if watch is not None:
            done = sum(sizes[: position.file_index])
            watch(num_rows, min(done + position.byte, sum(sizes)), sum(sizes))


def _predicted_block(
    log: Log,
    served: ServedModel,
    keep: Sequence[str],
    results: Sequence[str],
    placed: tuple[Block | LineBlock, Position],
) -> tuple[pl.DataFrame, Position]:
    block, start = placed
    rows = block.rows() if isinstance(block, LineBlock) else block.table
    place = block_place(log, block, start, len(rows))
    predicted = served.predicted(rows, place)
    parts = [predicted] if predicted.ndim == 1 else list(predicted.T)
    made = [pl.Series(name, part) for name, part in zip(results, parts, strict=True)]
    return pl.DataFrame([*rows.select(keep), *made]), block.next


def _checked_path(output: FilePath) -> Path:
    path = Path(output)
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(
            f"output={os.fspath(output)!r} must end in {' or '.join(_SUFFIXES)}, which says how it "
            "is written."
        )
    if path.exists():
        raise RunStateError(f"{short_name(path)} exists already; name another file.")
    if not path.parent.is_dir():
        raise ConfigError(
            f"output={os.fspath(output)!r} is in no folder that exists; make it first."
        )
    return path


def _write(staged: Path, tables: Iterator[pl.DataFrame], none: pl.DataFrame, suffix: str) -> int:
    """Writes tables one after the other and returns the number of their rows.

    Args:
      staged: New file.
      tables: Tables of one schema.
      none: Table without rows, which is written if there are none.
      suffix: Ending of the name that the file will have.
    """
    first = next(tables, none)
    num_rows = 0
    problem: list[BaseException] = []

    def counted() -> Iterator[pl.DataFrame]:
        nonlocal num_rows
        try:
            for table in itertools.chain([first], tables):
                num_rows += len(table)
                yield table.cast(dict(first.schema))  # type: ignore[arg-type]
        except GeneratorExit:  # whoever writes has given up, and says why
            raise
        except BaseException as error:
            problem.append(error)  # polars would wrap it in one of its own
            raise

    try:
        if suffix == _CSV:
            with staged.open("xb") as file:
                for place, table in enumerate(counted()):
                    table.write_csv(file, include_header=place == 0)
        else:
            # Probabilities hardly get smaller by any compression.
            sink_tables(staged, first.schema, counted(), compression="lz4")
    except BaseException as error:
        if problem:
            raise problem[0] from None
        if isinstance(error, PolarsError | PanicException):
            raise OSError(0, "the disk refused it") from None
        raise
    return num_rows


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[Path]:
    """A hidden name to write to, which becomes the file's own if nothing fails."""
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield staged
        with staged.open("rb") as file:
            os.fsync(file.fileno())
        os.link(staged, path)  # unlike a rename, it refuses a file that came meanwhile
        sync_folder(path.parent)
    except FileExistsError:
        raise RunStateError(f"{short_name(path)} exists already; name another file.") from None
    except OSError as error:
        raise RunStateError(
            f"{short_name(path)} cannot be written: {reason_of(error)}; name a folder that has "
            "room and may be written to."
        ) from None
    finally:
        staged.unlink(missing_ok=True)
