"""Releases the labels of a table, once for one payment."""

import dataclasses
from pathlib import Path

from tulle.data.source_files import content_sha256
from tulle.errors import ConfigError
from tulle.labels.release import noisy_table
from tulle.labels.release.drawing import Drawing
from tulle.labels.release.label_noise import (
    LabelNoise,
    UnitNoise,
)
from tulle.labels.release.label_table import LabelTable
from tulle.labels.release.release_plan import make_release_plan
from tulle.labels.release.release_record import ReleaseRecord
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency
from tulle.runs.release_books import ReleaseCharge, ReleaseKind
from tulle.runs.release_files import ReleaseFiles
from tulle.runs.release_once import OneRelease, Released, ReleaseOptions, release_once

# Rows and public columns go out as they are: only replace speaks of that.
LABEL_RELEASES = ReleaseKind(
    name="label release", key_ending="label-key", adjacency=Adjacency.REPLACE
)


def release_labels(
    table: LabelTable,
    noise: LabelNoise,
    out: Path,
    *,
    rng: NoiseSource,
    options: ReleaseOptions | None = None,
) -> Released[ReleaseRecord]:
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
    table.check_columns()
    sources = table.inspect_files()
    unit_rows = table.unit_rows() if isinstance(noise, UnitNoise) else None
    plan = make_release_plan(
        table,
        noise,
        unit_rows=unit_rows,
        has_ledger=options.charge is not None,
        noise_source=rng.description,
    )
    if options.charge is not None:
        _check_span(table, options.charge)
    drawing = Drawing(table, noise, unit_rows, sources=sources, rng=rng, watch=options.watch)
    release = OneRelease(
        plan=plan,
        kind=LABEL_RELEASES,
        out=out,
        parse_record=ReleaseRecord.from_json,
        options=options,
    )
    return release_once(release, _LabelDraw(drawing, plan, table))


@dataclasses.dataclass(frozen=True)
class _LabelDraw:
    drawing: Drawing
    plan: Plan
    table: LabelTable

    def check(self) -> None:
        """All labels."""
        self.drawing.check_labels()

    def digest(self) -> bytes:
        """Of files and roles."""
        return self.table.digest()

    def write(self, files: ReleaseFiles[ReleaseRecord]) -> ReleaseRecord:
        """Noisy labels into the hidden table; the record says what it is."""
        drawing = self.drawing
        columns = noisy_table.write_rows(files.hidden_table, drawing.frames())
        drawing.check_unchanged()
        record = ReleaseRecord(
            plan=self.plan,
            mechanism=drawing.description,
            columns={n: text for n, text in noisy_table.ADDED_COLUMNS.items() if n in columns},
            num_rows=drawing.num_rows,
            table=files.table.name,
            table_sha256=content_sha256(files.hidden_table),
            randomness=drawing.rng.description,
            is_secure=drawing.rng.is_secure,
        )
        files.hide_record(record)
        return record


def _check_out(out: Path, table: LabelTable) -> None:
    if out.suffix != ".parquet":
        raise ConfigError(f"out={str(out)!r} must end in .parquet, e.g. noisy.parquet.")
    if not out.parent.is_dir():
        raise ConfigError(f"out={str(out)!r} is in no folder that exists; make it first.")
    if out.absolute() in {path.absolute() for path in table.paths}:
        raise ConfigError(f"out={str(out)!r} is the raw table itself; name another file.")
    noisy_table.check_names(table.kept_columns)


def _check_span(table: LabelTable, charge: ReleaseCharge) -> None:
    """Refuses to charge another time than the data are from."""
    if charge.at is None:
        return
    if table.schema.time is None:
        raise ConfigError(
            "at (--at) charges budgets that renew, and the schema has no time column to hold it "
            "against; name the column, or use a budget that does not renew."
        )
    until = charge.at if charge.until is None else charge.until
    first, last = table.time_span()
    if first < charge.at.timestamp() or last > until.timestamp():
        raise ConfigError(
            f"column {table.schema.time!r} has times outside of at (--at) {charge.at} to until "
            f"(--until) {until}, taken as seconds or days since 1970 UTC; give the whole time of "
            "the data, so that every window is charged, or use a budget that does not renew."
        )
