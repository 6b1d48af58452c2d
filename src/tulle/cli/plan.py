"""`tulle plan`: what a training run would promise, before any sensitive byte is read."""

from typing import TYPE_CHECKING

import typer

from tulle.cli.option_class import command_taking
from tulle.cli.train_data import chosen_data
from tulle.cli.train_options import PlanOptions
from tulle.cli.train_planning import plan_run, write_finished
from tulle.cli.train_settings import read_settings, require_torch

if TYPE_CHECKING:
    from tulle.train.train_plan import TrainPlan

PLAN_EPILOG = (
    "Example: tulle plan --data synth:search --rows 20000 --method mosaic --epsilon 3"
    "\n\nExample: tulle plan --data prepared --config run.toml --finished plan.json"
)


def plan(options: PlanOptions) -> None:
    """Print what a training run would promise and do. Reads no feature and no label.

    Numbers of rows, of users and of ids are looked at: they are public under replace.
    """
    require_torch()
    settings = read_settings(options)
    with chosen_data(settings.data, cache=None, quiet=options.quiet) as data:
        made = plan_run(settings, data)
    if options.finished is not None:
        write_finished(options.finished, made)
    if options.as_json:
        typer.echo(made.privacy.to_json())
        return
    for name, value in _facts(made, options):
        typer.echo(f"{name:<22}{value}")


def _facts(made: "TrainPlan", options: PlanOptions) -> list[tuple[str, str]]:
    from tulle.privacy.units import Adjacency

    facts = [("plan", made.privacy.name), ("guarantee", str(made.privacy.guarantee))]
    facts += [("", str(claim.guarantee)) for claim in made.privacy.variants]
    facts.append(("what will run", made.privacy.mechanism))
    facts += [
        (name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
        for name, value in made.privacy.settings.items()
    ]
    if made.privacy.guarantee.adjacency is not Adjacency.REPLACE:
        facts.append(("accounting", "as in the papers, for reproduction only: not private"))
    if options.seed is not None:
        facts.append(("seed", f"{options.seed}: the noise can be repeated, so nothing is promised"))
    if options.finished is not None:
        facts.append(("saved as", str(options.finished)))
    return facts


plan_command = command_taking(PlanOptions, plan)
