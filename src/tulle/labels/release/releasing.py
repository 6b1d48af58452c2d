"""Releases the labels of a table: plan, pay, draw once, write, mark, put in place.

In this order nothing can get out unpaid, and a command that is repeated finds the
first table again in place of drawing fresh noise, which would average out.
"""

import contextlib
import dataclasses
import os
import shutil
from pathlib import Path

from tulle.errors import ConfigError, DataError, RunStateError
from tulle.labels.release import noisy_table
from tulle.labels.release.drawing import Drawing, Watch
from tulle.labels.release.label_noise import (
    LabelNoise,
    UnitNoise,
)
from tulle.labels.release.label_table import LabelTable
from tulle.labels.release.release_books import PaidRelease, ReleaseCharge, open_books
from tulle.labels.release.release_plan import make_release_plan
from tulle.labels.release.release_record import (
    ReleaseRecord,
    holds_table,
    read_record,
    record_path,
    table_digest,
    write_record,
)
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.plan import Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """Bookkeeping of a release. None of it changes what is promised."""

    charge: ReleaseCharge | None = None
    again: bool = False
    """Pay and draw again although the ledger has this release already."""
    watch: Watch | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseResult:
    """A released table and how it came about."""

    table: Path
    record: ReleaseRecord
    is_stored: bool
    """True if it was released before, so that nothing was spent or drawn."""


def release_labels(
    table: LabelTable,
    noise: LabelNoise,
    out: Path,
    *,
    rng: NoiseSource,
    options: ReleaseOptions | None = None,
) -> ReleaseResult:
    """Writes a table of public columns and noisy labels, with its record beside it.

    Args:
      table: The raw table. Read twice: all labels are checked before anything is spent.
      noise: How labels are noised.
      out: The new Parquet file.
      rng: Source of the noise. Sensitive: never log or save its state.
      options: Ledger and progress.

    Privacy:
      Unit: that of the table, replace, labels only. Event: that of the plan, charged before
      the first draw. Relies on: public columns, unit ids and times do not follow from the
      labels; the hidden file is not looked at before it is in place.

    Raises:
      DataError: A label or id is missing or out of range. Nothing was spent.
      SpendRefusedError: A budget does not cover it. Nothing was spent.
      RunStateError: The file exists, or an earlier release of the same is gone.
    """
    options = options or ReleaseOptions()
    out = Path(out)
    _check_out(out, table)
    unit_rows = table.unit_rows() if isinstance(noise, UnitNoise) else None
    plan = make_release_plan(table, noise, unit_rows=unit_rows)
    drawing = Drawing(table, noise, unit_rows, rng=rng, watch=options.watch)
    if options.charge is None:
        _refuse_existing(out)
        drawing.check_labels()
        staged, record = _stage(drawing, plan, out, None)
        write_record(out, record)
        noisy_table.put_in_place(staged, out)
        return ReleaseResult(table=out, record=record, is_stored=False)
    _check_span(table, options.charge)
    with open_books(options.charge) as books:
        release_id = books.release_id(plan, table.digest())
        paid = None if options.again else books.paid(release_id)
        if paid is not None and paid.is_out:
            return _stored(paid, release_id, out)
        _refuse_existing(out)
        if paid is None:
            books.check(plan)
        drawing.check_labels()
        spend = books.pay(plan, release_id, out) if paid is None else books.take_up(paid)
        staged, record = _stage(drawing, plan, out, release_id)
        write_record(out, record)
        spend.mark_released()
        noisy_table.put_in_place(staged, out)
    return ReleaseResult(table=out, record=record, is_stored=False)


def _stage(
    drawing: Drawing, plan: Plan, out: Path, release_id: str | None
) -> tuple[Path, ReleaseRecord]:
    """Draws and writes into a hidden file; the record says what it is."""
    staged = _staged_path(out)
    staged.unlink(missing_ok=True)
    columns = noisy_table.write_rows(staged, drawing.frames())
    try:
        drawing.check_unchanged()
    except DataError:
        staged.unlink(missing_ok=True)
        raise
    record = ReleaseRecord(
        plan=plan,
        mechanism=drawing.description,
        columns={n: text for n, text in noisy_table.ADDED_COLUMNS.items() if n in columns},
        num_rows=drawing.num_rows,
        table=out.name,
        table_sha256=table_digest(staged),
        randomness=drawing.rng.description,
        is_secure=drawing.rng.is_secure,
        release_id=release_id,
    )
    return staged, record


def _stored(paid: PaidRelease, release_id: str, out: Path) -> ReleaseResult:
    """The table of a release that is out, at its place or copied to a new one."""
    for path in dict.fromkeys((out.absolute(), paid.path)):
        with contextlib.suppress(DataError):
            record = read_record(path)
            if record.release_id != release_id:
                continue
            if not path.exists() and holds_table(_staged_path(path), record):
                noisy_table.put_in_place(_staged_path(path), path)
            if holds_table(path, record):
                return _copied(path, record, out)
    raise RunStateError(
        f"these labels were released with this plan, as spend {paid.spend.id} says, into "
        f"{paid.path}, which is gone or changed. Restore it with its record, or pay for a second "
        "release with --again."
    )


def _copied(path: Path, record: ReleaseRecord, out: Path) -> ReleaseResult:
    if path != out.absolute():
        _refuse_existing(out)
        staged = _staged_path(out)
        try:
            shutil.copyfile(path, staged)
            with staged.open("rb") as file:
                os.fsync(file.fileno())
        except OSError as error:
            staged.unlink(missing_ok=True)
            raise RunStateError(f"{out.name} cannot be written: {error.strerror}.") from None
        record = dataclasses.replace(record, table=out.name)
        write_record(out, record)
        noisy_table.put_in_place(staged, out)
    return ReleaseResult(table=out, record=record, is_stored=True)


def _staged_path(out: Path) -> Path:
    return out.with_name(f".{out.name}.unreleased")


def _check_out(out: Path, table: LabelTable) -> None:
    if out.suffix.lower() != ".parquet":
        raise RunStateError(f"{out.name} must end in .parquet; name it {out.stem}.parquet.")
    if not out.parent.is_dir():
        raise RunStateError(f"{out} is in no folder that exists; make it first.")
    if out.absolute() in {path.absolute() for path in table.paths}:
        raise RunStateError(f"{out.name} is the raw table itself; name another file.")
    noisy_table.check_names(table.kept_columns)


def _check_span(table: LabelTable, charge: ReleaseCharge) -> None:
    """Refuses to charge fewer windows than the data can touch."""
    if charge.at is None:
        return
    charged = 0.0 if charge.until is None else (charge.until - charge.at).total_seconds()
    span = table.time_span_seconds()
    # A time counts for its whole second, and a bare date ends within its last.
    if span > charged + 1:
        raise ConfigError(
            f"the data are from {span} seconds by column {table.schema.time!r}, and at..until "
            f"are {charged:.0f}; give the whole time, so that every window is charged."
        )


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise RunStateError(
            f"{out.name} exists and is not this release; name another file, or move it away with "
            f"its {record_path(out).name}."
        )
