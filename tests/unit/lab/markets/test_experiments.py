"""Experiments run on auctions of a log: of all sizes, and without a prior."""

import numpy as np

from tulle.lab.markets.claims import Verdict, judge_claims
from tulle.lab.markets.experiments import ExperimentSettings, run_experiments
from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.mixing_grid import GridSettings, groups_by_size, mixing_grid
from tulle.lab.markets.sweeps import ADAPTIVE, SweepSettings
from tulle.select.auctions import Auctions, DeviceClicks
from tulle.select.billing.prices import PricingRule


def ragged_sample(seed: int) -> MarketSample:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, 80)
    total = int(sizes.sum())
    server = rng.random(total) * 0.1
    # Some ads were never clicked, as far as the server knows.
    server[rng.random(total) < 0.05] = 0.0
    return MarketSample(
        auctions=Auctions(
            offsets=np.concatenate([[0], np.cumsum(sizes)]),
            ads=np.concatenate([np.arange(size) for size in sizes]),
            bids=rng.lognormal(size=total),
            server_click_probs=server,
        ),
        device=DeviceClicks(click_probs=np.minimum(server * rng.lognormal(size=total), 1.0)),
        pricing=PricingRule.SECOND_PRICE_PER_CLICK,
    )


def test_a_log_without_a_prior_gets_results_and_verdicts() -> None:
    sample = ragged_sample(1)
    sweep = SweepSettings(epsilons=(1.0, 3.0, 5.0), gammas=(0.0, 0.4, 0.8, 1.0))
    found = run_experiments(
        "a log",
        ragged_sample(2),
        sample,
        settings=ExperimentSettings(sweep=sweep, shortlist_epsilons=(5.0,)),
        prior=None,
    )
    assert ADAPTIVE not in {row.mechanism for row in found.epsilon_rows}
    assert found.counts.num_candidates == tuple(np.unique(sample.auctions.sizes).tolist())
    assert {row.num_finalists for row in found.finalist_rows} == set(range(1, 26))
    assert {row.num_candidates <= 3 for row in found.single_rows} == {True, False}
    grid = mixing_grid(
        groups_by_size(sample),
        GridSettings(alphas=(1.0, 0.5), epsilons=(1.0, 5.0), relative_widths=(0.1, 1.0)),
    )
    claims = judge_claims([found], score_rows=(), grid_rows=grid)
    assert len(claims) == 17 + 2
    # Under the printed rule revenue cannot rise, whatever the auctions are like.
    lifts = [c for c in claims if "lifts every" in c.claim and "an impression" in c.condition]
    assert [claim.verdict for claim in lifts] == [Verdict.DOES_NOT_HOLD]
