"""Charging steps in blocks, so that a crash never makes a run cost more than planned.

The order is: record that a block begins, durably; do its steps; save a checkpoint;
record that it ended, durably. A block that began and did not end stays charged and is
never repeated, since its noisy steps may have been seen: the run goes on behind it,
with the weights of its last checkpoint. So each step is charged at most once and done
at most once, however often the run crashes.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import check_count
from tulle.privacy.settings import Scalar

BLOCK_BEGUN, BLOCK_ENDED = "block begun", "block ended"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """Steps from `start` up to, not including, `end`."""

    start: int
    end: int

    def begun_record(self) -> dict[str, Scalar]:
        """To be on disk before the first of its steps."""
        return {"kind": BLOCK_BEGUN, "start": self.start, "end": self.end}

    def ended_record(self, step: int) -> dict[str, Scalar]:
        """To be on disk after the checkpoint of `step`.

        Args:
          step: The first step that was not done: `end`, or less after a stop in between.
        """
        if not self.start <= step <= self.end:
            raise ConfigError(f"step={step} must be from {self.start} to {self.end}.")
        return {"kind": BLOCK_ENDED, "end": step}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumePoint:
    """Where a run goes on."""

    next_step: int
    """The first step that was never charged. All before it are charged once."""
    checkpoint_step: int
    """The steps before this one are in the weights that the run goes on with."""
    missing_end: Mapping[str, Scalar] | None
    """A record to append first: the last block was whole, only its end was not recorded."""

    @property
    def lost_steps(self) -> int:
        """Steps that are charged since the checkpoint, and not in its weights."""
        return self.next_step - self.checkpoint_step


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepBlocks:
    """All steps of a run, cut into blocks at the multiples of the block size."""

    num_steps: int
    block_size: int

    def __post_init__(self) -> None:
        check_count("num_steps", self.num_steps, least=0)
        check_count("block_size", self.block_size)

    def __iter__(self) -> Iterator[Block]:
        return self.starting_at(0)

    def starting_at(self, step: int) -> Iterator[Block]:
        """The blocks of this step and all after it."""
        check_count("step", step, least=0)
        while step < self.num_steps:
            end = min((step // self.block_size + 1) * self.block_size, self.num_steps)
            yield Block(start=step, end=end)
            step = end

    def resume_point(
        self, records: Iterable[Mapping[str, Scalar]], *, checkpoint_step: int = 0
    ) -> ResumePoint:
        """Where the run goes on after a stop or a crash at any moment.

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

    def _replay(self, records: Iterable[Mapping[str, Scalar]]) -> tuple[int, Block | None]:
        """The first uncharged step, but for a block that began last and did not end."""
        next_step, open_block = 0, None
        for record in records:
            if record.get("kind") == BLOCK_BEGUN:
                next_step = next_step if open_block is None else open_block.end
                open_block = self._read_begun(record, next_step)
            elif record.get("kind") == BLOCK_ENDED:
                next_step, open_block = _read_ended(record, open_block), None
        return next_step, open_block

    def _read_begun(self, record: Mapping[str, Scalar], next_step: int) -> Block:
        block = Block(start=_read_step(record, "start"), end=_read_step(record, "end"))
        if block.start != next_step or not block.start < block.end <= self.num_steps:
            raise _contradiction(
                f"a block from {block.start} to {block.end} begins at step {next_step} of "
                f"{self.num_steps}"
            )
        return block


def _read_ended(record: Mapping[str, Scalar], block: Block | None) -> int:
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
