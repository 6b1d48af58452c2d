"""Pictures of what a mechanism makes of a label, one way for each kind of mechanism.

Few values have a matrix of chances, added noise has its law, and labels of a unit that are noised
together have the channel of a row over the number of rows.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tulle.report.html.charts import Axis, Chart, Curve, CurveChart, MatrixChart
from tulle.report.html.page import Figure
from tulle.report.html.tables import number_text, short_number

if TYPE_CHECKING:
    from tulle.labels.additive_noise import DiscreteLaplaceLabels, LaplaceLabels
    from tulle.labels.label_grid import LabelGrid
    from tulle.labels.staircase import StaircaseLabels
    from tulle.labels.units.unit_response import JointResponse, PerRowResponse

    AdditiveNoise = LaplaceLabels | DiscreteLaplaceLabels | StaircaseLabels

_MOST_VALUES = 60
_NUM_POINTS = 400
_NUM_CUT_LABELS = 5
_SPANS_SHOWN = 2.0
"""How far to each side additive noise is drawn, in ranges of the label."""
_SCALES_SHOWN = 6.0
"""And at most so many scales of Laplace noise, beyond which nothing is to be seen."""
_NUM_UNIT_ROWS = 30
_EACH = "What comes out, for each label that goes in. Rows add up to 100%."

Facts = Mapping[str, Any]


def channel_figures(mechanism: Facts) -> list[Figure]:
    """The pictures of a mechanism; none if it is not known.

    Args:
      mechanism: What it says of itself, from the record of a release.
    """
    if is_binary(mechanism):
        ones = (mechanism["prob_if_negative"], mechanism["prob_if_positive"])
        bits = _matrix(("0", "1"), ("0", "1"), [(1 - chance, chance) for chance in ones])
        return [Figure(bits, _EACH)]
    if {"channel", "atoms", "outputs"} <= mechanism.keys():
        return [Figure(_thinned(mechanism), _EACH)]
    if {"prob_of_the_truth", "prob_of_each_other_class", "num_classes"} <= mechanism.keys():
        names = [str(number) for number in range(mechanism["num_classes"])]
        chances = mechanism["prob_of_the_truth"], mechanism["prob_of_each_other_class"]
        return [_response_figure(names, *chances)]
    if {"bin_lows", "realised_epsilon"} <= mechanism.keys():
        return [_bin_figure(mechanism)]
    if "reported_classes" in mechanism:
        return [_prior_figure(mechanism)]
    if isinstance(mechanism.get("grid"), Mapping):
        return _additive_figures(additive_noise(mechanism))
    return [_unit_figure(mechanism)] if is_of_units(mechanism) else []


def is_binary(mechanism: Facts) -> bool:
    """Whether each label is a bit that is noised by itself."""
    return {"prob_if_negative", "prob_if_positive"} <= mechanism.keys()


def is_of_units(mechanism: Facts) -> bool:
    """Whether units own several rows, and the channel depends on how many."""
    return {"max_conversions_per_unit", "row_share"} & mechanism.keys() != set()


def label_grid(mechanism: Facts) -> "LabelGrid | None":
    """The declared range of labels that are numbers; None for other labels."""
    from tulle.labels.label_grid import LabelGrid

    found = mechanism.get("grid", mechanism)
    if not isinstance(found, Mapping) or not {"low", "high"} <= found.keys():
        return None
    low, high = float(found["low"]), float(found["high"])
    return LabelGrid(low=low, high=high, step=float(found.get("step", high - low)))


def additive_noise(mechanism: Facts) -> "AdditiveNoise":
    """The mechanism that adds noise, from what it says of itself."""
    from tulle.labels.additive_noise import DiscreteLaplaceLabels, LaplaceLabels
    from tulle.labels.label_grid import LabelGrid
    from tulle.labels.staircase import StaircaseLabels
    from tulle.mechanisms.staircase_noise import StaircaseAim

    grid = LabelGrid(**mechanism["grid"])
    epsilon, clip = float(mechanism["epsilon"]), bool(mechanism["clip"])
    if "aim" in mechanism:
        aim = StaircaseAim(mechanism["aim"])
        return StaircaseLabels(epsilon=epsilon, grid=grid, clip=clip, aim=aim)
    is_discrete = str(mechanism["mechanism"]).startswith(DiscreteLaplaceLabels.word)
    make = DiscreteLaplaceLabels if is_discrete else LaplaceLabels
    return make(epsilon=epsilon, grid=grid, clip=clip)


def unit_mechanism(mechanism: Facts) -> "PerRowResponse | JointResponse":
    """The mechanism of units, from what it says of itself."""
    from tulle.labels.units.unit_response import JointResponse, PerRowResponse, RowShare

    epsilon, max_rows = float(mechanism["epsilon"]), mechanism["max_rows_per_unit"]
    if "row_share" in mechanism:
        share = RowShare(mechanism["row_share"])
        return PerRowResponse(epsilon=epsilon, max_rows_per_unit=max_rows, share=share)
    return JointResponse(
        epsilon=epsilon,
        max_conversions_per_unit=mechanism["max_conversions_per_unit"],
        max_rows_per_unit=max_rows,
        subset=mechanism["mechanism"] == "joint-subset",
        assumed_base_rate=mechanism["assumed_base_rate"],
    )


def unit_sizes(mechanism: Facts) -> range:
    """The numbers of rows that a unit may keep, as far as they are drawn."""
    most = mechanism["max_rows_per_unit"] or _NUM_UNIT_ROWS
    return range(1, min(int(most), _NUM_UNIT_ROWS) + 1)


def _matrix(
    labels: Sequence[str],
    reports: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    row_name: str = "label",
    column_name: str = "noisy label",
) -> MatrixChart:
    return MatrixChart(
        name="Channel",
        row_name=row_name,
        column_name=column_name,
        row_labels=tuple(labels),
        column_labels=tuple(reports),
        values=tuple(tuple(map(float, row)) for row in values),
    )


def _thinned(mechanism: Facts) -> MatrixChart:
    """The channel of listed values: some of many labels, and many outputs in groups."""
    labels, outputs = mechanism["atoms"], mechanism["outputs"]
    every, group = (-(-len(values) // _MOST_VALUES) for values in (labels, outputs))
    starts = range(0, len(outputs), group)
    return _matrix(
        _few_digits(labels[::every]),
        _few_digits([outputs[start] for start in starts]),
        [
            [math.fsum(row[start : start + group]) for start in starts]
            for row in mechanism["channel"][::every]
        ],
    )


def _few_digits(values: Sequence[float]) -> list[str]:
    """Three digits of the largest, which is all that an axis has room for."""
    most = max(map(abs, values)) or 1.0
    decimals = max(0, 2 - math.floor(math.log10(most)))
    return [number_text(float(value), decimals) for value in values]


def _bin_figure(mechanism: Facts) -> Figure:
    names = [f"from {short_number(float(low))}" for low in mechanism["bin_lows"]]
    epsilon = float(mechanism["realised_epsilon"])
    other = 1 / (math.expm1(epsilon) + len(names))
    return _response_figure(names, math.exp(epsilon) * other, other)


def _response_figure(names: Sequence[str], true_prob: float, other: float) -> Figure:
    """Randomized response among some values, in short where there are too many to see."""
    if len(names) > _MOST_VALUES:
        reports = ("the truth", "each other value", "all others")
        row = (true_prob, other, other * (len(names) - 1))
        about = f"All {len(names):,} values are treated alike."
        return Figure(_matrix((f"any of {len(names):,}",), reports, [row]), about)
    values = [[true_prob if row == column else other for column in names] for row in names]
    return Figure(_matrix(names, names, values), _EACH)


def _prior_figure(mechanism: Facts) -> Figure:
    """Only likely classes come out; others are replaced by an even draw among these."""
    import numpy as np

    from tulle.labels.prior_response import PriorResponse

    num_classes, num_likely = int(mechanism["num_classes"]), len(mechanism["reported_classes"])
    about = f"Only classes that the prior finds likely come out: {num_likely} of {num_classes:,}."
    if num_classes > _MOST_VALUES:
        return Figure(_likely_or_not(mechanism), about)
    response = PriorResponse(
        epsilon=float(mechanism["epsilon"]), prior=np.array(mechanism["prior"], np.float64)
    )
    names = [str(number) for number in range(num_classes)]
    chart = _matrix(names, names, response.channel_matrix().tolist())
    return Figure(chart, f"{about} Rows add up to 100%.")


def _likely_or_not(mechanism: Facts) -> MatrixChart:
    """The channel of many classes: all likely ones are alike, and so are all others."""
    from tulle.labels.class_response import ClassResponse

    num_likely = len(mechanism["reported_classes"])
    truth, other = 1.0, 0.0
    if num_likely > 1:
        among = ClassResponse(epsilon=float(mechanism["epsilon"]), num_classes=num_likely)
        facts = among.describe()
        truth, other = facts["prob_of_the_truth"], facts["prob_of_each_other_class"]
    rows = {f"one of {num_likely} likely": (truth, other, other * (num_likely - 1))}
    if num_others := int(mechanism["num_classes"]) - num_likely:
        rows[f"one of {num_others} others"] = (0.0, 1 / num_likely, 1.0)
    reports = ("the truth", "each other likely", "all of these")
    return _matrix(list(rows), reports, list(rows.values()))


def _additive_figures(noise: "AdditiveNoise") -> list[Figure]:
    law = Figure(_law(noise), "The noise is drawn once for each label, whatever the label is.")
    if not noise.clip:
        return [law]
    cut = "Noisy labels beyond the range are set to its ends, which biases them."
    return [law, Figure(_cut_matrix(noise), cut)]


def _law(noise: "AdditiveNoise") -> Chart:
    """Chances of the noise for each unit of the label, beside Laplace noise."""
    from tulle.labels.additive_noise import LaplaceLabels

    grid = noise.grid
    laplace = LaplaceLabels(epsilon=noise.epsilon, grid=grid)
    scale = laplace.noise.noise_scale
    reach = min(_SPANS_SHOWN * (grid.high - grid.low), _SCALES_SHOWN * scale)
    xs = [reach * (2 * number / _NUM_POINTS - 1) for number in range(_NUM_POINTS + 1)]
    plain = Curve(
        label="Laplace noise of the same epsilon",
        xs=tuple(xs),
        ys=tuple(math.exp(-abs(x) / scale) / (2 * scale) for x in xs),
        is_reference=noise.name != laplace.name,
    )
    own = [] if isinstance(noise, LaplaceLabels) else [_steps(noise, reach)]
    return CurveChart(
        name="Law of the noise",
        x_axis=Axis(name="noise that is added to a label"),
        y_axis=Axis(name="chance for each unit of the label", low=0.0),
        curves=(*own, plain),
    )


def _steps(noise: "DiscreteLaplaceLabels | StaircaseLabels", reach: float) -> Curve:
    """The law of noise in whole steps."""
    import numpy as np

    from tulle.labels.staircase import StaircaseLabels

    width = noise.grid.step / (noise.refinement if isinstance(noise, StaircaseLabels) else 1)
    most = max(1, int(reach / width))
    every = max(1, most * 2 // _NUM_POINTS)
    steps = np.arange(-most, most + 1, every)
    chances = noise.noise.pmf(steps) / width
    xs = tuple(float(step) * width for step in steps)
    return Curve(label=noise.name, xs=xs, ys=tuple(chances.tolist()))


def _cut_matrix(noise: "AdditiveNoise") -> MatrixChart:
    """How often a noisy label is cut, for some labels."""
    grid = noise.grid
    last = grid.num_values - 1
    chosen = sorted({round(last * n / (_NUM_CUT_LABELS - 1)) for n in range(_NUM_CUT_LABELS)})
    rows = []
    for place in chosen:
        low, high = (_chance_of_at_least(noise, room) for room in (place, last - place))
        rows.append((low, max(0.0, 1 - low - high), high))
    names = [short_number(min(grid.low + grid.step * place, grid.high)) for place in chosen]
    reports = (short_number(grid.low), "between", short_number(grid.high))
    return _matrix(names, reports, rows)


def _chance_of_at_least(noise: "AdditiveNoise", num_steps: int) -> float:
    """That the noise is at least so many steps of the grid, to one side."""
    from tulle.labels.additive_noise import DiscreteLaplaceLabels, LaplaceLabels

    if isinstance(noise, LaplaceLabels):
        return math.exp(-num_steps * noise.grid.step / noise.noise.noise_scale) / 2
    if isinstance(noise, DiscreteLaplaceLabels):
        chance = float(noise.noise.pmf(num_steps))
        return chance / -math.expm1(-1 / noise.noise.scale)
    least = num_steps * noise.refinement
    if least == 0:
        return (1 + float(noise.noise.pmf(0))) / 2
    return float(noise.noise.tail(least))


def _unit_figure(mechanism: Facts) -> Figure:
    """How often reports of 1 come, by the number of rows that a unit has."""
    sizes = unit_sizes(mechanism)
    channels = [unit_mechanism(mechanism).row_channel(size) for size in sizes]
    xs = tuple(map(float, sizes))
    positives = tuple(float(channel.prob_if_positive) for channel in channels)
    negatives = tuple(float(channel.prob_if_negative) for channel in channels)
    chart = CurveChart(
        name="Channel of a row, by the rows of its unit",
        x_axis=Axis(name="rows of the unit"),
        y_axis=Axis(name="chance of a report of 1", is_percent=True, low=0.0),
        curves=(
            Curve(label="label 1", xs=xs, ys=positives),
            Curve(label="label 0", xs=xs, ys=negatives),
        ),
    )
    return Figure(chart, "The closer the curves, the less one report tells.")
