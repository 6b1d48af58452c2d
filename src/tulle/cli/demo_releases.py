"""The other jobs of the demo: labels, one campaign with a hierarchy, one auction; and one page."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tulle.cli.demo_settings import EPSILON, LOG_SEED

if TYPE_CHECKING:
    from tulle.mechanisms.entropy import NoiseSource

NUM_USERS = 5_000
"""Of the made-up campaign."""
NUM_AUCTIONS = 5_000

_CAMPAIGN = f"""# What the demo measures. Paths are relative to this file.
name = "campaign of the demo"

[log]
impressions = "impressions.csv"
conversions = "conversions.csv"

[columns]
user = "user"
advertiser = "advertiser"
kind = "interaction"
value = "value"

[attribution]
rule = "last-touch"
lookback = "7 days"

[privacy]
unit = "user"
epsilon = {EPSILON}

[[query]]
name = "conversions by region and age"
measure = "conversions"
slices = ["geo", "age_group"]
levels = [[], ["geo"], ["geo", "age_group"]]
split = [0.1, 0.3, 0.6]
max_per_slice = 1
max_slices_per_unit = 1
[query.keys]
geo = ["region-1", "region-2", "region-3", "region-4"]
age_group = ["age-1", "age-2", "age-3", "age-4", "age-5", "age-6"]
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoReleases:
    """Where the demo puts what it releases beside models."""

    labels: Path
    """Table of noisy labels."""
    campaign: Path
    """Folder of the measurement."""
    plan: Path
    """Outlook of a selection, as JSON."""
    choices: Path
    """What devices would show."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of them, each with a page of its own."""
        return (self.labels, self.campaign, self.plan, self.choices)


def release_all(folder: Path, log: Path, *, rng: "NoiseSource") -> DemoReleases:
    """Labels of the log, a campaign and an auction, each with its card.

    Args:
      folder: Of the demo.
      log: The made-up clicks.
      rng: Source of the noise. Sensitive: never log or save its state.
    """
    plan, choices = _select(folder / "auction", rng)
    return DemoReleases(
        labels=_release_labels(folder, log, rng),
        campaign=_measure(folder / "campaign", rng),
        plan=plan,
        choices=choices,
    )


def write_demo_page(folder: Path, runs: Sequence[Path], releases: DemoReleases) -> Path:
    """One page about everything private in the demo; gives its path."""
    from tulle.report.html.joined_page import joined_page
    from tulle.report.report_files import page_of, write_report

    first, *others = runs
    pages = [
        page_of(first, compared=others),
        *(page_of(path) for path in releases.paths),
    ]
    html, _ = write_report(joined_page("tulle demo", pages), folder / "report.html")
    return html


def _release_labels(folder: Path, log: Path, rng: "NoiseSource") -> Path:
    from tulle.cli.release_output import write_card_beside
    from tulle.data.formats.search import SEARCH
    from tulle.labels.binary_response import BinaryResponse
    from tulle.labels.release.label_noise import RowNoise
    from tulle.labels.release.label_table import LabelTable
    from tulle.labels.release.releasing import release_labels
    from tulle.privacy.units import Unit
    from tulle.report.labels_card import labels_card

    table = LabelTable(paths=(log,), layout=SEARCH, unit=Unit.example())
    noise = RowNoise(mechanism=BinaryResponse(epsilon=EPSILON))
    result = release_labels(table, noise, folder / "noisy-labels.parquet", rng=rng)
    write_card_beside(result.table, labels_card(result.record))
    return result.table


def _measure(folder: Path, rng: "NoiseSource") -> Path:
    from tulle.data.synth.impressions import ImpressionConfig
    from tulle.data.synth.write_impressions import write_impression_logs
    from tulle.measure.config.config_file import read_config
    from tulle.measure.engines.engine import open_engine
    from tulle.measure.queries.releasing import measure
    from tulle.report.card_file import write_card
    from tulle.report.measure_card import measure_card

    folder.mkdir()
    logs = folder / "impressions.csv", folder / "conversions.csv"
    write_impression_logs(ImpressionConfig(num_users=NUM_USERS), *logs, seed=LOG_SEED)
    settings = folder / "campaign.toml"
    settings.write_text(_CAMPAIGN, encoding="utf-8")
    with open_engine("duckdb") as engine:
        result = measure(read_config(settings).config, folder, engine, rng=rng)
    write_card(folder, measure_card(result.record))
    return folder


def _select(folder: Path, rng: "NoiseSource") -> tuple[Path, Path]:
    from tulle.cli.release_output import write_card_beside
    from tulle.cli.select_plan_output import plan_facts
    from tulle.data.auction_files import AuctionColumns
    from tulle.data.synth.auctions import AuctionConfig, write_auction_log
    from tulle.privacy.units import Unit
    from tulle.report.select_card import select_card
    from tulle.runs.whole_files import write_text
    from tulle.select.billing.prices import PricingRule, price_candidates
    from tulle.select.deciding.auction_blocks import first_auctions
    from tulle.select.deciding.deciding import decide
    from tulle.select.floors.floor_mechanism import FloorMechanism
    from tulle.select.planner.adaptive_shortlist import AdaptiveTop
    from tulle.select.planner.click_prior import LogitNormalPrior
    from tulle.select.planner.plan_selection import plan_selection
    from tulle.select.selection_config import Consent, SelectionConfig

    folder.mkdir()
    auctions, columns = folder / "auctions.parquet", AuctionColumns()
    market = AuctionConfig(num_auctions=NUM_AUCTIONS)
    write_auction_log(market, auctions, seed=LOG_SEED)
    sample = first_auctions(
        auctions, columns, num_auctions=NUM_AUCTIONS, reserve=0.0, with_device=False
    ).auctions
    prior = LogitNormalPrior(private_stddev=market.private_stddev)
    outlook = plan_selection(
        sample,
        price_candidates(sample, PricingRule.SECOND_PRICE, reserve=0.0),
        epsilons=(1.0, EPSILON, 5.0),
        prior=prior,
    )
    config = SelectionConfig(
        name="auction of the demo",
        mechanism=FloorMechanism(
            epsilon=EPSILON, shortlist=AdaptiveTop(epsilon=EPSILON, prior=prior)
        ),
        unit=Unit.impression(),
        consent=Consent.EVERYONE,
    )
    plan = folder / "plan.json"
    write_text(plan, json.dumps(plan_facts(outlook, config, None), allow_nan=False) + "\n")
    result = decide(config, auctions, folder / "choices.parquet", columns=columns, rng=rng)
    write_card_beside(result.table, select_card(result.record))
    return plan, result.table
