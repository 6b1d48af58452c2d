"""Options of commands that train: which data, which method, who pays, what is written.

The settings of the methods themselves (--epochs, --noise, …) are made from their classes, see
`tulle.cli.options.TrainingCommand`. None means that an option was not given.
"""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from tulle.cli.options import (
    DATA,
    LEDGER,
    OUTPUT,
    PRIVACY,
    AsJson,
    Quiet,
    layout_words,
    method_words,
    option,
)

_RUN = "Run"

FromModel = Annotated[
    Path | None,
    option(
        _RUN,
        "Continue training from this released model of mosaic: the folder of a model or of a "
        "finished run. It costs nothing, and brings schema and encoder along.",
        "--from",
        metavar="FOLDER",
    ),
]
KeepEvidence = Annotated[
    float | None,
    option(
        _RUN,
        "Fraction of the evidence of that model that is kept, since data change over time; 1 "
        "keeps all [default: 0.7].",
        metavar="FRACTION",
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """What is trained on what, under which guarantee."""

    source: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA...",
            help="Files of a log (CSV, Parquet, Arrow, JSON lines); the folder of a prepared "
            "dataset; or a synthetic log: synth:search, synth:display, synth:attribution or "
            "synth:taobao.",
        ),
    ] = None
    data: Annotated[str | None, typer.Option(hidden=True)] = None
    schema: Annotated[
        Path | None, option(DATA, "TOML or JSON file with the role of each column.")
    ] = None
    label: Annotated[
        str | None,
        option(DATA, "In place of a schema: the column with the label, 0 or 1.", metavar="COLUMN"),
    ] = None
    public: Annotated[
        list[str] | None,
        option(DATA, "In place of a schema: a public column. May be repeated.", metavar="COLUMN"),
    ] = None
    sensitive: Annotated[
        list[str] | None,
        option(
            DATA,
            "In place of a schema: a sensitive column, which is protected as the label is. "
            "May be repeated.",
            metavar="COLUMN",
        ),
    ] = None
    time: Annotated[
        str | None,
        option(
            DATA, "In place of a schema: the column with the time of each row.", metavar="COLUMN"
        ),
    ] = None
    kind: Annotated[
        list[str] | None,
        option(
            DATA,
            "In place of a schema: what a column holds if it is not categorical: integer, "
            "real, boolean or timestamp. May be repeated.",
            metavar="COLUMN=KIND",
        ),
    ] = None
    known_values: Annotated[
        list[str] | None,
        option(
            DATA,
            "In place of a schema: public table of all values of a sensitive column and facts "
            "about them (CSV, Parquet, Arrow), made without the log. May be repeated.",
            metavar="COLUMN=FILE",
        ),
    ] = None
    layout: Annotated[
        str | None,
        option(
            DATA,
            "Name of the public log that the file comes from: display, attribution, search, "
            "search-by-user, taobao or taobao-tables.",
            words=layout_words,
        ),
    ] = None
    allow_public: Annotated[
        list[str] | None,
        option(
            DATA,
            "Let this column be public, though a known log protects it. May be repeated.",
            metavar="COLUMN",
        ),
    ] = None
    test_fraction: Annotated[
        float | None,
        option(
            DATA,
            "Fraction of the data to test on: of the users if the data name them, "
            "else of the rows; 0 for no test [default: 0.2].",
        ),
    ] = None
    test: Annotated[
        Path | None,
        option(
            DATA,
            "Or: other rows to test on, a file like the data or a prepared dataset made with "
            "--like.",
        ),
    ] = None
    rows: Annotated[
        int | None, option(DATA, "Number of rows of a synthetic log [default: 200000].", least=1)
    ] = None
    synth_seed: Annotated[
        int | None, option(DATA, "Seed that fixes a synthetic log [default: 0].", least=0)
    ] = None
    config: Annotated[
        Path | None, option(_RUN, "TOML file with settings; options given here win over it.")
    ] = None
    method: Annotated[
        str | None,
        option(
            PRIVACY,
            "mosaic, hybrid, rr, dp-sgd, label-projection or nonprivate [default: mosaic].",
            words=method_words,
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        option(PRIVACY, "Privacy budget epsilon of the run; required except for nonprivate."),
    ] = None
    delta: Annotated[
        float | None,
        option(PRIVACY, "Probability that the bound may fail [default: 1e-7; rr needs none]."),
    ] = None
    unit: Annotated[
        str | None,
        option(
            PRIVACY,
            "Who is protected: example (one row), user (all rows of a user), 'user per month' or "
            "'user per 30 days' (those in one window), or the column that says whose each row is "
            "[default: user if the data have such a column, else example].",
            metavar="UNIT",
        ),
    ] = None
    seed: Annotated[
        int | None,
        option(PRIVACY, "Make all noise repeatable. Then the release is not private.", least=0),
    ] = None
    cache: Annotated[
        Path | None,
        option(
            _RUN,
            "Folder for prepared logs [default: $TULLE_CACHE, or tulle in the user's cache].",
            metavar="FOLDER",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanOptions(SettingOptions):
    """What becomes of a plan."""

    from_model: FromModel = None
    keep_evidence: KeepEvidence = None
    output: Annotated[
        Path | None,
        option(OUTPUT, "New file for the plan, which `tulle train --plan` carries out."),
    ] = None
    as_json: Annotated[bool, option(OUTPUT, "Print the plan as JSON.", "--json")] = False
    quiet: Quiet = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(SettingOptions):
    """How a run is paid, carried out and kept; also for audits."""

    output: Annotated[
        Path | None,
        option(
            OUTPUT,
            "New folder of the run, with model and card [default: runs/METHOD-DATA, numbered "
            "if it is taken].",
            metavar="FOLDER",
        ),
    ] = None
    ledger: Annotated[
        Path | None, option(LEDGER, "Ledger file to charge before training starts.")
    ] = None
    purpose: Annotated[
        str | None, option(LEDGER, "Name of the purpose in the ledger [default: training].")
    ] = None
    as_json: AsJson = False
    quiet: Annotated[bool, option(OUTPUT, "Show no plan and no progress on stderr.", "--quiet")] = (
        False
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(TrainingOptions):
    """How a training run is carried out."""

    from_model: FromModel = None
    keep_evidence: KeepEvidence = None
    plan: Annotated[
        Path | None,
        option(
            _RUN,
            "Carry out exactly this plan of `tulle plan --output`; no other settings.",
            metavar="FILE",
        ),
    ] = None
    resume: Annotated[
        bool,
        option(
            _RUN, "Go on with the run in --output, or with the newest unfinished one.", "--resume"
        ),
    ] = False
    at: Annotated[
        str | None,
        option(
            LEDGER,
            "Date (in the time zone of the budget) or time of the data. Needed if a budget renews.",
        ),
    ] = None
    until: Annotated[str | None, option(LEDGER, "Last date or time of the data.")] = None
    predictions: Annotated[
        Path | None,
        option(OUTPUT, "New Parquet file with the predictions of the test rows.", metavar="FILE"),
    ] = None
    baseline: Annotated[
        Path | None,
        option(
            OUTPUT, "Folder of a non-private run to compare the AUC loss with.", metavar="FOLDER"
        ),
    ] = None
    device: Annotated[str, option(_RUN, "cpu or cuda.")] = "cpu"
    processes: Annotated[
        int | None,
        option(
            _RUN,
            "Take private steps with this many processes on this machine; changes neither "
            "plan nor cost. For several machines use torchrun instead [default: 1].",
            least=1,
        ),
    ] = None
    checkpoint_every: Annotated[
        int | None,
        option(
            _RUN,
            "Number of steps between checkpoints [default: twenty checkpoints a phase].",
            least=1,
        ),
    ] = None
