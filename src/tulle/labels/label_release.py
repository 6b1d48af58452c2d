"""Releases the labels of a table, once for one payment: plan, look at all labels, pay, draw, place.

The plan says what is promised, and is made before a label is read. `noisy.parquet` comes with
`noisy.release.json`: the plan, the mechanism's channel, what each added column means, and a hash of
the table, so that a table is never taken for that of another release. Everything in it is public.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
from numpy.typing import NDArray

from tulle.data.source_files import SourceFile, content_sha256
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.labels import noisy_table
from tulle.labels.label_noise import LabelDraw, LabelNoise
from tulle.labels.label_table import LabelTable
from tulle.labels.unit_rows import UnitRows
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.privacy.fields import Scalar, check_count
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.plan import Assumption, Plan, Status
from tulle.privacy.units import Adjacency, Owner, Scope, TrustModel
from tulle.runs.charging import ReleaseCharge, ReleaseKind, ReleaseTerms, release_plan
from tulle.runs.record import Result, TableRecord
from tulle.runs.release_files import ReleaseFiles, check_output
from tulle.runs.release_once import OneRelease, ReleaseOptions, Watch, release_once

# Rows and public columns go out as they are: only replace speaks of that.
LABEL_RELEASES = ReleaseKind(
    name="label release", key_ending="label-key", adjacency=Adjacency.REPLACE
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseRecord(TableRecord):
    """A release of noisy labels. Every field is public information."""

    formats: ClassVar[tuple[str, ...]] = ("tulle label release 1",)
    keys: ClassVar[tuple[str, ...]] = (
        *("format", "table", "num_rows", "columns", "mechanism", "plan"),
        *("randomness", "table_sha256"),
    )

    mechanism: Mapping[str, Any]
    """Settings and channel in plain data."""
    num_rows: int
    """Number of rows of the table."""

    def __post_init__(self) -> None:
        check_count("num_rows", self.num_rows)


_ASSUMPTIONS = (
    Assumption(
        statement="Every label lies in the declared range.",
        status=Status.CHECKED,
        evidence="All labels are looked at before anything is spent.",
    ),
    Assumption(
        statement="Within this release each label is noised once, with exactly the stated law.",
        status=Status.ENFORCED,
        evidence="One pass over distinct files, by a sampler that no rounding changes.",
    ),
)
"""What holds for every release of labels, by code or by a look at the data."""


def release_labels(
    table: LabelTable,
    noise: LabelNoise,
    output: Path,
    *,
    rng: NoiseSource | None = None,
    options: ReleaseOptions | None = None,
) -> Result[ReleaseRecord, Plan]:
    """Writes a table of public columns and noisy labels, with its record beside it.

    Args:
      table: The raw table. Read twice: all labels are checked before anything is spent.
      noise: How labels are noised.
      output: The new Parquet file.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.
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
    options, rng, output = options or ReleaseOptions(), rng or release_rng(), Path(output)
    check_output(output, endings=(".parquet",), inputs=table.paths)
    noisy_table.check_names(table.kept_columns)
    table.check_columns()
    # Before any row is read: what `write` compares at its end must cover all the passes.
    sources = table.inspect_files()
    unit_rows = table.unit_rows() if noise.is_for_units else None
    plan = make_release_plan(
        table,
        noise,
        unit_rows=unit_rows,
        terms=ReleaseTerms(has_ledger=options.charge is not None, noise_source=rng.description),
    )
    if options.charge is not None:
        _check_span(table, options.charge)
    release = OneRelease(
        plan=plan,
        kind=LABEL_RELEASES,
        out=output,
        record_type=ReleaseRecord,
        options=options,
    )
    draw = LabelTableDraw(
        table, noise, plan, unit_rows, sources=sources, rng=rng, watch=options.watch
    )
    return release_once(release, draw)


def make_release_plan(
    table: LabelTable,
    noise: LabelNoise,
    *,
    unit_rows: UnitRows | None = None,
    terms: ReleaseTerms | None = None,
) -> Plan:
    """Makes the plan of one release. Reads nothing.

    Args:
      table: Table whose columns and unit it is for.
      noise: How the labels will be noised.
      unit_rows: The rows of each unit, from public columns; for noise by units.
      terms: Who pays for the release, and where its noise comes from.

    Raises:
      ConfigError: Unit and mechanism do not go together.
    """
    _check_goes_together(table, noise, unit_rows)
    settings = noise.settings() | {
        "mechanism": noise.name,
        "epsilon": noise.epsilon,
        "row order": "as in the input",
        **_table_settings(table),
    }
    draft = Plan(
        name=f"labels of {table.label}",
        mechanism=f"{noise.sentence(table.unit)} ({noise.name}), and the result is stored; public "
        "columns go out as they are.",
        settings=settings,
        event=noise.event(unit_rows),
        guarantee=Guarantee(
            epsilon=noise.epsilon,
            delta=0.0,
            unit=table.unit,
            adjacency=Adjacency.REPLACE,
            scope=Scope.LABELS,
        ),
        trust=TrustModel.CENTRAL,
        columns=dataclasses.replace(table.schema.roles, sensitive=(), ignored=()),
        bounds=noise.bounds(),
        assumptions=_ASSUMPTIONS,
    )
    return release_plan(
        draft, terms or ReleaseTerms(), what="release of labels", assumed=noise.assumptions()
    )


class LabelTableDraw:
    """Checks all labels of a table, then draws its noisy rows, once.

    Privacy:
      Unit: that of the table, replace. Event: that of the plan, for one call of `write`, which
      refuses a second one. Relies on: the caller has paid before it, and `sources` were looked
      at before `unit_rows`.
    """

    def __init__(
        self,
        table: LabelTable,
        noise: LabelNoise,
        plan: Plan,
        unit_rows: UnitRows | None,
        *,
        sources: tuple[SourceFile, ...],
        rng: NoiseSource,
        watch: Watch | None = None,
    ) -> None:
        self._table, self._noise, self._plan = table, noise, plan
        self._unit_rows, self._sources, self._rng = unit_rows, sources, rng
        self._watch = watch
        self._raw_summaries: list[NDArray[Any] | None] | None = None
        self._num_rows = 0

    def check(self) -> None:
        """Looks at all labels before anything is spent.

        Raises:
          DataError: A label is missing or outside of the declared values.
        """
        blocks = self._table.label_blocks(self._noise.check_labels)
        self._raw_summaries = [self._noise.summary(labels) for labels in blocks]

    def digest(self) -> bytes:
        """A hash of files and roles."""
        return self._table.digest()

    def write(self, files: ReleaseFiles[ReleaseRecord]) -> ReleaseRecord:
        """Writes noisy labels into the hidden table; the record says what it is."""
        if self._raw_summaries is None:
            raise RunStateError("labels are checked first and then drawn once.")
        # Taken away before the draw, so that a second call is refused even if this one fails.
        raw_summaries, self._raw_summaries = self._raw_summaries, None
        draw = self._noise.start(raw_summaries, self._unit_rows, rng=self._rng)
        columns = noisy_table.write_rows(files.hidden_table, self._rows(draw))
        # The check saw other labels than were drawn, perhaps outside of their bounds. The draw is
        # thrown away while it is hidden, and stays charged.
        if self._table.inspect_files() != self._sources:
            names = ", ".join(path.name for path in self._table.paths)
            raise DataError(f"{names} changed while it was read; start again.")
        record = ReleaseRecord(
            plan=self._plan,
            mechanism=draw.description,
            columns={n: text for n, text in noisy_table.ADDED_COLUMNS.items() if n in columns},
            num_rows=self._num_rows,
            table=files.table.name,
            table_sha256=content_sha256(files.hidden_table),
            randomness=self._rng.description,
            is_secure=self._rng.is_secure,
        )
        files.hide_record(record)
        return record

    def _rows(self, draw: LabelDraw) -> Iterator[pl.DataFrame]:
        for public_columns, raw_labels in self._table.blocks():
            rows = noisy_table.with_noisy_labels(public_columns, draw.next_block(raw_labels))
            self._num_rows += len(rows)
            yield rows
            if self._watch is not None:
                self._watch(self._num_rows)


def _check_span(table: LabelTable, charge: ReleaseCharge) -> None:
    """Refuses to charge another time than the data are from."""
    if charge.at is None:
        return
    if table.schema.time is None:
        raise ConfigError(
            "at (--at) charges budgets that renew, and the schema has no time column to hold it "
            "against; name the column, or use a budget that does not renew."
        )
    charge.check_span(
        *table.time_span(),
        of=f"column {table.schema.time!r}, taken as seconds or days since 1970 UTC,",
    )


def _check_goes_together(table: LabelTable, noise: LabelNoise, unit_rows: UnitRows | None) -> None:
    is_row = table.unit.owner is Owner.EXAMPLE
    if not is_row and not noise.is_for_units:
        raise ConfigError(
            f"mechanism {noise.name!r} noises each label by itself and protects one row, but "
            f"unit='{table.unit}' may own several; use unit-rr or joint-rr, or the unit "
            "'example'."
        )
    if is_row and noise.is_for_units:
        raise ConfigError(
            f"mechanism {noise.name!r} shares one budget among the rows of a unit, and "
            "unit='example' has one row; use rr, or name a unit such as 'user per 7 days'."
        )
    if noise.is_for_units and unit_rows is None:
        raise ConfigError(f"mechanism {noise.name!r} needs the rows of each unit; group them.")


def _table_settings(table: LabelTable) -> dict[str, Scalar]:
    settings: dict[str, Scalar] = {}
    if table.partner is not None:
        settings["partner"] = table.partner
    windows = table.unit.windows
    if windows is not None:
        settings["windows begin"] = (
            "at zero of the time column, 1970 UTC if it counts from there"
            if windows.is_plain
            else f"as the calendar says ({windows}), where the time column counts from 1970 UTC"
        )
    return settings
