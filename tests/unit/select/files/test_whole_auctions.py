import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tulle.select.files.whole_auctions import SeenIds


def first_repeat(blocks: list[list[int]]) -> tuple[int, int] | None:
    """Block and place of the first id that was there before, one by one."""
    seen: set[int] = set()
    for number, block in enumerate(blocks):
        for place, entry in enumerate(block):
            if entry in seen:
                return number, place
            seen.add(entry)
    return None


@pytest.mark.parametrize("kind", [int, str])
@settings(max_examples=300)
@given(
    blocks=st.lists(
        st.lists(st.integers(0, 60) | st.integers(-(2**63), 2**63 - 1), max_size=12), max_size=8
    )
)
def test_the_first_id_that_comes_back_is_found(kind: type, blocks: list[list[int]]) -> None:
    seen = SeenIds()
    found = None
    for number, block in enumerate(blocks):
        dtype = np.int64 if kind is int else object
        place = seen.add(np.array([kind(entry) for entry in block], dtype=dtype))
        if place is not None:
            found = number, place
            break
    assert found == first_repeat(blocks)


@pytest.mark.parametrize("step", [1, -1])
def test_many_blocks_are_remembered(step: int) -> None:
    seen = SeenIds()
    ids = np.arange(30_000)[::step]
    for start in range(0, 30_000, 100):
        assert seen.add(ids[start : start + 100]) is None
    assert seen.add(np.array([30_001, 30_002])) is None
    for old in (0, 12_345, 29_999, 30_002):
        assert seen.add(np.array([40_000, old])) == 1
