"""Jobs in several processes side by side: results as they come, whatever becomes of a process."""

import contextlib
import dataclasses
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait

_CONTEXT = multiprocessing.get_context("spawn")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What one call of the work gets."""

    name: str
    """For whoever reads that it failed."""
    task: dict
    on_device: bool = False
    """True if it uses an accelerator, which few processes should do at once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a job."""

    job: Job
    result: object = None
    error: str = ""
    """Empty if it went well."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crew:
    """How many processes there are, and for how long they get new jobs."""

    num_processes: int = 1
    num_on_device: int = 1
    """Those of them that take jobs on the device; others take the rest alone."""
    time_limit: float = float("inf")
    """In seconds. Jobs that have begun are finished."""


def collect_results(
    jobs: Sequence[Job],
    work: Callable[[dict], object],
    crew: Crew,
    keep: Callable[[object], None],
) -> int:
    """Hands each result to `keep`, prints errors, and returns the exit status: 1 after an error."""
    num_done = num_failed = 0
    for outcome in run_side_by_side(jobs, work, crew):
        num_done += 1
        if outcome.error:
            num_failed += 1
            print(f"{outcome.job.name}: {outcome.error}", file=sys.stderr, flush=True)
        else:
            keep(outcome.result)
    if num_done < len(jobs):
        print(f"time limit reached: {len(jobs) - num_done} of {len(jobs)} runs were not begun.")
    return int(num_failed > 0)


def run_side_by_side(
    jobs: Sequence[Job], work: Callable[[dict], object], crew: Crew
) -> Iterator[Outcome]:
    """Hands out jobs in their order and yields each outcome. Jobs beyond the limit have none.

    Args:
      jobs: The first ones first.
      work: A function of a module, called with the task in a process with one thread.
      crew: The processes.
    """
    start, waiting = time.monotonic(), list(jobs)
    members = [_Member(work, place < crew.num_on_device) for place in range(crew.num_processes)]
    try:
        while True:
            if time.monotonic() - start > crew.time_limit:
                waiting.clear()
            for member in members:
                member.take_one_of(waiting)
            busy = {member.connection: member for member in members if member.job is not None}
            if not busy:
                return
            for connection in wait(list(busy)):
                member = busy[connection]
                yield member.outcome()
                if not member.is_alive:
                    members[members.index(member)] = _Member(work, member.has_device)
    finally:
        for member in members:
            member.end()


class _Member:
    """One process, and the job that it is at."""

    def __init__(self, work: Callable[[dict], object], has_device: bool) -> None:
        self.connection, theirs = _CONTEXT.Pipe()
        self.has_device, self.is_alive = has_device, True
        self.job: Job | None = None
        self._process = _CONTEXT.Process(target=_serve, args=(theirs, work), daemon=True)
        self._process.start()
        # The other end is the process's alone, so that reading fails once it has died.
        theirs.close()

    def take_one_of(self, waiting: list[Job]) -> None:
        """Begins the first job that suits, if there is one; jobs on the device come first."""
        if self.job is not None:
            return
        suited = [job for job in waiting if self.has_device or not job.on_device]
        self.job = next((job for job in suited if job.on_device), suited[0] if suited else None)
        if self.job is not None:
            waiting.remove(self.job)
            with contextlib.suppress(OSError):
                self.connection.send(self.job.task)

    def outcome(self) -> Outcome:
        """What the job came to. Waits for it."""
        job, self.job = self.job, None
        if job is None:
            raise RuntimeError("this process has no job.")
        try:
            result, error = self.connection.recv()
        except (EOFError, OSError):
            self.is_alive = False
            self._process.join()
            result, error = None, f"its process ended with exit code {self._process.exitcode}"
        return Outcome(job=job, result=result, error=error)

    def end(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join()


def _serve(connection: Connection, work: Callable[[dict], object]) -> None:
    # Here and not above: whoever only hands out jobs does without it.
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        while True:
            task = connection.recv()
            try:
                answer = work(task), ""
            except Exception:
                answer = None, traceback.format_exc()
            connection.send(answer)
