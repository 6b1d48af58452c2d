"""Options of `tulle labels release` and `tulle labels plan`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from tulle.cli.options import (
    DATA,
    OUTPUT,
    PRIVACY,
    AsJson,
    LedgerOptions,
    Quiet,
    json_schema_option,
    layout_words,
    mechanism_words,
    option,
)

if TYPE_CHECKING:
    from tulle.labels.label_noise import LabelSettings
    from tulle.labels.label_plan import BestMechanism

LabelsSchema = Annotated[
    bool,
    json_schema_option(
        "tulle.labels.label_plan:ANY_MECHANISM",
        "Mechanism of tulle labels",
        "Print the JSON Schema of all mechanisms as plain data, and stop.",
    ),
]
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
        Path | None, option(DATA, "TOML or JSON file with the role of each column.")
    ] = None
    layout: Annotated[
        str | None,
        option(
            DATA,
            "Name of the public log that the file comes from: display, attribution, search, "
            "search-by-user, taobao, browser-impressions or browser-conversions.",
            words=layout_words,
        ),
    ] = None
    partner: Annotated[
        str | None,
        option(
            DATA,
            "Public column with the advertiser or publisher, for units of pairs.",
            metavar="COLUMN",
        ),
    ] = None
    allow_public: Annotated[
        list[str] | None,
        option(
            DATA,
            "Let the schema make this column public, though a known log protects it.",
            metavar="COLUMN",
        ),
    ] = None
    num_classes: Annotated[
        int | None, option(DATA, "Number of classes n; labels are 0 to n - 1.", least=2)
    ] = None
    label_low: Annotated[
        float | None, option(DATA, "Least label, for labels that are numbers.")
    ] = None
    label_high: Annotated[
        float | None, option(DATA, "Largest label, for labels that are numbers.")
    ] = None
    label_step: Annotated[
        float | None, option(DATA, "Distance of two labels that are numbers [default: 1].")
    ] = None
    epsilon: Annotated[
        float, option(PRIVACY, "Privacy budget epsilon: what the release may cost one unit in all.")
    ]
    unit: Annotated[
        str,
        option(
            PRIVACY,
            'Who is protected: "example" (one row), or e.g. "user per 7 days", '
            '"user x advertiser per day".',
        ),
    ] = "example"
    max_rows_per_unit: Annotated[
        int | None, option(_UNITS, "Most rows of a unit that are kept [default: all].", least=1)
    ] = None
    row_choice: Annotated[
        str | None,
        option(_UNITS, "Which rows of a unit are kept: first or random [default: first]."),
    ] = None
    row_share: Annotated[
        str | None,
        option(
            _UNITS,
            "For unit-rr: share epsilon among the rows that a unit has (own) or among as "
            "many as the cap (equal) [default: own].",
        ),
    ] = None
    max_conversions_per_unit: Annotated[
        int | None,
        option(
            _UNITS, "For joint-rr: most conversions of a unit that count [default: 1].", least=1
        ),
    ] = None
    base_rate: Annotated[
        float | None,
        option(_UNITS, "A public guess of the share of ones, which sets weights [default: 0.05]."),
    ] = None
    prior: Annotated[
        Path | None,
        option(
            _PRIOR,
            "Prior: JSON file with a list of weights, one for each value, not made with "
            "these labels.",
        ),
    ] = None
    prior_epsilon: Annotated[
        float | None,
        option(
            _PRIOR,
            "Part of epsilon spent on learning a prior from the labels, in place of --prior.",
        ),
    ] = None
    prior_cells: Annotated[
        int | None,
        option(_PRIOR, "Number of cells of the learnt prior [default: at most 40].", least=2),
    ] = None
    atoms: Annotated[
        int | None,
        option(
            _PRIOR,
            "For unbiased: number of values that labels are rounded to at random [default: 40].",
            least=2,
        ),
    ] = None
    as_json: AsJson = False
    quiet: Quiet = False

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
        option(
            PRIVACY,
            f"Print the plan of one mechanism: {_MECHANISMS}. [default: compare all that suit "
            "the labels]",
            words=mechanism_words,
        ),
    ] = None
    json_schema: LabelsSchema = False
    verbose: Annotated[bool, option(OUTPUT, "Print all options of a comparison.", "--verbose")] = (
        False
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseCommandOptions(LabelOptions, LedgerOptions):
    """A release also says where to and who pays."""

    mechanism: Annotated[
        str | None,
        option(
            PRIVACY,
            f"Mechanism that randomizes the labels: {_MECHANISMS}. [default: what tulle labels "
            "plan recommends]",
            words=mechanism_words,
        ),
    ] = None
    output: Annotated[Path, option(OUTPUT, "New Parquet file; a record and a card go beside it.")]
    seed: Annotated[
        int | None,
        option(PRIVACY, "Make the noise repeatable. Then the release is not private.", least=0),
    ] = None
