import dataclasses
import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import integrate, stats

from tulle.data.synth.auctions import (
    AuctionConfig,
    SyntheticAuctions,
    generate_auction_blocks,
    mean_prob,
    write_auction_log,
)
from tulle.errors import ConfigError

CONFIG = AuctionConfig(num_auctions=20_000, private_stddev=1.0, bid_correlation=-0.6)


def log(config: AuctionConfig = CONFIG, seed: int = 4, **more: int) -> list[SyntheticAuctions]:
    return list(generate_auction_blocks(config, seed=seed, **more))


def column(name: str, config: AuctionConfig = CONFIG) -> np.ndarray:
    return np.concatenate([getattr(block, name) for block in log(config)])


@pytest.mark.parametrize("stddev", [0.0, 0.6, 2.5])
def test_the_mean_over_the_private_part_is_exact(stddev: float) -> None:
    logits = np.array([-6.0, -3.5, 0.0, 2.0])
    for logit, found in zip(logits, mean_prob(logits, stddev), strict=True):
        expected = integrate.quad(
            lambda z, a=logit: stats.norm.pdf(z) / (1 + np.exp(-(a + stddev * z))),
            -12,
            12,
            epsabs=1e-12,
        )[0]
        assert found == pytest.approx(expected, rel=1e-6)


def test_the_server_is_calibrated_at_every_level() -> None:
    server, device = column("p_server"), column("p_device")
    edges = np.quantile(server, np.linspace(0, 1, 21))
    for low, high in itertools.pairwise(edges):
        errors = (device - server)[(server >= low) & (server < high)]
        assert abs(errors.mean()) < 6.5 * errors.std() / len(errors) ** 0.5


def test_the_check_of_calibration_can_fail() -> None:
    wrong = mean_prob(np.array([-3.5]), 0.9)[0] - mean_prob(np.array([-3.5]), 1.0)[0]
    errors = column("p_device") - column("p_server")
    assert abs(wrong) > 6.5 * errors.std() / len(errors) ** 0.5


def test_a_device_that_knows_nothing_more_agrees_with_the_server() -> None:
    config = dataclasses.replace(CONFIG, private_stddev=0.0)
    np.testing.assert_allclose(
        column("p_server", config), column("p_device", config), rtol=0, atol=1e-6
    )


def test_bids_go_against_the_public_part_as_stated() -> None:
    config = dataclasses.replace(CONFIG, private_stddev=0.0)
    prob = column("p_device", config)
    logit = np.log(prob / (1 - prob))
    bids = np.log(column("bid", config))
    assert np.corrcoef(bids, logit)[0, 1] == pytest.approx(-0.6, abs=0.02)
    assert bids.std() == pytest.approx(0.8, rel=0.02)
    assert logit.std() == pytest.approx(0.8, rel=0.02)
    assert logit.mean() == pytest.approx(-3.5, abs=0.02)


def test_candidates_of_an_auction_differ_and_their_number_is_in_range() -> None:
    for block in log():
        sizes = np.diff(block.offsets)
        assert set(sizes) == set(range(5, 26))
        auction = np.repeat(np.arange(len(block)), sizes)
        assert len(np.unique(np.stack([auction, block.ad]), axis=1)[0]) == len(block.ad)
        assert block.ad.min() >= 1
        assert block.ad.max() <= CONFIG.num_ads


def test_the_log_depends_on_the_seed_alone() -> None:
    first, second, other = log(num_threads=1), log(), log(seed=5)
    assert sum(map(len, first)) == 20_000
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.p_device, b.p_device)
        np.testing.assert_array_equal(a.ad, b.ad)
    assert not np.array_equal(first[0].offsets, other[0].offsets)


def test_a_written_log_has_one_line_for_each_candidate(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, num_auctions=300)
    write_auction_log(config, tmp_path / "auctions.csv", seed=4)
    table = pl.read_csv(tmp_path / "auctions.csv")
    (block,) = log(config)
    assert table["ad"].to_list() == block.ad.tolist()
    assert (
        table["auction_id"].to_list() == np.repeat(np.arange(300), np.diff(block.offsets)).tolist()
    )
    for name in ("bid", "p_server", "p_device"):
        np.testing.assert_allclose(table[name].to_numpy(), getattr(block, name), atol=1e-9)


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_auctions", 0), ("min_candidates", 30), ("num_ads", 30), ("bid_correlation", 1.5)],
)
def test_settings_that_cannot_be_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        dataclasses.replace(CONFIG, **{field: value})
