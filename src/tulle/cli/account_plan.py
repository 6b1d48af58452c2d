"""`tulle account plan`: check what a plan claims before anything is released under it."""

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.errors import ConfigError, DataError, reason_of
from tulle.privacy.fields import text_if_infinite

if TYPE_CHECKING:
    from tulle.privacy.plan import Plan

_CARD, _TRAIN_PLAN = "tulle card ", "tulle train plan "


def check_plan(
    plan: Annotated[
        Path, typer.Argument(help="The plan.json of a run, or what `tulle plan --output` wrote.")
    ],
    header: Annotated[
        Path | None,
        typer.Option(
            help="CSV file whose first line must have every column of the plan.",
            rich_help_panel="Data",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel="Output")
    ] = False,
) -> None:
    """Recompute every epsilon that a plan claims, and check its columns. Reads no rows."""
    from tulle.accounting.accountant import verify_plan
    from tulle.privacy.guarantee import round_up

    loaded = _plan_in(plan)
    epsilons = verify_plan(loaded)
    if header is not None:
        loaded.columns.check_against(_header_columns(header))
    if as_json:
        claims = [
            {"claim": str(claim.guarantee), "epsilon": text_if_infinite(epsilon)}
            for claim, epsilon in zip(loaded.claims, epsilons, strict=True)
        ]
        facts = {"plan": loaded.name, "fingerprint": loaded.fingerprint(), "claims": claims}
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    typer.echo(f"{loaded.name}: {loaded.mechanism}")
    for claim, epsilon in zip(loaded.claims, epsilons, strict=True):
        typer.echo(f"  {claim.guarantee}: its event gives epsilon={round_up(epsilon, 6):.6g}")


def _plan_in(path: Path) -> "Plan":
    """The plan in a file; of a finished training plan, what follows from it."""
    from tulle.privacy.fields import parse_json
    from tulle.privacy.plan import Plan

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read: {reason_of(error)}; give the plan.json of a run, or what "
            "`tulle plan --output FILE` wrote."
        ) from None
    data = parse_json(path.name, text)
    written_as = str(data.get("format")) if isinstance(data, dict) else ""
    if written_as.startswith(_CARD):
        raise ConfigError(
            f"{path} is a card, which says what was promised; its plan is the plan.json in the "
            "folder of a run."
        )
    if written_as.startswith(_TRAIN_PLAN):
        from tulle.train.methods.train_plan import TrainPlan

        return TrainPlan.from_json(text).privacy
    return Plan.from_dict(data)


def _header_columns(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            columns = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        shown = error if isinstance(error, csv.Error) else reason_of(error)
        raise DataError(f"{path} cannot be read: {shown}; give a CSV file with a header.") from None
    if not columns:
        raise DataError(f"{path} is empty; give a CSV file with a header.")
    return columns
