"""`tulle measure attribute`: exact credit for the eyes of those who hold the log."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.measure_output import aligned_lines
from tulle.cli.measure_progress import showing_steps
from tulle.cli.measure_run import EngineOptions, SettingsFile
from tulle.cli.option_class import command_taking
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tulle.measure.ad_log import LogColumns
    from tulle.measure.attribution.attribution import Attribution
    from tulle.measure.queries.measure_config import MeasureConfig

ATTRIBUTE_EPILOG = (
    "Example: tulle measure attribute campaigns.toml --out credits.parquet"
    "\n\nExample: tulle measure attribute campaigns.toml --rule last-touch --rule linear "
    "--by campaign"
)
_NOT_PRIVATE = "NOT A PRIVATE RELEASE: exact credit, for those who may see the log itself."
_MOST_ROWS = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttributeOptions(EngineOptions):
    """Options of exact attribution."""

    config: SettingsFile
    out: Annotated[
        Path | None,
        typer.Option(help="Parquet file: one row for each impression with a share."),
    ] = None
    by: Annotated[
        list[str] | None,
        typer.Option(help="Print totals by this column of impressions; repeat it."),
    ] = None
    rule: Annotated[
        list[str] | None,
        typer.Option(help="Rules to compute at once; repeat it [default: that of the file]."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False


def attribute(options: AttributeOptions) -> None:
    """Share the credit for each conversion by one or several rules, exactly and without noise.

    The result is as sensitive as the log. Use `tulle measure run` for numbers to publish.
    """
    from tulle.measure.ad_log import Side
    from tulle.measure.config.config_file import read_config
    from tulle.measure.engines.credit_tables import credit_totals, write_credit_rows
    from tulle.measure.engines.engine import open_engine
    from tulle.measure.engines.log_checks import check_log
    from tulle.measure.slice_jobs import SliceColumn

    if options.out is None and not options.by:
        raise ConfigError("say what to do with the credit: --out FILE, --by COLUMN, or both.")
    if options.out is not None and options.out.exists():
        raise ConfigError(f"--out {options.out} exists; name another file.")
    if options.out is not None and options.out.suffix != ".parquet":
        raise ConfigError(f"--out {options.out} must end in .parquet, which it will be.")
    if options.out is not None and not options.out.absolute().parent.is_dir():
        raise ConfigError(f"--out {options.out} is in a folder that is not there; make it first.")
    config = read_config(options.config).config
    attributions = _attributions(config, options.rule or [])
    slices = [
        SliceColumn(name=name, side=Side.IMPRESSION, column=name) for name in options.by or []
    ]
    totals = None
    with (
        showing_steps(quiet=options.quiet) as say,
        open_engine(
            options.engine, memory_limit=options.memory_limit, spill_folder=options.spill_folder
        ) as engine,
    ):
        say("checking the log")
        check_log(engine, config.log, attributions=attributions)
        _check_columns(options.by or [], engine.column_types(config.log.impressions))
        if options.out is not None:
            say("writing credits")
            write_credit_rows(engine, config.log, attributions, options.out)
        if slices:
            say("adding up")
            totals = credit_totals(engine, config.log, attributions, slices)
    typer.echo(_NOT_PRIVATE, err=True)
    if options.as_json:
        rows = None if totals is None else totals.to_dicts()
        out = None if options.out is None else str(options.out)
        typer.echo(json.dumps({"out": out, "is_private": False, "totals": rows}))
        return
    if options.out is not None:
        typer.echo(f"{options.out}: {_identified(config.log.columns)}")
    if totals is not None:
        _print_totals(totals.to_dicts(), options.by or [])


def _identified(columns: "LogColumns") -> str:
    """Which columns of the file say what a row is about."""
    names = [columns.user, *([columns.advertiser] if columns.advertiser else [])]
    for side in ("conversion", "impression"):
        has_id = getattr(columns, f"{side}_id") is not None
        names.append(f"{side}_id" if has_id else f"{side}_time")
    missing = [n for n in ("conversion_id", "impression_id") if getattr(columns, n) is None]
    hint = ""
    if missing:
        hint = f"; no {' and no '.join(missing)}: name the column in [columns] to have it"
    return f"a row is known by {', '.join(names)}{hint}"


def _check_columns(names: list[str], types: "Mapping[str, str]") -> None:
    from tulle.measure.engines.column_types import require_column

    for name in names:
        require_column(types, name, what="impressions (--by)")
        if names.count(name) > 1:
            raise ConfigError(f"--by {name} is given twice; name each column once.")


def _attributions(config: "MeasureConfig", rules: list[str]) -> "list[Attribution]":
    from tulle.measure.config.attribution_table import read_rule

    if config.attribution is None:
        raise ConfigError("the settings have no [attribution]; add its lookback and rule.")
    if not rules:
        if config.game is not None:
            raise ConfigError(
                "rule 'data-driven' learns its weights within a release; name other rules with "
                "--rule."
            )
        return [config.attribution]
    return [dataclasses.replace(config.attribution, rule=read_rule(name)) for name in rules]


def _print_totals(rows: list[dict[str, object]], by: list[str]) -> None:
    if not rows:
        typer.echo("no conversion has an impression within the lookback")
        return
    lines = [list(rows[0])]
    for row in rows[:_MOST_ROWS]:
        lines.append(
            [
                str(value) if name in by else f"{float(str(value)):,.2f}"
                for name, value in row.items()
            ]
        )
    for line in aligned_lines(lines, num_texts=len(by)):
        typer.echo(line)
    if len(rows) > _MOST_ROWS:
        typer.echo(f"… {len(rows) - _MOST_ROWS:,} more; --json prints all")


attribute_command = command_taking(AttributeOptions, attribute)
