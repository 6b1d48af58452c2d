"""What `tulle demo` prints: one table of all runs, and what the card of one of them says."""

import dataclasses
import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tulle.cli.demo_settings import SHOWN
from tulle.errors import DataError

if TYPE_CHECKING:
    from tulle.report.card import Card
    from tulle.train.fitting import FitResult

_COLUMNS = ("method", "AUC loss (95%)", "relative loss", "log loss", "epsilon spent", "seconds")
_WIDTHS = (11, 17, 15, 10, 15, 9)
_TEXT_WIDTH = 90


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoRow:
    """One method: how good on held-out rows, at which price."""

    method: str
    auc_loss: float
    auc_loss_interval: tuple[float, float]
    relative_auc_loss: float
    """By how many percent the AUC loss is above that of the baseline."""
    log_loss: float
    epsilon: float | None
    """None: no privacy."""
    delta: float
    seconds: float
    verdict: str
    reasons: tuple[str, ...]
    """Why the run is not a private release; empty if it is one."""
    claim: str
    """What the card promises, in one sentence."""
    run: str
    card: str


def demo_row(result: "FitResult", card: "Card", run: Path, relative: float) -> DemoRow:
    """The row of a finished run."""
    from tulle.privacy.fields import null_if_infinite
    from tulle.report.wording import claim_sentence

    metrics, guarantee = result.metrics, result.plan.privacy.guarantee
    if metrics is None:
        raise DataError(f"run {run.name} was tested on no rows; train it with test rows.")
    return DemoRow(
        method=str(result.plan.privacy.settings["method"]),
        auc_loss=metrics.auc_loss,
        auc_loss_interval=metrics.auc_loss_interval,
        relative_auc_loss=relative,
        log_loss=metrics.log_loss,
        epsilon=null_if_infinite(guarantee.epsilon),
        delta=guarantee.delta,
        seconds=result.seconds,
        verdict=card.verdict,
        reasons=card.reasons,
        claim=claim_sentence(card.plan.guarantee, card.reasons),
        run=str(run),
        card=str(run / "card.json"),
    )


def print_demo(rows: list[DemoRow], folder: Path, facts: dict[str, Any], *, as_json: bool) -> None:
    """One JSON object; or the table, what the card of the Mosaic run says, and where all is."""
    if as_json:
        found = {"rows": [dataclasses.asdict(row) for row in rows], "folder": str(folder)}
        typer.echo(json.dumps(found | facts, allow_nan=False))
        return
    typer.echo(f"Four methods on {facts['test_rows']:,} held-out rows of the made-up log:\n")
    typer.echo(_line(_COLUMNS))
    for row in rows:
        typer.echo(_line(_cells(row)))
    typer.echo(
        "\nAUC loss is 1 - AUC. Each epsilon is of one run: whoever released all three private"
        "\nmodels of the same rows would spend the sum.\n"
    )
    _print_card(next(row for row in rows if row.method == SHOWN))
    typer.echo(f"\nlog        {facts['log']}")
    for row in rows:
        typer.echo(f"{row.method:<11}{row.run}, card {_readable(row)}")
    for name in ("labels", "campaign", "choices", "report"):
        typer.echo(f"{name:<11}{facts[name]}")


def _print_card(row: DemoRow) -> None:
    typer.echo(f"The card of {row.method} says:\n")
    for text in (row.verdict, *row.reasons, row.claim):
        typer.echo(textwrap.fill(text, _TEXT_WIDTH, initial_indent="  ", subsequent_indent="  "))


def _readable(row: DemoRow) -> Path:
    return Path(row.card).with_suffix(".md")


def _cells(row: DemoRow) -> tuple[str, ...]:
    from tulle.privacy.rounding import BINARY_NOISE, round_up

    low, high = row.auc_loss_interval
    return (
        row.method,
        f"{row.auc_loss:.4f} ± {(high - low) / 2:.4f}",
        f"{row.relative_auc_loss:+.1f}%",
        f"{row.log_loss:.4f}",
        "no privacy"
        if row.epsilon is None
        else f"{round_up(row.epsilon, 4, slack=BINARY_NOISE):g}",
        f"{row.seconds:.1f}",
    )


def _line(cells: tuple[str, ...]) -> str:
    name, *others = cells
    name_width, *widths = _WIDTHS
    padded = (f"{cell:>{width}}" for cell, width in zip(others, widths, strict=True))
    return f"{name:<{name_width}}{''.join(padded)}"
