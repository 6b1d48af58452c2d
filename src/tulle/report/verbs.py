"""The verb of `tulle.report`: write the page about what was released."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from tulle.report.report_files import page_of, report_path, write_report

FilePath = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenReport:
    """The files of a page, and what it says first."""

    html: Path
    markdown: Path
    num_figures: int
    verdict: str


def write(
    path: FilePath,
    *,
    compare: Sequence[FilePath] = (),
    baseline: FilePath | None = None,
    output: FilePath | None = None,
) -> WrittenReport:
    """Writes one self-contained HTML page, and a Markdown file beside it. Nothing is spent.

    Args:
      path: A run folder, a folder with measurement.json or simulation.json, a released table with
        its record, or the JSON of a selection plan.
      compare: Other private runs, tested on the same rows, to show beside a run.
      baseline: A non-private run to compare a run with. Then the page is not private.
      output: The page (.html); None: report.html beside the data, or report-with-baseline.html.

    Privacy:
      Reads records, cards and results, never a table. A page that shows more than was released
      says so first, and takes no other page's place.

    Raises:
      DataError: Nothing there has a page.
      ConfigError: A run to compare with is given, and the path is no run; or the output does not
        end in .html.
      RunStateError: The output would replace a Markdown file that is no report.
    """
    about = Path(path)
    other = None if baseline is None else Path(baseline)
    page = page_of(about, compared=[Path(run) for run in compare], baseline=other)
    chosen = report_path(about, has_baseline=other is not None) if output is None else Path(output)
    html, markdown = write_report(page, chosen)
    return WrittenReport(
        html=html, markdown=markdown, num_figures=len(page.charts), verdict=page.verdict
    )
