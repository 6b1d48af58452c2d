"""Training of Mosaic: table after table of cells, each fitted by noisy sums over all rows.

The words of this package:

- A cell is one combination of values of one to three columns; a table has all cells of its columns.
  Every row is in exactly one cell of each table.
- The model is a bias and, for each table that told something, a change of log odds for each cell.
- A share is a fraction of the one Gaussian noise budget of the run. The less of it a sum gets, the
  more noise it has (`noise_shares`). Shares of all releases add up to at most 1.
- A stage is a kind of table, from single public columns to triples. Each stage has a round for new
  tables and a round for all tables that are known to tell more.
- A round measures several tables on one share, which each row divides among them.

The first release is the overall rate of labels, and the last one corrects the overall level. As
long as no sensitive column was used, cells, weights and predictions are public, sums of labels are
all that needs noise, and the sensitivity is 1. From the stage `sensitive_values` on, whole rows are
hidden, both sums of a cell need noise, and the sensitivity is sqrt(2). There is no way back:
predictions depend on sensitive columns from then on.

Everything but the raw sums follows from what was released before, which the privacy proof allows
(docs/theory/mosaic.md).
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.train.examples import ExampleSet, unit_ids
from tulle.train.methods.mosaic.candidate_table import CandidateTable, TableIdentity, TableStages
from tulle.train.methods.mosaic.cell_model import CellHead, CellModel, CellTable
from tulle.train.methods.mosaic.cell_releases import CellReleases
from tulle.train.methods.mosaic.cell_sums import LOG_ODDS_BITS, Cells, log_odds_steps
from tulle.train.methods.mosaic.column_values import ColumnValues, public_values, sensitive_values
from tulle.train.methods.mosaic.method import STAGES, CellSettings, MosaicConfig
from tulle.train.methods.mosaic.noise_shares import NoiseShares
from tulle.train.methods.mosaic.share_allocation import RowRound, allocate_shares
from tulle.train.methods.mosaic.shrinkage import (
    FittedTable,
    further_changes,
    level_change,
    likely_rows,
    posterior_changes,
    unweighted_variance,
)
from tulle.train.methods.mosaic.weight_errors import mean_over_rows
from tulle.train.run_context import Progress, RunContext, SpeedMeter

if TYPE_CHECKING:
    from tulle.train.methods.train_plan import TrainPlan

FloatArray = NDArray[np.float64]

PHASE = "cells"
"""Name of this phase in progress reports and records."""
_RATES = (1e-3, 0.6)
"""Range that the noisy overall rate of labels is clipped to. With few rows the noise alone could
make it negative or above 1, and the log odds would not be finite."""
_TINY = 1e-12
"""Positive number that stands in for 0 in denominators."""
_WHOLE = 1 - 1e-8
"""Fraction of the remaining budget that a stage may spend. The rest absorbs the rounding of float
shares, so that none is refused for being more than is left."""


def train_on_cells(examples: ExampleSet, plan: "TrainPlan", context: RunContext) -> CellModel:
    """Trains a model of cells as a plan says.

    Args:
      examples: All training rows.
      plan: Settings and noise of Mosaic.
      context: Source of randomness, receiver of progress reports, and requests to stop.

    Privacy:
      Unit, event and guarantee: those of the plan. The model is made of noisy sums alone.
      Every sum has a share of one Gaussian budget. Nothing leaves before the end.
    """
    method, noise = plan.method, plan.noise_multiplier
    if not isinstance(method, MosaicConfig) or noise is None:
        raise ConfigError(f"plan {plan.privacy.name!r} is not of training on cells.")
    settings = method.cells
    releases = CellReleases(
        examples,
        NoiseShares(noise, rng=context.rng),
        units=unit_ids(examples, method.unit),
        full_rows=method.full_rows(plan.shape),
        least_level_share=settings.level_share,
    )
    training = _CellTraining(examples.features, settings, releases)
    stages = training.stages()
    meter = SpeedMeter()
    for step, stage in enumerate(stages, start=1):
        for table, row_round in training.looks(stage, stages[step - 1 :]):
            if context.stop.requested:
                context.interrupt(PHASE, step - 1)
            training.look_at(table, row_round)
        context.report(
            Progress(
                phase=PHASE,
                step=step,
                num_steps=len(stages),
                examples_per_second=meter.add(examples.num_rows),
                loss=None,
                epsilon=plan.epsilon,
            )
        )
    return training.finished_model()


class _CellTraining:
    """The model so far, and what is left of the budget. Sensitive, as it holds the raw rows.

    Args:
      features: Features of the rows, public ones first.
      settings: Settings of Mosaic.
      releases: The rows and the noise budget. The overall rate of labels is released at once.
    """

    def __init__(
        self,
        features: Sequence[PreparedFeature],
        settings: CellSettings,
        releases: CellReleases,
    ) -> None:
        self._settings, self._features, self._releases = settings, features, releases
        self._fitted: dict[TableIdentity, tuple[CandidateTable, FittedTable]] = {}
        self._given: dict[TableIdentity, float] = {}
        """Share that each table was given over all rounds so far."""
        self._tables = TableStages(settings, num_rows=releases.num_rows)
        self._public = [
            public_values(f.name, column, releases.public_counts(column, f.num_ids), f)
            for column, f in enumerate(self._of_role("public"))
        ]
        self._sensitive: list[ColumnValues] = []
        self._rate = float(np.clip(releases.noisy_rate(), *_RATES))
        self._bias = int(log_odds_steps(math.log(self._rate / (1 - self._rate))))
        releases.add(self._bias)

    def stages(self) -> list[str]:
        """Names of the stages that these features allow."""
        roles = {feature.role for feature in self._features}
        return [name for name in STAGES if name.partition("_")[0] in (*roles, "triples")]

    def looks(
        self, stage: str, to_come: Sequence[str]
    ) -> Iterator[tuple[CandidateTable, RowRound]]:
        """Tables to measure in a stage, each with the round that it belongs to.

        New tables come first. Then, with what is left of the stage's share, come all tables that
        are known to tell something. What a stage leaves over is for those to come.

        Args:
          stage: Name of the stage.
          to_come: Names of this stage and of all later ones, which divide what is left.
        """
        # A generator: the second round is planned after the tables of the first were measured.
        if stage == "sensitive_values":
            self._count_sensitive()
        wanted = {name: getattr(self._settings.stages, name) for name in to_come}
        part = wanted[stage] / max(sum(wanted.values()), _TINY)
        whole = part * (self._releases.left - self._reserved) * _WHOLE
        kept = self._releases.left - whole
        tables = self._new_tables(stage)
        share = whole * getattr(self._settings.screening, stage)
        yield from self._round(tables, share, self._most_for_first_look(tables))
        # If no table is known to tell more, noise may have hidden it: measure the new ones again.
        tables = self._tables.known() or tables
        yield from self._round(tables, (self._releases.left - kept) * _WHOLE, 1.0)

    def look_at(self, table: CandidateTable, row_round: RowRound) -> None:
        """Releases the sums of a table and adds what they say to the model.

        Args:
          table: The table to measure.
          row_round: The round that the table belongs to, whose share it is measured on.
        """
        _, fitted = self._fitted.setdefault(
            table.identity, (table, FittedTable.empty(table.num_cells))
        )
        cells = self._releases.cells(table.parts)
        if not self._releases.reads_sensitive:
            self._fit_labels(table, fitted, cells, row_round)
        elif table.has_more_to_tell:
            self._fit_further(table, fitted, cells, row_round)
        else:
            self._fit_rows(table, fitted, cells, row_round)

    def finished_model(self) -> CellModel:
        """The model, after its overall level was corrected once more.

        The changes of tables are noisy estimates, so that the mean prediction may have drifted.
        """
        residuals, predicted, stddev = self._releases.noisy_level()
        tables = tuple(
            CellTable(
                parts=table.parts,
                weights=(log_odds := fitted.log_odds),
                stddevs=fitted.errors.stddevs(
                    log_odds, self._rate, is_noisy=self._releases.reads_sensitive
                ),
                share=min(1.0, self._given.get(table.identity, 0.0)),
                importance=mean_over_rows(np.abs(log_odds), table.cells.rows),
            )
            for table, fitted in self._fitted.values()
            if fitted.weights.any()
        )
        change = level_change(residuals, stddev, max(predicted, 1.0) * (1 - self._rate))
        bias = math.ldexp(self._bias + int(log_odds_steps(change)), -LOG_ODDS_BITS)
        return CellModel(heads=(CellHead(bias=bias, tables=tables),))

    def _fit_labels(
        self, table: CandidateTable, fitted: FittedTable, cells: Cells, row_round: RowRound
    ) -> None:
        """Fits a table by all its sums of labels so far, as if they were released at once."""
        # Predictions are public in this phase, so that earlier noisy sums of labels can be compared
        # with the present predictions. The table's own changes are taken out first and learnt anew.
        if fitted.weights.any():
            self._releases.add(-fitted.weights[cells])
        noisy = self._releases.noisy_labels(table, fitted, cells, row_round, rate=self._rate)
        changes = posterior_changes(noisy, self._settings.least_evidence, table.axes)
        fitted.weights = log_odds_steps(changes.log_odds)
        fitted.note_fit(noisy, changes.variances, is_first=True)
        if changes.spread > 0:
            self._releases.add(fitted.weights[cells])
        variance = np.square(noisy.residual_stddev)
        rows = noisy.predicted / self._rate
        table.note_spread(
            changes.spread, variance, self._rate, rows=rows, variances=changes.variances
        )
        table.realised_gain = _gain(noisy.predicted, changes.log_odds)

    def _fit_rows(
        self, table: CandidateTable, fitted: FittedTable, cells: Cells, row_round: RowRound
    ) -> None:
        """Fits a table of which nothing is known, by noisy residuals and predictions."""
        noisy = self._releases.noisy_rows(table, cells, row_round, rate=self._rate)
        changes = posterior_changes(noisy, self._settings.least_evidence, table.axes)
        if changes.spread > 0:
            fitted.note_fit(noisy, changes.variances, is_first=True)
        rows = likely_rows(noisy, table.cells.rows)
        variance = unweighted_variance(noisy)
        table.note_spread(
            changes.spread, variance, self._rate, rows=rows, variances=changes.variances
        )
        self._add(table, fitted, cells, changes.log_odds)

    def _fit_further(
        self, table: CandidateTable, fitted: FittedTable, cells: Cells, row_round: RowRound
    ) -> None:
        """Improves a table that is known to tell something, by what more sums show."""
        # Old residuals cannot be compared with new predictions here, which are sensitive. What the
        # earlier sums have shown is in the weights and variances, from which this fit starts.
        noisy = self._releases.noisy_rows(table, cells, row_round, rate=self._rate)
        log_odds, scale = further_changes(noisy, fitted.variances)
        # Sums that look as if nothing was left do not say that the weights are exact: what was
        # unknown before them stays in the model as its deviations.
        if scale > 0:
            fitted.note_fit(noisy, scale * fitted.variances, is_first=False)
        table.note_again(scale, unweighted_variance(noisy), self._rate)
        self._add(table, fitted, cells, log_odds)

    def _add(
        self,
        table: CandidateTable,
        fitted: FittedTable,
        cells: Cells,
        log_odds: FloatArray,
    ) -> None:
        """Adds changes of log odds, one for each cell, to the table and to its rows."""
        if log_odds.any():
            steps = log_odds_steps(log_odds)
            fitted.weights = fitted.weights + steps
            self._releases.add(steps[cells])
            table.realised_gain += _gain(self._rate * table.cells.rows, log_odds)

    def _round(
        self, tables: Sequence[CandidateTable], share: float, most: float
    ) -> Iterator[tuple[CandidateTable, RowRound]]:
        """Tables that get a part of a share, those with fewest cells first, and their round.

        Args:
          tables: Tables that may be measured.
          share: Share of the noise budget for the whole round.
          most: Largest share for one table.
        """
        chosen = self._allocated(tables, share, most)
        if not chosen:
            return
        names, given = zip(*chosen, strict=True)
        for table, some in chosen:
            self._given[table.identity] = self._given.get(table.identity, 0.0) + some
        row_round = self._releases.row_round(
            names, given, rate=self._rate, num_steps=self._settings.row_steps
        )
        for table in names:
            yield table, row_round

    def _allocated(
        self, tables: Sequence[CandidateTable], share: float, most: float
    ) -> list[tuple[CandidateTable, float]]:
        """Tables that get a share, with that share, those with fewest cells first."""
        if not tables or share <= 0:
            return []
        given = allocate_shares(
            tables,
            share=share,
            most=most,
            noise_variance=self._releases.noise_variance,
            rate=self._rate,
        )
        chosen = [(table, some) for table, some in zip(tables, given, strict=True) if some > 0]
        return sorted(chosen, key=lambda pair: pair[0].num_cells)

    def _new_tables(self, stage: str) -> list[CandidateTable]:
        """Tables that a stage adds to those that were considered before."""
        if stage == "public_values":
            return self._tables.singles(self._public)
        if stage == "public_pairs":
            return self._tables.public_pairs(self._public)
        if stage == "sensitive_values":
            return self._tables.singles(self._sensitive)
        if stage == "sensitive_pairs":
            return self._tables.sensitive_pairs(self._sensitive, self._public)
        return self._tables.triples()

    def _most_for_first_look(self, tables: Sequence[CandidateTable]) -> float:
        """Largest share of one table when it is measured for the first time."""
        num_columns = len(tables[0].columns) if tables else 1
        return self._settings.most_screening_shares[num_columns - 1]

    @property
    def _reserved(self) -> float:
        """Share that is kept back for counts of sensitive values and for the last level."""
        # Kept back from the first stage on, or public tables could leave nothing for sensitive
        # columns.
        counts = 0.0 if self._releases.reads_sensitive else self._count_share * self._num_sensitive
        return counts + self._releases.level_share

    @property
    def _num_sensitive(self) -> int:
        return sum(feature.role == "sensitive" for feature in self._features)

    @property
    def _count_share(self) -> float:
        """Share of the counts of the values of one sensitive column."""
        each = self._settings.count_share / max(self._num_sensitive, 1)
        return min(self._settings.most_count_share, each)

    def _count_sensitive(self) -> None:
        """Counts the values of sensitive columns with noise, and ends the phase of labels alone."""
        self._releases.begin_sensitive()
        share = self._count_share
        for column, feature in enumerate(self._of_role("sensitive")):
            noisy, stddev = self._releases.noisy_counts(column, feature.num_ids, share)
            self._sensitive += sensitive_values(feature.name, column, noisy, stddev, feature)

    def _of_role(self, role: str) -> list[PreparedFeature]:
        return [feature for feature in self._features if feature.role == role]


def _gain(predicted: FloatArray, log_odds: FloatArray) -> float:
    """Nats of log loss that changes of log odds are thought to gain, to second order."""
    return 0.5 * float(np.maximum(predicted, 0) @ log_odds**2)
