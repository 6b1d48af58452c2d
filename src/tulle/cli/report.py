"""`tulle report`: one page about what was released."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from tulle.cli.options import taking_options
from tulle.cli.terminal import print_facts

REPORT_EPILOG = (
    "Example: tulle report runs/monday --compare runs/tuesday"
    "\n\nExample: tulle report runs/monday --baseline runs/raw --output compared.html"
    "\n\nExample: tulle report results"
    "\n\nExample: tulle report noisy.parquet"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options of a report."""

    path: Annotated[
        Path,
        typer.Argument(
            help="A run folder, a measurement, a simulation, a released table, or the JSON of a "
            "selection plan."
        ),
    ]
    compare: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN", help="Another private run on the same test rows; may be repeated."
        ),
    ] = None
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="A non-private run to compare with. Then the page is not private."
        ),
    ] = None
    output: Annotated[
        Path | None, typer.Option(help="The page (.html) [default: report.html beside the data].")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


@taking_options
def report(options: ReportOptions) -> None:
    """Write one self-contained HTML page about a run, a measurement, labels or choices.

    Verdict and claim first, then utility, released values with intervals, budget and card. A
    Markdown file goes beside it. The page needs no network and runs no script. Nothing is spent.
    """
    from tulle.report import write

    written = write(
        options.path,
        compare=options.compare or (),
        baseline=options.baseline,
        output=options.output,
    )
    facts: dict[str, object] = {
        "report": str(written.html),
        "markdown": str(written.markdown),
        "figures": written.num_figures,
        "verdict": written.verdict,
    }
    print_facts(facts, as_json=options.as_json)
