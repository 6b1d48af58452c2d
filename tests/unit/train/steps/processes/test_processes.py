import pytest
import torch
from torch import Tensor

from tulle.train.steps.processes import processes as bundles
from tulle.train.steps.processes.processes import spread_all, sum_all_at_leader
from unit.train.steps.processes.thread_processes import ThreadProcesses, run_together


def tensors(rank: int) -> list[Tensor]:
    return [
        torch.full((2, 3), rank + 1.0),
        torch.full((4,), 10.0 * (rank + 1)),
        torch.full((3, 5), rank + 2.0).t(),
        torch.full((2,), rank + 3.0, dtype=torch.float64),
        torch.full((0, 7), 1.0, dtype=torch.float64),
    ]


@pytest.mark.parametrize("most", [1, 8, 10, 1 << 22])
def test_every_tensor_of_a_bundle_is_summed_or_spread(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "_MOST_ENTRIES", most)

    def work(processes: ThreadProcesses) -> tuple[list[Tensor], list[Tensor]]:
        summed, spread = tensors(processes.rank), tensors(processes.rank)
        sum_all_at_leader(summed, processes)
        spread_all(iter(spread), processes)
        return summed, spread

    (leader, first), (follower, second) = run_together(2, work)
    for number, values in enumerate(leader):
        assert torch.equal(values, tensors(0)[number] + tensors(1)[number])
        assert not follower[number].any()
        assert torch.equal(first[number], tensors(0)[number])
        assert torch.equal(second[number], tensors(0)[number])


def test_small_tensors_go_in_one_message() -> None:
    def work(processes: ThreadProcesses) -> int:
        sent = []
        real = processes.spread
        processes.spread = lambda values: (sent.append(values), real(values))[1]  # type: ignore[method-assign]
        spread_all(tensors(processes.rank)[:3], processes)
        return len(sent)

    assert run_together(2, work) == [1, 1]
