"""Pages about selection: released choices, a plan, or a simulated market.

Choices come with a public record, and the page says no more than that. A plan on a prior has
seen no device. A simulation shows expectations over devices without noise, and is never private.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tulle.errors import DataError
from tulle.quality.metrics import Estimate
from tulle.report.html.card_sections import card_page
from tulle.report.html.charts import Axis, Bar, BarChart, Chart, Curve, CurveChart, Table
from tulle.report.html.page import Block, Code, Figure, Page, Paragraph, Section
from tulle.runs.card import Card
from tulle.runs.card_text import NOT_PRIVATE

if TYPE_CHECKING:
    from tulle.select.decisions.chosen_ads import SelectionRecord
    from tulle.select.evaluation.evaluation_plan import EvaluationRecord

_LEAST_SHARE = -1.0
"""Captured shares below it are cut off, so that one bad mechanism does not flatten the others."""
_CLIPPED = "noisy max, clipped"
"""Mechanism of a simulation with several fixed widths at each epsilon, which are no one curve."""
_DEVICES = "Computed from predictions of devices without noise: for synthetic or agreeing devices"
_METRICS = ("click_rate", "revenue", "surplus", "welfare")
_PLAN_KEYS = ("num_auctions", "is_from_devices", "baseline", "ideal", "options", "recommended")
_SIMULATION_KEYS = ("market", "num_auctions", "gain", "pricing", "epsilon_rows")

Row = Mapping[str, Any]


def choices_page(record: "SelectionRecord", card: Card) -> Page:
    """The page of released choices.

    Args:
      record: Record that lies beside the choices.
      card: Card of the release.

    Privacy:
      The record is public; the choices are not read.
    """
    server = record.num_requests - record.num_personalised
    bars = (
        Bar(label="personalised", value=float(record.num_personalised)),
        Bar(label="by the server's scores alone", value=float(server)),
        Bar(label="without an ad above the reserve", value=float(record.num_without_ad)),
    )
    chart = BarChart(name="Decisions", value_name="auctions", bars=bars)
    choices = Section(
        "Choices",
        (
            Figure(chart, "Public: they follow from consent and public scores."),
            Table(head=("column", "meaning"), rows=tuple(record.columns.items())),
            Code("Settings of the selection", record.settings),
        ),
    )
    facts = [
        ("auctions", f"{record.num_requests:,}"),
        ("personalised", f"{record.num_personalised / max(record.num_requests, 1):.1%}"),
    ]
    return card_page(card, title=f"Choices: {record.table}", sections=(choices,), facts=facts)


def evaluation_page(record: "EvaluationRecord", card: Card) -> Page:
    """The page of a released estimate of another selection.

    Args:
      record: Record that lies beside the estimate.
      card: Card of the release.

    Privacy:
      The record is public; the estimate is not read.
    """
    estimate = Section(
        "Estimate",
        (
            Table(head=("metric", "meaning"), rows=tuple(record.columns.items())),
            Code("Settings of the evaluated selection", record.target),
        ),
    )
    facts = [("decisions", f"{record.num_decisions:,}")]
    return card_page(card, title=f"Estimate: {record.table}", sections=(estimate,), facts=facts)


def plan_page(name: str, plan: Row) -> Page:
    """The page of what `tulle select plan --json` printed.

    Args:
      name: Above the page.
      plan: The JSON object.

    Privacy:
      Nothing was released. A plan on predictions of devices is marked as not private.
    """
    _check_keys("plan of a selection", plan, _PLAN_KEYS)
    from_devices = plan["is_from_devices"]
    source = "predictions of devices" if from_devices else "a prior; no device was read"
    return Page(
        title=f"Plan of a selection: {name}",
        verdict=NOT_PRIVATE if from_devices else "A plan: nothing was released",
        is_private=False if from_devices else None,
        reasons=(_DEVICES,) if from_devices else (),
        sentence=f"Expected results on {plan['num_auctions']:,} auctions and {source}.",
        sections=(_captured_by_plan(plan["options"]), _recommended(plan), *_plan_texts(plan)),
        facts=tuple(
            (
                f"captured at epsilon {row['for_epsilon']:g}",
                f"{row['captured_share']:.1%} of the gain",
            )
            for row in plan["recommended"]
            if row.get("captured_share") is not None
        ),
    )


def plan_charts(options: Sequence[Row]) -> list[Chart]:
    """What shortlists capture, over the cutoff and over their length, a curve for each epsilon.

    Args:
      options: Options of a plan, in plain data. There is no chart where nothing can be captured.
    """
    charts = [
        _curves("Captured gain by cutoff gamma", "gamma", options, _epsilon_name),
        _curves("Captured gain by finalists", "num_finalists", options, _epsilon_name),
    ]
    return [chart for chart in charts if chart is not None]


def simulation_page(simulation: Row) -> Page:
    """The page of a simulation.json.

    Privacy:
      Not a private release, and the first line says so.
    """
    _check_keys("simulation.json", simulation, _SIMULATION_KEYS)
    return Page(
        title=f"Simulated market: {simulation['market']}",
        verdict=NOT_PRIVATE,
        is_private=False,
        reasons=(_DEVICES,),
        sentence=(
            f"{simulation['num_auctions']:,} auctions; full personalisation would add "
            f"{simulation['gain']:.1%} of welfare."
        ),
        sections=(
            _captured_in_market(simulation),
            _money(simulation),
            _claims(simulation.get("claims", ())),
        ),
        facts=_most_captured(simulation["epsilon_rows"]),
    )


def _check_keys(what: str, data: Row, keys: Sequence[str]) -> None:
    if missing := [key for key in keys if key not in data]:
        raise DataError(
            f"{what} has no entry {missing[0]!r}; write it anew with this version of tulle."
        )


def _captured_by_plan(options: Sequence[Row]) -> Section:
    charts: list[Chart | None] = [*plan_charts(options)]
    best = _best_by_epsilon(options)
    if len(best) > 1:
        charts.insert(0, _curves("Captured gain by epsilon", "epsilon", best, lambda _: ""))
    return _section_of("Captured gain", charts)


def _captured_in_market(simulation: Row) -> Section:
    rows = simulation["epsilon_rows"]
    rule = rows[0]["rule"] if rows else None
    own = [row for row in rows if row["rule"] == rule and row["mechanism"] != _CLIPPED]
    return _section_of(
        "Captured gain",
        [
            _curves("Captured gain by epsilon", "epsilon", own, lambda row: row["mechanism"]),
            *plan_charts([*simulation.get("gamma_rows", ()), *simulation.get("finalist_rows", ())]),
        ],
    )


def _most_captured(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """The best at three epsilons, under the first rule of prices."""
    own = [row for row in rows if row["rule"] == rows[0]["rule"] and row["mechanism"] != _CLIPPED]
    best = _best_by_epsilon(own)
    chosen = sorted({0, len(best) // 2, len(best) - 1}) if best else []
    return tuple(
        (
            f"most captured at epsilon {best[place]['epsilon']:g}",
            f"{best[place]['captured_share']:.1%} of the gain",
        )
        for place in chosen
    )


def _money(simulation: Row) -> Section:
    """Revenue and surplus by epsilon and rule, and by where prices come from."""
    rows = simulation["epsilon_rows"]
    charts: list[Chart | None] = []
    for rule in dict.fromkeys(row["rule"] for row in rows):
        own = [row for row in rows if row["rule"] == rule and row["mechanism"] != _CLIPPED]
        for metric in ("revenue", "surplus"):
            name = f"{metric.capitalize()}, {rule}"
            charts.append(
                _curves(name, "epsilon", own, lambda row: row["mechanism"], f"{metric}_lift")
            )
    bars = tuple(
        Bar(label=f"{metric}: {row['rule']}, {row['predictions']}", value=row[f"{metric}_lift"])
        for row in simulation["pricing"]
        if row["predictions"] != "device"
        for metric in ("revenue", "surplus")
    )
    if bars:
        name = "Prices without private data"
        value_name = "change against prices from devices"
        charts.append(BarChart(name=name, value_name=value_name, bars=bars, is_percent=True))
    return _section_of("Revenue and surplus", charts)


def _claims(claims: Sequence[Row]) -> Section:
    rows = tuple((row["verdict"], row["claim"], row["condition"]) for row in claims)
    table = Table(head=("verdict", "claim", "condition"), rows=rows)
    return Section("Claims of Laro et al. 2024 in this market", (table,))


def _recommended(plan: Row) -> Section:
    found = [
        ("not personalised", None, plan["baseline"]),
        *((row["mechanism"], row["for_epsilon"], row) for row in plan["recommended"]),
        ("greedy, not private", None, plan["ideal"]),
    ]
    rows = tuple(
        (name, epsilon, *(metrics[metric] for metric in _METRICS))
        for name, epsilon, metrics in found
    )
    figures = [
        Figure(
            BarChart(
                name=f"{metric.capitalize()} of an auction",
                value_name=f"expected {metric}, in the unit of bids",
                bars=tuple(
                    Bar(
                        label=name if epsilon is None else f"best at epsilon {epsilon:g}",
                        value=metrics[metric],
                        is_muted=epsilon is None,
                    )
                    for name, epsilon, metrics in found
                ),
            ),
            "Exact expectations over the choices, for these auctions.",
        )
        for metric in ("revenue", "surplus")
    ]
    head = ("selection", "epsilon", *(metric.replace("_", " ") for metric in _METRICS))
    return Section("Revenue and surplus", (*figures, Table(head=head, rows=rows)))


def _plan_texts(plan: Row) -> list[Section]:
    sections = []
    if plan.get("incentives"):
        rows = tuple(
            (row["severity"], row["topic"], row["text"], row["way_out"] or None)
            for row in plan["incentives"]
        )
        table = Table(head=("severity", "topic", "finding", "way out"), rows=rows)
        sections.append(Section("Incentives of advertisers", (table,)))
    if plan.get("settings"):
        blocks: list[Block] = [Code("Settings of the selection", plan["settings"])]
        if plan.get("decision_guarantee"):
            blocks.insert(0, Paragraph(f"One decision: {plan['decision_guarantee']}."))
        sections.append(Section("Recommended selection", tuple(blocks)))
    return sections


def _best_by_epsilon(options: Sequence[Row]) -> list[Row]:
    known = [row for row in options if row["captured_share"] is not None]
    epsilons = sorted({row["epsilon"] for row in known})
    return [
        max((row for row in known if row["epsilon"] == e), key=lambda row: row["captured_share"])
        for e in epsilons
    ]


def _curves(
    name: str,
    setting: str,
    rows: Sequence[Row],
    label_of: Callable[[Row], str],
    value: str = "captured_share",
) -> CurveChart | None:
    """One curve for each label, over a setting; None without points."""
    known = [row for row in rows if row.get(setting) is not None and row.get(value) is not None]
    if not known:
        return None
    curves = []
    for label in dict.fromkeys(map(label_of, known)):
        own = sorted((row for row in known if label_of(row) == label), key=itemgetter(setting))
        xs, ys = (tuple(float(row[name]) for row in own) for name in (setting, value))
        curves.append(Curve(label=label, xs=xs, ys=ys, ranges=_ranges(own, value)))
    is_share = value == "captured_share"
    return CurveChart(
        name=name,
        x_axis=Axis(name=setting.replace("num_finalists", "number of finalists")),
        y_axis=Axis(
            name="captured share of the gain" if is_share else "lift over no personalisation",
            is_percent=True,
            low=_LEAST_SHARE,
        ),
        curves=tuple(curves),
    )


def _ranges(rows: Sequence[Row], value: str) -> tuple[tuple[float, float], ...]:
    """95% intervals over the sampling of the auctions, where all have a standard error."""
    errors = [row.get(f"{value}_error") for row in rows]
    if None in errors:
        return ()
    return tuple(
        Estimate(value=row[value], standard_error=row[f"{value}_error"]).interval for row in rows
    )


def _epsilon_name(row: Row) -> str:
    return f"epsilon {row['epsilon']:g}"


def _interval_words(chart: Chart) -> str:
    has_ranges = isinstance(chart, CurveChart) and any(curve.ranges for curve in chart.curves)
    return "With 95% intervals over the luck of the auctions." if has_ranges else ""


def _section_of(title: str, charts: Sequence[Chart | None]) -> Section:
    figures = tuple(Figure(chart, _interval_words(chart)) for chart in charts if chart is not None)
    nothing = (Paragraph("Personalisation has nothing to gain in these auctions."),)
    return Section(title, figures or nothing)
