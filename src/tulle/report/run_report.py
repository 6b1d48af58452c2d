"""The page of a training run, from the folder that it left.

Steps are shown as they were recorded: losses and clipped shares with noise, which the
guarantee covers. Figures on test rows are exact, as on the card, which names those rows as not
protected. A baseline is a model of the raw rows: a page with one is not a private release.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tulle.privacy.fields import Scalar, null_if_infinite
from tulle.quality.estimates import Estimate
from tulle.report.html.card_sections import card_page
from tulle.report.html.charts import Axis, Bar, BarChart, Curve, CurveChart
from tulle.report.html.page import Block, Figure, Page, Section
from tulle.report.html.tables import is_number
from tulle.report.run_utility import CardedRun, utility_facts, utility_section
from tulle.runs.card import Card
from tulle.runs.card_text import NOT_PRIVATE
from tulle.runs.folder import RunFolder
from tulle.runs.record import TrainingRecord, read_training

_MOST_STEPS = 300
"""Most steps of one curve; longer ones are thinned out."""


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
    folder, card = run.folder, run.card
    record, records = read_training(folder), folder.records.read()
    sections = [
        utility_section(run, compared=compared, baseline=baseline),
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
        f"The page shows {other.folder.path.name}, which is no private release: {reason}"
        for other in compared
        for reason in other.card.reasons
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
    ranges = tuple(_label_range(row) for row in deciles)
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
    caption = "Test rows by prediction, in ten parts, with 95% intervals. Not protected."
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
