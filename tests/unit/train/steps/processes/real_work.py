"""What real processes do in tests. Each is sent to followers by its name."""

import dataclasses
import os
import signal
import time

import torch

from tulle.errors import DataError
from tulle.train.methods.private_training import follow_fit
from tulle.train.steps.processes.processes import MessageKind, Processes, failing_together, hear
from tulle.train.steps.processes.tables import collect_rows, num_own_rows, share_out
from unit.train.models.test_tower_model import DATASETS, MODELS
from unit.train.small_data import make_examples
from unit.train.steps.noiseless_updates import Trained, Training
from unit.train.steps.processes.noiseless_processes import train_with
from waiting import HANG_S

EXAMPLES = make_examples(400)
TRAINING = Training(
    settings=MODELS["semi-sensitive mlp"],
    features=DATASETS["two tables a role"],
    num_steps=7,
)


def talk(processes: Processes, device: torch.device | str = "cpu") -> None:
    """Every collective once, with what must arrive."""
    rank, size = processes.rank, processes.size
    message = torch.tensor([7.0 if rank == 0 else 0.0])
    processes.tell(message)
    assert message.tolist() == [7.0]
    values = torch.full((2, 3), float(rank + 1), device=device)
    processes.sum_at_leader(values)
    assert values.unique().tolist() == [sum(range(1, size + 1)) if rank == 0 else 0.0]
    processes.spread(values)
    assert values.unique().tolist() == [sum(range(1, size + 1))]
    assert processes.gather_numbers([rank, 5]) == [[other, 5] for other in range(size)]
    # Rank r sends r + 1 rows to each other process, and none to itself.
    leaving = [0 if other == rank else rank + 1 for other in range(size)]
    arriving = [0 if other == rank else other + 1 for other in range(size)]
    ids = torch.full((sum(leaving), 2), rank, device=device)
    came = processes.exchange(ids, leaving, arriving)
    assert came[:, 0].tolist() == [other for other in range(size) for _ in range(arriving[other])]
    assert processes.exchange(came[:0], [0] * size, [0] * size).shape == (0, 2)
    if rank == 0:
        for other in range(1, size):
            processes.receive(values, other)
            assert values.unique().tolist() == [10.0 + other]
    else:
        processes.send(torch.full((2, 3), 10.0 + rank, device=device), 0)


def work_together(processes: Processes) -> Trained:
    """One process after another is slow to start, so those that do this do all of it."""
    talk(processes)
    train_other_ways(processes)
    return train_with(processes, TRAINING, "sharded")


def work(processes: Processes) -> None:
    work_together(processes)


def train_other_ways(processes: Processes) -> None:
    """Where messages could be empty: no table is trained, or one has fewer rows than ranks."""
    common = dataclasses.replace(TRAINING, towers=frozenset({"common"}))
    train_with(processes, common, "sharded")
    table = torch.arange(3.0).view(1, 3)
    own = torch.zeros(num_own_rows(1, processes), 3)
    share_out(table if processes.rank == 0 else None, own, processes)
    assert own.tolist() == table.tolist()[processes.rank :]
    whole = torch.zeros(1, 3) if processes.rank == 0 else None
    collect_rows(own, whole, processes)
    assert whole is None or torch.equal(whole, table)


def follow(processes: Processes) -> None:
    follow_fit(EXAMPLES, processes)


def fail_before_the_first_message(processes: Processes) -> None:
    with failing_together(processes):
        raise DataError("the file is torn.")


def die_in_the_third_step(processes: Processes) -> None:
    """As a process that the system kills for memory."""
    take_and_then(processes, lambda: os.kill(os.getpid(), signal.SIGKILL))


def hang_in_the_third_step(processes: Processes) -> None:
    """As a process on a machine that hangs."""
    take_and_then(processes, lambda: time.sleep(HANG_S))


def take_and_then(processes: Processes, act: object) -> None:
    class Counting:
        """Passes everything on, and acts at the third step."""

        num_steps = 0

        def __getattr__(self, name: str) -> object:
            return getattr(processes, name)

        def tell(self, message: torch.Tensor) -> None:
            processes.tell(message)
            self.num_steps += int(message[0]) == MessageKind.TAKE.value
            if self.num_steps == 3:
                act()  # type: ignore[operator]

    follow_fit(EXAMPLES, Counting())  # type: ignore[arg-type]


def say_nothing(processes: Processes) -> None:
    assert hear(processes).kind is MessageKind.STOP
