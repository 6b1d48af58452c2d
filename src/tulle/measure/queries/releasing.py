"""Measures a log: plan, add up, pay, draw once, write, mark, put in place.

In this order nothing can get out unpaid, data that cannot be measured cost nothing, and a
command that is repeated finds the first numbers again in place of drawing fresh noise, which
would average out.
"""

import dataclasses
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

from tulle.errors import ConfigError, RunStateError
from tulle.measure.engines.engine import Engine
from tulle.measure.engines.exported_totals import ExportedTotals
from tulle.measure.queries.measure_config import MeasureConfig
from tulle.measure.queries.measure_plan import Circumstances, MeasurePlan, make_measure_plan
from tulle.measure.queries.measure_record import MeasureRecord, read_measurement
from tulle.measure.queries.raw_totals import RawTotals, data_digest, fresh_salt
from tulle.measure.queries.released_file import ReleasedFile
from tulle.mechanisms.entropy import NoiseSource
from tulle.runs.release_books import (
    PaidRelease,
    ReleaseBooks,
    ReleaseCharge,
    ReleaseKind,
    open_books,
    released_as,
)

MEASUREMENT_FILE = "measurement.json"
MEASUREMENTS = ReleaseKind(name="measurement", key_ending="measure-key")

Watch = Callable[[str], None]
"""Takes what is being done, in a few words."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MeasureOptions:
    """Bookkeeping of a measurement. None of it changes what is promised."""

    charge: ReleaseCharge | None = None
    again: bool = False
    """Pay and draw again although the ledger has this measurement already."""
    history: Mapping[str, pl.DataFrame] = dataclasses.field(default_factory=dict)
    """Earlier counts for queries whose levels share by them."""
    has_public_history: bool = False
    history_source: str = ""
    """Where it is from, for the card."""
    watch: Watch | None = None

    def say(self, what: str) -> None:
        """Reports progress."""
        if self.watch is not None:
            self.watch(what)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MeasureResult:
    """Released numbers and how they came about."""

    path: Path
    record: MeasureRecord
    is_stored: bool
    """True if they were released before, so that nothing was spent or drawn."""


def measure(
    config: MeasureConfig,
    out: Path,
    source: Engine | ExportedTotals,
    *,
    rng: NoiseSource,
    options: MeasureOptions | None = None,
) -> MeasureResult:
    """Answers all queries of a measurement into `out`/measurement.json.

    Args:
      config: The log, the queries and their budget.
      out: A folder that exists.
      source: What adds up, or totals that another engine added up by the emitted script.
      rng: Source of the noise. Sensitive: never log or save its state.
      options: Ledger, history and progress.

    Privacy:
      Unit: that of the config, add-or-remove, whole rows. Event: that of the plan, charged
      before the first draw. Relies on: the hidden file is not looked at before it is in place.

    Raises:
      DataError: The log cannot be measured. Nothing was spent.
      SpendRefusedError: A budget does not cover it. Nothing was spent.
      RunStateError: The file exists, or an earlier release of the same is gone.
    """
    options = options or MeasureOptions()
    plan = make_measure_plan(
        config,
        history=options.history,
        circumstances=Circumstances(
            has_ledger=options.charge is not None,
            noise_source=rng.description,
            has_public_history=options.has_public_history,
            history=options.history_source,
            has_exported_totals=isinstance(source, ExportedTotals),
        ),
    )
    path = out / MEASUREMENT_FILE
    if not out.is_dir():
        raise ConfigError(f"out={str(out)!r} is no folder that exists; make it first.")
    if options.charge is None:
        file = ReleasedFile(path, secrets.token_hex(8))
        file.refuse_existing()
        totals = RawTotals(plan, source, charge=None, salt=fresh_salt(rng), say=options.say)
        record = totals.released(rng)
        file.hide(record.to_json())
        file.put_in_place()
        return MeasureResult(path=path, record=record, is_stored=False)
    with open_books(options.charge, MEASUREMENTS) as books:
        release_id = books.release_id(plan.plan, data_digest(plan, source))
        return _measure_on_books(_Paying(plan, path, books, release_id), source, rng, options)


@dataclasses.dataclass(frozen=True)
class _Paying:
    plan: MeasurePlan
    path: Path
    books: ReleaseBooks
    release_id: str


def _measure_on_books(
    paying: _Paying,
    source: Engine | ExportedTotals,
    rng: NoiseSource,
    options: MeasureOptions,
) -> MeasureResult:
    books, file = paying.books, ReleasedFile(paying.path, paying.release_id)
    paid = None if options.again else books.paid(paying.release_id)
    if paid is not None and paid.is_out:
        return _stored(paid, file)
    file.refuse_existing()
    if paid is None:
        books.check(paying.plan.plan)
    else:
        ReleasedFile(paid.path, paying.release_id).discard()
    totals = RawTotals(
        paying.plan, source, charge=options.charge, salt=fresh_salt(rng), say=options.say
    )
    if paid is None:
        spend = books.pay(paying.plan.plan, paying.release_id, paying.path)
    else:
        spend = books.take_up(paid)
    record = totals.released(rng)
    sha256 = file.hide(record.to_json())
    spend.mark_released(released_as=released_as(sha256, paying.path))
    file.put_in_place()
    return MeasureResult(path=paying.path, record=record, is_stored=False)


def _stored(paid: PaidRelease, file: ReleasedFile) -> MeasureResult:
    """The numbers of a release that is out, at their place or copied to a new one."""
    path = file.path.absolute()
    for place in dict.fromkeys((path, paid.path)):
        if not ReleasedFile(place, file.tag).is_found(paid.table_sha256):
            continue
        if place != path:
            file.refuse_existing()
            file.take_copy(place)
        return MeasureResult(path=file.path, record=read_measurement(file.path), is_stored=True)
    raise RunStateError(
        f"this log was measured with this plan, as spend {paid.spend.id} says, into {paid.path}, "
        "which is gone or changed. Restore it, or pay for a second measurement with --again."
    )
