"""`tulle data prepare`: a log as memory-mapped arrays."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.data_progress import showing_progress

if TYPE_CHECKING:
    from tulle.data import PrepareResult

LayoutName = Annotated[
    str | None,
    typer.Option(
        help="A public log: display, attribution, search, search-by-user, taobao, "
        "taobao-tables, browser-impressions or browser-conversions."
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(help="TOML or JSON file with the role of each column, for any CSV or Parquet."),
]
SkipBadLines = Annotated[
    bool, typer.Option("--skip-bad-lines", help="Count and leave out lines that cannot be read.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
_Inputs = Annotated[list[Path], typer.Argument(help="Files of one log, in order.")]
_Output = Annotated[Path, typer.Option(help="Folder to write; must not exist.")]
_HashBinsPublic = Annotated[
    int | None, typer.Option(help="Hash public values into this many ids [default: 100000].")
]
_HashBinsSensitive = Annotated[
    int | None, typer.Option(help="Hash sensitive values into as many [default: 50000].")
]
_MinCountPublic = Annotated[
    int | None, typer.Option(help="Or: an id for each public value with so many rows.")
]
_MinCountSensitive = Annotated[
    int | None, typer.Option(help="Or: an id for each sensitive value with so many noisy rows.")
]
_VocabularyEpsilon = Annotated[
    float | None, typer.Option(help="What the noisy counts of one row cost together.")
]
_VocabularyDelta = Annotated[
    float | None, typer.Option(help="Probability that a value of one row alone is kept.")
]
_Ledger = Annotated[
    Path | None, typer.Option(help="Is charged for the noisy counts, purpose 'vocabulary'.")
]
_Log = Annotated[
    list[str] | None, typer.Option(help="Column that becomes buckets of its logarithm.")
]
_Hour = Annotated[bool, typer.Option("--hour", help="Add the hour of the time.")]
_DayOfWeek = Annotated[
    bool, typer.Option("--day-of-week", help="Add the day of the week of the time.")
]
_AllowPublic = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Let the schema make this column public, though a known log protects it.",
    ),
]
_Like = Annotated[
    Path | None, typer.Option(help="Prepared dataset whose ids to use, e.g. for a test set.")
]
_Salt = Annotated[
    str | None, typer.Option(help="Salt of the hashes in hexadecimal [default: random].")
]
_NumClasses = Annotated[int, typer.Option(help="Labels are 0 to this less one.")]
_DropRowsWithoutUnit = Annotated[
    bool, typer.Option("--drop-rows-without-unit", help="Leave out rows that name no unit.")
]
_Resume = Annotated[
    bool, typer.Option("--resume/--no-resume", help="Continue an interrupted run, or not.")
]


def prepare(
    inputs: _Inputs,
    output: _Output,
    layout: LayoutName = None,
    schema: SchemaFile = None,
    allow_public: _AllowPublic = None,
    hash_bins_public: _HashBinsPublic = None,
    hash_bins_sensitive: _HashBinsSensitive = None,
    min_count_public: _MinCountPublic = None,
    min_count_sensitive: _MinCountSensitive = None,
    vocabulary_epsilon: _VocabularyEpsilon = None,
    vocabulary_delta: _VocabularyDelta = None,
    ledger: _Ledger = None,
    log: _Log = None,
    hour: _Hour = False,
    day_of_week: _DayOfWeek = False,
    like: _Like = None,
    salt: _Salt = None,
    num_classes: _NumClasses = 2,
    drop_rows_without_unit: _DropRowsWithoutUnit = False,
    skip_bad_lines: SkipBadLines = False,
    resume: _Resume = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a log as memory-mapped arrays, in one streaming pass.

    An interrupted run continues when the same command is given again. The folder holds raw
    data: keep it where the log is.
    """
    from tulle.data import prepare as prepare_data

    with showing_progress("prepare", quiet=quiet) as report:
        result = prepare_data(
            inputs,
            schema,
            output=output,
            layout=layout,
            allow_public=allow_public or (),
            hash_bins_public=hash_bins_public,
            hash_bins_sensitive=hash_bins_sensitive,
            min_count_public=min_count_public,
            min_count_sensitive=min_count_sensitive,
            vocabulary_epsilon=vocabulary_epsilon,
            vocabulary_delta=vocabulary_delta,
            ledger=ledger,
            log=log or (),
            hour=hour,
            day_of_week=day_of_week,
            like=like,
            salt=salt,
            num_classes=num_classes,
            drop_rows_without_unit=drop_rows_without_unit,
            skip_bad_lines=skip_bad_lines,
            resume=resume,
            watch=report,
        )
    _print_prepared(result, output, as_json=as_json)


def _print_prepared(result: "PrepareResult", output: Path, *, as_json: bool) -> None:
    dataset = result.dataset
    roles = [feature.role for feature in dataset.features]
    facts = {
        "folder": str(output),
        "rows": dataset.num_rows,
        "public_features": roles.count("public"),
        "sensitive_features": roles.count("sensitive"),
        "bad_lines_left_out": result.num_bad_lines,
        "rows_resumed": result.num_rows_resumed,
        "fingerprint": dataset.fingerprint,
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        typer.echo(f"{name.replace('_', ' '):<20}{shown}")
