"""Which page belongs to a path, and the files it is written to.

What lies at the path decides: a run, a measurement, a simulation, a released table with its
record, or a printed plan. The page goes beside it and replaces an older one in one step.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tulle.atomic_files import read_whole, reporting_disk_errors, write_text
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.fields import parse_json
from tulle.report.html.page import Page
from tulle.report.html.page_html import render_html
from tulle.report.html.page_markdown import render_markdown
from tulle.report.notebook import record_page
from tulle.runs.card import stored_card
from tulle.runs.record import Record, card_of
from tulle.runs.release_files import record_path

_RECORD_ENDING = ".release.json"
_FOLDER_FILES = ("measurement.json", "simulation.json")
_LABELS, _CHOICES = "tulle label release", "tulle selection"
_ESTIMATE = "tulle selection evaluation"
_KINDS = (
    "a run folder, a folder with measurement.json or simulation.json, a released table with its "
    ".release.json, or the JSON of `tulle select plan`"
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
    is_run = (path / "run.json").exists()
    if is_run:
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
    from tulle.report.run_report import run_page
    from tulle.report.run_utility import CardedRun
    from tulle.runs.folder import RunFolder
    from tulle.runs.record import read_training

    def opened(folder: RunFolder) -> CardedRun:
        card = stored_card(folder.path, folder.plan, lambda: card_of(read_training(folder)))
        return CardedRun(folder=folder, card=card)

    return run_page(
        opened(RunFolder.open(path)),
        compared=[opened(RunFolder.open(other)) for other in compared],
        baseline=None if baseline is None else RunFolder.open(baseline),
    )


def _folder_page(path: Path) -> Page:
    for name in _FOLDER_FILES:
        if (path / name).exists():
            return _file_page(path / name)
    raise DataError(f"{path.name or path} holds nothing that has a page; name {_KINDS}.")


def _file_page(path: Path) -> Page:
    if path.name == "measurement.json":
        return _measure_page(path)
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


def _measure_page(path: Path) -> Page:
    from tulle.measure.queries.measure_record import read_measurement

    return _page_beside(read_measurement(path), path, "card")


def _released_page(path: Path) -> Page:
    """The page of a table, by the format of the record beside it."""
    found = str(_read_object(path).get("format"))
    name = f"{path.name.removesuffix(_RECORD_ENDING)}.card"
    if found.startswith(_LABELS):
        from tulle.labels.releases.label_release import ReleaseRecord

        return _page_beside(_read(path, ReleaseRecord.from_json), path, name)
    if found.startswith(_ESTIMATE):
        from tulle.select.evaluation.evaluation_record import EvaluationRecord

        return _page_beside(_read(path, EvaluationRecord.from_json), path, name)
    if found.startswith(_CHOICES):
        from tulle.select.decisions.selection_record import SelectionRecord

        return _page_beside(_read(path, SelectionRecord.from_json), path, name)
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
