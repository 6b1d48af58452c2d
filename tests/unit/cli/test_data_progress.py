import io
import sys

import pytest

from tulle.cli import data_progress
from tulle.cli.data_progress import showing_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_come_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 1.0, 6.0, 7.0, 12.0])
    monkeypatch.setattr(data_progress.time, "monotonic", lambda: next(times))
    with showing_progress("prepare", quiet=False) as report:
        for rows in (1, 2000, 3000, 4000):
            report(rows, rows, 4000)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "prepare: 50%, 2,000 rows, 6 s\nprepare: 100%, 4,000 rows, 12 s\n"


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with showing_progress("prepare", quiet=True) as report:
        report(1, 1, 1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("bytes_done", [0, 50])
def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, bytes_done: int) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with showing_progress("prepare", quiet=False) as report:
        report(1234, bytes_done, 100)
    assert "1,234 rows" in terminal.getvalue()
