"""`tulle measure w3c-conformance`: whether the simulated browser passes conformance cases."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tulle.cli.data_log import AsJson

W3C_CONFORMANCE_EPILOG = "Example: tulle measure w3c-conformance attribution/impl/e2e-tests"


def w3c_conformance(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder with CONFIG.json and one JSON file for each case."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Run cases of W3C Attribution Level 1 against the simulator. Exit code 1 if one fails."""
    from tulle.measure.w3c.conformance import run_folder

    results = run_folder(folder)
    num_failed = sum(not result.is_passed for result in results)
    if as_json:
        facts = {
            "num_passed": len(results) - num_failed,
            "num_failed": num_failed,
            "cases": [result.to_dict() for result in results],
        }
        typer.echo(json.dumps(facts, allow_nan=False))
    else:
        for result in results:
            typer.echo(f"{'passed' if result.is_passed else 'FAILED'}  {result.name}")
            for failure in result.failures:
                typer.echo(f"        {failure}")
        typer.echo(f"{len(results) - num_failed} passed, {num_failed} failed")
    if num_failed:
        raise typer.Exit(1)
