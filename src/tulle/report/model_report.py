"""Pictures of a model of tables: what it looks at, effects of values, pairs, and one prediction.

All of it is made from an explanation, so from the released model. Names of hashed values are those
that the caller gave. A page about one row shows that row, and says that it is for whoever may see
it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tulle.atomic_files import write_text
from tulle.data.features.encoder import Encoder
from tulle.data.features.id_names import OTHERS
from tulle.errors import ConfigError
from tulle.report.html.charts import Bar, BarChart, Chart, HeatChart, StepChart, WaterfallChart
from tulle.report.html.page import Figure, Page, Paragraph, Section
from tulle.report.html.page_text import render_html
from tulle.runs.card import Card
from tulle.runs.card_text import NOT_PRIVATE
from tulle.train.explanation import (
    ExplainedTable,
    Explanation,
    RowContributions,
    explain_model,
)
from tulle.train.methods.mosaic.cell_model import DESCRIPTION_FILE, KIND, sigmoid
from tulle.train.table_effects import TableEffects
from tulle.train.training_run import MODEL_FOLDER, load_model

_LOG_ODDS = "change of log odds"
_MOST_TABLES = 12
"""Tables of the chart of importance."""
_MOST_COLUMNS, _MOST_PAIRS = 6, 4
"""Columns and pairs that have a picture on a page."""
_MOST_PARTS = 4
"""Classes of a model that have pictures on a page."""
_MOST_STEPS = 120
"""Steps side by side; more of them would be thinner than a line."""
_MOST_BARS = 12
"""Values of a column without an order that have a bar: as high as two charts side by side."""
_MOST_SIDE, _MOST_ORDERED = (12, 8), 25
"""Rows and columns of a heat map, and rows if they have an order, such as all hours of a day."""
_CONSIDERED = 40
"""Most frequent values of a column from which a heat map takes those with the largest effects."""
_MOST_CONTRIBUTIONS = 12
"""Parts of a waterfall; all smaller ones are one part."""


def model_page(
    explanation: Explanation, *, columns: Sequence[str] = (), row: object = None
) -> Page:
    """The page of a model.

    Args:
      explanation: The model, opened.
      columns: Columns whose effects come first; a picture of their combination.
      row: A row whose prediction is taken apart.

    Privacy:
      Shows the released model. With a row, the page is for whoever may see that row, and says so.
    """
    card, sections = explanation.card, model_sections(explanation)
    reasons = tuple(card.reasons)
    if columns:
        figures = tuple(_effect_figures(explanation.effects(*columns)))
        sections = [Section(f"Effects of {' × '.join(columns)}", figures), *sections]
    if row is not None:
        reasons = ("The page shows one row: it is for those who may see that row", *reasons)
        sections = [row_section(explanation.contributions(row)), *sections]
    data = card.to_dict()
    is_open = data["is_private"] is False or row is not None
    return Page(
        title=f"Model: {card.plan.settings.get('method', 'tables of cells')}",
        verdict=NOT_PRIVATE if is_open else data["verdict"],
        is_private=False if is_open else data["is_private"],
        reasons=reasons,
        sentence=data["claim"]["sentence"],
        facts=_facts(explanation),
        sections=tuple(sections),
    )


def model_sections(explanation: Explanation) -> list[Section]:
    """What a model looks at and what it makes of it; one section for each of its parts."""
    parts = explanation.parts[:_MOST_PARTS]
    return [_model_section(explanation.of(part) if part else explanation) for part in parts]


def row_section(found: RowContributions) -> Section:
    """How a prediction comes about."""
    text = (
        "The prediction is a sum of log odds: where the model starts, and what the row's value in "
        "each table adds. Lines are 95% posterior intervals."
    )
    figures = [Figure(contributions_chart(found))]
    if any(len(one.columns) > 1 for one in found.contributions):
        bars = [Bar(label=column, value=total) for column, total in found.by_column().items()]
        chart = BarChart(name="Total of each column", value_name=_LOG_ODDS, bars=tuple(bars))
        figures.append(Figure(chart, "Columns of one table share what it adds equally."))
    return Section("One prediction", (Paragraph(text), *figures))


def contributions_chart(found: RowContributions) -> WaterfallChart:
    """The sum behind a prediction; tables of the same columns are one part."""
    parts: dict[frozenset[str], list[Any]] = {}
    for one in found.contributions:
        parts.setdefault(frozenset(one.columns), []).append(one)
    bars = [_contribution_bar(same) for same in parts.values()]
    bars.sort(key=lambda bar: -abs(bar.value or 0.0))
    if len(bars) > _MOST_CONTRIBUTIONS:
        rest = bars[_MOST_CONTRIBUTIONS - 1 :]
        total = sum(bar.value or 0.0 for bar in rest)
        bars = [*bars[: _MOST_CONTRIBUTIONS - 1], Bar(label=f"{len(rest)} others", value=total)]
    is_one = found.probability is not None
    end = f"log odds, probability {found.probability:.4f}" if is_one else "log odds"
    return WaterfallChart(
        name="One prediction",
        value_name="log odds",
        start_label="start, for every row",
        start=found.bias,
        parts=tuple(bars),
        end_label=end,
    )


def _contribution_bar(same: Sequence[Any]) -> Bar:
    named = dict(zip(same[0].columns, same[0].values, strict=True))
    effect = sum(one.effect for one in same)
    if any(one.low is None for one in same):
        error = None
    else:
        error = float(np.sqrt(sum((one.high - one.effect) ** 2 for one in same)))
    return Bar(
        label=", ".join(f"{column} = {value}" for column, value in named.items()),
        value=effect,
        low=None if error is None else effect - error,
        high=None if error is None else effect + error,
    )


def effects_charts(effects: TableEffects) -> list[Chart]:
    """Pictures of the effects of a column, a pair or a triple."""
    return [figure.chart for figure in _effect_figures(effects)]


def write_explanation(
    explanation: Explanation,
    output: Path | str,
    *,
    columns: Sequence[str] = (),
    row: object = None,
) -> Path:
    """Writes an explanation as a page (.html) or as plain data (.json), over an older one.

    Args:
      explanation: What `explain` gave.
      output: The file; its ending decides.
      columns: One to three columns whose effects are written too.
      row: A row whose prediction is taken apart: values by column, or a table of one row.

    Privacy:
      Nothing is spent. A file with a row is for whoever may see that row.

    Raises:
      ConfigError: The file has another ending, or a column is unknown.
      DataError: The row lacks a column.
      RunStateError: The disk refuses the file.
    """
    path = Path(output)
    if path.suffix not in (".html", ".json"):
        raise ConfigError(f"output={path.name!r} must end in .html or .json.")
    if path.suffix == ".html":
        text = render_html(model_page(explanation, columns=columns, row=row))
    else:
        data = explanation.to_dict(columns=columns, row=row)
        text = json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_text(path, text)
    return path


def run_sections(folder: Path, card: Card) -> list[Section]:
    """The sections of the model in the folder of a run; none if it is no sum of tables.

    Args:
      folder: Folder of the run.
      card: The card of the run.
    """
    place = folder / MODEL_FOLDER
    if not (place / DESCRIPTION_FILE).exists():
        return []
    # Before it is loaded: towers need torch.
    settings = json.loads((place / DESCRIPTION_FILE).read_text(encoding="utf-8"))["settings"]
    if settings.get("kind") != KIND:
        return []
    model = load_model(place)
    if not isinstance(model.encoder, Path):
        return []
    return model_sections(explain_model(model, Encoder.from_files(model.encoder), card))


def _facts(explanation: Explanation) -> tuple[tuple[str, str], ...]:
    facts = [("tables", f"{len(explanation.tables):,}")]
    if explanation.is_of_probability:
        rate = float(sigmoid(np.array([explanation.bias]))[0])
        facts.append(("probability before any table", f"{rate:.4f}"))
    return tuple(facts)


def _model_section(explanation: Explanation) -> Section:
    title = f"The model: {explanation.part}" if explanation.part else "The model"
    tables = explanation.tables
    if not tables:
        text = "No table showed more than noise would show: each row gets the same prediction."
        return Section(title, (Paragraph(text),))
    intro = (
        f"The model adds up {len(tables):,} tables. Each has a change of log odds for every value "
        "of a column, or combination of values: +0.69 doubles the odds, -0.69 halves them. "
        "Intervals are 95% posterior intervals. They tell how well the sums were known, and not "
        "what causes what. Names of hashed values come from a table that somebody gave to `tulle "
        "explain --values DATA` or explain(values=…); the model holds none of them."
    )
    figures = [Figure(_importance_chart(tables), _importance_caption(explanation))]
    chosen = list(dict.fromkeys(frozenset(table.columns) for table in tables))
    singles = [columns for columns in chosen if len(columns) == 1][:_MOST_COLUMNS]
    pairs = [columns for columns in chosen if len(columns) == 2][:_MOST_PAIRS]
    order = {name: place for place, name in enumerate(explanation.columns)}
    for columns in (*singles, *pairs):
        names = sorted(columns, key=lambda name: order[name])
        figures += _effect_figures(explanation.effects(*names))
    return Section(title, (Paragraph(intro), *figures))


def _importance_chart(tables: Sequence[ExplainedTable]) -> BarChart:
    bars = [
        Bar(
            label=table.name
            if table.share is None
            else f"{table.name}, {100 * table.share:.1f}% of the budget",
            value=table.importance,
        )
        for table in tables[:_MOST_TABLES]
    ]
    return BarChart(
        name="What the model looks at", value_name=f"mean absolute {_LOG_ODDS}", bars=tuple(bars)
    )


def _importance_caption(explanation: Explanation) -> str:
    tables = explanation.tables
    text = f"Weighted by {explanation.weighted_by}."
    if len(tables) > _MOST_TABLES:
        text = f"The first {_MOST_TABLES} of {len(tables):,} tables. {text}"
    if (elsewhere := explanation.share_elsewhere) is not None:
        text += (
            f" {100 * elsewhere:.1f}% of the noise budget went into the rate of labels, counts of "
            "sensitive values, and tables that showed nothing."
        )
    return text


def _effect_figures(effects: TableEffects) -> list[Figure]:
    if len(effects.columns) == 2:
        return [_pair_figure(effects)]
    if len(effects.columns) == 1 and effects.columns[0].num_ordered and len(effects) <= _MOST_STEPS:
        return [_ordered_figure(effects)]
    return [_bars_figure(effects)]


def _ordered_figure(effects: TableEffects) -> Figure:
    column = effects.columns[0]
    chart = StepChart(
        name=f"Effect of {column.column}",
        x_name=column.column,
        y_name=_LOG_ODDS,
        bars=tuple(_bars_of(effects)),
        num_joined=column.num_ordered,
    )
    return Figure(chart, "Shaded: 95% posterior intervals.")


def _bars_figure(effects: TableEffects) -> Figure:
    """The most frequent values, or the largest effects of combinations, sorted by their effect."""
    names = " × ".join(column.column for column in effects.columns)
    bars = _bars_of(effects)
    if len(effects.columns) == 1:
        kept, chosen = bars[:_MOST_BARS], "most frequent"
    else:
        order = sorted(bars, key=lambda bar: -abs(bar.value or 0.0))
        kept, chosen = order[:_MOST_BARS], "largest"
    kept = sorted(kept, key=lambda bar: -(bar.value or 0.0))
    chart = BarChart(name=f"Effect of {names}", value_name=_LOG_ODDS, bars=tuple(kept))
    some = f"The {len(kept)} {chosen} of {len(bars):,}, sorted by effect. "
    caption = some if len(kept) < len(bars) else "Sorted by effect. "
    return Figure(chart, f"{caption}Lines are 95% posterior intervals.")


def _bars_of(effects: TableEffects) -> list[Bar]:
    """A bar for each cell, but for what no row has."""
    names = [column.column for column in effects.columns]
    return [
        Bar(
            label=" × ".join(row[name] for name in names),
            value=row["effect"],
            low=row["low"],
            high=row["high"],
        )
        for row in effects
        if row["effect"] or OTHERS not in row.values()
    ]


def _pair_figure(effects: TableEffects) -> Figure:
    """The values of two columns with the largest effects, as shades."""
    kept = [
        _with_largest(effects, axis, limit)
        for axis, limit in zip(_axes(effects), sorted(_MOST_SIDE, reverse=True), strict=True)
    ]
    rows, columns = _axes(effects)
    values = np.moveaxis(effects.effect, (rows, columns), (0, 1))[np.ix_(*kept)]
    ranges: tuple[tuple[tuple[float, float], ...], ...] = ()
    if effects.low is not None and effects.high is not None:
        low, high = (
            np.moveaxis(ends, (rows, columns), (0, 1))[np.ix_(*kept)].tolist()
            for ends in (effects.low, effects.high)
        )
        ranges = tuple(tuple(zip(*ends, strict=True)) for ends in zip(low, high, strict=True))
    sides = [effects.columns[axis] for axis in (rows, columns)]
    chart = HeatChart(
        name=f"Effect of {sides[0].column} × {sides[1].column}",
        row_name=sides[0].column,
        column_name=sides[1].column,
        value_name=_LOG_ODDS,
        row_labels=tuple(sides[0].labels[place] for place in kept[0]),
        column_labels=tuple(sides[1].labels[place] for place in kept[1]),
        values=tuple(map(tuple, values.tolist())),
        ranges=ranges,
    )
    caption = "What the pair adds to the effects of its columns."
    if values.size < len(effects):
        caption += f" Values with large effects: {values.size:,} of {len(effects):,} cells."
    return Figure(chart, caption)


def _axes(effects: TableEffects) -> tuple[int, int]:
    """The column of the rows and that of the columns of a heat map: the longer one goes down."""
    sizes = effects.effect.shape
    return (0, 1) if sizes[0] >= sizes[1] else (1, 0)


def _with_largest(effects: TableEffects, axis: int, limit: int) -> list[int]:
    """Places on an axis of the values with the largest effects, in their order."""
    sizes = np.abs(effects.effect).mean(axis=1 - axis)
    if effects.columns[axis].num_ordered:
        limit = _MOST_ORDERED if limit == max(_MOST_SIDE) else limit
    else:
        sizes = sizes[:_CONSIDERED]
    largest = np.argsort(-sizes, kind="stable")[:limit]
    return sorted(int(place) for place in largest if sizes[place] > 0)
