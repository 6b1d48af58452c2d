"""Finished runs in one folder: the first line of each card, and its report.

A name from a request is only ever compared with the names in the folder, so it leads nowhere
else. Links are left out: what they lead to may lie elsewhere. So are names with signs that do not
print: nobody could read them, and in a terminal they would be keys.
"""

import dataclasses
from pathlib import Path

from tulle.atomic_files import reporting_disk_errors
from tulle.errors import DataError
from tulle.report.verbs import report_path
from tulle.runs.card import read_card
from tulle.studio.panel import command_line, path_word

_CARD = "card.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run that has a card."""

    name: str
    verdict: str
    """The first line of the card, or why it cannot be read."""
    is_private: bool
    has_report: bool
    command: str
    """Writes the report, or writes it anew."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunList:
    """All finished runs, by name."""

    folder: str | None
    """Folder of the runs; None if the studio was started without one."""
    runs: tuple[FinishedRun, ...]


def finished_runs(folder: Path | None) -> RunList:
    """The runs directly below a folder that have a card.

    Raises:
      RunStateError: The folder cannot be read.
    """
    if folder is None:
        return RunList(folder=None, runs=())
    runs = tuple(_finished(path) for path in _run_folders(folder))
    return RunList(folder=folder.name or str(folder), runs=runs)


def stored_report(folder: Path | None, name: str) -> bytes | None:
    """The page of a run as it was written; None if there is none.

    Raises:
      RunStateError: The folder or the page cannot be read.
    """
    if folder is None:
        return None
    with reporting_disk_errors(folder):
        for path in _run_folders(folder):
            page = report_path(path)
            if path.name == name and _is_plain_file(page):
                return page.read_bytes()
    return None


def _run_folders(folder: Path) -> list[Path]:
    with reporting_disk_errors(folder):
        return [
            path
            for path in sorted(folder.iterdir())
            if path.name.isprintable()
            and path.is_dir()
            and not path.is_symlink()
            and _is_plain_file(path / _CARD)
        ]


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _finished(path: Path) -> FinishedRun:
    try:
        card = read_card(path / _CARD)
        verdict, is_private = card.verdict, not card.reasons
    except DataError as error:
        verdict, is_private = str(error), False
    return FinishedRun(
        name=path.name,
        verdict=verdict,
        is_private=is_private,
        has_report=_is_plain_file(report_path(path)),
        command=command_line(("report", path_word(path)), {}),
    )
