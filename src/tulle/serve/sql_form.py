"""A model of tables as plain SQL: one SELECT that joins a table of rows with tables of weights.

Each feature has a table with what its values add, by text for columns that are hashed and by the
number of the bin for others, which a CASE computes. A crossed table of several features is joined
by the sum of their steps. Text is written in DuckDB's dialect and translated.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from tulle.data.features.id_rules import CycleRule, IntervalRule, RuledFeature
from tulle.data.schema import Kind
from tulle.measure.engines.sql_text import float_literal, identifier, text_literal, translate
from tulle.serve.scoring_tables import MISSING_TEXT, ScoringFeature, ScoringTables, check_known

ROWS = "new_rows"
"""Name of the table of rows, unless somebody says otherwise."""
UNMAPPED = "num_unmapped"
"""Column with the number of values of a row that are in no table of weights."""
_VALUE, _BIN, _CELL = "value", "bin", "cell"
_TYPES = {pl.String: "VARCHAR", pl.Int64: "BIGINT", pl.Float64: "DOUBLE"}


class SqlForm(NamedTuple):
    """What a model is in SQL."""

    select: str
    """The SELECT that scores."""
    create: str
    """Statements that make the tables of weights, empty."""
    weights: Mapping[str, pl.DataFrame]
    """Contents of the tables of weights, by name."""


def sql_form(tables: ScoringTables, *, dialect: str, rows: str = ROWS, prefix: str) -> SqlForm:
    """Writes a model as SQL.

    Args:
      tables: The model.
      dialect: "duckdb", "spark", "bigquery", "snowflake" or "trino".
      rows: Name of the table of rows.
      prefix: Beginning of the names of tables of weights.

    Privacy:
      Tables of weights hold the model, which was released, and the values that were given for it.

    Raises:
      ConfigError: A hashed column has no values, or the dialect is unknown.
    """
    check_known(tables, "SQL")
    heads = [[float_literal(bias)] for bias in tables.biases]
    cells: list[list[str]] = [[] for _ in tables.crossed]
    joins, unmapped, weights = [], [], {}
    for number, one in enumerate(tables.features, start=1):
        name = f"{prefix}_{number}_{_slug(one.feature.name)}"
        alias = f"f{number}"
        weights[name] = _feature_table(one)
        key = _VALUE if one.is_hashed else _BIN
        joins.append(
            f"LEFT JOIN {identifier(name)} AS {alias} ON {alias}.{key} = {_key(one.feature)}"
        )
        if one.is_hashed:
            unmapped.append(f"CASE WHEN {alias}.{key} IS NULL THEN 1 ELSE 0 END")
        for head, effects in one.effects.items():
            rest = float_literal(float(effects[one.rest_id]))
            heads[head].append(f"COALESCE({alias}.effect_{head}, {rest})")
        for table, steps in one.steps.items():
            cells[table].append(f"COALESCE({alias}.step_{table}, {int(steps[one.rest_id])})")
    for number, (head, numbers) in enumerate(tables.crossed):
        name, alias = f"{prefix}_crossed_{number + 1}", f"c{number + 1}"
        weights[name] = pl.DataFrame(
            {_CELL: np.arange(len(numbers), dtype=np.int64), "weight": numbers}
        )
        joins.append(
            f"LEFT JOIN {identifier(name)} AS {alias} ON {alias}.{_CELL} = "
            f"{' + '.join(cells[number])}"
        )
        heads[head].append(f"{alias}.weight")
    scored = ", ".join(f"{' + '.join(parts)} AS log_odds_{at}" for at, parts in enumerate(heads))
    inner = (
        f"SELECT r.*, {scored}, {' + '.join(unmapped) or '0'} AS {UNMAPPED} "
        f"FROM {_table_name(rows)} AS r {' '.join(joins)}"
    )
    select = f"WITH {_steps(inner, tables)} SELECT *, {_outputs(tables)} FROM scored"
    create = [
        translate(f"CREATE TABLE {identifier(name)} ({_columns(table)})", dialect, is_pretty=True)
        for name, table in weights.items()
    ]
    return SqlForm(
        select=f"{translate(select, dialect, is_pretty=True)};\n",
        create="".join(f"{statement};\n" for statement in create),
        weights=weights,
    )


def _steps(inner: str, tables: ScoringTables) -> str:
    """What is computed before predictions: log odds, and for classes their rates and the sum."""
    if tables.cells.model.output != "classes":
        return f"scored AS ({inner})"
    # They have names, or the text of each class would have the log odds of all others in it.
    heads = range(len(tables.biases))
    rates = ", ".join(f"1 / (1 + EXP(-log_odds_{head})) AS rate_{head}" for head in heads)
    whole = " + ".join(f"rate_{head}" for head in heads)
    return (
        f"summed AS ({inner}), rated AS (SELECT *, {rates} FROM summed), "
        f"scored AS (SELECT *, {whole} AS rate_sum FROM rated)"
    )


def _outputs(tables: ScoringTables) -> str:
    """The columns of predictions, from log odds."""
    model = tables.cells.model
    rates = [f"1 / (1 + EXP(-log_odds_{head}))" for head in range(len(tables.biases))]
    if model.output == "classes":
        return ", ".join(
            f"rate_{head} / rate_sum AS {identifier(f'probability_{name}')}"
            for head, name in enumerate(model.classes)
        )
    if model.output == "value":
        return f"{float_literal(model.scale)} * {' * '.join(f'({one})' for one in rates)} AS value"
    return f"{rates[0]} AS probability"


def _feature_table(one: ScoringFeature) -> pl.DataFrame:
    """What each value, or each bin, of a feature adds."""
    key: pl.Series
    if one.ids_by_text is not None:
        key = pl.Series(_VALUE, list(one.ids_by_text), dtype=pl.String)
        ids = np.array(list(one.ids_by_text.values()), np.int64)
    else:
        rule = one.feature.rule
        if isinstance(rule, IntervalRule):
            ids = np.unique([*rule.ids, rule.missing_id])
        elif isinstance(rule, CycleRule):
            ids = np.array([*range(rule.first_id, rule.first_id + rule.length), rule.missing_id])
        key = pl.Series(_BIN, ids, dtype=pl.Int64)
    effects = [pl.Series(f"effect_{head}", values[ids]) for head, values in one.effects.items()]
    steps = [
        pl.Series(f"step_{table}", numbers[ids].astype(np.int64))
        for table, numbers in one.steps.items()
    ]
    return pl.DataFrame([key, *effects, *steps])


def _key(feature: RuledFeature) -> str:
    """The expression that a row is joined by."""
    column = f"r.{identifier(feature.column)}"
    rule = feature.rule
    flag = f"CASE WHEN {column} THEN {{}} WHEN NOT {column} THEN {{}} END"
    if isinstance(rule, IntervalRule):
        is_flag = feature.kind is Kind.BOOLEAN
        number = flag.format("1.0", "0.0") if is_flag else column
        number = f"CAST({number} AS DOUBLE)"
        # Engines differ in how NaN compares, but all write it so.
        is_missing = f"{number} IS NULL OR LOWER(CAST({number} AS VARCHAR)) = 'nan'"
        bins = zip(rule.edges, rule.ids, strict=False)
        cases = " ".join(f"WHEN {number} < {float_literal(edge)} THEN {one}" for edge, one in bins)
        return f"CASE WHEN {is_missing} THEN {rule.missing_id} {cases} ELSE {rule.ids[-1]} END"
    if isinstance(rule, CycleRule):
        step = f"(FLOOR(CAST({column} AS DOUBLE) / {rule.step}) + {rule.offset})"
        turn = f"({step} - {rule.length} * FLOOR({step} / {rule.length}) + {rule.first_id})"
        whole = f"CAST({turn} AS BIGINT)"
        return f"CASE WHEN {column} IS NULL THEN {rule.missing_id} ELSE {whole} END"
    if feature.kind is Kind.BOOLEAN:
        text = flag.format("'true'", "'false'")
    elif feature.kind is Kind.CATEGORICAL:
        text = f"CAST({column} AS VARCHAR)"
    else:
        text = f"CAST(CAST({column} AS BIGINT) AS VARCHAR)"
    return f"COALESCE({text}, {text_literal(MISSING_TEXT)})"


def _columns(table: pl.DataFrame) -> str:
    return ", ".join(f"{name} {_TYPES[type(kind)]}" for name, kind in table.schema.items())


def _table_name(name: str) -> str:
    """A table's name, perhaps with those of its schema and database before it."""
    return ".".join(identifier(part) for part in name.split("."))


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "column"
