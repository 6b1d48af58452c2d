"""Tables are ordinary tensors in memory of their own."""

import pytest
import torch

from tulle.train.models.tower_model import table_empty, zeros_like_table


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0, 3), (5, 3), (200_000, 8)])
def test_a_table_is_a_tensor_of_the_stated_kind(shape: tuple[int, int], dtype: torch.dtype) -> None:
    table = table_empty(*shape, dtype)
    zeros = zeros_like_table(table)
    for found in (table, zeros):
        assert found.shape == shape
        assert found.dtype == dtype
        assert found.is_contiguous()
    assert not zeros.any()


def test_a_table_shares_memory_with_no_other() -> None:
    table = table_empty(4, 2, torch.float32).fill_(1.0)
    zeros = zeros_like_table(table)
    zeros.add_(5.0)
    assert bool((table == 1).all())


def test_zeros_are_on_the_device_of_the_table() -> None:
    assert zeros_like_table(torch.empty(3, 2, device="meta")).device.type == "meta"
