"""Triton kernels that draw random words and normals; their twins are in device_keys.py.

Imported on machines with a GPU alone: triton comes with torch's CUDA builds.
"""

# Kernels are compiled from source that only looks like Python, with arguments that no type
# describes. ruff and mypy check the functions that start them.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def _philox(c0, c1, c2, c3, k0, k1):
    for _ in tl.static_range(10):
        high0 = tl.umulhi(c0, tl.full(c0.shape, 0xD2511F53, tl.uint32))
        low0 = c0 * tl.full(c0.shape, 0xD2511F53, tl.uint32)
        high1 = tl.umulhi(c2, tl.full(c2.shape, 0xCD9E8D57, tl.uint32))
        low1 = c2 * tl.full(c2.shape, 0xCD9E8D57, tl.uint32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += tl.full(k0.shape, 0x9E3779B9, tl.uint32)
        k1 += tl.full(k1.shape, 0xBB67AE85, tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def random_words(key_ptr, entity, part, draw):
    """Four random words for each place of int64 tensors of one shape.

    Args:
      key_ptr: Two words of key and two of nonce.
      entity: Number of the row or entry.
      part: Number of the part of it.
      draw: Number of the step or flush.
    """
    zeros = tl.zeros(entity.shape, tl.uint32)
    k0 = zeros + tl.load(key_ptr).to(tl.uint32)
    k1 = zeros + tl.load(key_ptr + 1).to(tl.uint32)
    c2 = (zeros + draw.to(tl.uint32)) ^ tl.load(key_ptr + 2).to(tl.uint32)
    c3 = (entity >> 32).to(tl.uint32) ^ tl.load(key_ptr + 3).to(tl.uint32)
    return _philox(entity.to(tl.uint32), part.to(tl.uint32), c2, c3, k0, k1)


@triton.jit
def normal_pairs(w0, w1, w2):
    """Two independent normals from three words.

    Args:
      w0: Upper 32 bits of the uniform number that gives the radius.
      w1: Lower 32 bits of it.
      w2: Word that gives the angle.
    """
    high, low = w0.to(tl.float64), w1.to(tl.float64)
    uniform = high * 2.0**-32 + (low + 0.5) * 2.0**-64
    radius = tl.sqrt(-2.0 * tl.log(uniform)).to(tl.float32)
    angle = (w2.to(tl.float32) + 0.5) * (6.283185307179586 * 2.0**-32)
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit
def words_kernel(out_ptr, key_ptr, draw_ptr, num_entities, BLOCK: tl.constexpr):
    """Random words, as [draws, entities, 4].

    Args:
      out_ptr: Tensor that gets the words, in int64.
      key_ptr: Two words of key and two of nonce.
      draw_ptr: Number of the first draw.
      num_entities: Number of entities of each draw.
      BLOCK: Entities of one program.
    """
    which = tl.program_id(1)
    entity = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    draw = tl.load(draw_ptr) + which
    part = tl.zeros((BLOCK,), tl.int64)
    words = random_words(key_ptr, entity.to(tl.int64), part, draw)
    out = out_ptr + (which.to(tl.int64) * num_entities + entity) * 4
    mask = entity < num_entities
    tl.store(out, words[0].to(tl.int64), mask)
    tl.store(out + 1, words[1].to(tl.int64), mask)
    tl.store(out + 2, words[2].to(tl.int64), mask)
    tl.store(out + 3, words[3].to(tl.int64), mask)


@triton.jit
def normals_kernel(out_ptr, size, key_ptr, draw_ptr, BLOCK: tl.constexpr):
    """Fills a tensor with standard normals: cosines in its first half, sines in its second.

    Args:
      out_ptr: Tensor that gets the normals.
      size: Number of its entries.
      key_ptr: Two words of key and two of nonce.
      draw_ptr: Number of the draw.
      BLOCK: Pairs of normals of one program.
    """
    half = tl.cdiv(size, 2)
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.zeros((BLOCK,), tl.int64)
    w0, w1, w2, _ = random_words(key_ptr, pair, part, tl.load(draw_ptr))
    both = normal_pairs(w0, w1, w2)
    for which in tl.static_range(2):
        place = pair + which * half
        tl.store(out_ptr + place, both[which], (pair < half) & (place < size))
