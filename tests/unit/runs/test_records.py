import dataclasses
import itertools
import math
import os
import pathlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import Scalar
from tulle.runs.records import (
    Records,
    ResumePoint,
    StepBlock,
    StepBlocks,
    StopRequest,
    stop_signals,
)

NAMES = st.text("abc \n\u2028ü", min_size=1, max_size=5).filter(str.strip)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
)
LINES = st.lists(st.dictionaries(NAMES, VALUES, min_size=1, max_size=3), max_size=5)


def lost_steps(point: ResumePoint) -> int:
    """Steps that are charged since the checkpoint, and not in its weights."""
    return point.next_step - point.checkpoint_step


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "records.jsonl"


@given(lines=LINES, cut=st.integers(0, 10**6))
def test_a_file_cut_anywhere_has_its_whole_lines_and_takes_more(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Scalar]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("run") / "records.jsonl"
    records = Records(path)
    for line in lines:
        records.append(line)
    assert records.read() == lines
    assert [list(line) for line in records.read()] == [list(line) for line in lines]
    content = path.read_bytes() if lines else b""
    content = content[: cut % (len(content) + 1)]
    path.write_bytes(content)
    whole = lines[: content.count(b"\n")]
    assert records.read() == whole
    records.append({"step": 1}, durable=True)
    assert records.read() == [*whole, {"step": 1}]
    assert path.read_bytes().count(b"\n") == len(whole) + 1


def test_nothing_written_reads_as_nothing(path: pathlib.Path) -> None:
    assert Records(path).read() == []


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b'{"step": ',
        b"[1]",
        b"{}",
        b'{"loss": NaN}',
        b'{"step": 1, "step": 2}',
        b'{"step": [1]}',
        b'{"": 1}',
        b"\xff",
        b"\0\0",
    ],
)
def test_a_broken_line_that_ends_is_refused_by_its_number(path: pathlib.Path, line: bytes) -> None:
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 2}\n')
    with pytest.raises(RunStateError, match=r"records\.jsonl is damaged in line 2"):
        Records(path).read()


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"loss": math.nan},
        {"loss": -math.inf},
        {"loss": [1.0]},
        {"loss": {"a": 1}},
        {"loss": np.float32(1)},
        {"loss": b"x"},
        {"": 1},
        {1: 1},
    ],
)
def test_what_is_no_record_is_not_written(path: pathlib.Path, record: dict[str, Scalar]) -> None:
    with pytest.raises(ConfigError):
        Records(path).append(record)
    assert not path.exists()


def test_a_disk_that_takes_half_a_line_keeps_none_of_it(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records(path)
    records.append({"step": 1})
    write = os.write

    def write_half(file: int, line: bytes) -> int:
        return write(file, line[: len(line) // 2])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_half)
        with pytest.raises(RunStateError, match=r"records\.jsonl cannot be used: only"):
            records.append({"step": 2})
    assert path.read_bytes() == b'{"step": 1}\n'


def test_a_durable_line_is_synced_with_its_folder_when_new(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.path.isdir(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    records = Records(path)
    records.append({"step": 1}, durable=True)
    assert synced == [False, True]
    records.append({"step": 2})
    assert synced == [False, True]
    records.append({"step": 3}, durable=True)
    assert synced == [False, True, False]


@dataclasses.dataclass
class Disk:
    """What survives a crash, and all that was ever done."""

    records: list[Mapping[str, Scalar]] = dataclasses.field(default_factory=list)
    checkpoint: tuple[int, ...] = ()
    """The steps that are in the weights."""
    checkpoint_step: int = 0
    executed: list[int] = dataclasses.field(default_factory=list)

    def charged(self) -> list[int]:
        """Every step that the records charge, by an account of its own."""
        blocks: list[list[int]] = []
        for record in self.records:
            if record["kind"] == "block begun":
                blocks.append([int(str(record["start"])), int(str(record["end"]))])
            elif record["kind"] == "block ended":
                blocks[-1][1] = int(str(record["end"]))
        return [step for start, end in blocks for step in range(start, end)]


def going_on(point: ResumePoint) -> int:
    return point.next_step


def repeating_the_lost_block(point: ResumePoint) -> int:
    return point.checkpoint_step


def attempt(
    blocks: StepBlocks,
    disk: Disk,
    *,
    stop_after: int | None = None,
    first_step: Callable[[ResumePoint], int] = going_on,
) -> Iterator[None]:
    """One process; wherever it yields it may die. A stop is asked for after some steps."""
    point = blocks.resume_point(disk.records, checkpoint_step=disk.checkpoint_step)
    yield
    if point.missing_end is not None:
        disk.records.append(point.missing_end)
        yield
    weights, num_done = list(disk.checkpoint), 0
    for block in blocks.starting_at(first_step(point)):
        disk.records.append(block.begun_record())
        yield
        step = block.start
        while step < block.end and num_done != stop_after:
            assert step in disk.charged()
            disk.executed.append(step)
            weights.append(step)
            step, num_done = step + 1, num_done + 1
            yield
        disk.checkpoint, disk.checkpoint_step = tuple(weights), step
        yield
        disk.records.append(block.ended_record(step))
        yield
        if num_done == stop_after:
            return


def check(disk: Disk, num_steps: int) -> None:
    charged = disk.charged()
    assert charged == sorted(set(charged)), "a step is charged twice"
    assert len(charged) <= num_steps, "more steps are charged than planned"
    assert len(disk.executed) == len(set(disk.executed)), "a step is done twice"
    assert set(disk.executed) <= set(charged), "a step is done and not charged"
    assert set(disk.checkpoint) <= set(disk.executed)


def run_to_the_end(blocks: StepBlocks, disk: Disk) -> None:
    for _ in attempt(blocks, disk):
        check(disk, blocks.num_steps)
    assert disk.charged() == list(range(blocks.num_steps))


HISTORIES = st.lists(
    st.tuples(st.integers(0, 40), st.none() | st.integers(0, 12)), max_size=6
)  # (points passed before the crash, steps before a stop is asked for)


@given(num_steps=st.integers(0, 20), block_size=st.integers(1, 8), history=HISTORIES)
def test_no_history_of_crashes_and_stops_costs_more_than_planned(
    num_steps: int, block_size: int, history: list[tuple[int, int | None]]
) -> None:
    blocks, disk = StepBlocks(num_steps=num_steps, block_size=block_size), Disk()
    for num_points, stop_after in history:
        for _ in itertools.islice(attempt(blocks, disk, stop_after=stop_after), num_points):
            check(disk, num_steps)
        check(disk, num_steps)
        point = blocks.resume_point(disk.records, checkpoint_step=disk.checkpoint_step)
        assert point.next_step == len(disk.charged())
        assert 0 <= lost_steps(point) <= len(history) * block_size
    run_to_the_end(blocks, disk)
    assert num_steps - len(disk.checkpoint) <= len(history) * block_size


def test_a_crash_at_each_point_followed_by_one_at_each_point_is_survived() -> None:
    blocks = StepBlocks(num_steps=7, block_size=3)
    for first, second in itertools.product(range(20), repeat=2):
        disk = Disk()
        for num_points in (first, second):
            list(itertools.islice(attempt(blocks, disk), num_points))
            check(disk, 7)
        run_to_the_end(blocks, disk)


def test_the_check_catches_a_run_that_repeats_a_lost_block() -> None:
    blocks, disk = StepBlocks(num_steps=7, block_size=3), Disk()
    list(itertools.islice(attempt(blocks, disk), 3))
    list(itertools.islice(attempt(blocks, disk, first_step=repeating_the_lost_block), 2))
    with pytest.raises(AssertionError, match="charged twice"):
        check(disk, 7)


@given(
    num_steps=st.integers(0, 20),
    block_size=st.integers(1, 8),
    stops=st.lists(st.integers(0, 12), max_size=5),
)
def test_asked_to_stop_a_run_loses_nothing(
    num_steps: int, block_size: int, stops: list[int]
) -> None:
    blocks, disk = StepBlocks(num_steps=num_steps, block_size=block_size), Disk()
    for stop_after in stops:
        list(attempt(blocks, disk, stop_after=stop_after))
    run_to_the_end(blocks, disk)
    assert disk.checkpoint == tuple(range(num_steps))


def test_a_block_that_began_and_did_not_end_is_lost_and_not_repeated() -> None:
    blocks = StepBlocks(num_steps=10, block_size=4)
    records = [StepBlock(start=0, end=4).begun_record(), StepBlock(start=0, end=4).ended_record(4)]
    crashed = [*records, StepBlock(start=4, end=8).begun_record()]
    assert blocks.resume_point(records, checkpoint_step=4).next_step == 4
    point = blocks.resume_point(crashed, checkpoint_step=4)
    assert (point.next_step, lost_steps(point), point.missing_end) == (8, 4, None)
    assert list(blocks.starting_at(8)) == [StepBlock(start=8, end=10)]


def test_a_checkpoint_at_the_end_of_a_block_counts_without_its_record() -> None:
    blocks = StepBlocks(num_steps=10, block_size=4)
    begun = [{"kind": "evaluation", "auc": 0.7}, StepBlock(start=0, end=4).begun_record()]
    point = blocks.resume_point(begun, checkpoint_step=4)
    assert (point.next_step, lost_steps(point)) == (4, 0)
    assert point.missing_end == {"kind": "block ended", "end": 4}
    # One within the block may not be its last: steps behind it may have been done.
    point = blocks.resume_point(begun, checkpoint_step=3)
    assert (point.next_step, lost_steps(point), point.missing_end) == (4, 1, None)


def test_blocks_cover_all_steps_once() -> None:
    assert [(b.start, b.end) for b in StepBlocks(num_steps=7, block_size=3)] == [
        (0, 3),
        (3, 6),
        (6, 7),
    ]
    assert [(b.start, b.end) for b in StepBlocks(num_steps=7, block_size=3).starting_at(4)] == [
        (4, 6),
        (6, 7),
    ]
    assert list(StepBlocks(num_steps=0, block_size=3)) == []


BEGUN = {"kind": "block begun", "start": 0, "end": 4}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"kind": "block begun", "start": 4, "end": 8}], "from 4 to 8 begins at step 0"),
        ([{"kind": "block begun", "start": 0, "end": 0}], "from 0 to 0"),
        ([{"kind": "block begun", "start": 0, "end": 11}], "from 0 to 11 begins at step 0 of 10"),
        ([{"kind": "block begun", "start": 0}], "end=None must be a whole number"),
        ([{"kind": "block begun", "start": True, "end": 4}], "start=True"),
        ([{"kind": "block ended", "end": 4}], "ends at step 4 that never began"),
        ([BEGUN, {"kind": "block ended", "end": 5}], "from 0 to 4 ends at step 5"),
        ([BEGUN, {"kind": "block ended", "end": "4"}], "end='4'"),
        ([BEGUN, BEGUN], "from 0 to 4 begins at step 4"),
    ],
)
def test_records_that_contradict_themselves_are_refused(
    records: list[Mapping[str, Scalar]], message: str
) -> None:
    with pytest.raises(RunStateError, match=message):
        StepBlocks(num_steps=10, block_size=4).resume_point(records)


def test_a_checkpoint_of_steps_that_no_record_charges_is_refused() -> None:
    with pytest.raises(RunStateError, match="step 5, the records end at step 4; records were lost"):
        StepBlocks(num_steps=10, block_size=4).resume_point([BEGUN], checkpoint_step=5)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_steps=-1"):
        StepBlocks(num_steps=-1, block_size=1)
    with pytest.raises(ConfigError, match="block_size=0"):
        StepBlocks(num_steps=1, block_size=0)
    with pytest.raises(ConfigError, match="step=9 must be from 4 to 8"):
        StepBlock(start=4, end=8).ended_record(9)
    with pytest.raises(ConfigError, match="checkpoint_step=-1"):
        StepBlocks(num_steps=1, block_size=1).resume_point([], checkpoint_step=-1)


@pytest.fixture(autouse=True)
def _plain_handlers() -> Iterator[None]:
    old = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in old.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_becomes_a_request(number: signal.Signals) -> None:
    with stop_signals() as stop:
        assert not stop.requested
        signal.raise_signal(number)
        assert stop.requested


def test_a_second_interrupt_stops_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), stop_signals() as stop:  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_old_handlers_come_back() -> None:
    with pytest.raises(ValueError, match="any"), stop_signals():
        raise ValueError("any")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stop_signals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert not stop.requested
        signal.raise_signal(signal.SIGTERM)
        assert stop.requested
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_requests_do_not_mix() -> None:
    with stop_signals() as outer:
        with stop_signals() as inner:
            signal.raise_signal(signal.SIGTERM)
        assert inner.requested
        assert not outer.requested


def test_in_another_thread_it_does_nothing() -> None:
    seen: list[StopRequest] = []

    def work() -> None:
        with stop_signals() as stop:
            seen.append(stop)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [StopRequest(requested=False)]
