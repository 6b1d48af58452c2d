"""Exact totals of all queries, from the log or from another engine, on their way to noise."""

import dataclasses
import hashlib
import secrets
from collections.abc import Callable

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import Side
from tulle.measure.attribution.attribution import Attribution
from tulle.measure.attribution.data_driven import ChannelModel, fit_channel_weights
from tulle.measure.engines.channel_paths import channel_sets
from tulle.measure.engines.engine import Engine
from tulle.measure.engines.exported_totals import ExportedTotals, check_result_names
from tulle.measure.engines.frequency import frequencies
from tulle.measure.engines.log_checks import LogFacts, check_log
from tulle.measure.engines.totals import slice_totals
from tulle.measure.queries.answer_table import AnswerTable
from tulle.measure.queries.channel_table import channel_table
from tulle.measure.queries.log_digest import log_digest, log_state
from tulle.measure.queries.measure_config import MeasureConfig
from tulle.measure.queries.measure_plan import MeasurePlan
from tulle.measure.queries.measure_record import MeasureRecord
from tulle.measure.queries.reach_query import ReachQuery
from tulle.measure.slice_jobs import Frequencies, SliceColumn, SliceTotals
from tulle.mechanisms.entropy import NoiseSource
from tulle.runs.release_books import ReleaseCharge

_SALT_BYTES = 16


def data_digest(plan: MeasurePlan, source: Engine | ExportedTotals) -> bytes:
    """A hash of what is measured. As sensitive as raw data.

    Raises:
      DataError: A file cannot be read.
      ConfigError: Nothing says which state of a table it is.
    """
    if not isinstance(source, ExportedTotals):
        return log_digest(plan.config.log)
    files = source.sha256([*plan.slice_jobs, *plan.frequency_jobs])
    return hashlib.sha256(repr((plan.config.log.columns, files)).encode()).digest()


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


class RawTotals:
    """Exact totals of all queries, which become one released record. Sensitive.

    Privacy:
      Unit: that of the plan, add-or-remove. Nothing is released before `released`, whose event
      is that of the plan. Relies on: it was paid by then, and `released` is called once.
    """

    def __init__(
        self,
        plan: MeasurePlan,
        source: Engine | ExportedTotals,
        *,
        charge: ReleaseCharge | None,
        salt: bytes,
        say: Callable[[str], None],
    ) -> None:
        self._plan, self._source, self._say = plan, source, say
        self._salt = salt
        self._slices: list[SliceTotals] = []
        self._frequencies: list[Frequencies] = []
        config = plan.config
        if isinstance(source, ExportedTotals):
            self._take_exported(source, charge)
            return
        self._state = log_state(config.log)
        say("checking the log")
        facts = check_log(
            source,
            config.log,
            jobs=[*plan.slice_jobs, *plan.frequency_jobs],
            attributions=[] if config.attribution is None else [config.attribution],
        )
        _check_span(facts, charge)
        if config.game is None:
            # Found wrong now, nothing is spent; weights that are learnt must be paid before.
            self._add_up(source, config.attribution)

    def released(self, rng: NoiseSource) -> MeasureRecord:
        """Draws the noise of every table.

        Privacy:
          Unit and event: those of the plan, which is paid before. Relies on: drawn once, and
          totals whose contributions are bounded as the plan says.
        """
        tables: list[AnswerTable] = []
        confidence = self._plan.config.confidence
        if self._plan.config.data_driven is not None:
            model, attribution = self._learnt(rng)
            tables.append(channel_table(model, confidence=confidence))
            if not isinstance(self._source, ExportedTotals):
                self._add_up(self._source, attribution)
        self._say("adding noise")
        slices, frequency_tables = iter(self._slices), iter(self._frequencies)
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
        )

    def _learnt(self, rng: NoiseSource) -> tuple[ChannelModel, Attribution]:
        """Weights of channels, and the attribution that uses them."""
        config = self._plan.config
        attribution, data_driven = config.attribution, config.data_driven
        if attribution is None or data_driven is None or isinstance(self._source, ExportedTotals):
            raise ConfigError("there are no channels to learn weights of.")
        self._say("learning the weights of channels")
        channel = SliceColumn(name="channel", side=Side.IMPRESSION, column=data_driven.game.column)
        raw_sets = channel_sets(
            self._source, config.log, attribution, channel, unit=config.unit, salt=self._salt
        )
        model = fit_channel_weights(raw_sets, data_driven, rng=rng)
        return model, dataclasses.replace(attribution, rule=model.rule)

    def _add_up(self, engine: Engine, attribution: Attribution | None) -> None:
        config = self._plan.config
        self._say("adding up within bounds")
        if self._plan.slice_jobs:
            self._slices = slice_totals(
                engine,
                config.log,
                attribution,
                self._plan.slice_jobs,
                unit=config.unit,
                salt=self._salt,
            )
        if self._plan.frequency_jobs:
            self._frequencies = frequencies(
                engine, config.log, self._plan.frequency_jobs, unit=config.unit, salt=self._salt
            )
        if log_state(config.log) != self._state:
            raise DataError("a file of the log changed while it was read; measure it again.")

    def _take_exported(self, source: ExportedTotals, charge: ReleaseCharge | None) -> None:
        refuse_learnt_weights(self._plan.config)
        if charge is not None and charge.at is not None:
            raise ConfigError(
                "at (--at) cannot be held against totals without their log; charge a budget that "
                "does not renew."
            )
        check_result_names([*self._plan.slice_jobs, *self._plan.frequency_jobs])
        self._say("reading totals")
        self._slices = [source.slice_totals(job) for job in self._plan.slice_jobs]
        self._frequencies = [source.frequencies(job) for job in self._plan.frequency_jobs]


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
