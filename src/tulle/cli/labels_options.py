"""Options of `tulle labels release` and `tulle labels plan`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from tulle.cli.json_schema import LabelsSchema
from tulle.cli.ledger_options import LedgerOptions

if TYPE_CHECKING:
    from tulle.labels.label_noise import LabelSettings
    from tulle.labels.label_plan import BestMechanism

_DATA, _PRIVACY, _OUTPUT = "Data", "Privacy", "Output"
_PRIOR, _UNITS = "Labels with a prior", "Units that own several rows"
_MECHANISMS = (
    "rr (0 or 1), class-rr and prior-rr (classes), unit-rr, joint-rr and joint-subset (0 or 1, "
    "by units), rr-on-bins, unbiased, laplace, discrete-laplace, staircase and their "
    "…-clipped forms (numbers)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """What is protected in which table, and how."""

    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE...", help="Files, in order: CSV, TSV, JSON lines, Parquet or Arrow."
        ),
    ]
    schema: Annotated[
        Path | None,
        typer.Option(help="TOML or JSON file with the role of each column.", rich_help_panel=_DATA),
    ] = None
    layout: Annotated[
        str | None,
        typer.Option(
            help="Name of a public log that the file is: display, attribution, search, "
            "search-by-user, taobao, browser-impressions or browser-conversions.",
            rich_help_panel=_DATA,
        ),
    ] = None
    partner: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Public column with the advertiser or publisher, for units of pairs.",
            rich_help_panel=_DATA,
        ),
    ] = None
    allow_public: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Let the schema make this column public, though a known log protects it.",
            rich_help_panel=_DATA,
        ),
    ] = None
    num_classes: Annotated[
        int | None,
        typer.Option(
            help="Number of classes: labels are 0 to this less one.",
            min=2,
            rich_help_panel=_DATA,
        ),
    ] = None
    label_low: Annotated[
        float | None,
        typer.Option(help="Least label, for labels that are numbers.", rich_help_panel=_DATA),
    ] = None
    label_high: Annotated[
        float | None,
        typer.Option(help="Largest label, for labels that are numbers.", rich_help_panel=_DATA),
    ] = None
    label_step: Annotated[
        float | None,
        typer.Option(
            help="Distance of two labels that are numbers [default: 1].", rich_help_panel=_DATA
        ),
    ] = None
    epsilon: Annotated[
        float,
        typer.Option(
            help="Privacy budget epsilon: what the release may cost one unit in all.",
            rich_help_panel=_PRIVACY,
        ),
    ]
    unit: Annotated[
        str,
        typer.Option(
            help='Who is protected: "example" (one row), or e.g. "user per 7 days", '
            '"user x advertiser per day".',
            rich_help_panel=_PRIVACY,
        ),
    ] = "example"
    max_rows_per_unit: Annotated[
        int | None,
        typer.Option(
            help="Most rows of a unit that are kept [default: all].",
            min=1,
            rich_help_panel=_UNITS,
        ),
    ] = None
    row_choice: Annotated[
        str | None,
        typer.Option(
            help="Which rows of a unit are kept: first or random [default: first].",
            rich_help_panel=_UNITS,
        ),
    ] = None
    row_share: Annotated[
        str | None,
        typer.Option(
            help="For unit-rr: share epsilon among the rows that a unit has (own) or among as "
            "many as the cap (equal) [default: own].",
            rich_help_panel=_UNITS,
        ),
    ] = None
    max_conversions_per_unit: Annotated[
        int | None,
        typer.Option(
            help="For joint-rr: most conversions of a unit that count [default: 1].",
            min=1,
            rich_help_panel=_UNITS,
        ),
    ] = None
    base_rate: Annotated[
        float | None,
        typer.Option(
            help="A public guess of the share of ones, which sets weights [default: 0.05].",
            rich_help_panel=_UNITS,
        ),
    ] = None
    prior: Annotated[
        Path | None,
        typer.Option(
            help="Prior: JSON file with a list of weights, one for each value, not made with "
            "these labels.",
            rich_help_panel=_PRIOR,
        ),
    ] = None
    prior_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Part of epsilon that pays for a prior learnt from the labels, in place of "
            "--prior.",
            rich_help_panel=_PRIOR,
        ),
    ] = None
    prior_cells: Annotated[
        int | None,
        typer.Option(
            help="Number of cells of the learnt prior [default: at most 40].",
            min=2,
            rich_help_panel=_PRIOR,
        ),
    ] = None
    atoms: Annotated[
        int | None,
        typer.Option(
            help="For unbiased: number of values that labels are rounded to at random "
            "[default: 40].",
            min=2,
            rich_help_panel=_PRIOR,
        ),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)
    ] = False
    quiet: Annotated[
        bool,
        typer.Option("--quiet", help="Show no progress on stderr.", rich_help_panel=_OUTPUT),
    ] = False

    def chosen(self, word: str | None) -> "LabelSettings | BestMechanism":
        """The mechanism of this word with the settings that were given; None: the best one."""
        from tulle.labels.label_plan import ANY_MECHANISM, chosen_mechanism

        settings = [dataclasses.fields(cls) for cls in get_args(ANY_MECHANISM)]
        names = sorted({field.name for fields in settings for field in fields})
        given = {name: getattr(self, name) for name in names}
        given["prior"] = None if self.prior is None else str(self.prior)
        return chosen_mechanism(
            word, {name: value for name, value in given.items() if value is not None}
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelPlanOptions(LabelOptions):
    """A plan may leave the mechanism open."""

    mechanism: Annotated[
        str | None,
        typer.Option(
            help=f"Print the plan of one mechanism: {_MECHANISMS}. [default: compare all that suit "
            "the labels]",
            rich_help_panel=_PRIVACY,
        ),
    ] = None
    json_schema: LabelsSchema = False
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="Print all options of a comparison.", rich_help_panel=_OUTPUT
        ),
    ] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseCommandOptions(LabelOptions, LedgerOptions):
    """A release also says where to and who pays."""

    mechanism: Annotated[
        str | None,
        typer.Option(
            help=f"How labels are noised: {_MECHANISMS}. [default: what tulle labels plan "
            "recommends]",
            rich_help_panel=_PRIVACY,
        ),
    ] = None
    output: Annotated[
        Path,
        typer.Option(
            help="New Parquet file; a record and a card go beside it.", rich_help_panel=_OUTPUT
        ),
    ]
    seed: Annotated[
        int | None,
        typer.Option(
            help="Make the noise repeatable. Then the release is not private.",
            min=0,
            rich_help_panel=_PRIVACY,
        ),
    ] = None
