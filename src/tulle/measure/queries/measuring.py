"""Measures a log, once for one payment.

The log is checked and its bounded totals are made first, so that data which cannot be measured cost
nothing. Then the release protocol (`runs.release_once`) charges the ledger, and only then noise is
drawn.
"""

import contextlib
import dataclasses
import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import polars as pl

from tulle.accounting.refusal import SpendRefusedError
from tulle.errors import BudgetExceededError, ConfigError, DataError
from tulle.measure.ad_log import Side, log_digest, log_state
from tulle.measure.attribution.data_driven import ChannelModel, fit_channel_weights
from tulle.measure.attribution.rules import Attribution
from tulle.measure.engines.emitted_sql import ExportedTotals, check_result_names
from tulle.measure.engines.engine import Engine
from tulle.measure.engines.log_checks import check_log
from tulle.measure.engines.matching import channel_sets
from tulle.measure.engines.totals import slice_totals
from tulle.measure.queries.measure_plan import Circumstances, MeasurePlan, make_measure_plan
from tulle.measure.queries.measure_record import MeasureRecord, channel_table
from tulle.measure.queries.query import MeasureConfig
from tulle.measure.slice_jobs import SliceColumn, SliceJob, SliceTotals
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.guarantee import round_down
from tulle.privacy.plan import Plan
from tulle.runs.charging import ReleaseCharge, ReleaseKind, ReleaseTerms
from tulle.runs.record import Result
from tulle.runs.release_files import ReleaseFiles
from tulle.runs.release_once import OneRelease, ReleaseOptions, release_once

MEASUREMENT_FILE = "measurement.json"
"""Name of the file with the record, in the folder of a measurement."""
MEASUREMENTS = ReleaseKind(name="measurement", key_ending="measure-key")
"""How the ledger knows measurements."""
_SALT_BYTES = 16
"""Bytes of the salt: 128 bits, which nobody guesses."""
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
    """Source of the earlier counts, for the card."""
    watch: Watch | None = None

    def say(self, what: str) -> None:
        """Reports progress."""
        if self.watch is not None:
            self.watch(what)


def measure(
    config: MeasureConfig,
    folder: Path,
    source: Engine | ExportedTotals,
    *,
    rng: NoiseSource,
    options: MeasureOptions | None = None,
) -> Result[MeasureRecord, Plan]:
    """Answers all queries of a measurement into measurement.json.

    Args:
      config: The log, the queries and their budget.
      folder: A folder that exists.
      source: What adds up, or totals that another engine added up by the emitted script.
      rng: Source of the noise. Sensitive: never log or save its state.
      options: Ledger, history and progress.

    Privacy:
      Unit: that of the config, add-remove, whole rows. Event: that of the plan, charged
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
            terms=ReleaseTerms(has_ledger=options.charge is not None, noise_source=rng.description),
            has_public_history=options.has_public_history,
            history=options.history_source,
            has_exported_totals=isinstance(source, ExportedTotals),
        ),
    )
    if not folder.is_dir():
        raise ConfigError(f"output={str(folder)!r} is no folder that exists; make it first.")
    release = OneRelease(
        plan=plan.plan,
        kind=MEASUREMENTS,
        out=folder / MEASUREMENT_FILE,
        record_type=MeasureRecord,
        options=ReleaseOptions(charge=options.charge, again=options.again),
    )
    return release_once(release, NumberDraw(plan, source, rng, options))


class NumberDraw:
    """Adds up everything before it is paid, and draws once. Sensitive: it holds exact totals.

    Privacy:
      Unit: that of the plan, add-remove. Nothing is released before `write`, whose event is that
      of the plan. Relies on: it was paid by then, and `write` is called once.
    """

    def __init__(
        self,
        plan: MeasurePlan,
        source: Engine | ExportedTotals,
        rng: NoiseSource,
        options: MeasureOptions,
    ) -> None:
        self._plan, self._source, self._rng, self._options = plan, source, rng, options
        # Drawn anew for each measurement: a known salt would let somebody place the rows that are
        # kept of a unit, and so choose what the noise has to hide.
        self._salt = fresh_salt(rng)
        self._totals: dict[SliceJob, SliceTotals] = {}

    def check(self) -> None:
        """Adds up within bounds, and refuses a log that cannot be measured."""
        config, charge = self._plan.config, self._options.charge
        if isinstance(self._source, ExportedTotals):
            self._take_exported(self._source)
            return
        has_times = config.log.columns.impression_time is not None
        if charge is not None and charge.at is not None and not has_times:
            raise ConfigError(
                "at (--at) charges budgets that renew and is held against the times of the log; "
                "name the column with the time of a row, or use a budget that does not renew."
            )
        # Taken before the first look, so that whatever changes later shows.
        self._state = log_state(config.log)
        self._options.say("checking the log")
        attributions = [] if config.attribution is None else [config.attribution]
        span = check_log(self._source, config.log, jobs=self._plan.jobs, attributions=attributions)
        if charge is not None:
            charge.check_span(*span, of="the log")
        if config.game is None:
            # Found wrong now, nothing is spent; weights that are learnt must be paid before.
            self._add_up(self._source, config.attribution)

    def digest(self) -> bytes:
        """What tells the log, or the exported totals, from others. As sensitive as raw data.

        Raises:
          DataError: A file cannot be read.
          ConfigError: Nothing says which state of a table it is.
        """
        log = self._plan.config.log
        if not isinstance(self._source, ExportedTotals):
            return log_digest(log)
        files = self._source.sha256(self._plan.jobs)
        return hashlib.sha256(repr((log.columns, files)).encode()).digest()

    def write(self, files: ReleaseFiles[MeasureRecord]) -> MeasureRecord:
        """Draws the noise of all tables into the hidden file."""
        record = self.released()
        files.hide_record(record)
        return record

    def released(self) -> MeasureRecord:
        """Draws the noise of every table.

        Privacy:
          Unit and event: those of the plan, which is paid before. Relies on: drawn once, and
          totals whose contributions are bounded as the plan says.
        """
        rng, tables = self._rng, []
        confidence = self._plan.config.confidence
        # Weights come first: the totals below are added up by their noisy values, never by exact
        # ones, so that each part of the release costs what its own event says.
        if self._plan.config.game is not None:
            tables.append(channel_table(self._learnt(), confidence=confidence))
        self._options.say("adding noise")
        for query in self._plan.queries:
            totals = [self._totals[job] for job in query.jobs]
            tables.append(query.answer(totals, confidence=confidence, rng=rng))
        return MeasureRecord(
            plan=self._plan.plan,
            tables=tuple(tables),
            randomness=rng.description,
            is_secure=rng.is_secure,
        )

    def _learnt(self) -> ChannelModel:
        """Learns the weights of channels, and adds up by them."""
        config = self._plan.config
        attribution, data_driven = config.attribution, config.data_driven
        if attribution is None or data_driven is None or isinstance(self._source, ExportedTotals):
            raise ConfigError("there are no channels to learn weights of.")
        self._options.say("learning the weights of channels")
        channel = SliceColumn(name="channel", side=Side.IMPRESSION, column=data_driven.game.column)
        raw_sets = channel_sets(
            self._source, config.log, attribution, channel, unit=config.unit, salt=self._salt
        )
        model = fit_channel_weights(raw_sets, data_driven, rng=self._rng)
        self._add_up(self._source, dataclasses.replace(attribution, rule=model.rule))
        return model

    def _add_up(self, engine: Engine, attribution: Attribution | None) -> None:
        log, unit, salt = self._plan.config.log, self._plan.config.unit, self._salt
        self._options.say("adding up within bounds")
        # Apart, so that columns which only reach needs take no part in the order of touches.
        for is_histogram, credited_by in ((False, attribution), (True, None)):
            jobs = [job for job in self._plan.jobs if job.is_histogram is is_histogram]
            found = slice_totals(engine, log, credited_by, jobs, unit=unit, salt=salt)
            self._totals |= dict(zip(jobs, found, strict=True))
        # Totals of two states would not be bounded as one log's are: a unit could count twice.
        if log_state(log) != self._state:
            raise DataError("a file of the log changed while it was read; measure it again.")

    def _take_exported(self, source: ExportedTotals) -> None:
        refuse_learnt_weights(self._plan.config)
        charge = self._options.charge
        if charge is not None and charge.at is not None:
            raise ConfigError(
                "at (--at) cannot be held against totals without their log; charge a budget that "
                "does not renew."
            )
        check_result_names(self._plan.jobs)
        self._options.say("reading totals")
        self._totals = {job: source.slice_totals(job) for job in self._plan.jobs}


def fresh_salt(rng: NoiseSource) -> bytes:
    """What random choices of rows are keyed with; repeatable where the noise is. Sensitive."""
    if rng.is_secure:
        return secrets.token_bytes(_SALT_BYTES)
    return rng.words(_SALT_BYTES // 8).tobytes()


def refuse_learnt_weights(config: MeasureConfig) -> None:
    """Refuses what the emitted script cannot do.

    Raises:
      ConfigError: Weights of channels are to be learnt.
    """
    if config.game is not None:
        raise ConfigError(
            "weights of channels are learnt between two passes over the log; run it on an "
            "engine of tulle, or give the weights."
        )


@contextlib.contextmanager
def advising(config: MeasureConfig, setting: str) -> Iterator[None]:
    """Says with which epsilon a measurement that a budget refuses would fit.

    Args:
      config: The measurement.
      setting: What its user calls epsilon, e.g. "[privacy] epsilon".

    Raises:
      BudgetExceededError: A budget refused it. Nothing was spent.
    """
    try:
        yield
    except SpendRefusedError as error:
        raise BudgetExceededError(f"{error} {_advice(config, error, setting)}") from None


def _advice(config: MeasureConfig, error: SpendRefusedError, setting: str) -> str:
    """What to do, e.g. "Set epsilon to 0.5 or less in place of 1."."""
    factor = error.least_noise_factor
    if factor is None:
        return f"Lower {setting}={config.epsilon:g}, ask for fewer slices, or raise the budget."
    # Laplace noise is in inverse proportion to epsilon; other plans are near that.
    # Down: an epsilon that is rounded up would be refused again.
    epsilon = round_down(config.epsilon / factor, 3)
    about = "" if config.delta == 0 else "about "
    return f"Set {setting} to {about}{epsilon:g} or less in place of {config.epsilon:g}."
