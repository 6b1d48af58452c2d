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
from tulle.measure.ad_log import Side
from tulle.measure.attribution.attribution import Attribution
from tulle.measure.attribution.data_driven import ChannelModel, fit_channel_weights
from tulle.measure.engines.channel_paths import channel_sets
from tulle.measure.engines.engine import Engine
from tulle.measure.engines.frequency import frequencies
from tulle.measure.engines.log_checks import LogFacts, check_log
from tulle.measure.engines.totals import slice_totals
from tulle.measure.queries.answer_table import AnswerTable
from tulle.measure.queries.channel_table import channel_table
from tulle.measure.queries.log_digest import log_digest
from tulle.measure.queries.measure_config import MeasureConfig
from tulle.measure.queries.measure_plan import Circumstances, MeasurePlan, make_measure_plan
from tulle.measure.queries.measure_record import MeasureRecord, read_measurement
from tulle.measure.queries.reach_query import ReachQuery
from tulle.measure.queries.released_file import ReleasedFile
from tulle.measure.slice_jobs import Frequencies, SliceColumn, SliceTotals
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
_SALT_BYTES = 32

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
    engine: Engine,
    *,
    rng: NoiseSource,
    options: MeasureOptions | None = None,
) -> MeasureResult:
    """Answers all queries of a measurement into `out`/measurement.json.

    Args:
      config: The log, the queries and their budget.
      out: A folder that exists.
      engine: What adds up.
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
        ),
    )
    path = out / MEASUREMENT_FILE
    if not out.is_dir():
        raise ConfigError(f"out={str(out)!r} is no folder that exists; make it first.")
    if options.charge is None:
        file = ReleasedFile(path, secrets.token_hex(8))
        file.refuse_existing()
        totals = _Totals(plan, engine, options)
        record = totals.released(rng, None)
        file.hide(record.to_json())
        file.put_in_place()
        return MeasureResult(path=path, record=record, is_stored=False)
    with open_books(options.charge, MEASUREMENTS) as books:
        release_id = books.release_id(plan.plan, log_digest(config.log))
        return _measure_on_books(_Paying(plan, path, books, release_id), engine, rng, options)


@dataclasses.dataclass(frozen=True)
class _Paying:
    plan: MeasurePlan
    path: Path
    books: ReleaseBooks
    release_id: str


def _measure_on_books(
    paying: _Paying, engine: Engine, rng: NoiseSource, options: MeasureOptions
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
    totals = _Totals(paying.plan, engine, options)
    if paid is None:
        spend = books.pay(paying.plan.plan, paying.release_id, paying.path)
    else:
        spend = books.take_up(paid)
    record = totals.released(rng, paying.release_id)
    sha256 = file.hide(record.to_json())
    spend.mark_released(released_as=released_as(sha256, paying.path))
    file.put_in_place()
    return MeasureResult(path=paying.path, record=record, is_stored=False)


class _Totals:
    """Exact totals of all queries, which become one released record."""

    def __init__(self, plan: MeasurePlan, engine: Engine, options: MeasureOptions) -> None:
        self._plan, self._engine, self._options = plan, engine, options
        self._salt = secrets.token_bytes(_SALT_BYTES)
        config = plan.config
        options.say("checking the log")
        facts = check_log(
            engine,
            config.log,
            jobs=[*plan.slice_jobs, *plan.frequency_jobs],
            attributions=[] if config.attribution is None else [config.attribution],
        )
        _check_span(facts, options.charge)
        self._slices: list[SliceTotals] = []
        self._frequencies: list[Frequencies] = []
        if config.game is None:
            # Found wrong now, nothing is spent; weights that are learnt must be paid before.
            self._add_up(config.attribution)

    def released(self, rng: NoiseSource, release_id: str | None) -> MeasureRecord:
        """Draws the noise of every table."""
        tables: list[AnswerTable] = []
        if self._plan.config.data_driven is not None:
            model = self._learnt(rng)
            tables.append(channel_table(model, confidence=self._plan.config.confidence))
            self._add_up(self._attribution(model))
        self._options.say("adding noise")
        slices, frequency_tables = iter(self._slices), iter(self._frequencies)
        confidence = self._plan.config.confidence
        for query in self._plan.queries:
            if isinstance(query, ReachQuery):
                found = next(frequency_tables)
                tables.append(query.answer(found, confidence=confidence, rng=rng))
            else:
                totals = [next(slices) for _ in query.jobs]
                tables.append(query.answer(totals, confidence=confidence, rng=rng))
        return MeasureRecord(
            plan=self._plan.plan,
            tables=tuple(tables),
            randomness=rng.description,
            is_secure=rng.is_secure,
            release_id=release_id,
        )

    def _learnt(self, rng: NoiseSource) -> ChannelModel:
        config = self._plan.config
        attribution, data_driven = config.attribution, config.data_driven
        if attribution is None or data_driven is None:
            raise ConfigError("there are no channels to learn weights of.")
        self._options.say("learning the weights of channels")
        channel = SliceColumn(name="channel", side=Side.IMPRESSION, column=data_driven.game.column)
        raw_sets = channel_sets(
            self._engine, config.log, attribution, channel, unit=config.unit, salt=self._salt
        )
        return fit_channel_weights(raw_sets, data_driven, rng=rng)

    def _attribution(self, model: ChannelModel) -> Attribution | None:
        attribution = self._plan.config.attribution
        return None if attribution is None else dataclasses.replace(attribution, rule=model.rule)

    def _add_up(self, attribution: Attribution | None) -> None:
        config = self._plan.config
        self._options.say("adding up within bounds")
        if self._plan.slice_jobs:
            self._slices = slice_totals(
                self._engine,
                config.log,
                attribution,
                self._plan.slice_jobs,
                unit=config.unit,
                salt=self._salt,
            )
        if self._plan.frequency_jobs:
            self._frequencies = frequencies(
                self._engine,
                config.log,
                self._plan.frequency_jobs,
                unit=config.unit,
                salt=self._salt,
            )


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


def _check_span(facts: LogFacts, charge: ReleaseCharge | None) -> None:
    """Refuses to charge another time than the data are from."""
    if charge is None or charge.at is None:
        return
    until = charge.at if charge.until is None else charge.until
    if facts.first_second < charge.at.timestamp() or facts.last_second > until.timestamp():
        raise ConfigError(
            f"the log has times outside of at (--at) {charge.at} to until (--until) {until}; give "
            "the whole time of the data, so that every window is charged, or use a budget that "
            "does not renew."
        )
