"""Plain sketches merge, are marked as not private, and cannot be saved."""

import pickle
import sys

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.lab.sketches.plain_sketches import PlainSketch, PlainSketchKind, merge_plain

KEY = bytes(range(16))


def sketch_of(ids: range, kind: PlainSketchKind, log_size: int = 12) -> PlainSketch:
    return PlainSketch.of_users(np.array(ids), key=KEY, kind=kind, log_size=log_size)


@pytest.mark.parametrize("kind", PlainSketchKind)
def test_a_union_counts_shared_users_once(kind: PlainSketchKind) -> None:
    merged = merge_plain([sketch_of(range(6000), kind), sketch_of(range(4000, 10_000), kind)])
    whole = sketch_of(range(10_000), kind)
    assert merged.raw_estimate == pytest.approx(10_000, rel=0.1)
    assert merged.raw_estimate == pytest.approx(whole.raw_estimate, rel=0.05)


@pytest.mark.parametrize("kind", PlainSketchKind)
def test_one_user_can_move_an_estimate_by_far_more_than_one(kind: PlainSketchKind) -> None:
    sketch = sketch_of(range(3000), kind, log_size=5)
    before, largest = sketch.raw_estimate, 0.0
    for user in range(3000, 4000):
        after = merge_plain([sketch, sketch_of(range(user, user + 1), kind, log_size=5)])
        largest = max(largest, abs(after.raw_estimate - before))
    assert largest > 10


def test_a_plain_sketch_cannot_be_saved() -> None:
    with pytest.raises(DataError, match="not private"):
        pickle.dumps(sketch_of(range(10), PlainSketchKind.HLL))


def test_sketches_of_different_kinds_do_not_merge() -> None:
    first = sketch_of(range(10), PlainSketchKind.HLL)
    with pytest.raises(ConfigError, match="one kind and size"):
        merge_plain([first, sketch_of(range(10), PlainSketchKind.CPC)])
    with pytest.raises(ConfigError, match="one kind and size"):
        merge_plain([first, sketch_of(range(10), PlainSketchKind.HLL, log_size=10)])
    with pytest.raises(ConfigError, match="at least one"):
        merge_plain([])
    with pytest.raises(ConfigError, match="log_size=3"):
        sketch_of(range(10), PlainSketchKind.HLL, log_size=3)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(ConfigError, match=r"datasketches; pip install 'tulle\[sketches\]'"):
        sketch_of(range(3), PlainSketchKind.HLL)
