"""Secret keys of the counter-based generators on a device, one for each purpose.

Philox 4x32-10 (Salmon et al. 2011) turns a key of 64 bits and a counter of 128 bits into
128 random bits. Here 64 bits of the counter are secret too: they are masked with a nonce,
so that a key has 128 secret bits in all. The rest of the counter says what is drawn (which
row or entry, which step), so nothing is drawn twice and no generator has a state.
"""

import importlib.util
from typing import Any, NoReturn

import torch
from torch import Tensor

from tulle.errors import RunStateError
from tulle.mechanisms.entropy import NoiseSource


def uses_kernels(values: Tensor) -> bool:
    """True if work on a tensor is done by Triton kernels: it is on a GPU."""
    return values.is_cuda


def has_kernels() -> bool:
    """True if the kernels can be compiled: triton comes with torch's CUDA builds for Linux."""
    return importlib.util.find_spec("triton") is not None


def block_space(size: int) -> int:
    """The least power of 2 that is not smaller: blocks of a kernel have such sizes."""
    return 1 << max(0, size - 1).bit_length()


def num_blocks(size: int, block: int) -> int:
    """How many blocks cover a size."""
    return -(-size // block)


# Philox 4x32-10 (Salmon et al. 2011): rounds, multipliers, and what is added to the key in each
# round. Other numbers would make another generator, which nobody has tested.
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
# Words of 32 bits live in int64, since torch has little arithmetic without a sign.
_MASK = 0xFFFFFFFF


class KeyHolder:
    """Whatever holds keys of a device. It can be neither copied nor pickled.

    A copy would draw the same noise or the same batches again, and whoever has it could take
    the noise off.
    """

    def __reduce__(self) -> NoReturn:
        raise RunStateError(
            "what holds the keys of noise or batches must not be copied or saved. Make a new one "
            "from release_rng() in each process."
        )


def device_key(rng: NoiseSource, device: torch.device) -> Tensor:
    """[4]: two words of key and two of nonce, 32 bits each, in int64.

    Args:
      rng: Source of the words. Sensitive: never log or save its state, nor the key.
      device: Device that the key is used on.
    """
    bits = [int(word) for word in rng.words(2)]
    words = [bits[0] & _MASK, bits[0] >> 32, bits[1] & _MASK, bits[1] >> 32]
    return torch.tensor(words, dtype=torch.int64, device=device)


def random_words(key: Tensor, *, entity: Tensor, part: Tensor, draw: Tensor) -> list[Tensor]:
    """Four random words of 32 bits for each counter, in int64.

    The kernels of row_kernels.py give the same words.

    Args:
      key: Key and nonce, from `device_key`.
      entity: Number of the row or entry, from 0 to 2^63; int64. All arguments are broadcast.
      part: Number of the part of it, below 2^32.
      draw: Number of the step or flush, below 2^32.
    """
    zeros = torch.zeros_like(entity + part + draw)
    counter = [
        zeros + (entity & _MASK),
        zeros + part,
        zeros + (draw ^ key[2]),
        zeros + ((entity >> 32) ^ key[3]),
    ]
    return philox(counter, [key[0], key[1]])


def philox(counter: list[Tensor], key: list[Tensor]) -> list[Tensor]:
    """Philox 4x32 with ten rounds, on words of 32 bits in int64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return [c0, c1, c2, c3]


def uniforms(high: Tensor, low: Tensor) -> Tensor:
    """Numbers in (0, 1) from 64 random bits, with full relative precision near 0; float64."""
    return high.double() * 2.0**-32 + (low.double() + 0.5) * 2.0**-64


def normal_pairs(words: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Two independent normals from the first three of four words (Box and Muller 1958); float32.

    The radius is taken from 64 bits, so tails reach to 9.4 standard deviations.
    """
    radius = (-2 * uniforms(words[0], words[1]).log()).sqrt().float()
    angle = (words[2].float() + 0.5) * (2 * torch.pi * 2.0**-32)
    return radius * angle.cos(), radius * angle.sin()


def _multiply(values: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    # The low 64 bits of a product are the same for signed and unsigned numbers.
    product = values * factor
    return (product >> 32) & _MASK, product & _MASK


# Numbers of one program of a kernel. Normals go by their counter, so this changes speed alone.
_BLOCK = 256


def words(key: Tensor, draw: Tensor, num_draws: int, num_entities: int) -> Tensor:
    """Random words of 32 bits in int64, as [draws, entities, 4].

    Args:
      key: Key and nonce, from `device_key`.
      draw: [1]: number of the first draw.
      num_draws: Number of draws.
      num_entities: Number of entities, from 0 on, that each draw has words for.
    """
    if not uses_kernels(key):
        entity = torch.arange(num_entities)
        draws = draw + torch.arange(num_draws).unsqueeze(1)
        return torch.stack(random_words(key, entity=entity, part=torch.tensor(0), draw=draws), 2)
    out = torch.empty((num_draws, num_entities, 4), dtype=torch.int64, device=key.device)
    grid = (num_blocks(num_entities, _BLOCK), num_draws)
    _kernels().words_kernel[grid](out, key, draw, num_entities, BLOCK=_BLOCK)
    return out


def fill_normals(out: Tensor, *, key: Tensor, draw: Tensor) -> None:
    """Fills a tensor with standard normals.

    Args:
      out: A contiguous float32 tensor.
      key: Key and nonce, from `device_key`.
      draw: [1]: number of the draw, which no other one with this key may have.
    """
    if not uses_kernels(out):
        out.view(-1).copy_(_normals(key, out.numel(), draw))
        return
    grid = (num_blocks(out.numel() + 1, 2 * _BLOCK),)
    _kernels().normals_kernel[grid](out, out.numel(), key, draw, BLOCK=_BLOCK)


def row_normals(key: Tensor, rows: Tensor, dim: int, draw: Tensor) -> Tensor:
    """Standard normals for rows of a table, as [rows, dim].

    They belong to the row itself and not to its place in the list.

    Args:
      key: Key and nonce, from `device_key`.
      rows: Rows of the table, int64.
      dim: Numbers in each row.
      draw: [1]: number of the draw, which no other one with this key may have.
    """
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
    from tulle.train.steps.gpu import row_kernels

    return row_kernels
