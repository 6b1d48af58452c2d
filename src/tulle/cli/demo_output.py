"""What `tulle demo` prints: the card of one run, and one table of all of them."""

import dataclasses
import json
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
    run: str
    card: str


def demo_row(result: "FitResult", card: "Card", run: Path, relative: float) -> DemoRow:
    """The row of a finished run."""
    from tulle.privacy.fields import null_if_infinite

    metrics, guarantee = result.metrics, result.plan.plan.guarantee
    if metrics is None:
        raise DataError(f"run {run.name} was tested on no rows; train it with test rows.")
    return DemoRow(
        method=str(result.plan.plan.settings["method"]),
        auc_loss=metrics.auc_loss,
        auc_loss_interval=metrics.auc_loss_interval,
        relative_auc_loss=relative,
        log_loss=metrics.log_loss,
        epsilon=null_if_infinite(guarantee.epsilon),
        delta=guarantee.delta,
        seconds=result.seconds,
        verdict=card.verdict,
        run=str(run),
        card=str(run / "card.json"),
    )


def print_demo(rows: list[DemoRow], folder: Path, facts: dict[str, Any], *, as_json: bool) -> None:
    """One JSON object; or the card of the Hybrid run, the table, and where everything is."""
    if as_json:
        found = {"rows": [dataclasses.asdict(row) for row in rows], "folder": str(folder)}
        typer.echo(json.dumps(found | facts, allow_nan=False))
        return
    # The card is long: what comes last is still on the screen.
    shown = next(row for row in rows if row.method == SHOWN)
    typer.echo(Path(shown.card).with_suffix(".md").read_text(encoding="utf-8"))
    typer.echo(f"Four methods on {facts['test_rows']:,} held-out rows of the made-up log:\n")
    typer.echo(_line(_COLUMNS))
    for row in rows:
        typer.echo(_line(_cells(row)))
    typer.echo(
        "\nEach epsilon is of one run. Whoever released all three private models of the same rows"
        "\nwould spend the sum.\n"
    )
    typer.echo(f"log        {facts['log']}")
    for row in rows:
        typer.echo(f"{row.method:<11}{row.run}, card {Path(row.card).with_suffix('.md')}")
    typer.echo(f"report     {facts['report']}")


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
