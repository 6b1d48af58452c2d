"""`tulle account plan`: check what a plan claims before anything is released under it."""

import csv
import json
import math
from pathlib import Path
from typing import Annotated

import typer

from tulle.errors import DataError


def check_plan(
    plan: Annotated[Path, typer.Argument(help="A plan as JSON.")],
    header: Annotated[
        Path | None,
        typer.Option(help="A CSV file; its first line must have every column of the plan."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Recompute every epsilon that a plan claims, and check its columns. Reads no rows."""
    from tulle.accounting.plan_check import verify_plan
    from tulle.privacy.plan import Plan
    from tulle.privacy.rounding import round_up

    loaded = Plan.from_json(_read(plan))
    epsilons = verify_plan(loaded)
    if header is not None:
        loaded.columns.check_against(_header_columns(header))
    if as_json:
        claims = [
            {"claim": str(claim.guarantee), "epsilon": epsilon if math.isfinite(epsilon) else None}
            for claim, epsilon in zip(loaded.claims, epsilons, strict=True)
        ]
        facts = {"plan": loaded.name, "fingerprint": loaded.fingerprint(), "claims": claims}
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    typer.echo(f"{loaded.name}: {loaded.mechanism}")
    for claim, epsilon in zip(loaded.claims, epsilons, strict=True):
        typer.echo(f"  {claim.guarantee}: its event gives epsilon={round_up(epsilon, 6):.6g}")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read: {error}; give a plan that Plan.to_json() wrote."
        ) from None


def _header_columns(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            columns = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}; give a CSV file with a header.") from None
    if not columns:
        raise DataError(f"{path} is empty; give a CSV file with a header.")
    return columns
