"""Training of Mosaic: tables of cells, fitted by noisy sums over all rows, round by round.

The words of this package:

- A cell is one combination of values of one to three columns; a table has all cells of its columns.
  Every row is in exactly one cell of each table.
- The model is a bias and, for each table that told something, a change of log odds for each cell.
- A share is a fraction of the one Gaussian noise budget of the run. The less of it a sum gets, the
  more noise it has (`noise_shares`). Shares of all releases add up to at most 1.
- A stage is a kind of table, from single public columns to triples. Each stage has a round for new
  tables and a round for all tables that are known to tell more.
- A round measures several tables on one share, which each row divides among them, and with the same
  predictions: one scan of the rows is enough. The tables are fitted one after the other afterwards,
  and `typical_rows` tell each what those before it have explained.

The first release is the overall rate of labels, and the last one corrects the overall level. As
long as no sensitive column was used, cells, weights and predictions are public, sums of labels are
all that needs noise, and the sensitivity is 1. From the stage `sensitive_values` on, whole rows are
hidden, both sums of a cell need noise, and the sensitivity is sqrt(2). There is no way back:
predictions depend on sensitive columns from then on.

Everything but the raw sums follows from what was released before, which the privacy proof allows
(docs/theory/mosaic.md). That may be an earlier model, too (`earlier_model`): its tables of public
columns are where the run starts, and those of sensitive columns join when whole rows are hidden.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.mechanisms.analytic_gaussian import gaussian_epsilon
from tulle.train.examples import ExampleSet, unit_ids
from tulle.train.methods.mosaic.candidate_table import CandidateTable, TableIdentity, TableStages
from tulle.train.methods.mosaic.cell_model import CellHead, CellModel, CellTable
from tulle.train.methods.mosaic.cell_releases import CellReleases
from tulle.train.methods.mosaic.cell_sums import LOG_ODDS_BITS, log_odds_steps
from tulle.train.methods.mosaic.column_values import ColumnValues, public_values, sensitive_values
from tulle.train.methods.mosaic.earlier_model import EarlierModel, check_earlier
from tulle.train.methods.mosaic.earlier_tables import RECOUNT, EarlierTables, earlier_heads
from tulle.train.methods.mosaic.few_rows import StageRules, are_few
from tulle.train.methods.mosaic.kept_releases import KeptReleases
from tulle.train.methods.mosaic.method import CellSettings, MosaicConfig, most_scans, stages_of
from tulle.train.methods.mosaic.model_parts import (
    WHOLE,
    count_share,
    model_of,
    parts_of_model,
)
from tulle.train.methods.mosaic.noise_shares import NoiseShares
from tulle.train.methods.mosaic.share_allocation import RowRound, chosen_tables
from tulle.train.methods.mosaic.shrinkage import FittedTable, level_change, thought_gain
from tulle.train.methods.mosaic.table_fits import TableFits
from tulle.train.methods.mosaic.typical_rows import TypicalRows, typical_rows
from tulle.train.methods.mosaic.unit_weights import unit_weights
from tulle.train.methods.mosaic.weight_errors import mean_over_rows
from tulle.train.run_context import Progress, RunContext, SpeedMeter

if TYPE_CHECKING:
    from tulle.train.methods.train_plan import TrainPlan

FloatArray = NDArray[np.float64]

PHASE = "cells"
"""Name of this phase in progress reports and records."""
_TINY = 1e-12
"""Positive number that stands in for 0 in denominators."""
_CLEARLY_MORE = 1.01
"""Factor by which what is left must exceed the share of a level for the last one to take it all: a
stage that spends its share leaves a tiny rest."""


def train_on_cells(
    examples: ExampleSet,
    plan: "TrainPlan",
    context: RunContext,
    earlier: EarlierModel | None = None,
    kept: KeptReleases | None = None,
) -> CellModel:
    """Trains a model of cells as a plan says.

    Args:
      examples: All training rows.
      plan: Settings and noise of Mosaic.
      context: Source of randomness, receiver of progress reports, and requests to stop.
      earlier: The released model that the plan continues from; None: it starts from nothing.
      kept: Where released sums are put on disk, and those of earlier tries found; None: nowhere.

    Privacy:
      Unit, event and guarantee: those of the plan. The model is made of noisy sums alone.
      Every sum has a share of one Gaussian budget. Nothing leaves before the end.
    """
    method, noise = plan.method, plan.noise_multiplier
    if not isinstance(method, MosaicConfig) or noise is None:
        raise ConfigError(f"plan {plan.privacy.name!r} is not of training on cells.")
    check_earlier(method.start, earlier, examples.features)
    started = earlier_heads(earlier, method.num_heads)
    shares = NoiseShares(noise, rng=context.rng, kept=kept)
    units = unit_ids(examples, method.unit)
    weights = unit_weights(
        examples,
        noise,
        units=units,
        full_rows=method.cells.full_rows_per_unit,
        least_level_share=method.cells.level_share,
        are_values=method.clip is not None,
    )
    heads: list[CellHead] = []
    rate: float | None = None
    sensitive: list[ColumnValues] | None = None
    for part in parts_of_model(examples, method, shares, weights.level_share):
        releases = CellReleases(
            part.rows,
            part.shares,
            weights,
            counts=shares,
            clip=part.clip,
            part=rate if part.are_sizes else None,
            num_classes=method.num_classes or 2,
        )
        training = _CellTraining(
            examples.features,
            method.cells,
            releases,
            kept=part.kept,
            sensitive=sensitive,
            earlier=started[len(heads)],
        )
        # Where tables are hopeless and a constant was asked for, its level gets all of the budget.
        is_constant = method.learns_rate_alone(plan.shape, noise)
        stages = [] if is_constant else training.stages()
        scans = _Scans(
            plan,
            context,
            shares,
            examples.num_rows,
            head=len(heads),
            num_heads=method.num_heads,
            stages=stages,
        )
        for place, stage in enumerate(stages):
            for look, (tables, row_round) in enumerate(training.rounds(stage, stages[place:])):
                scans.begin(2 * place + look, f"{stage.replace('_', ' ')}, {len(tables)} tables")
                for table in tables:
                    scans.check_stop()
                    training.look_at(table, row_round)
                training.end_round()
                scans.end()
        scans.begin(2 * len(stages), "level")
        training.finish()
        scans.end()
        heads.append(training.head())
        rate, sensitive = training.rate, training.sensitive
    return model_of(heads, method)


class _Scans:
    """Tells who watches how many scans of the rows are done, and stops between two tables.

    Args:
      plan: The plan of the run.
      context: Who watches, and who may ask to stop.
      shares: The noise budget.
      num_rows: Number of rows that a scan reads.
      head: Number of sets of tables that are done.
      num_heads: Number of all sets.
      stages: Names of the stages of each set; each has up to two scans, and one more corrects the
        level.
    """

    def __init__(
        self,
        plan: "TrainPlan",
        context: RunContext,
        shares: NoiseShares,
        num_rows: int,
        *,
        head: int,
        num_heads: int,
        stages: Sequence[str],
    ) -> None:
        self._plan, self._context, self._shares, self._num_rows = plan, context, shares, num_rows
        of_head = most_scans(len(stages))
        self._before, self._num_scans = head * of_head, num_heads * of_head
        self._scan, self._about, self._meter = 0, "", SpeedMeter()

    def begin(self, scan: int, about: str) -> None:
        """Notes which scan of the set of tables comes now, and what it is about."""
        self._scan, self._about = scan, about

    def check_stop(self) -> None:
        """Ends the run if that was asked for. What was released is kept."""
        if self._context.stop.requested:
            self._context.interrupt(PHASE, self._before + self._scan)

    def end(self) -> None:
        """Reports that the scan is done, and what was spent so far."""
        plan, spent = self._plan, 1 - self._shares.left
        noise = (plan.noise_multiplier or math.inf) / math.sqrt(max(spent, _TINY))
        self._context.report(
            Progress(
                phase=PHASE,
                step=self._before + self._scan + 1,
                num_steps=self._num_scans,
                examples_per_second=self._meter.add(self._num_rows),
                loss=None,
                epsilon=min(plan.epsilon, gaussian_epsilon(plan.delta, noise)),
                about=self._about,
            )
        )


class _CellTraining:
    """The model so far, and what is left of the budget. Sensitive, as it holds the raw rows.

    Args:
      features: Features of the rows, public ones first.
      settings: Settings of Mosaic.
      releases: The rows and the noise budget. The overall rate of labels is released at once.
      kept: Share of the noise budget that is left to later heads.
      sensitive: Values of sensitive columns, if an earlier head has counted them.
      earlier: The same head of the model that the run continues from; None: it starts from nothing.
    """

    def __init__(
        self,
        features: Sequence[PreparedFeature],
        settings: CellSettings,
        releases: CellReleases,
        *,
        kept: float = 0.0,
        sensitive: list[ColumnValues] | None = None,
        earlier: EarlierTables | None = None,
    ) -> None:
        self._kept, self._is_first, self._earlier = kept, sensitive is None, earlier
        self._settings, self._features, self._releases = settings, features, releases
        self._fitted: dict[TableIdentity, tuple[CandidateTable, FittedTable]] = {}
        self._given: dict[TableIdentity, float] = {}
        """Share that each table was given over all rounds so far."""
        self._tables = TableStages(settings, num_rows=releases.num_rows)
        self._public = [
            public_values(
                f.name,
                column,
                releases.public_counts(column, f.num_ids),
                f,
                None if earlier is None else earlier.ranks(f, column),
            )
            for column, f in enumerate(self._of_role("public"))
        ]
        self.sensitive: list[ColumnValues] = [] if sensitive is None else sensitive
        """Values of sensitive columns, once they were counted with noise."""
        self._law = releases.law
        self._fits = TableFits(settings=settings, law=self._law)
        self._changes: list[tuple[CandidateTable, NDArray[np.int32]]] = []
        self._typical: TypicalRows | None = None
        self._are_drawn = False
        log_odds = self._law.log_odds if earlier is None else earlier.bias
        self._bias = int(log_odds_steps(log_odds))
        releases.add(self._bias)
        self._is_started = earlier is not None
        # Classes have shares of labels and of rows that are planned before, for all stages.
        few = not releases.counts_apart and are_few(
            releases.num_rows, self._law.table_rate, math.sqrt(releases.noise_variance)
        )
        self._rules = StageRules(settings, features, are_few=few, is_started=self._is_started)
        if earlier is not None:
            self._carry_over("public", releases.first_level)

    @property
    def rate(self) -> float:
        """Noisy mean of the labels."""
        return self._law.rate

    def stages(self) -> list[str]:
        """Names of the stages that these features allow."""
        return stages_of(self._features)

    def rounds(
        self, stage: str, to_come: Sequence[str]
    ) -> Iterator[tuple[Sequence[CandidateTable], RowRound]]:
        """Rounds of a stage, each with the tables that are measured in it.

        New tables come first. Then, with what is left of the stage's share, come all tables that
        are known to tell something. What a stage leaves over is for those to come.

        Args:
          stage: Name of the stage.
          to_come: Names of this stage and of all later ones, which divide what is left.
        """
        # A generator: the second round is planned after the tables of the first were fitted.
        if stage == "sensitive_values":
            self._count_sensitive()
        wanted = {name: self._rules.part(name) for name in to_come}
        part = wanted[stage] / max(sum(wanted.values()), _TINY)
        whole = part * (self._releases.left - self._reserved) * WHOLE
        kept = self._releases.left - whole
        tables = [table for table in self._new_tables(stage) if not table.is_started]
        first, most = self._rules.first_look(stage)
        yield from self._round(tables, whole * first, most)
        # If no table is known to tell more, noise may have hidden it: measure the new ones again.
        tables = self._tables.known() or tables
        yield from self._round(tables, (self._releases.left - kept) * WHOLE, 1.0)

    def look_at(self, table: CandidateTable, row_round: RowRound) -> None:
        """Releases the sums of a table with the predictions from before the round, and fits it.

        The rows keep these predictions until the round ends. Typical rows tell how the tables that
        were fitted before have moved the predictions in the cells of this one.

        Args:
          table: The table to measure.
          row_round: The round that the table belongs to, whose share it is measured on.
        """
        labels_suffice, rows = self._releases.labels_suffice, self._typical_rows()
        _, fitted = self._fitted.setdefault(
            table.identity, (table, FittedTable.empty(table.num_cells))
        )
        cells, own = self._releases.cells(table.parts), None
        before = fitted.weights
        if labels_suffice:
            noisy = self._releases.noisy_labels(table, fitted, cells, row_round)
            # All sums of labels so far are fitted anew, by predictions without this table, or
            # with what an earlier model has left of it.
            own = before if fitted.start is None else before - fitted.start[0]
        else:
            noisy = self._releases.noisy_rows(table, cells, row_round)
        sums = rows.corrected(table, noisy, own)
        self._fits.fit(table, fitted, sums, labels_suffice=labels_suffice)
        if (change := fitted.weights - before).any():
            rows.add(table, change)
            self._changes.append((table, change))
        elif len(table.columns) > 1 and not (table.has_more_to_tell or fitted.weights.any()):
            # It has shown nothing and is never measured again; it may have 2^18 cells.
            del self._fitted[table.identity]
            self._releases.forget(table.identity)

    def end_round(self) -> None:
        """Adds to the predictions of the rows what the tables of the round have told."""
        for table, change in self._changes:
            self._releases.add(change, self._releases.cells(table.parts))
        self._changes.clear()

    def finish(self) -> None:
        """Corrects the overall level once more, on all that is left.

        The changes of tables are noisy estimates, so that the mean prediction may have drifted.
        """
        least = self._releases.level_share
        left = (self._releases.left - self._kept) * WHOLE
        # All classes have the same share of a level, as their proof needs.
        is_more = left > _CLEARLY_MORE * least and not self._releases.counts_apart
        first = None
        if not (self._is_started or any(one.weights.any() for _, one in self._fitted.values())):
            first = self._releases.first_level_stddev  # nothing can have drifted since then
        level = self._releases.noisy_level(left if is_more else least)
        self._bias += self._level_steps(*level, first)

    def head(self) -> CellHead:
        """Bias and tables as they were learnt."""
        tables = tuple(
            CellTable(
                parts=table.parts,
                weights=(log_odds := fitted.log_odds),
                stddevs=fitted.errors.stddevs(
                    log_odds, self._law.rate, is_noisy=not self._releases.labels_suffice
                ),
                share=min(1.0, self._given.get(table.identity, 0.0)),
                importance=mean_over_rows(np.abs(log_odds), table.cells.rows),
            )
            for table, fitted in self._fitted.values()
            if fitted.weights.any()
        )
        return CellHead(bias=math.ldexp(self._bias, -LOG_ODDS_BITS), tables=tables)

    def _typical_rows(self) -> TypicalRows:
        """The rows that stand in for all, with the sensitive columns that were counted."""
        if self._typical is None:
            columns = self._releases.public_columns(len(self._public))
            number, rate = self._releases.num_rows, self._law.rate
            self._typical = typical_rows(columns, number, rate=rate)
        if self._releases.reads_sensitive and not self._are_drawn:
            self._are_drawn = True
            self._typical.draw([one.likely for one in self.sensitive if one.likely is not None])
        return self._typical

    def _round(
        self, tables: Sequence[CandidateTable], share: float, most: float
    ) -> Iterator[tuple[Sequence[CandidateTable], RowRound]]:
        """Tables that get a part of a share, in the order of `chosen_tables`, and their round.

        Args:
          tables: Tables that may be measured.
          share: Share of the noise budget for the whole round.
          most: Largest share for one table.
        """
        noise, rate = self._releases.noise_variance, self._law.table_rate
        chosen = chosen_tables(tables, share=share, most=most, noise_variance=noise, rate=rate)
        if not chosen:
            return
        names, given = zip(*chosen, strict=True)
        for table, some in chosen:
            self._given[table.identity] = self._given.get(table.identity, 0.0) + some
        row_round = self._releases.row_round(names, given, num_steps=self._settings.row_steps)
        weights = [(table, fitted.weights) for table, fitted in self._fitted.values()]
        self._typical_rows().begin_round(self._bias, weights)
        yield names, row_round

    def _new_tables(self, stage: str) -> list[CandidateTable]:
        """Tables that a stage adds to those that were considered before."""
        if stage == "public_values":
            return self._tables.singles(self._public)
        if stage == "public_pairs":
            return self._tables.public_pairs(self._public)
        if stage == "sensitive_values":
            return self._tables.singles(self.sensitive)
        if stage == "sensitive_pairs":
            return self._tables.sensitive_pairs(self.sensitive, self._public)
        return self._tables.triples()

    @property
    def _reserved(self) -> float:
        """Share that is kept back for counts of sensitive values and for the last level."""
        # Kept back from the first stage on, or public tables could leave nothing for sensitive
        # columns.
        releases = self._releases
        are_counted = releases.reads_sensitive or releases.counts_apart or not self._is_first
        counts = 0.0 if are_counted else self._count_share * self._num_sensitive
        # The level is corrected at the end, and when sensitive tables of an earlier model join.
        joins = self._earlier is not None and not self._releases.reads_sensitive
        num_levels = 2 if joins and self._num_sensitive else 1
        return counts + num_levels * self._releases.level_share + self._kept

    @property
    def _num_sensitive(self) -> int:
        return sum(feature.role == "sensitive" for feature in self._features)

    @property
    def _count_share(self) -> float:
        """Share of the counts of the values of one sensitive column."""
        share = count_share(self._settings, self._num_sensitive)
        return share if self._earlier is None else RECOUNT * share

    def _count_sensitive(self) -> None:
        """Counts the values of sensitive columns with noise, and ends the phase of labels alone."""
        self._releases.begin_sensitive()
        if self._is_first:
            self._release_counts()
        if self._earlier is not None:
            level_share = self._releases.level_share
            self._carry_over("sensitive", lambda: self._releases.noisy_level(level_share))

    def _release_counts(self) -> None:
        """Noisy counts of the values of all sensitive columns."""
        share = self._count_share
        for column, feature in enumerate(self._of_role("sensitive")):
            noisy, stddev = self._releases.noisy_counts(column, feature.num_ids, share)
            known = self._earlier
            self.sensitive += sensitive_values(
                feature.name,
                column,
                noisy,
                stddev,
                feature,
                earlier=None if known is None else known.ranks(feature, column),
                classes=None if known is None else known.classes(feature, column),
            )

    def _carry_over(self, role: str, level: Callable[[], tuple[float, float, float]]) -> None:
        """Adds tables of the earlier model, which then have more to tell, and corrects the level.

        Args:
          role: "public" for those of public columns alone, or "sensitive" for all others.
          level: Function to the sum of residuals, that of predictions, and the noise on the first.
        """
        if self._earlier is None:
            return
        columns = [*self._public, *self.sensitive]
        for table, fitted, spread, mean in self._earlier.tables(role, columns, self._tables):
            self._fitted[table.identity] = (table, fitted)
            self._bias += mean
            self._releases.add(mean + fitted.weights, self._releases.cells(table.parts))
            predicted = self._law.part * self._law.rate * table.cells.rows
            table.note_start(spread, fitted.variances, thought_gain(predicted, fitted.log_odds))
        steps = self._level_steps(*level())
        self._bias += steps
        self._releases.add(steps)

    def _level_steps(
        self, residuals: float, predicted: float, stddev: float, first: float | None = None
    ) -> int:
        slope = max(predicted, self._law.dispersion) * (1 - self._law.rate)
        return int(log_odds_steps(level_change(residuals, stddev, slope, first)))

    def _of_role(self, role: str) -> list[PreparedFeature]:
        return [feature for feature in self._features if feature.role == role]
