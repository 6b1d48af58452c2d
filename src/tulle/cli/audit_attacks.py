"""`tulle audit attacks`: attacks on synthetic users, beside what privacy allows any attacker."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from tulle.cli.measure_progress import showing_steps
from tulle.cli.option_class import command_taking

ATTACKS_EPILOG = (
    "Example: tulle audit attacks --output attacks"
    "\n\nExample: tulle audit attacks membership --seed 7 --json"
)
_OUTPUT = "Output"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackOptions:
    """Options of attacks."""

    attack: Annotated[
        str,
        typer.Argument(
            metavar="ATTACK",
            help="reconstruction, differencing, linkage, membership or all of them.",
        ),
    ] = "all"
    seed: Annotated[
        int,
        typer.Option(
            min=0, help="Seed of the synthetic users and of the noise.", rich_help_panel="Data"
        ),
    ] = 1
    output: Annotated[
        Path | None,
        typer.Option(
            help="New folder for a chart (SVG) and a JSON file of each attack.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=_OUTPUT)
    ] = False


def attacks(options: AttackOptions) -> None:
    """Attack synthetic users, with and without privacy.

    Reconstruction from many counts, differencing under k-anonymity, linkage with a table of
    names, and membership in the training data of a model. Each is shown beside what the
    guarantee allows any attacker. No data of yours is read.
    """
    from tulle.lab.attacks.verbs import run_attacks

    with showing_steps(quiet=options.quiet) as say:
        found = run_attacks(options.attack, seed=options.seed, output=options.output, watch=say)
    if options.as_json:
        facts = {name: result.to_dict() for name, result in found.items()}
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for result in found.values():
        typer.echo("\n".join(result.lines()))
    typer.echo("Users are synthetic and noise had a seed: this is not a private release.")
    if options.output is not None:
        typer.echo(f"results and charts  {options.output}")


attacks_command = command_taking(AttackOptions, attacks)
