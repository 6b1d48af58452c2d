import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tulle.accounting import ledger_rows
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.errors import RunStateError
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.units import Adjacency, Unit
from waiting import HANG_S

HUNDREDTH = EpsilonDelta(epsilon=0.01)

SPEND_ON_A_FULL_DISK = """
import resource, sys
from tulle.accounting.ledger import Ledger
from tulle.errors import RunStateError
from tulle.privacy.events import EpsilonDelta

ledger, event = Ledger.open(sys.argv[1]), EpsilonDelta(epsilon=0.01)
with ledger.spend(event, purpose="counts", note="before"):
    pass
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, unlimited[1]))
try:
    ledger.spend(event, purpose="counts", note="full")
except RunStateError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
with ledger.spend(event, purpose="counts", note="after"):
    pass
"""

# Scripts do once as root what they then do without rights: modules are loaded where they are first
# used, and only root may read a Python that is installed in root's home.
SPEND_WITHOUT_RIGHTS = """
import os, sys
from tulle.accounting.ledger import Ledger
from tulle.errors import RunStateError
from tulle.privacy.events import EpsilonDelta

Ledger.open(sys.argv[2]).spend(EpsilonDelta(epsilon=0.01), purpose="counts")
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    Ledger.open(sys.argv[1]).spend(EpsilonDelta(epsilon=0.01), purpose="counts")
except RunStateError as error:
    print(error)
"""

SHOW_WITHOUT_RIGHTS = """
import contextlib, io, os, sys
from tulle.cli.main import run_with

with contextlib.redirect_stdout(io.StringIO()):
    run_with(["budget", "show", sys.argv[2]])
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
sys.exit(run_with(["budget", "show", sys.argv[1]]))
"""

HOLD_THE_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2])
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
"""


def make_ledger(path: Path, *, num_spends: int = 3) -> Ledger:
    ledger = Ledger.create(path, busy_timeout_s=0.2)
    ledger.create_budget(
        Budget(name="ads", unit=Unit.user(), adjacency=Adjacency.REPLACE, epsilon=1.0, delta=0.0)
    )
    for _ in range(num_spends):
        with ledger.spend(HUNDREDTH, purpose="counts", note="a note to fill the page " * 9):
            pass
    return ledger


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users can reach, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def assert_refused(path: Path, message: str) -> None:
    before = path.read_bytes()
    with pytest.raises(RunStateError, match=message) as caught:
        Ledger.open(path)
    assert path.name in str(caught.value)
    assert path.read_bytes() == before


def test_a_full_disk_fails_the_spend_and_keeps_the_others(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db")
    done = subprocess.run(
        [sys.executable, "-c", SPEND_ON_A_FULL_DISK, str(ledger.path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert "ledger.db cannot be written: the disk is full or fails" in done.stdout
    notes = [spend.request.note for spend in Ledger.open(ledger.path).spends("ads")]
    assert notes[-2:] == ["before", "after"]
    assert len(notes) == 5


def test_a_database_that_cannot_grow_fails_the_spend_and_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = make_ledger(tmp_path / "ledger.db")
    insert_spend = ledger_rows.insert_spend

    def insert_without_room(
        connection: sqlite3.Connection, request: ledger_rows.SpendRequest
    ) -> int:
        connection.execute("PRAGMA max_page_count = 1")
        return insert_spend(connection, request)

    monkeypatch.setattr(ledger_rows, "insert_spend", insert_without_room)
    with pytest.raises(RunStateError, match=r"ledger\.db cannot be written: the disk is full"):
        ledger.spend(HUNDREDTH, purpose="counts", note="long " * 9999)
    monkeypatch.undo()
    assert len(Ledger.open(ledger.path).spends("ads")) == 3


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_ledger_that_may_not_be_written_is_named(public_folder: Path, folder_mode: int) -> None:
    ledger = make_ledger(public_folder / "ledger.db")
    ledger.path.chmod(0o444)
    public_folder.chmod(folder_mode)
    done = run_script(SPEND_WITHOUT_RIGHTS, ledger.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ledger.db cannot be opened for writing" in done.stdout
    assert "right to write the file and its folder" in done.stdout
    public_folder.chmod(0o755)
    ledger.path.chmod(0o644)
    assert len(Ledger.open(ledger.path).spends("ads")) == 3


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
@pytest.mark.parametrize("has_a_crash_left_its_log", [False, True])
def test_a_ledger_that_may_only_be_read_is_shown(
    public_folder: Path, folder_mode: int, *, has_a_crash_left_its_log: bool
) -> None:
    ledger = make_ledger(public_folder / "ledger.db")
    if has_a_crash_left_its_log:
        leave_the_last_spend_in_the_log(ledger.path)
    for path in public_folder.iterdir():
        path.chmod(0o444)
    public_folder.chmod(folder_mode)
    before = {path.name: path.read_bytes() for path in public_folder.iterdir()}
    done = run_script(SHOW_WITHOUT_RIGHTS, ledger.path)
    num_spends = 4 if has_a_crash_left_its_log else 3
    assert f"spends: {num_spends}, open: 0" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name: path.read_bytes() for path in public_folder.iterdir()} == before


def test_a_ledger_that_may_not_even_be_read_is_named(public_folder: Path) -> None:
    ledger = make_ledger(public_folder / "ledger.db")
    ledger.path.chmod(0o000)
    script = SPEND_WITHOUT_RIGHTS.replace(
        "Ledger.open(sys.argv[1])", "Ledger.open_to_read(sys.argv[1])"
    )
    done = run_script(script, ledger.path)
    assert "ledger.db cannot be opened" in done.stdout
    assert "the right to read it" in done.stdout


def run_script(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script on the ledger at `path`, with another one to try first."""
    with tempfile.TemporaryDirectory() as folder:
        other = make_ledger(Path(folder) / "other.db")
        return subprocess.run(
            [sys.executable, "-c", script, str(path), str(other.path)],
            check=False,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )


def leave_the_last_spend_in_the_log(path: Path) -> None:
    """Puts a ledger and its log in place as a process leaves them that was killed."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(
        "INSERT INTO spends (event, purpose, status, recorded_at) SELECT event, purpose, status, "
        "recorded_at FROM spends WHERE id = 1"
    )
    files = {left: left.read_bytes() for left in path.parent.iterdir()}
    connection.close()
    for left, content in files.items():
        left.write_bytes(content)
    assert len(files) == 3


@pytest.mark.parametrize("keep", ["1 byte", "a part of the header", "1 page", "half", "all but 1"])
def test_a_truncated_ledger_is_refused_never_taken_for_a_fresh_one(
    tmp_path: Path, keep: str
) -> None:
    ledger = make_ledger(tmp_path / "ledger.db", num_spends=30)
    size = ledger.path.stat().st_size
    kept = {
        "1 byte": 1,
        "a part of the header": 60,
        "1 page": 4096,
        "half": size // 2,
        "all but 1": size - 1,
    }[keep]
    os.truncate(ledger.path, kept)
    assert_refused(ledger.path, "damaged or no ledger.*backup")
    with pytest.raises(RunStateError, match="exists already"):
        Ledger.create(ledger.path)


def test_a_page_overwritten_with_zeros_is_refused(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db", num_spends=30)
    content = bytearray(ledger.path.read_bytes())
    content[-4096:] = bytes(4096)
    ledger.path.write_bytes(content)
    assert_refused(ledger.path, "damaged or no ledger.*backup")


@pytest.mark.parametrize("content", [b"", b"user_id,clicks\n" * 99, bytes(8192)])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    assert_refused(path, "damaged or no ledger")


def test_a_missing_ledger_is_not_made_by_opening_it(tmp_path: Path) -> None:
    with pytest.raises(RunStateError, match=r"ledger\.db does not exist.*tulle budget create"):
        Ledger.open(tmp_path / "ledger.db")
    with pytest.raises(RunStateError, match="does not exist"):
        Ledger(path=tmp_path / "ledger.db").budgets()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(RunStateError, match="is not a file"):
        Ledger.open(tmp_path)


@pytest.mark.parametrize("name", ["missing/ledger.db", "file/ledger.db"])
def test_a_ledger_needs_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunStateError, match=r"ledger\.db.*folder"):
        Ledger.create(tmp_path / name)
    with pytest.raises(RunStateError, match=r"ledger\.db"):
        Ledger.open(tmp_path / name)


def test_an_existing_ledger_is_not_replaced(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db")
    with pytest.raises(RunStateError, match=r"ledger\.db exists already"):
        Ledger.create(ledger.path)
    assert ledger.state("ads").num_spends == 3


def test_the_log_of_a_lost_ledger_is_not_adopted(tmp_path: Path) -> None:
    (tmp_path / "ledger.db-wal").write_bytes(b"")
    with pytest.raises(RunStateError, match=r"ledger\.db-wal is left"):
        Ledger.create(tmp_path / "ledger.db")


@pytest.mark.parametrize(
    "pragma", ["PRAGMA locking_mode = NORMAL", "PRAGMA locking_mode = EXCLUSIVE"]
)
def test_a_lock_held_for_too_long_ends_in_an_error(tmp_path: Path, pragma: str) -> None:
    ledger = make_ledger(tmp_path / "ledger.db")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(ledger.path), pragma],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(RunStateError, match=r"ledger\.db stayed locked.*busy_timeout_s=0\.2"):
        ledger.spend(HUNDREDTH, purpose="counts")
    holder.communicate("done\n", timeout=HANG_S)
    assert ledger.state("ads").num_spends == 3
    ledger.spend(HUNDREDTH, purpose="counts")


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "50% of ads? #1 é.db")
    assert Ledger.open(ledger.path).state("ads").num_spends == 3
    assert len(list(tmp_path.iterdir())) == 1
