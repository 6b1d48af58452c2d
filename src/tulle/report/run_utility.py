"""How good a run is on its test rows, beside other runs on the same rows.

These figures are exact. The card of each run names the rows as not protected.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tulle.errors import ConfigError, DataError
from tulle.report.html.charts import Axis, Bar, BarChart, Curve, CurveChart
from tulle.report.html.page import Block, Figure, Paragraph, Section
from tulle.report.html.tables import Table
from tulle.runs.card import Card
from tulle.runs.card_text import print_up
from tulle.runs.folder import RunFolder
from tulle.runs.record import read_training, relative_auc_loss

_NAME = "AUC loss with 95% intervals"
_VALUE = "AUC loss, less is better"
_Point = tuple[float, float, tuple[float, float]]
"""Epsilon, value and the interval around it."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CardedRun:
    """A finished run and its card."""

    folder: RunFolder
    card: Card


def utility_section(
    run: CardedRun, *, compared: Sequence[CardedRun] = (), baseline: RunFolder | None = None
) -> Section:
    """The section about utility.

    Args:
      run: What the page is about.
      compared: Other private runs.
      baseline: A non-private run.

    Privacy:
      Figures on test rows are not protected, as the card says. The figure against a baseline
      tells about the raw training rows: the page must say so.

    Raises:
      ConfigError: A compared run is not private, or the baseline is.
      DataError: One of them was tested on other rows, or on none.
    """
    folder, card = run.folder, run.card
    others = [other.folder for other in compared]
    if not card.utility:
        if compared or baseline is not None:
            raise DataError(f"run {folder.path.name} was tested on no rows; compare another run.")
        return Section("Utility", (Paragraph("Not measured: there were no test rows."),))
    for other in others:
        _check_comparable(folder, other)
    blocks: list[Block] = [
        Paragraph(
            f"Measured on {card.utility[0].measured_on}. These figures are exact and not protected."
        )
    ]
    if compared:
        text = "Each epsilon is of one run. Whoever releases all of these runs spends the sum."
        blocks.append(Paragraph(text))
    bars = [_bar(folder, is_muted=False), *(_bar(other) for other in others)]
    if baseline is not None:
        bars.append(_bar(baseline))
    blocks.append(Figure(BarChart(name=_NAME, value_name=_VALUE, bars=tuple(bars))))
    blocks += _over_epsilon((folder, *others), baseline)
    return Section("Utility", (*blocks, utility_table(card)))


def utility_facts(run: CardedRun, baseline: RunFolder | None) -> list[tuple[str, str]]:
    """The figures that a reader wants first: AUC, AUC loss against a baseline, calibration.

    Privacy:
      As `utility_section`.
    """
    if not run.card.utility:
        return []
    metrics = _metrics(run.folder)
    low, high = metrics["auc_loss_interval"]
    auc = f"{1 - metrics['auc_loss']:.3f} (low {1 - high:.3f}, high {1 - low:.3f})"
    facts = [("AUC, with 95% interval", auc), ("AUC loss", f"{metrics['auc_loss']:.3f}")]
    if baseline is not None:
        relative = relative_auc_loss(run.folder, baseline)
        facts.append(("AUC loss against no privacy", f"{relative:+.1f}%"))
    facts.append(("mean prediction over mean label", f"{metrics['calibration']:.3f}"))
    return facts


def _metrics(run: RunFolder) -> Mapping[str, Any]:
    """Figures of quality of a run that was tested.

    Raises:
      DataError: It was tested on no rows.
    """
    metrics = read_training(run).metrics
    if metrics is None:
        raise DataError(f"run {run.path.name} was tested on no rows; train it with test rows.")
    return metrics


def utility_table(card: Card) -> Table:
    """All figures of quality of a card."""
    rows = tuple(
        (
            figure.name,
            figure.value,
            None if figure.interval is None else figure.interval.low,
            None if figure.interval is None else figure.interval.high,
        )
        for figure in card.utility
    )
    return Table(head=("metric", "value", "low", "high"), rows=rows)


def _check_comparable(folder: RunFolder, other: RunFolder) -> None:
    if not other.plan.is_private:
        raise ConfigError(
            f"run {other.path.name} is not private; name it with --baseline, not --compare."
        )
    own, found = _metrics(folder), read_training(other).metrics
    names = ("num_rows", "num_positives")
    if found is None or any(found[name] != own[name] for name in names):
        raise DataError(
            f"run {other.path.name} was tested on other rows, or on none; train it on the same "
            "data with the same test rows."
        )


def _bar(run: RunFolder, *, is_muted: bool = True) -> Bar:
    metrics, about = _metrics(run), "no privacy"
    if run.plan.is_private:
        about = f"{read_training(run).method}, epsilon {print_up(run.plan.guarantee.epsilon)}"
    low, high = metrics["auc_loss_interval"]
    return Bar(
        label=f"{run.path.name} ({about})",
        value=metrics["auc_loss"],
        low=low,
        high=high,
        is_muted=is_muted,
    )


def _over_epsilon(runs: Sequence[RunFolder], baseline: RunFolder | None) -> list[Block]:
    """AUC loss over epsilon, one curve a method, if there is more than one epsilon."""
    points: dict[str, list[_Point]] = {}
    for run in runs:
        metrics = _metrics(run)
        low, high = metrics["auc_loss_interval"]
        point = (run.plan.guarantee.epsilon, metrics["auc_loss"], (low, high))
        points.setdefault(read_training(run).method, []).append(point)
    epsilons = {point[0] for found in points.values() for point in found}
    if len(epsilons) < 2:
        return []
    curves = [_curve(method, sorted(found)) for method, found in points.items()]
    if baseline is not None:
        level = _metrics(baseline)["auc_loss"]
        xs = (min(epsilons), max(epsilons))
        curves.append(Curve(label="no privacy", xs=xs, ys=(level, level), is_reference=True))
    chart = CurveChart(
        name="Privacy and utility",
        x_axis=Axis(name="epsilon"),
        y_axis=Axis(name=_VALUE),
        curves=tuple(curves),
    )
    return [Figure(chart, "With 95% intervals. Upwards is worse, leftwards more private.")]


def _curve(label: str, points: Sequence[_Point]) -> Curve:
    xs, ys, ranges = zip(*points, strict=True)
    return Curve(label=label, xs=xs, ys=ys, ranges=ranges)
