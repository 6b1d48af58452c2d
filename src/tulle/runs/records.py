"""What happened in a run, one JSON line each, only ever appended to.

A process that dies while it writes leaves at most the beginning of one line. That
beginning counts for nothing and is cut off before the next line is written.

Private steps are charged in blocks, so that a crash never makes a run cost more than
planned. The order is: record that a block begins, durably; do its steps; save a checkpoint;
record that it ended, durably. A block that began and did not end stays charged and is
never repeated, since its noisy steps may have been seen: the run goes on behind it,
with the weights of its last checkpoint. So each step is charged at most once and done
at most once, however often the run crashes. A run that is asked to stop does so between
two steps, and records where.
"""

import contextlib
import dataclasses
import json
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType

from tulle.atomic_files import reporting_disk_errors, short_name, sync_folder
from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import Scalar, check_count, check_finite, check_text, parse_json

BLOCK_BEGUN, BLOCK_ENDED = "block begun", "block ended"


class Records:
    """The records of one run. One process at a time may append; anybody may read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: Mapping[str, Scalar], *, durable: bool = False) -> None:
        """Writes one line at once.

        Args:
          record: Names with single values: finite numbers, text, true, false or null.
          durable: Return only when the line, and all before it, survive a power failure.
        """
        _check_record(record)
        line = json.dumps(dict(record), allow_nan=False).encode() + b"\n"
        with reporting_disk_errors(self._path):
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                end = _cut_torn_line(file)
                _write_all_or_nothing(file, line, end)
                if durable:
                    os.fsync(file)
            finally:
                os.close(file)
            if durable and end == 0:
                sync_folder(self._path.parent)

    def read(self) -> list[dict[str, Scalar]]:
        """All whole lines, oldest first; none if nothing was ever written.

        Raises:
          RunStateError: A line that ends is not a record.
        """
        with reporting_disk_errors(self._path):
            try:
                content = self._path.read_bytes()
            except FileNotFoundError:
                return []
        whole_lines = content.split(b"\n")[:-1]
        return [self._parse(line, number) for number, line in enumerate(whole_lines, start=1)]

    def _parse(self, line: bytes, number: int) -> dict[str, Scalar]:
        try:
            record = parse_json("the line", line.decode())
            _check_record(record)
        except (ConfigError, UnicodeDecodeError) as error:
            raise RunStateError(
                f"{short_name(self._path)} is damaged in line {number}: it is "
                "no record, so nobody knows which steps were taken; begin a run of another name."
            ) from error
        return dict(record)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepBlock:
    """Steps from `start` up to, not including, `end`."""

    start: int
    end: int

    def begun_record(self) -> dict[str, Scalar]:
        """The record that must be on disk before the first of its steps."""
        return {"kind": BLOCK_BEGUN, "start": self.start, "end": self.end}

    def ended_record(self, step: int) -> dict[str, Scalar]:
        """The record that must be on disk after the checkpoint of `step`.

        Args:
          step: The first step that was not done: `end`, or less after a stop in between.
        """
        if not self.start <= step <= self.end:
            raise ConfigError(f"step={step} must be from {self.start} to {self.end}.")
        return {"kind": BLOCK_ENDED, "end": step}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumePoint:
    """The place where a run goes on."""

    next_step: int
    """The first step that was never charged. All before it are charged once."""
    checkpoint_step: int
    """The steps before this one are in the weights that the run goes on with."""
    missing_end: Mapping[str, Scalar] | None
    """A record to append first: the last block was whole, only its end was not recorded."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepBlocks:
    """All steps of a run, cut into blocks at the multiples of the block size."""

    num_steps: int
    block_size: int

    def __post_init__(self) -> None:
        check_count("num_steps", self.num_steps, least=0)
        check_count("block_size", self.block_size)

    def __iter__(self) -> Iterator[StepBlock]:
        return self.starting_at(0)

    def starting_at(self, step: int) -> Iterator[StepBlock]:
        """The blocks of this step and all after it."""
        check_count("step", step, least=0)
        while step < self.num_steps:
            end = min((step // self.block_size + 1) * self.block_size, self.num_steps)
            yield StepBlock(start=step, end=end)
            step = end

    def resume_point(
        self, records: Iterable[Mapping[str, Scalar]], *, checkpoint_step: int = 0
    ) -> ResumePoint:
        """Finds where the run goes on after a stop or a crash at any moment.

        Args:
          records: All records of these steps; those of other kinds are passed over.
          checkpoint_step: The step of the newest checkpoint; 0 if there is none.

        Raises:
          RunStateError: The records contradict one another, the number of steps or the
            checkpoint.
        """
        check_count("checkpoint_step", checkpoint_step, least=0)
        next_step, open_block = self._replay(records)
        if open_block is not None:
            next_step = open_block.end
        if checkpoint_step > next_step:
            raise RunStateError(
                f"the checkpoint is of step {checkpoint_step}, the records end at step "
                f"{next_step}; records were lost, and with them which steps were taken. Begin a "
                "run of another name."
            )
        is_whole = open_block is not None and checkpoint_step == open_block.end
        return ResumePoint(
            next_step=next_step,
            checkpoint_step=checkpoint_step,
            missing_end={"kind": BLOCK_ENDED, "end": checkpoint_step} if is_whole else None,
        )

    def _replay(self, records: Iterable[Mapping[str, Scalar]]) -> tuple[int, StepBlock | None]:
        """The first uncharged step, but for a block that began last and did not end."""
        next_step, open_block = 0, None
        for record in records:
            if record.get("kind") == BLOCK_BEGUN:
                next_step = next_step if open_block is None else open_block.end
                open_block = self._read_begun(record, next_step)
            elif record.get("kind") == BLOCK_ENDED:
                next_step, open_block = _read_ended(record, open_block), None
        return next_step, open_block

    def _read_begun(self, record: Mapping[str, Scalar], next_step: int) -> StepBlock:
        block = StepBlock(start=_read_step(record, "start"), end=_read_step(record, "end"))
        if block.start != next_step or not block.start < block.end <= self.num_steps:
            raise _contradiction(
                f"a block from {block.start} to {block.end} begins at step {next_step} of "
                f"{self.num_steps}"
            )
        return block


@dataclasses.dataclass
class StopRequest:
    """Whether somebody asked this process to stop."""

    requested: bool = False


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turns SIGTERM and SIGINT into a request that a loop can look at.

    A second SIGINT raises KeyboardInterrupt: the wish is urgent. A signal that the
    process was started to ignore stays ignored. Outside the main thread, where Python
    allows no handlers, nothing is installed and the request never comes.
    """
    request, num_interrupts = StopRequest(), 0

    def note(number: int, _frame: FrameType | None) -> None:
        nonlocal num_interrupts
        request.requested = True
        num_interrupts += number == signal.SIGINT
        if num_interrupts > 1:
            raise KeyboardInterrupt

    with contextlib.ExitStack() as restoring:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                old = signal.getsignal(number)
                if old is not signal.SIG_IGN:
                    # None: a handler that was not installed from Python and cannot be put back.
                    restoring.callback(
                        signal.signal, number, signal.SIG_DFL if old is None else old
                    )
                    signal.signal(number, note)
        yield request


def _check_record(record: object) -> None:
    if not isinstance(record, Mapping) or not record:
        raise ConfigError("a record must be names with values, and have at least one.")
    for name, value in record.items():
        check_text("name of an entry", name)
        if value is not None and not isinstance(value, (str, bool)):
            check_finite(name, value)


def _cut_torn_line(file: int) -> int:
    """Leaves whole lines only, and returns where they end."""
    size = os.fstat(file).st_size
    if size == 0 or os.pread(file, 1, size - 1) == b"\n":
        return size
    end = os.pread(file, size, 0).rfind(b"\n") + 1
    os.ftruncate(file, end)
    return end


def _write_all_or_nothing(file: int, line: bytes, end: int) -> None:
    try:
        num_written = os.write(file, line)
        if num_written < len(line):
            raise OSError(f"only {num_written} of {len(line)} bytes could be written")
    except OSError:
        os.ftruncate(file, end)
        raise


def _read_ended(record: Mapping[str, Scalar], block: StepBlock | None) -> int:
    step = _read_step(record, "end")
    if block is None:
        raise _contradiction(f"a block ends at step {step} that never began")
    if not block.start <= step <= block.end:
        raise _contradiction(f"the block from {block.start} to {block.end} ends at step {step}")
    return step


def _read_step(record: Mapping[str, Scalar], name: str) -> int:
    try:
        return check_count(name, record.get(name), least=0)
    except ConfigError as error:
        raise _contradiction(f"a record of kind {record['kind']!r} has {error}") from None


def _contradiction(what: str) -> RunStateError:
    return RunStateError(
        f"the records cannot be right: {what.removesuffix('.')}. Begin a run of another name."
    )
