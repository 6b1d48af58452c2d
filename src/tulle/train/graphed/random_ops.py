"""Random words and normals by counter: kernels on a GPU, the same in torch elsewhere."""

from typing import Any

import torch
from torch import Tensor

from tulle.train.graphed.device_keys import normal_pairs, random_words
from tulle.train.graphed.kernel_launch import block_space, num_blocks, uses_kernels

_BLOCK = 256


def words(key: Tensor, draw: Tensor, num_draws: int, num_entities: int) -> Tensor:
    """[draws, entities, 4]: random words of 32 bits in int64, for draws from `draw` on."""
    if not uses_kernels(key):
        entity = torch.arange(num_entities)
        draws = draw + torch.arange(num_draws).unsqueeze(1)
        return torch.stack(random_words(key, entity=entity, part=torch.tensor(0), draw=draws), 2)
    out = torch.empty((num_draws, num_entities, 4), dtype=torch.int64, device=key.device)
    grid = (num_blocks(num_entities, _BLOCK), num_draws)
    _kernels().words_kernel[grid](out, key, draw, num_entities, BLOCK=_BLOCK)
    return out


def fill_normals(out: Tensor, *, key: Tensor, draw: Tensor) -> None:
    """Fills a tensor with standard normals."""
    if not uses_kernels(out):
        out.view(-1).copy_(_normals(key, out.numel(), draw))
        return
    grid = (num_blocks(out.numel() + 1, 2 * _BLOCK),)
    _kernels().normals_kernel[grid](out, out.numel(), key, draw, BLOCK=_BLOCK)


def row_normals(key: Tensor, rows: Tensor, dim: int, draw: Tensor) -> Tensor:
    """[rows, dim], by row and not by its place in the list."""
    part = torch.arange(block_space(dim + 1) // 2)
    both = normal_pairs(random_words(key, entity=rows.unsqueeze(1), part=part, draw=draw))
    return torch.cat(both, 1)[:, :dim]


def _normals(key: Tensor, size: int, draw: Tensor) -> Tensor:
    """The first half of the entries gets the cosines, the second half the sines."""
    pair = torch.arange(-(-size // 2))
    both = normal_pairs(random_words(key, entity=pair, part=torch.tensor(0), draw=draw))
    return torch.cat(both)[:size]


def _kernels() -> Any:
    # Only where there is a GPU is there a triton.
    from tulle.train.graphed import random_kernels

    return random_kernels
