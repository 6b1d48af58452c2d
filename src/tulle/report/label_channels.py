"""Pictures of what a mechanism makes of a label.

The mechanism says what there is to see: few values have a table of probabilities, added noise has
its law, and labels of a unit that are noised together have the channel of a row over the number of
rows. Here each of these becomes a chart.
"""

import functools
import math
from collections.abc import Sequence

from tulle.labels.label_mechanism import (
    ChannelFacts,
    ChannelTable,
    Description,
    NoiseDensity,
    Picture,
    RowChannels,
)
from tulle.report.html.charts import Axis, Curve, CurveChart, MatrixChart
from tulle.report.html.page import Figure
from tulle.report.html.tables import number_text


def channel_facts(described: Description) -> ChannelFacts:
    """What the mechanism of a release says of itself; nothing if this tulle does not know it.

    Args:
      described: The mechanism in plain data, from the record of a release.
    """
    from tulle.labels.mechanisms.catalogue import mechanism_class

    known = mechanism_class(described)
    return ChannelFacts(pictures=()) if known is None else known.channel_facts(described)


def channel_figures(facts: ChannelFacts) -> list[Figure]:
    """The pictures of a mechanism as figures of a page."""
    return [_figure(picture) for picture in facts.pictures]


@functools.singledispatch
def _figure(picture: Picture) -> Figure:
    raise NotImplementedError(type(picture))


@_figure.register
def _(picture: ChannelTable) -> Figure:
    chart = MatrixChart(
        name="Channel",
        row_name="label",
        column_name="noisy label",
        row_labels=_names(picture.labels),
        column_labels=_names(picture.reports),
        values=tuple(tuple(map(float, row)) for row in picture.probs),
    )
    return Figure(chart, picture.about)


@_figure.register
def _(picture: NoiseDensity) -> Figure:
    amounts, scale = tuple(picture.noise), picture.laplace_scale
    curves = [Curve(label=picture.name, xs=amounts, ys=tuple(picture.density))]
    if scale is not None:
        laplace = tuple(math.exp(-abs(amount) / scale) / (2 * scale) for amount in amounts)
        label = "Laplace noise of the same epsilon"
        curves.append(Curve(label=label, xs=amounts, ys=laplace, is_reference=True))
    chart = CurveChart(
        name="Law of the noise",
        x_axis=Axis(name="noise that is added to a label"),
        y_axis=Axis(name="probability for each unit of the label", low=0.0),
        curves=tuple(curves),
    )
    return Figure(chart, "The noise is drawn once for each label, whatever the label is.")


@_figure.register
def _(picture: RowChannels) -> Figure:
    sizes = tuple(map(float, picture.num_rows))
    chart = CurveChart(
        name="Channel of a row, by the rows of its unit",
        x_axis=Axis(name="rows of the unit"),
        y_axis=Axis(name="probability of a report of 1", is_percent=True, low=0.0),
        curves=(
            Curve(label="label 1", xs=sizes, ys=tuple(picture.probs_if_positive)),
            Curve(label="label 0", xs=sizes, ys=tuple(picture.probs_if_negative)),
        ),
    )
    return Figure(chart, "The closer the curves, the less one report tells.")


def _names(values: Sequence[str | float]) -> tuple[str, ...]:
    """Words as they are; of numbers three digits of the largest, for which an axis has room."""
    numbers = [value for value in values if not isinstance(value, str)]
    most = max(map(abs, numbers), default=1.0) or 1.0
    decimals = max(0, 2 - math.floor(math.log10(most)))
    return tuple(
        value if isinstance(value, str) else number_text(float(value), decimals) for value in values
    )
