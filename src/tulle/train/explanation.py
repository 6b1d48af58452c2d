"""What a model of tables says: its tables, the effect of each value, the sum behind a prediction.

The log odds of an additive model are a bias and one number from each table, so that nothing about
it has to be estimated: everything here is read from the model. All of it was released with the
model or is public, and an explanation of the folder of a model is that of the model itself.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tulle.data.features.encoder import Encoder
from tulle.data.features.id_names import MISSING, IdNames, names_of_ids
from tulle.data.table_arrays import encode_table
from tulle.data.tables.memory import as_polars, one_row, with_nulls
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import did_you_mean
from tulle.runs.card import Card
from tulle.train.methods.mosaic.cell_model import CellHead, CellTable, cells_of_rows, sigmoid
from tulle.train.methods.mosaic.trained_cells import TrainedCells
from tulle.train.table_effects import (
    DEVIATIONS,
    TableEffects,
    effects_of_tables,
    form_name,
)
from tulle.train.trained_model import TrainedModel

_PARTS_OF_VALUE = ("rate", "mean value")
"""What the two heads of a model of values are of: their product is the expected value."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplainedTable:
    """One table of a model: what it groups rows by, what it cost and how much it says."""

    columns: tuple[str, ...]
    """Features that it groups rows by."""
    name: str
    """The columns in words, with "(groups)" behind one of which only groups of values count, or the
    known fact that groups them before it, as in "advertiser of audience"."""
    share: float | None
    """Share of the noise budget of the run that went into it; None if the model has no record."""
    importance: float
    """Mean absolute change of log odds, see `Explanation.weighted_by`."""
    num_cells: int
    """Number of cells, whether a row is in them or not."""
    spread: float
    """Standard deviation of the weights of all cells."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellContribution:
    """What one table adds to the log odds of a row."""

    table: str
    """Name of the table."""
    columns: tuple[str, ...]
    """Its columns."""
    values: tuple[str, ...]
    """What the row has in these columns."""
    effect: float
    """Change of log odds."""
    low: float | None
    """Lower end of the 95% posterior interval; None if the model has no deviations."""
    high: float | None
    """Upper end of the interval."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowContributions:
    """The sum behind the prediction of one row: bias plus contributions are its log odds."""

    bias: float
    """Log odds before any table is added."""
    contributions: tuple[CellContribution, ...]
    """What each table adds, in the order of the model."""
    log_odds: float
    probability: float | None
    """Probability of label 1, as `predict_proba` gives it; None if the model predicts something
    else, or this is one part of several."""

    def by_column(self) -> dict[str, float]:
        """Contribution of each column, largest first; columns of one table share it equally."""
        found: dict[str, float] = {}
        for one in self.contributions:
            for column in one.columns:
                found[column] = found.get(column, 0.0) + one.effect / len(one.columns)
        return dict(sorted(found.items(), key=lambda item: -abs(item[1])))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {**dataclasses.asdict(self), "by_column": self.by_column()}

    def _repr_html_(self) -> str:
        """The chart of the sum, for notebooks."""
        from tulle.report.model_report import contributions_chart
        from tulle.report.verbs import charts_frame

        return charts_frame([contributions_chart(self)])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation:
    """The tables of a model, opened. Make one with `Classifier.explain`."""

    model: TrainedCells
    encoder: Encoder
    card: Card
    names: tuple[IdNames, ...]
    """Names of the ids of each feature of the encoder."""
    part: str = ""
    """Class, or part of an expected value, that this is about; empty if there is only one."""

    @property
    def parts(self) -> tuple[str, ...]:
        """What the model has tables for: the classes, or rate and mean value; else one part."""
        model = self.model.model
        if model.output == "classes":
            return model.classes
        return _PARTS_OF_VALUE if len(model.heads) == len(_PARTS_OF_VALUE) else ("",)

    def of(self, part: str) -> "Explanation":
        """The explanation of another part of the model, see `parts`.

        Raises:
          ConfigError: The model has no such part.
        """
        if part not in self.parts and self.parts == ("",):
            raise ConfigError(
                f"part={part!r} is not in the model, which has one part; leave it out."
            )
        if part not in self.parts:
            raise ConfigError(
                f"part={part!r} is not in the model{did_you_mean(part, self.parts)}; use one of "
                f"{', '.join(map(repr, self.parts))}."
            )
        return dataclasses.replace(self, part=part)

    @property
    def is_of_probability(self) -> bool:
        """Whether log odds are those of the probability of label 1."""
        return self.model.model.output == "probability"

    @property
    def bias(self) -> float:
        """Log odds of a row before any table is added."""
        return self._head.bias

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the features that `effects` knows, public ones first."""
        return tuple(feature.name for feature in self.encoder.features)

    @cached_property
    def tables(self) -> tuple[ExplainedTable, ...]:
        """All tables of the model, the most important first."""
        named = zip(self._table_names, self._head.tables, strict=True)
        found = [self._explained(name, table) for name, table in named]
        return tuple(sorted(found, key=lambda table: -table.importance))

    @property
    def weighted_by(self) -> str:
        """What cells count by in an importance."""
        known = [_importance(table) is not None for table in self._head.tables]
        if all(known):
            return "numbers of rows as training knew them, public or with noise"
        return "nothing: each cell counts as one, as the model has no record of numbers of rows"

    @property
    def share_elsewhere(self) -> float | None:
        """Share of the noise budget that went into no table of the model.

        It went into the rate of labels, counts of sensitive values, tables that showed nothing,
        and tables of other parts of the model. None if the model has no record.
        """
        shares = [table.share for table in self.tables]
        known = [share for share in shares if share is not None]
        return max(0.0, 1 - math.fsum(known)) if shares and len(known) == len(shares) else None

    def effects(self, *columns: str) -> TableEffects:
        """The effect of each value of a column, or of each combination of values of two or three.

        A column can be in the model in several forms, such as its values and groups of them by
        how frequent they are. All tables of exactly these columns are added up. Effects of a pair
        come on top of those of its columns.

        Args:
          columns: One to three names of features, see `columns`.

        Raises:
          ConfigError: A name is unknown, or the model has no table of these columns.
        """
        features = [self._feature(name) for name in columns]
        wanted = set(features)
        tables = [
            table
            for table in self._head.tables
            if {self._place(part.role, part.column) for part in table.parts} == wanted
        ]
        if not columns or len(wanted) < len(columns):
            named = " and ".join(map(repr, columns)) or "of no name"
            raise ConfigError(f"columns {named} must be one to three different ones.")
        if not tables:
            raise ConfigError(self._without_table(columns))
        return effects_of_tables(
            tables,
            features,
            names=[
                (name, self.names[place]) for name, place in zip(columns, features, strict=True)
            ],
            place_of=self._place,
        )

    def contributions(self, row: object) -> RowContributions:
        """What each table adds to the log odds of one row.

        Args:
          row: Value of each column by name, or a table of one row. None is a missing value.

        Privacy:
          Contributions depend on the row's own columns: they are for whoever may see the row.

        Raises:
          DataError: A column is missing, or there is not exactly one row.
        """
        table = as_polars(one_row(row) if isinstance(row, Mapping) else row)
        if len(table) != 1:
            how_many = "more than one row" if len(table) else "no row"
            raise DataError(f"the table has {how_many}; give the one row to explain.")
        encoder = self.encoder.of_role("public") if self.model.is_truncated else self.encoder
        table = self._with_unread_columns(table)
        arrays = encode_table(table, encoder, with_label=False)
        ids = {"public": arrays.public_features, "sensitive": arrays.sensitive_features}
        log_odds, found = self.bias, []
        for name, one in zip(self._table_names, self._head.tables, strict=True):
            columns = [ids[part.role][:, part.column] for part in one.parts]
            cell = int(cells_of_rows(one.parts, columns)[0])
            log_odds += (effect := float(one.weights[cell]))
            error = None if one.stddevs is None else DEVIATIONS * float(one.stddevs[cell])
            places = [self._place(part.role, part.column) for part in one.parts]
            found.append(
                CellContribution(
                    table=name,
                    columns=self._columns_of(one),
                    values=tuple(
                        self._shown(place, int(column[0]), table)
                        for place, column in zip(places, columns, strict=True)
                    ),
                    effect=effect,
                    low=None if error is None else effect - error,
                    high=None if error is None else effect + error,
                )
            )
        return RowContributions(
            bias=self.bias,
            contributions=tuple(found),
            log_odds=log_odds,
            probability=float(sigmoid(np.array([log_odds]))[0]) if self.is_of_probability else None,
        )

    def to_dict(self, *, columns: Sequence[str] = (), row: object = None) -> dict[str, Any]:
        """Bias and tables as plain data.

        Args:
          columns: One to three columns whose effects are in it too.
          row: A row whose contributions are in it too.
        """
        found: dict[str, Any] = {
            "bias": self.bias,
            "tables": [dataclasses.asdict(table) for table in self.tables],
            "share_elsewhere": self.share_elsewhere,
            "weighted_by": self.weighted_by,
        }
        if columns:
            found["effects"] = self.effects(*columns).rows()
        if row is not None:
            found["contributions"] = self.contributions(row).to_dict()
        return found

    def __repr__(self) -> str:
        lines = [f"Explanation: {len(self.tables)} tables, bias {self.bias:.3f}"]
        lines += [f"  {table.name}: importance {table.importance:.4f}" for table in self.tables]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The page of the model, for notebooks."""
        from tulle.report.model_report import model_page
        from tulle.report.verbs import page_frame

        return page_frame(model_page(self))

    @property
    def _head(self) -> CellHead:
        return self.model.model.heads[self.parts.index(self.part)]

    def _explained(self, name: str, table: CellTable) -> ExplainedTable:
        sizes, known = np.abs(table.weights), _importance(table)
        return ExplainedTable(
            columns=self._columns_of(table),
            name=name,
            share=table.share or None,
            importance=float(sizes.mean()) if known is None else known,
            num_cells=table.weights.size,
            spread=float(np.std(table.weights, dtype=np.float64)),
        )

    @cached_property
    def _table_names(self) -> tuple[str, ...]:
        return tuple(map(self._name_of, self._head.tables))

    def _name_of(self, table: CellTable) -> str:
        forms = zip(self._columns_of(table), table.parts, strict=True)
        return " × ".join(
            form_name(name, part, self.names[self._place(part.role, part.column)])
            for name, part in forms
        )

    def _columns_of(self, table: CellTable) -> tuple[str, ...]:
        return tuple(self.columns[self._place(part.role, part.column)] for part in table.parts)

    def _place(self, role: str, column: int) -> int:
        """Place of a feature among those of both roles."""
        num_public = sum(feature.role == "public" for feature in self.encoder.features)
        return column if role == "public" else num_public + column

    def _feature(self, name: str) -> int:
        if name in self.columns:
            return self.columns.index(name)
        raise ConfigError(
            f"column={name!r} is not in the model{did_you_mean(name, self.columns)}; use one of "
            f"{', '.join(self.columns)}."
        )

    def _with_unread_columns(self, row: Any) -> Any:
        """The row with nulls in columns that no table looks at, which it may lack."""
        placed = self.encoder.placed
        read = {
            placed[self._place(part.role, part.column)].settings.column
            for table in self._head.tables
            for part in table.parts
        }
        lacks = [one.column for one in self.encoder.plan.features if one.column not in row.columns]
        for column in lacks:
            if column in read:
                raise DataError(
                    f"the row has no column {column!r}{did_you_mean(column, row.columns)}; give "
                    "its value, or None if it is missing."
                )
        return with_nulls(row, lacks)

    def _shown(self, place: int, feature_id: int, row: Any) -> str:
        names = self.names[place]
        if names.num_ordered:
            return names.name(feature_id)
        value = row[names.column][0]
        return MISSING if value is None else str(value)

    def _without_table(self, columns: Sequence[str]) -> str:
        others = [table.name for table in self.tables if set(table.columns) & set(columns)]
        shown = ", ".join(dict.fromkeys(others))
        what, them = (
            (f"column={columns[0]!r} has", "it")
            if len(columns) == 1
            else (f"columns {' and '.join(map(repr, columns))} together have", "them")
        )
        where = f"tables with {them} in part: {shown}" if shown else f"no other has {them} either"
        return (
            f"{what} no table in the model, since none showed more than noise would show; {where}."
        )


def explain_model(
    model: TrainedModel, encoder: Encoder, card: Card, *, values: object = None
) -> Explanation:
    """Opens a model.

    Args:
      model: The model.
      encoder: What makes ids of columns.
      card: The card of its training.
      values: Table whose distinct values give bins their names; see `names_of_ids`.

    Privacy:
      Reads the model, which was released, and names of `values`, which must be public where the
      column is sensitive.

    Raises:
      ConfigError: The model is no sum of tables.
      DataError: `values` has no column of the model, or looks like a log.
    """
    if not isinstance(model, TrainedCells):
        raise ConfigError(
            f"a model of {model.kind} is no sum of tables, so that no effect of a single value can "
            "be read from it; train one with the method mosaic."
        )
    found = Explanation(
        model=model, encoder=encoder, card=card, names=names_of_ids(encoder, values)
    )
    return found.of(found.parts[0]) if found.parts != ("",) else found


def _importance(table: CellTable) -> float | None:
    """Mean absolute weight over rows; None if the model has no record of it."""
    return table.importance or None
