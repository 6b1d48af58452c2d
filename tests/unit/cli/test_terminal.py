"""Progress on stderr, of reading and of training."""

import errno
import io
import os
import sys

import pytest

from tulle.cli import terminal as shown_progress
from tulle.cli.terminal import showing_progress, showing_training
from tulle.train.run_context import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_come_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 1.0, 6.0, 7.0, 12.0])
    monkeypatch.setattr(shown_progress.time, "monotonic", lambda: next(times))
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


def at(step: int, *, phase: str = "private", epsilon: float | None = 1.2345) -> Progress:
    return Progress(
        phase=phase,
        step=step,
        num_steps=100,
        examples_per_second=12345.6,
        loss=0.5 if step > 1 else None,
        epsilon=epsilon,
    )


def test_training_has_plain_lines_at_both_ends_of_a_phase_and_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([10.0, 11.0, 16.0, 17.0, 18.0])
    monkeypatch.setattr(shown_progress.time, "monotonic", lambda: next(times))
    with showing_training(quiet=False) as report:
        assert report is not None
        report(at(1, phase="plain", epsilon=None))
        for step in (2, 50, 60, 100):
            report(at(step))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "plain: step 1 of 100, 12,346 examples/s, no privacy",
        "private: step 2 of 100, 12,346 examples/s, noisy loss 0.5000, epsilon 1.24",
        "private: step 50 of 100, 12,346 examples/s, noisy loss 0.5000, epsilon 1.24",
        "private: step 100 of 100, 12,346 examples/s, noisy loss 0.5000, epsilon 1.24",
    ]


def test_quiet_wants_no_reports() -> None:
    with showing_training(quiet=True) as report:
        assert report is None


def test_nobody_is_told_where_stderr_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with showing_training(quiet=False) as report:
        assert report is None


def test_a_full_log_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, _text: str, /) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys, "stderr", Full())
    with showing_training(quiet=False) as report:
        assert report is not None
        report(at(1))


def test_a_terminal_gets_a_bar_for_each_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "160")
    with showing_training(quiet=False) as report:
        assert report is not None
        report(at(100, phase="labels"))
        report(at(7))
    shown = terminal.getvalue()
    assert "labels" in shown
    assert "7/100" in shown
    assert "12,346 examples/s, noisy loss 0.5000, epsilon 1.24" in shown
