import contextlib
import pathlib
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from urllib.parse import urlencode

import pytest

from tulle.cli.main import run_with
from tulle.studio.panel import defaults
from tulle.studio.train_panel import TRAIN
from waiting import HANG_S

SLOW = defaults(TRAIN.fields) | {
    "method": "hybrid",
    "epsilon": 8.0,
    "num_examples": 36_000_000,
    "batch_size": 4_096,
    "epochs": 20.0,
}
ADDRESS = re.compile(r"studio: (http://127\.0\.0\.1:\d+/\?token=[\w-]{43})\n")


@contextlib.contextmanager
def started(folder: pathlib.Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process of its own, and the address that it printed."""
    (folder / "runs").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "tulle.cli", "studio"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        printed = ADDRESS.fullmatch(process.stdout.readline())
        assert printed is not None
        try:
            yield process, printed[1]
        finally:
            process.kill()


def let_in(address: str, path: str) -> HTTPResponse:
    """What somebody with the printed address gets from another one."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    start: HTTPResponse = opener.open(address, timeout=HANG_S)
    if not path:
        return start
    start.close()
    found: HTTPResponse = opener.open(address.partition("?")[0] + path, timeout=HANG_S)
    return found


def _status(address: str, path: str) -> int | None:
    try:
        with let_in(address, path) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code
    except OSError:
        return None


def test_it_prints_the_address_serves_and_ends_well_on_an_interrupt(
    tmp_path: pathlib.Path,
) -> None:
    with started(tmp_path) as (process, address):
        with let_in(address, "") as reply:
            assert b"<title>tulle studio</title>" in reply.read()
            assert "token" not in reply.url
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert out == ""
    assert err == "Ctrl-C stops it.\nstopped\n"


def test_an_interrupt_waits_for_no_answer(tmp_path: pathlib.Path) -> None:
    with started(tmp_path) as (process, address):
        # Tens of seconds of accounting, which nobody gets to see.
        path = f"api/answers/train?{urlencode(SLOW)}"
        with ThreadPoolExecutor(1) as threads:
            refused = threads.submit(_status, address, path)
            with let_in(address, "api/ledger") as reply:
                assert reply.status == 200
            process.send_signal(signal.SIGINT)
            assert refused.result(timeout=HANG_S) != 200
        _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert err == "Ctrl-C stops it.\nstopped\n"


def test_without_its_packages_it_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "tulle.studio.serving", raising=False)
    assert run_with(["studio"]) == 1
    expected = "the studio needs uvicorn, which is not installed: pip install 'tulle[studio]'"
    assert expected in capsys.readouterr().err


def test_it_cannot_be_opened_to_other_computers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(["studio", "--host", "0.0.0.0"]) == 2  # noqa: S104
    assert "--host" in capsys.readouterr().err


def test_a_ledger_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(["studio", "--ledger", "nowhere.db"]) == 4
    assert "nowhere.db does not exist" in capsys.readouterr().err


def test_a_folder_of_runs_that_is_not_there_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_with(["studio", "--runs", "nowhere"]) == 2
    assert "--runs nowhere is no folder" in capsys.readouterr().err
