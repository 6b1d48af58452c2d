"""Preparation of a raw log as a dataset for training, in one streaming pass.

Reading, encoding and writing overlap in threads, and only a few blocks are in
memory at a time, however long the log is. Vocabularies need a counting pass
before; what it costs is charged once, also if the work is interrupted later.
"""

import contextlib
import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import tulle
from tulle.accounting.ledger import Ledger
from tulle.data.features.encoder import Encoder, build_encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.private_vocabulary import PrivateVocabularyConfig
from tulle.data.features.vocabulary import fit_vocabularies
from tulle.data.prepared.dataset import ENCODER_FILE, Contents, PreparedDataset
from tulle.data.prepared.writer import DatasetWriter, PartialFolder, begun_settings, hold_partial
from tulle.data.row_arrays import RowArrays, check_units, drop_rows_without_unit
from tulle.data.schema import Schema
from tulle.data.source_files import SourceFile, inspect_sources, refuse_copies
from tulle.data.tables.archives import FileForm, form_by_name
from tulle.data.tables.kinds import typed_columns
from tulle.data.tables.layout import Block, Position
from tulle.data.tables.sources import Log, LogFiles, block_place, placed_blocks
from tulle.errors import BudgetExceededError, ConfigError, DataError
from tulle.privacy.events import event_to_dict
from tulle.privacy.units import Owner

Progress = Callable[[int, int, int], None]
"""Function that is called with rows done, bytes done and bytes in all. Compressed and Parquet files
do not tell how far a reader is: their bytes are done when the next file begins."""

_PLAN = "feature plan"
_Arrays = dict[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """How rows become arrays. Every field is public information."""

    num_classes: int | None = 2
    """Labels must be whole numbers from 0 to num_classes - 1; None: values from 0 on."""
    classes: tuple[str, ...] | None = None
    """Names of the `num_classes` classes, if labels are names; None: labels are numbers."""
    drop_rows_without_unit: bool = False
    """Leave out rows whose unit is missing; by default they are an error."""
    num_workers: int = 2
    """Threads that encode; the result does not depend on it."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_workers <= 64:
            raise ConfigError(f"num_workers={self.num_workers} must be from 1 to 64.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyPayment:
    """Noise for the vocabularies of sensitive columns, and the ledger that is charged."""

    private: PrivateVocabularyConfig
    ledger: Ledger

    def __post_init__(self) -> None:
        if self.private.unit.owner is not Owner.EXAMPLE:
            raise ConfigError(
                f"unit='{self.private.unit}' needs rows that were bounded before they are counted, "
                "and prepare() counts them as they are; use Unit.example(), or fit_vocabularies() "
                "on bounded rows and prepare with that encoder."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareResult:
    """A new dataset, and what its log was like."""

    dataset: PreparedDataset
    num_bad_lines: int
    """Lines left out because they cannot be read. Exact: must not be released."""
    num_rows_resumed: int
    """Rows that an interrupted run had written already."""


def prepare_log(
    log: Log,
    features: FeaturePlan | Encoder,
    folder: Path,
    *,
    config: PrepareConfig | None = None,
    payment: VocabularyPayment | None = None,
    resume: bool = True,
    progress: Progress | None = None,
) -> PrepareResult:
    """Writes a log into a new folder of arrays.

    Interrupted at any moment, also by a kill, it continues behind the last whole block
    when it is called again; the result has the same bytes as if it had run through.

    Args:
      log: The rows.
      features: What to make of the columns; or the encoder of an earlier dataset, so that
        its ids mean the same (a test set).
      folder: New folder of the dataset; it must not exist.
      config: Labels, units, threads.
      payment: Noise and ledger for sensitive columns with a vocabulary.
      resume: False: throw away what was begun, vocabularies included.
      progress: Function that is told how far it has come.

    Privacy:
      The dataset is raw data: it stays where the log is. Only the vocabularies of
      sensitive columns are a release, see `fit_vocabularies`; they are charged to the
      ledger before noise is drawn, and kept, so that resuming costs nothing.

    Raises:
      DataError: The log breaks its layout or schema, or has one file twice.
      RunStateError: The folder exists, is being written by another process, or was begun
        with other inputs or settings.
    """
    config = config or PrepareConfig()
    plan = features if isinstance(features, FeaturePlan) else features.plan
    if plan.schema != log.layout.schema:
        raise ConfigError(
            f"the features are of another schema than layout {log.layout.name!r}; "
            "make the plan from the layout's schema."
        )
    if payment is not None and not isinstance(features, FeaturePlan):
        raise ConfigError(
            "payment is given, but an encoder has its vocabularies already and nothing is "
            "counted; leave payment out."
        )
    sources = inspect_sources(log.paths)
    refuse_copies(log.paths, has_header=log.layout.has_header)
    settings = _settings(log, features, config, payment) | {
        "set of input files": [source.to_dict() for source in sources]
    }
    with (
        hold_partial(folder, settings, resume=resume) as partial,
        _clearing_what_is_useless(partial, is_paid=payment is not None),
    ):
        encoder = _encoder(log, features, config, payment, partial)
        work = _Work(log=log, encoder=encoder, config=config)
        with DatasetWriter(partial, work.contents()) as writer:
            num_rows_resumed = writer.progress.num_rows
            _write(work, writer, sources, progress)
            if inspect_sources(log.paths) != sources:
                raise DataError(
                    "an input file changed while it was read; leave it alone and begin anew "
                    "without resuming (--no-resume)."
                )
            num_bad_lines = writer.progress.num_bad_lines
            dataset = writer.finish(_provenance(log, sources, config, num_bad_lines))
    return PrepareResult(
        dataset=dataset, num_bad_lines=num_bad_lines, num_rows_resumed=num_rows_resumed
    )


def begun_plan(folder: Path) -> FeaturePlan | None:
    """The features of an interrupted run, which continues only with the same ones.

    None if there is nothing to continue.
    """
    settings = begun_settings(folder)
    return None if settings is None else FeaturePlan.from_dict(settings.get(_PLAN))


@contextlib.contextmanager
def _clearing_what_is_useless(partial: PartialFolder, *, is_paid: bool) -> Iterator[None]:
    """Clears a folder that is worth nothing after a refusal.

    Without a row and without paid vocabularies it would only stand in the way of the next try.
    """
    try:
        yield
    except (ConfigError, DataError, BudgetExceededError):
        is_charged = is_paid and (partial.data / ENCODER_FILE).exists()
        if not is_charged and not partial.read_progress().num_rows:
            partial.clear()
        raise


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Work:
    """What a thread needs to make arrays from a block."""

    log: Log
    encoder: Encoder
    config: PrepareConfig

    def contents(self) -> Contents:
        return Contents(
            schema=self.encoder.plan.schema,
            features=self.encoder.features,
            num_classes=self.config.num_classes,
            encoder_fingerprint=self.encoder.fingerprint(),
            vocabulary_event=self.encoder.vocabulary_event,
        )

    def arrays(self, block: Block, start: Position) -> _Arrays:
        table = _rows_with_unit(block.table, self.encoder.plan.schema, self.config)
        place = block_place(self.log, block, start, len(table))
        made: _Arrays = _row_arrays(self.encoder.plan, self.config).make(table, place)
        ids = self.encoder.encode(typed_columns(table, self.encoder.plan.schema, place))
        num_public = sum(feature.role == "public" for feature in self.encoder.features)
        for role, part in (("public", ids[:, :num_public]), ("sensitive", ids[:, num_public:])):
            if part.shape[1]:
                made[f"{role}_features"] = np.ascontiguousarray(part)
        return made


def _write(
    work: _Work,
    writer: DatasetWriter,
    sources: tuple[SourceFile, ...],
    progress: Progress | None,
) -> None:
    stored = writer.progress.position
    start = Position(0, 0, 0, 0) if stored is None else Position.from_dict(dict(stored))
    for block, arrays in _encoded(work, start):
        writer.append(arrays, position=block.next.to_dict(), num_bad_lines=block.num_bad_lines)
        if progress is not None:
            sizes = [source.num_bytes for source in sources]
            index = block.next.file_index
            is_plain = form_by_name(work.log.paths[index]) is FileForm.PLAIN
            done = sum(sizes[:index]) + (block.next.byte if is_plain else 0)
            progress(writer.progress.num_rows, done, sum(sizes))


def _encoded(work: _Work, start: Position) -> Iterator[tuple[Block, _Arrays]]:
    """Blocks and their arrays in order; a few are under way at a time."""
    waiting: deque[tuple[Block, Future[_Arrays]]] = deque()
    pool = ThreadPoolExecutor(work.config.num_workers)
    try:
        for block in work.log.blocks(start):
            if block.next.file_index != start.file_index:
                start = Position(block.next.file_index, 0, 0, 0)
            waiting.append((block, pool.submit(work.arrays, block, start)))
            start = block.next
            if len(waiting) > work.config.num_workers:
                done, arrays = waiting.popleft()
                yield done, arrays.result()
        for done, arrays in waiting:
            yield done, arrays.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _encoder(
    log: Log,
    features: FeaturePlan | Encoder,
    config: PrepareConfig,
    payment: VocabularyPayment | None,
    partial: PartialFolder,
) -> Encoder:
    """The encoder that was begun with, or a new one, on disk before it is used."""
    if (partial.data / ENCODER_FILE).exists():
        return Encoder.from_files(partial.data)
    if isinstance(features, FeaturePlan):
        vocabularies = fit_vocabularies(
            functools.partial(_counted_tables, log, features, config, is_paid=payment is not None),
            features,
            private=None if payment is None else payment.private,
            ledger=None if payment is None else payment.ledger,
        )
        features = build_encoder(features, vocabularies)
    features.to_files(partial.data)
    return features


def _counted_tables(
    log: Log, plan: FeaturePlan, config: PrepareConfig, *, is_paid: bool
) -> Iterator[pl.DataFrame]:
    """The rows to count. If it costs, a row that would be refused later is refused now."""
    if not is_paid and isinstance(log, LogFiles):
        learnt = (*plan.vocabularies("public"), *plan.quantiles)
        counted = {feature.column for feature in learnt} | {plan.schema.unit}
        columns = tuple(name for name in plan.schema.used if name in counted)
        log = dataclasses.replace(log, columns=columns)
    for block, start in placed_blocks(log):
        table = _rows_with_unit(block.table, plan.schema, config)
        place = block_place(log, block, start, len(table))
        if is_paid:
            _row_arrays(plan, config).make(table, place)
        yield typed_columns(table, plan.schema, place)


def _rows_with_unit(table: pl.DataFrame, schema: Schema, config: PrepareConfig) -> pl.DataFrame:
    if config.drop_rows_without_unit:
        return drop_rows_without_unit(table, schema)
    check_units(table, schema)
    return table


def _row_arrays(plan: FeaturePlan, config: PrepareConfig) -> RowArrays:
    number, names = config.num_classes, config.classes
    return RowArrays(schema=plan.schema, num_classes=number, salt=plan.salt, classes=names)


def _settings(
    log: Log,
    features: FeaturePlan | Encoder,
    config: PrepareConfig,
    payment: VocabularyPayment | None,
) -> dict[str, object]:
    """All that decides the content but the files: what resuming must find unchanged."""
    encoder = None if isinstance(features, FeaturePlan) else features
    plan = features if isinstance(features, FeaturePlan) else features.plan
    form = log.layout.text_form
    noise = None if payment is None else payment.private
    known = None if noise is None else noise.known_values
    return {
        "layout": {f.name: getattr(form, f.name) for f in dataclasses.fields(form)},
        _PLAN: plan.to_dict(),
        "encoder": None if encoder is None else encoder.fingerprint(),
        "noise of the vocabularies": noise and event_to_dict(noise.event(plan)),
        "known values": None if known is None else dict(known),
        "treatment of bad lines": log.bad_lines.value,
        "number of classes": list(config.classes or ()) or config.num_classes,
        "treatment of rows without unit": config.drop_rows_without_unit,
        "version of tulle or polars": _versions(),
    }


def _provenance(
    log: Log, sources: tuple[SourceFile, ...], config: PrepareConfig, num_bad_lines: int
) -> Mapping[str, object]:
    return {
        "layout": log.layout.name,
        "sources": [
            {"name": s.name, "num_bytes": s.num_bytes, "edges_sha256": s.edges_sha256}
            for s in sources
        ],
        "bad_lines": log.bad_lines.value,
        "num_bad_lines": num_bad_lines,
        "drop_rows_without_unit": config.drop_rows_without_unit,
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    return {"tulle": tulle.__version__, "polars": metadata.version("polars")}
