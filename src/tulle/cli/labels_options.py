"""Options of `tulle labels release` and `tulle labels plan`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from tulle.cli.data_log import LayoutName, SchemaFile
from tulle.cli.ledger_options import LedgerOptions

_MECHANISMS = (
    "rr (0 or 1), class-rr and prior-rr (classes), unit-rr, joint-rr and joint-subset (0 or 1, "
    "by units), rr-on-bins, unbiased, laplace, discrete-laplace, staircase and their "
    "…-clipped forms (numbers)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """What is protected in which table, and how."""

    tables: Annotated[
        list[Path], typer.Argument(metavar="TABLE...", help="CSV or Parquet files, in order.")
    ]
    epsilon: Annotated[float, typer.Option(help="What the release may cost one unit in all.")]
    schema: SchemaFile = None
    layout: LayoutName = None
    unit: Annotated[
        str,
        typer.Option(
            help='Who is protected: "example" (one row), or e.g. "user per 7 days", '
            '"user x advertiser per day".'
        ),
    ] = "example"
    partner: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Public column with the advertiser or publisher."),
    ] = None
    max_rows_per_unit: Annotated[
        int | None, typer.Option(help="Drop further rows of a unit [default: keep all].", min=1)
    ] = None
    row_choice: Annotated[
        str | None,
        typer.Option(help="Which rows of a unit are kept: first or random [default: first]."),
    ] = None
    row_share: Annotated[
        str | None,
        typer.Option(
            help="unit-rr: epsilon over the rows a unit has (own) or over the cap (equal) "
            "[default: own]."
        ),
    ] = None
    max_conversions_per_unit: Annotated[
        int | None,
        typer.Option(
            help="joint-rr: further conversions of a unit count as none [default: 1].", min=1
        ),
    ] = None
    base_rate: Annotated[
        float | None,
        typer.Option(help="A public guess of the share of ones; sets weights [default: 0.05]."),
    ] = None
    num_classes: Annotated[
        int | None, typer.Option(help="Classes are 0 to this less one.", min=2)
    ] = None
    label_low: Annotated[float | None, typer.Option(help="Least label, for numbers.")] = None
    label_high: Annotated[float | None, typer.Option(help="Largest label, for numbers.")] = None
    label_step: Annotated[
        float | None, typer.Option(help="Distance of two labels, for numbers [default: 1].")
    ] = None
    prior: Annotated[
        Path | None,
        typer.Option(help="JSON list of weights, one a value, not made with these labels."),
    ] = None
    prior_epsilon: Annotated[
        float | None,
        typer.Option(help="Or: learn the prior from the labels; this part of epsilon pays it."),
    ] = None
    prior_cells: Annotated[
        int | None, typer.Option(help="Cells of the learnt prior [default: at most 40].", min=2)
    ] = None
    atoms: Annotated[
        int | None,
        typer.Option(
            help="unbiased: values that labels are rounded to at random [default: 40].", min=2
        ),
    ] = None
    allow_public: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Let the schema make this column public, though a known log protects it.",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanOptions(LabelOptions):
    """A plan may leave the mechanism open."""

    mechanism: Annotated[
        str | None,
        typer.Option(help=f"Print the plan of one mechanism: {_MECHANISMS}."),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseCommandOptions(LabelOptions, LedgerOptions):
    """A release also says where to and who pays."""

    mechanism: Annotated[str, typer.Option(help=f"How labels are noised: {_MECHANISMS}.")]
    out: Annotated[Path, typer.Option(help="Parquet file to write.")]
    seed: Annotated[
        int | None,
        typer.Option(help="Makes the noise repeatable. Then the release is not private.", min=0),
    ] = None
