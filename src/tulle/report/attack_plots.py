"""Plots of attacks on made-up data as SVG text, each with what privacy allows any attacker."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tulle.audit.attacks.bounds import guess_ceiling, true_positive_ceilings
from tulle.report.svg_figures import COLORS, MARKERS, new_figure, svg_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tulle.audit.attacks.differencing import DifferencingResult
    from tulle.audit.attacks.linkage import LinkageResult
    from tulle.audit.attacks.membership import AttackedModel, MembershipResult
    from tulle.audit.attacks.reconstruction import ReconstructionResult

BOUND = "most that any attacker can"
CHANCE = "by chance"
_CHANCE_COLOR = "#666666"
_BOUND_COLOR = "#000000"
_TWO_PANELS_INCHES = (9.0, 4.2)
_ONE_PANEL_INCHES = (7.5, 6.0)


def plot_reconstruction(result: "ReconstructionResult", *, title: str = "") -> str:
    """Bits found, against more noise on each answer and with more answers."""
    with new_figure("") as (figure, axes):
        left, right = _two_panels(figure, axes, title)
        scales = [row.noise_scale for row in result.by_noise]
        _draw(left, scales, [row.share_right for row in result.by_noise], "attack", 0)
        _draw_bound(left, scales, [row.ceiling for row in result.by_noise])
        # Exact answers have no place on a logarithmic axis.
        left.set_xscale("symlog", linthresh=min((s for s in scales if s > 0), default=1.0))
        _tick_places(left, scales)
        left.set_xlabel(f"noise scale of each of {result.config.num_queries:,} answers")
        epsilon = f"{result.config.epsilon:g}"
        counts = [row.num_queries for row in result.epsilon_each]
        each = [row.share_right for row in result.epsilon_each]
        total = [row.share_right for row in result.epsilon_in_total]
        _draw(right, counts, each, f"attack, epsilon {epsilon} for each answer", 1)
        _draw(right, counts, total, f"attack, epsilon {epsilon} for all answers", 2)
        ceilings = [row.ceiling for row in result.epsilon_in_total]
        _draw_bound(right, counts, ceilings, name=f"{BOUND}, epsilon {epsilon} for all")
        right.set_xscale("log")
        _tick_places(right, counts)
        right.set_xlabel("answers")
        for panel in (left, right):
            _finish_shares(panel, "bits guessed right")
        return svg_text(figure, title)


def plot_differencing(result: "DifferencingResult", *, title: str = "") -> str:
    """Users given away in spite of a threshold; guesses through noise."""
    with new_figure("") as (figure, axes):
        left, right = _two_panels(figure, axes, title)
        thresholds = [row.threshold for row in result.by_threshold]
        exposed = [row.share_exposed for row in result.by_threshold]
        _draw(left, thresholds, exposed, "exact counts", 1)
        left.set_xscale("log")
        _tick_places(left, thresholds)
        left.set_ylim(bottom=0)
        left.set_xlabel("k: smaller slices are not published")
        left.set_ylabel("users whose bit is certain")
        _tick_percents(left)
        left.legend(fontsize="small")
        epsilons = [row.epsilon for row in result.by_epsilon]
        right.axhline(1.0, color=COLORS[1], linewidth=1.4, linestyle="--", label="exact counts")
        found = [row.share_right for row in result.by_epsilon]
        _draw(right, epsilons, found, "attack on noisy counts", 0)
        # A curve, and not corners at the epsilons that were tried.
        dense = [index * max(epsilons) / 100 for index in range(101)]
        _draw_bound(right, dense, [guess_ceiling(epsilon) for epsilon in dense])
        right.set_xlabel("epsilon of both counts")
        _finish_shares(right, "their bits guessed right")
        return svg_text(figure, title)


def plot_linkage(result: "LinkageResult", *, title: str = "") -> str:
    """Rows that get their name back by number of columns, beside noisy counts."""
    with new_figure("") as (figure, axes):
        left, right = _two_panels(figure, axes, title)
        places = list(range(len(result.rows)))
        named = [row.share_named_right for row in result.rows]
        wrong = [row.share_named - row.share_named_right for row in result.rows]
        left.bar(places, named, width=0.6, color=COLORS[1], label="right name")
        left.bar(places, wrong, bottom=named, width=0.6, color=COLORS[7], label="wrong name")
        left.set_ylim(0, 1)
        left.set_ylabel("rows of the log")
        _tick_percents(left)
        left.legend(fontsize="small", loc="upper left")
        guessed = [row.noisy_share_right for row in result.rows]
        _draw(right, places, guessed, f"attack, epsilon {result.config.epsilon:g}", 0)
        _draw_bound(right, places, [result.ceiling] * len(places))
        _finish_shares(right, "bits guessed right from noisy counts")
        for panel in (left, right):
            names = [_last_column(row.columns) for row in result.rows]
            panel.set_xticks(places, names, fontsize="small")
            panel.set_xlabel("columns of the join")
        return svg_text(figure, title)


def plot_membership(result: "MembershipResult", *, title: str = "") -> str:
    """True positives against false positives, both logarithmic, a line and a bound a model."""
    from tulle.audit.attacks.membership import FALSE_POSITIVE_RATES

    rates = list(FALSE_POSITIVE_RATES)
    with new_figure(title) as (figure, axes):
        for index, model in enumerate(result.models):
            color = COLORS[(index + 1) % len(COLORS)]
            axes.plot(
                rates, model.true_positive_rates, color=color, label=f"attack, {_name(model)}"
            )
            if math.isfinite(model.epsilon):
                ceilings = true_positive_ceilings(rates, model.epsilon, model.delta)
                label = f"{BOUND}, {_name(model)}"
                axes.plot(rates, ceilings, color=color, linestyle="--", label=label)
        axes.plot(rates, rates, color=_CHANCE_COLOR, linestyle=":", label=CHANCE)
        axes.set_xscale("log")
        axes.set_yscale("log")
        _tick_rates(axes)
        # What is below chance at the left end says nothing about leaks.
        axes.set_ylim(rates[0], 1.1)
        axes.set_xlabel("false positives: taken for members, and were not")
        axes.set_ylabel("true positives: members found")
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
        figure.set_size_inches(*_ONE_PANEL_INCHES)
        return svg_text(figure, title)


def _two_panels(figure: "Figure", axes: "Axes", title: str) -> "tuple[Axes, Axes]":
    figure.delaxes(axes)
    figure.set_size_inches(*_TWO_PANELS_INCHES)
    if title:
        figure.suptitle(title)
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    for panel in (left, right):
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    return left, right


def _draw(
    axes: "Axes", places: Sequence[float], values: Sequence[float], label: str, index: int
) -> None:
    axes.plot(
        places,
        values,
        marker=MARKERS[index],
        markersize=4,
        linewidth=1.4,
        color=COLORS[index],
        label=label,
    )


def _draw_bound(
    axes: "Axes", places: Sequence[float], values: Sequence[float], *, name: str = BOUND
) -> None:
    axes.plot(places, values, color=_BOUND_COLOR, linestyle="--", linewidth=1.2, label=name)


def _finish_shares(axes: "Axes", value_name: str) -> None:
    axes.axhline(0.5, color=_CHANCE_COLOR, linewidth=1, linestyle=":", label=CHANCE)
    axes.set_ylim(0.4, 1.02)
    axes.set_ylabel(value_name)
    _tick_percents(axes)
    # Below the panel, where no line can be.
    axes.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.18))


def _tick_percents(axes: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter

    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))


def _tick_places(axes: "Axes", places: Sequence[float]) -> None:
    """Plain numbers where values are, on an axis that is logarithmic."""
    axes.set_xticks(places, [f"{place:g}" for place in places], fontsize="small")
    axes.set_xticks([], minor=True)


def _tick_rates(axes: "Axes") -> None:
    places = (0.01, 0.1, 1.0)
    names = [f"{100 * place:g}%" for place in places]
    axes.set_xticks(places, names)
    axes.set_yticks(places, names)
    axes.minorticks_off()


def _last_column(columns: Sequence[str]) -> str:
    return columns[0] if len(columns) == 1 else f"+ {columns[-1]}"


def _name(model: "AttackedModel") -> str:
    return f"epsilon {model.epsilon:g}" if math.isfinite(model.epsilon) else "no noise"
