"""The verb of `tulle.report`: write the page about what was released.

What lies at a path decides about its page: a run, a measurement, a simulation, a released table
with its record, or a printed plan. The page goes beside it and replaces an older one in one step.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tulle.atomic_files import read_whole, reporting_disk_errors, write_text
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.fields import parse_json
from tulle.report.html.card_sections import card_page
from tulle.report.html.charts import Chart
from tulle.report.html.page import Figure, Page, Section
from tulle.report.html.page_text import render_html, render_markdown
from tulle.report.html.svg_marks import escape_html
from tulle.report.run_report import utility_table
from tulle.runs.card import Card, stored_card
from tulle.runs.record import Record, TrainingRecord, card_of
from tulle.runs.release_files import record_path

FilePath = str | os.PathLike[str]

_RECORD_ENDING = ".release.json"
_NOTEBOOK_HEIGHT = 480
"""Pixels of a page in a notebook; a longer page scrolls."""
_FOLDER_FILES = ("measurement.json", "simulation.json")
_MODEL = "model.json"
_KINDS = (
    "a run folder, a folder with measurement.json or simulation.json, a released table with its "
    ".release.json, or the JSON of `tulle select plan`"
)


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


def page_of(path: Path, *, compared: Sequence[Path] = (), baseline: Path | None = None) -> Page:
    """The page about what lies at a path; a card that is missing is written.

    Args:
      path: A run folder, a folder with measurement.json or simulation.json, a released table
        with its record, or the JSON of a plan.
      compared: Other private runs to show beside a run.
      baseline: A non-private run to compare a run with.

    Privacy:
      Reads records, cards and results, never a table. Pages that show more than was released
      say so first.

    Raises:
      DataError: Nothing there has a page.
      ConfigError: A run to compare with is given, and the path is no run.
    """
    if not path.exists():
        raise DataError(f"{path.name} does not exist; name {_KINDS}.")
    if (path / "run.json").exists():
        return _run_page(path, compared, baseline)
    if compared or baseline is not None:
        raise ConfigError(
            f"compare and baseline are for a run, and {path.name} is none; leave them out."
        )
    return _folder_page(path) if path.is_dir() else _file_page(path)


def report_path(path: Path, *, has_baseline: bool = False) -> Path:
    """Path of the HTML page about a path; the Markdown file has the same name.

    A page with a baseline is not private, and never takes the place of one that is.
    """
    if path.is_dir():
        return path / ("report-with-baseline.html" if has_baseline else "report.html")
    if path.name in _FOLDER_FILES:
        return path.with_name("report.html")
    is_record = path.name.endswith(_RECORD_ENDING)
    name = path.name.removesuffix(_RECORD_ENDING) if is_record else path.stem
    return path.with_name(f"{name}.report.html")


def write_report(page: Page, path: Path) -> list[Path]:
    """Writes the page as HTML, and as Markdown beside it; gives both paths.

    Raises:
      ConfigError: The path does not end in .html.
      RunStateError: A Markdown file of that name is there that came with no page.
    """
    if path.suffix != ".html":
        raise ConfigError(f"output={path.name!r} must end in .html.")
    markdown = path.with_suffix(".md")
    if markdown.exists() and not path.exists():
        raise RunStateError(
            f"{markdown.name} exists and may be no report; move it away, or name another output."
        )
    with reporting_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    for file, text in ((path, render_html(page)), (markdown, render_markdown(page))):
        write_text(file, text)
    return [path, markdown]


def _run_page(path: Path, compared: Sequence[Path], baseline: Path | None) -> Page:
    from tulle.report.run_report import CardedRun, run_page
    from tulle.runs.folder import RunFolder
    from tulle.runs.record import read_training

    def opened(folder: RunFolder) -> CardedRun:
        card = stored_card(folder.path, folder.plan, lambda: card_of(read_training(folder)))
        return folder, card

    return run_page(
        opened(RunFolder.open(path)),
        compared=[opened(RunFolder.open(other)) for other in compared],
        baseline=None if baseline is None else RunFolder.open(baseline),
    )


def _folder_page(path: Path) -> Page:
    for name in _FOLDER_FILES:
        if (path / name).exists():
            return _file_page(path / name)
    if (path / _MODEL).exists():
        raise DataError(
            f"{path.name or path} is a model and no run, which alone has a report; for its tables "
            f"and effects call `tulle explain {path} --output page.html`."
        )
    raise DataError(f"{path.name or path} holds nothing that has a page; name {_KINDS}.")


def _file_page(path: Path) -> Page:
    if path.name == "measurement.json":
        from tulle.measure.queries.measure_record import read_measurement

        return _page_beside(read_measurement(path), path, "card")
    if path.name == "simulation.json":
        from tulle.report.select_report import simulation_page

        return _page_of_object(path, simulation_page)
    is_record = path.name.endswith(_RECORD_ENDING)
    record = path if is_record else record_path(path)
    if record.exists():
        return _released_page(record)
    if path.suffix == ".json":
        from tulle.report.select_report import plan_page

        return _page_of_object(path, lambda plan: plan_page(path.stem, plan))
    raise DataError(f"{record.name} is not beside {path.name}; name {_KINDS}.")


def _released_page(path: Path) -> Page:
    """The page of a table, by the format of the record beside it."""
    from tulle.labels.label_release import ReleaseRecord
    from tulle.select.decisions.chosen_ads import SelectionRecord
    from tulle.select.evaluation.evaluation_plan import EvaluationRecord

    found = str(_read_object(path).get("format"))
    # The longer of two words with one beginning comes first.
    for word, parse in (
        ("tulle label release", ReleaseRecord.from_json),
        ("tulle selection evaluation", EvaluationRecord.from_json),
        ("tulle selection", SelectionRecord.from_json),
    ):
        if found.startswith(word):
            name = f"{path.name.removesuffix(_RECORD_ENDING)}.card"
            return _page_beside(_read(path, parse), path, name)
    raise DataError(f"{path.name} is no record of a release; name {_KINDS}.")


def _page_beside(record: Record, path: Path, card_name: str) -> Page:
    """The page of a record, with the card that lies in its folder."""
    card = stored_card(path.parent, record.plan, lambda: card_of(record), name=card_name)
    return record_page(record, card)


def _page_of_object(path: Path, make: Callable[[dict[str, Any]], Page]) -> Page:
    data = _read_object(path)
    try:
        return make(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path.name} is not as tulle writes it ({type(error).__name__}); write it anew with "
            "this version of tulle."
        ) from error


def _read(path: Path, parse: Any) -> Any:
    return read_whole(path, parse, what="the record of a release", way_out=f"name {_KINDS}")


def _read_object(path: Path) -> dict[str, Any]:
    data = _read(path, lambda text: parse_json(path.name, text))
    if not isinstance(data, dict):
        raise DataError(f"{path.name} is no JSON object; name {_KINDS}.")
    return data


def notebook_html(record: Record, card: Card) -> str:
    """The page of a release in a frame of its own, so that its style stays inside.

    Args:
      record: What the release says about itself.
      card: The card of the release.

    Privacy:
      Shows record and card alone; both are public.
    """
    return page_frame(record_page(record, card))


def page_frame(page: Page) -> str:
    """A page in a frame of its own, so that its style stays inside."""
    text = escape_html(render_html(page))
    style = f"width:100%;height:{_NOTEBOOK_HEIGHT}px;border:0"
    return f'<iframe sandbox srcdoc="{text}" style="{style}"></iframe>'


def charts_frame(charts: Sequence[Chart]) -> str:
    """Charts in a frame of their own, for notebooks; each with its numbers below it."""
    section = Section("Picture", tuple(map(Figure, charts)))
    verdict = "A picture of a model; its card has the verdict"
    return page_frame(
        Page(title=charts[0].name, verdict=verdict, is_private=None, sections=(section,))
    )


def record_page(record: Record, card: Card) -> Page:
    """The page of a release, from its record alone.

    Args:
      record: What the release says about itself.
      card: The card of the release.
    """
    from tulle.labels.label_release import ReleaseRecord
    from tulle.select.decisions.chosen_ads import SelectionRecord
    from tulle.select.evaluation.evaluation_plan import EvaluationRecord

    if isinstance(record, TrainingRecord):
        sections = (Section("Utility", (utility_table(card),)),) if card.utility else ()
        return card_page(card, title=f"Training run: {record.method}", sections=sections)
    if isinstance(record, ReleaseRecord):
        from tulle.report.labels_report import labels_page

        return labels_page(record, card)
    if isinstance(record, SelectionRecord):
        from tulle.report.select_report import choices_page

        return choices_page(record, card)
    if isinstance(record, EvaluationRecord):
        from tulle.report.select_report import evaluation_page

        return evaluation_page(record, card)
    from tulle.measure.queries.measure_record import MeasureRecord
    from tulle.report.measure_report import measure_page

    if isinstance(record, MeasureRecord):
        return measure_page(record, card)
    return card_page(card, title=f"Release: {record.plan.name}", sections=())
