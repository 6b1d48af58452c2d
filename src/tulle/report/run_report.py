"""The page of a training run, from the folder that it left.

Steps are shown as they were recorded: losses and clipped shares with noise, which the
guarantee covers. Figures on test rows are exact, as on the card, which names those rows as not
protected. A baseline is a model of the raw rows: a page with one is not a private release.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import Scalar, null_if_infinite
from tulle.quality.metrics import Estimate
from tulle.report.html.card_sections import card_page
from tulle.report.html.charts import Axis, Bar, BarChart, Curve, CurveChart, Table, is_number
from tulle.report.html.page import Block, Figure, Page, Paragraph, Section
from tulle.report.model_report import run_sections
from tulle.runs.card import Card
from tulle.runs.card_text import NOT_PRIVATE, print_up
from tulle.runs.folder import RunFolder
from tulle.runs.record import TrainingRecord, read_training, relative_auc_loss

_MOST_STEPS = 300
"""Most steps of one curve; longer ones are thinned out."""
_AUC_LOSS = "AUC loss, less is better"

CardedRun = tuple[RunFolder, Card]
"""A finished run and its card."""


def run_page(
    run: CardedRun, *, compared: Sequence[CardedRun] = (), baseline: RunFolder | None = None
) -> Page:
    """The page of a finished run.

    Args:
      run: The run and its card.
      compared: Other private runs tested on the same rows.
      baseline: A non-private run tested on the same rows; makes the page one for whoever may
        see the data.

    Privacy:
      Shows what the runs released. Figures on test rows are not protected: the card says so.
      With a baseline, or a compared run without a guarantee, the first line says that the page
      is not a private release.

    Raises:
      RunStateError: A run is not finished.
    """
    folder, card = run
    record, records = read_training(folder), folder.records.read()
    sections = [
        utility_section(run, compared=compared, baseline=baseline),
        *run_sections(folder.path, card),
        *_steps(records, is_private=card.plan.is_private),
        *_calibration(record),
        *_budget(card, records),
    ]
    page = card_page(
        card,
        title=f"Training run: {folder.path.name}",
        sections=sections,
        facts=utility_facts(run, baseline),
    )
    reasons = [
        f"The page shows {other.path.name}, which is no private release: {reason}"
        for other, other_card in compared
        for reason in other_card.reasons
    ]
    if baseline is not None:
        reasons.insert(
            0,
            "The page compares with a non-private run, a model of the raw rows: it is for those "
            "who may see them",
        )
    return _with_reasons(page, reasons) if reasons else page


def _with_reasons(page: Page, reasons: Sequence[str]) -> Page:
    """The page as one that shows more than its run released."""
    return dataclasses.replace(
        page,
        verdict=NOT_PRIVATE,
        is_private=False,
        reasons=(*reasons, *page.reasons),
        sentence=f"The run alone: {page.verdict}. {page.sentence}",
    )


def _steps(records: Sequence[Mapping[str, Scalar]], *, is_private: bool) -> tuple[Section, ...]:
    """Loss of each phase, and the share of clipped rows where it was recorded."""
    phases = dict.fromkeys(
        str(record.get("phase")) for record in records if record.get("kind") == "step"
    )
    losses = [_curve_of(records, phase, "loss") for phase in phases]
    clipped = [_curve_of(records, phase, "clipped_share") for phase in phases]
    blocks: list[Block] = []
    if any(curve.xs for curve in losses):
        noise = "In the private phase with noise, so single steps may lie far off."
        chart = CurveChart(
            name="Loss by step",
            x_axis=Axis(name="step of the phase"),
            y_axis=Axis(name="noisy loss" if is_private else "loss"),
            curves=tuple(losses),
        )
        blocks.append(Figure(chart, noise if is_private else ""))
    if any(curve.xs for curve in clipped):
        chart = CurveChart(
            name="Share of clipped rows by step",
            x_axis=Axis(name="step of the phase"),
            y_axis=Axis(name="noisy share of clipped rows", is_percent=True),
            curves=tuple(clipped),
        )
        blocks.append(Figure(chart, "With noise: it can be below 0 or above 100%."))
    return (Section("Steps", tuple(blocks)),) if blocks else ()


def _curve_of(records: Sequence[Mapping[str, Scalar]], phase: str, name: str) -> Curve:
    points = [
        (float(step), float(value))
        for record in records
        if record.get("kind") == "step" and record.get("phase") == phase
        for step, value in [(record.get("step"), record.get(name))]
        if is_number(step) and is_number(value)
    ]
    every = -(-len(points) // _MOST_STEPS) or 1
    kept = points[::every]
    label = phase if every == 1 else f"{phase}, every {every} steps"
    return Curve(label=label, xs=tuple(x for x, _ in kept), ys=tuple(y for _, y in kept))


def _calibration(record: TrainingRecord) -> tuple[Section, ...]:
    deciles = (record.metrics or {}).get("deciles") or []
    if not deciles:
        return ()
    predictions = tuple(float(row["mean_prediction"]) for row in deciles)
    labels = tuple(float(row["mean_label"]) for row in deciles)
    # Values have no interval that follows from their mean alone.
    is_binary = "auc_loss" in (record.metrics or {})
    ranges = tuple(_label_range(row) for row in deciles) if is_binary else ()
    ends = (min(predictions), max(predictions))
    chart = CurveChart(
        name="Calibration by decile",
        x_axis=Axis(name="mean prediction"),
        y_axis=Axis(name="mean label"),
        curves=(
            Curve(
                label="deciles of the test rows",
                xs=predictions,
                ys=labels,
                has_line=False,
                ranges=ranges,
            ),
            Curve(label="perfect", xs=ends, ys=ends, is_reference=True),
        ),
    )
    intervals = ", with 95% intervals" if is_binary else ""
    caption = f"Test rows by prediction, in ten parts{intervals}. Not protected."
    return (Section("Calibration", (Figure(chart, caption),)),)


def _label_range(row: Mapping[str, Any]) -> tuple[float, float]:
    """Interval of the mean of labels 0 and 1, over the sampling of the rows."""
    mean, num_rows = float(row["mean_label"]), int(row["num_rows"])
    spread = math.sqrt(max(mean * (1 - mean), 0.0) / max(num_rows - 1, 1))
    low, high = Estimate(value=mean, standard_error=spread).interval
    return max(low, 0.0), min(high, 1.0)


def _budget(card: Card, records: Sequence[Mapping[str, Scalar]]) -> tuple[Section, ...]:
    """What each part costs on its own, and what was spent by which step."""
    if not card.plan.is_private:
        return ()
    blocks: list[Block] = []
    label_epsilon = card.plan.settings.get("label_epsilon")
    bars = [
        Bar(label=f"{given.scope.value}, one {given.unit}", value=null_if_infinite(given.epsilon))
        for given in (claim.guarantee for claim in card.plan.claims)
    ]
    if isinstance(label_epsilon, float) and label_epsilon > 0:
        bars.append(Bar(label="randomized labels alone", value=label_epsilon))
    chart = BarChart(name="Budget split", value_name="epsilon", bars=tuple(bars))
    blocks.append(Figure(chart, "What each part costs on its own; the first is the claim."))
    spent = _curve_of(records, "private", "epsilon")
    if spent.xs:
        curve = CurveChart(
            name="Epsilon spent by step",
            x_axis=Axis(name="step of the private phase"),
            y_axis=Axis(name="epsilon"),
            curves=(spent,),
        )
        blocks.append(Figure(curve, "Labels that were randomized first are counted."))
    return (Section("Budget", tuple(blocks)),)


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
    folder, card = run
    others = [other for other, _ in compared]
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
    if "auc_loss" not in _metrics(folder):
        return Section("Utility", (*blocks, utility_table(card)))
    bars = [_bar(folder, is_muted=False), *(_bar(other) for other in others)]
    if baseline is not None:
        bars.append(_bar(baseline))
    blocks.append(
        Figure(BarChart(name="AUC loss with 95% intervals", value_name=_AUC_LOSS, bars=tuple(bars)))
    )
    blocks += _over_epsilon((folder, *others), baseline)
    return Section("Utility", (*blocks, utility_table(card)))


def utility_facts(run: CardedRun, baseline: RunFolder | None) -> list[tuple[str, str]]:
    """The figures that a reader wants first: AUC, AUC loss against a baseline, calibration.

    Privacy:
      As `utility_section`.
    """
    folder, card = run
    if not card.utility:
        return []
    metrics = _metrics(folder)
    if "accuracy" in metrics:
        return [(n.replace("_", " "), f"{metrics[n]:.3f}") for n in ("accuracy", "log_loss")]
    if "auc_loss" not in metrics:
        return [
            ("R2 of clipped labels", f"{metrics['r_squared']:.4f}"),
            ("mean squared error", f"{metrics['mean_squared_error']:.6g}"),
            ("mean prediction over mean label", f"{metrics['calibration']:.3f}"),
        ]
    low, high = metrics["auc_loss_interval"]
    auc = f"{1 - metrics['auc_loss']:.3f} (low {1 - high:.3f}, high {1 - low:.3f})"
    facts = [("AUC, with 95% interval", auc), ("AUC loss", f"{metrics['auc_loss']:.3f}")]
    if baseline is not None:
        relative = relative_auc_loss(folder, baseline)
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
    if found is None or any(found.get(name) != own.get(name) for name in names):
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
    points: dict[str, list[tuple[float, float, tuple[float, float]]]] = {}
    for run in runs:
        metrics = _metrics(run)
        low, high = metrics["auc_loss_interval"]
        point = (run.plan.guarantee.epsilon, metrics["auc_loss"], (low, high))
        points.setdefault(read_training(run).method, []).append(point)
    epsilons = {point[0] for found in points.values() for point in found}
    if len(epsilons) < 2:
        return []
    curves = []
    for method, found in points.items():
        xs, ys, ranges = zip(*sorted(found), strict=True)
        curves.append(Curve(label=method, xs=xs, ys=ys, ranges=ranges))
    if baseline is not None:
        level, ends = _metrics(baseline)["auc_loss"], (min(epsilons), max(epsilons))
        curves.append(Curve(label="no privacy", xs=ends, ys=(level, level), is_reference=True))
    chart = CurveChart(
        name="Privacy and utility",
        x_axis=Axis(name="epsilon"),
        y_axis=Axis(name=_AUC_LOSS),
        curves=tuple(curves),
    )
    return [Figure(chart, "With 95% intervals. Upwards is worse, leftwards more private.")]
