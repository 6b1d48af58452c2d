import dataclasses

import numpy as np
import pytest

from tulle.data.synth.clicks import CHUNK_ROWS, SynthBlock, generate_blocks
from tulle.data.synth.shapes import TAOBAO, USER, SynthFeature, SynthShape, TimeLaw, UserLaw
from tulle.data.synth.zipf import ZipfLaw
from tulle.errors import ConfigError

SHAPE = SynthShape(
    name="small",
    features=(
        SynthFeature(name="site", law=ZipfLaw(num_values=5000, exponent=1.1)),
        SynthFeature(name="brand", law=ZipfLaw(num_values=50, exponent=1.0), given_by="site"),
        SynthFeature(
            name="age",
            law=ZipfLaw(num_values=7, exponent=0.5, missing_prob=0.3),
            sensitive=True,
            given_by=USER,
        ),
        SynthFeature(name="device", law=ZipfLaw(num_values=3, exponent=1.0), sensitive=True),
    ),
    label_rate=0.2,
    public_stddev=1.0,
    sensitive_stddev=0.8,
    time=TimeLaw(num_days=7, first_second=1000, label_drift=0.5),
    users=UserLaw(users_per_row=0.2, exponent=0.5, shift=0.01),
)
NUM_ROWS = 3 * CHUNK_ROWS + 77


def arrays(blocks: list[SynthBlock]) -> dict[str, np.ndarray]:
    joined = {name: [block.columns[name] for block in blocks] for name in blocks[0].columns}
    for field in ("label", "true_prob", "public_prob", "user", "timestamp"):
        joined[field] = [getattr(block, field) for block in blocks]
    return {name: np.concatenate(parts) for name, parts in joined.items()}


def log(seed: int = 3, rows_per_block: int = 1 << 18, **more: object) -> dict[str, np.ndarray]:
    blocks = generate_blocks(
        SHAPE, num_rows=NUM_ROWS, seed=seed, rows_per_block=rows_per_block, **more
    )
    return arrays(list(blocks))


def assert_same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    for name, column in first.items():
        np.testing.assert_array_equal(column, second[name], err_msg=name)


@pytest.mark.parametrize("rows_per_block", [777, CHUNK_ROWS, CHUNK_ROWS + 1, NUM_ROWS])
def test_the_rows_do_not_depend_on_the_size_of_the_blocks(rows_per_block: int) -> None:
    assert_same(log(), log(rows_per_block=rows_per_block))


def test_the_rows_do_not_depend_on_the_number_of_threads() -> None:
    assert_same(log(num_threads=1), log(num_threads=3))


@pytest.mark.parametrize("rows", [range(10), range(CHUNK_ROWS - 3, CHUNK_ROWS + 5), range(9, 9)])
def test_a_part_of_a_log_has_the_rows_of_the_whole(rows: range) -> None:
    blocks = list(generate_blocks(SHAPE, num_rows=NUM_ROWS, seed=3, rows_per_block=4, rows=rows))
    assert sum(map(len, blocks)) == len(rows)
    if blocks:
        assert blocks[0].first_row == rows.start
        part = {name: column[rows.start : rows.stop] for name, column in log().items()}
        assert_same(part, arrays(blocks))


def test_blocks_have_the_size_that_was_asked_for() -> None:
    blocks = list(generate_blocks(SHAPE, num_rows=NUM_ROWS, seed=3, rows_per_block=5000))
    assert [len(block) for block in blocks[:-1]] == [5000] * (NUM_ROWS // 5000)
    assert [block.first_row for block in blocks] == list(range(0, NUM_ROWS, 5000))


def test_another_seed_gives_other_rows() -> None:
    first, second = log(seed=3), log(seed=4)
    assert np.mean(first["site"] == second["site"]) < 0.2
    assert np.mean(first["user"] == second["user"]) < 0.01


def test_times_are_in_order_and_fill_the_period() -> None:
    timestamp = log()["timestamp"]
    assert np.all(np.diff(timestamp) >= 0)
    assert timestamp[0] == 1000
    assert 1000 + 7 * 86_400 - 3600 < timestamp[-1] < 1000 + 7 * 86_400


def test_a_site_has_one_brand_and_a_user_one_age() -> None:
    rows = log()
    for giver, given in (("site", "brand"), ("user", "age")):
        pairs = np.unique(np.stack([rows[giver], rows[given]]), axis=1)
        assert pairs.shape[1] == len(np.unique(rows[giver]))


def test_labels_have_their_stated_probabilities() -> None:
    rows = log()
    for name in ("true_prob", "public_prob"):
        probs = rows[name].astype(np.float64)
        for low in (0.0, 0.05, 0.1, 0.2, 0.4):
            chosen = (probs >= low) & (probs < max(2 * low, 0.05))
            expected = probs[chosen].sum()
            # A user's rows share an age that public_prob averages over: a fifth more variance.
            assert rows["label"][chosen].sum() == pytest.approx(
                expected, abs=7.5 * expected**0.5
            ), (name, low)


def test_the_label_follows_the_trend_of_time() -> None:
    drifting = dataclasses.replace(SHAPE.time, label_drift=2.0)
    shape = dataclasses.replace(SHAPE, time=drifting)
    rows = arrays(list(generate_blocks(shape, num_rows=NUM_ROWS, seed=3)))
    assert rows["label"][: NUM_ROWS // 4].mean() < 0.7 * rows["label"][-NUM_ROWS // 4 :].mean()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"num_rows": 0}, "num_rows=0"),
        ({"seed": -1}, "seed=-1"),
        ({"rows_per_block": 0}, "rows_per_block=0"),
        ({"rows": range(5, 11)}, "rows=range"),
        ({"num_threads": 0}, "num_threads=0"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_at_once(
    settings: dict[str, object], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        generate_blocks(SHAPE, **({"num_rows": 10, "seed": 1} | settings))


def test_a_feature_given_by_a_later_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="given_by='site'"):
        dataclasses.replace(SHAPE, features=SHAPE.features[1:])


def test_a_sensitive_feature_of_a_public_entity_is_refused() -> None:
    features = (*TAOBAO.features[:1], dataclasses.replace(TAOBAO.features[1], sensitive=True))
    with pytest.raises(ConfigError, match="sensitive=True of 'cate_id'"):
        dataclasses.replace(TAOBAO, features=features)
