"""`tulle labels plan`: which mechanism, and how much noise, before a label is read."""

import json
from typing import TYPE_CHECKING, Any

import typer

from tulle.cli.labels_noise import (
    base_rate,
    check_epsilon,
    given_prior,
    label_grid,
    noise_of,
    open_table,
)
from tulle.cli.labels_options import PlanOptions
from tulle.cli.option_class import command_taking
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.labels.release.label_table import LabelTable

PLAN_LABELS_EPILOG = (
    'Example: tulle labels plan clicks.parquet --schema schema.toml --unit "user per 7 days" '
    "--epsilon 2"
    "\n\nExample: tulle labels plan sales.csv --schema schema.toml --label-low 0 --label-high 400 "
    "--epsilon 2"
    "\n\nExample: tulle labels plan clicks.parquet --schema schema.toml --mechanism rr --epsilon 2"
)


def plan(options: PlanOptions) -> None:
    """Compare mechanisms by the noise they leave, or print the plan of one.

    No label is read: only columns that say whose a row is and when it happened, and these
    only for a unit that may own several rows.
    """
    check_epsilon(options.epsilon)
    table = open_table(options)
    if options.mechanism is not None:
        _print_one(options, table, options.mechanism)
        return
    table.check_columns()
    is_example = table.unit.owner.value == "example"
    is_numeric = options.label_low is not None or options.label_high is not None
    if not is_example and (is_numeric or options.num_classes is not None):
        raise ConfigError(
            f"--unit '{table.unit}' is for labels of 0 and 1; numbers and classes are released row "
            "by row: use --unit example, and at most one row a user where users are protected."
        )
    if is_numeric:
        _print_numeric(options)
    elif options.num_classes is not None:
        _print_classes(options, options.num_classes)
    elif is_example:
        _print_rows(options)
    else:
        _print_units(options, table)


def _print_one(options: PlanOptions, table: "LabelTable", mechanism: str) -> None:
    from tulle.labels.release.label_noise import UnitNoise
    from tulle.labels.release.release_plan import make_release_plan

    noise = noise_of(options, mechanism)
    unit_rows = table.unit_rows() if isinstance(noise, UnitNoise) else None
    made = make_release_plan(table, noise, unit_rows=unit_rows)
    if options.as_json:
        typer.echo(made.to_json())
        return
    typer.echo(made.mechanism)
    typer.echo(str(made.guarantee))
    for name, value in made.settings.items():
        typer.echo(f"  {name}: {value}")


def _print_numeric(options: PlanOptions) -> None:
    from tulle.labels.numeric_planner import plan_numeric

    made = plan_numeric(
        label_grid(options),
        epsilon=options.epsilon - (options.prior_epsilon or 0.0),
        prior=given_prior(options, "rr-on-bins"),
        atoms=options.atoms or 40,
    )
    rows = [option.describe() for option in made.options]
    if options.as_json:
        typer.echo(json.dumps({"options": rows, "left_out": list(made.left_out)}))
        return
    _print_table(rows, ("mechanism", "variance", "bias", "mean_squared_error"))
    typer.echo(f"recommended to train on: {made.recommended.name}")
    for reason in made.left_out:
        typer.echo(f"left out: {reason}")


def _print_rows(options: PlanOptions) -> None:
    from tulle.labels.binary_response import BinaryResponse

    channel = BinaryResponse(epsilon=options.epsilon).channel
    row = {"mechanism": "rr", "variance": float(channel.mean_variance(base_rate(options)))}
    if options.as_json:
        typer.echo(json.dumps({"options": [row]}))
        return
    _print_table([row], ("mechanism", "variance"))
    typer.echo("recommended: rr; no mechanism says more about one bit at the same epsilon")


def _print_classes(options: PlanOptions, num_classes: int) -> None:
    from tulle.labels.class_response import ClassResponse
    from tulle.mechanisms.frequency import variance_per_report

    response = ClassResponse(epsilon=options.epsilon, num_classes=num_classes).response
    row = {"mechanism": "class-rr", "variance": variance_per_report(response)}
    if options.as_json:
        typer.echo(json.dumps({"options": [row]}))
        return
    _print_table([row], ("mechanism", "variance"))
    typer.echo("of the mark of one class, for a row of another class")
    typer.echo("prior-rr says more where a prior is sure of most rows; its targets are biased then")


def _print_units(options: PlanOptions, table: "LabelTable") -> None:
    from tulle.labels.units.unit_planner import PlanAssumptions, plan_units

    made = plan_units(
        table.unit_rows().length_counts(),
        epsilon=options.epsilon,
        assumptions=PlanAssumptions(base_rate=base_rate(options)),
    )
    if options.as_json:
        typer.echo(json.dumps(made.describe(), allow_nan=False))
        return
    rows = [_unit_line(option.describe()) for option in made.options]
    _print_table(rows, ("mechanism", "variance", "rows_kept", "effective_variance"))
    typer.echo(f"recommended: {rows[0]['mechanism']}")
    if made.ratio_to_runner_up is not None:
        typer.echo(f"the next kind has {made.ratio_to_runner_up:.3g} times its variance")
    typer.echo(
        f"single rows as units at the same epsilon: effective variance "
        f"{made.impression_variance:.4g} "
        f"(the best here has {made.ratio_to_impression:.3g} times that)"
    )
    for reason in made.left_out:
        typer.echo(f"left out: {reason}")


def _unit_line(described: dict[str, Any]) -> dict[str, Any]:
    name = str(described["mechanism"])
    if described.get("max_conversions_per_unit") is not None:
        name += f" --max-conversions-per-unit {described['max_conversions_per_unit']}"
    if described["max_rows_per_unit"] is not None:
        name += f" --max-rows-per-unit {described['max_rows_per_unit']}"
    if described.get("row_share") == "equal":
        name += " --row-share equal"
    return {
        "mechanism": name,
        "variance": described["mean_variance"],
        "rows_kept": described["kept_rows_share"],
        "effective_variance": described["effective_variance"],
    }


def _print_table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    width = max(len(str(row["mechanism"])) for row in rows)
    heads = [column.replace("_", " ") for column in columns[1:]]
    typer.echo(f"{'mechanism':<{width}}" + "".join(f"{head:>20}" for head in heads))
    for row in rows:
        cells = "".join(f"{row[column]:>20.5g}" for column in columns[1:])
        typer.echo(f"{row['mechanism']:<{width}}{cells}")


plan_labels_command = command_taking(PlanOptions, plan)
