"""A small log with every kind of query on it, as files and settings, and a ledger to pay."""

from pathlib import Path

import numpy as np
import polars as pl

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.measure.config_file import read_config
from tulle.measure.engines.engine import open_engine
from tulle.measure.queries.measure_plan import MeasurePlan, make_measure_plan
from tulle.measure.queries.measure_record import MeasureRecord
from tulle.measure.queries.measuring import MeasureOptions, measure
from tulle.measure.queries.query import MeasureConfig
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.charging import ReleaseCharge
from tulle.runs.record import Result

NUM_DAYS = 8
DAY = 86_400
HEAD = """
[log]
impressions = "impressions.parquet"
conversions = "conversions.parquet"
[columns]
kind = "kind"
value = "value"
kinds = {{ timestamp = "timestamp" }}
[privacy]
unit = "user"
epsilon = {epsilon}
{privacy}
"""
ATTRIBUTION = """
[attribution]
rule = "{rule}"
lookback = "3 days"
"""
CAMPAIGNS = 'slices = ["campaign"]\nkeys = { campaign = ["a", "b", "c"] }\n'
FOUND = 'slices = ["campaign"]\nkeys = "private"\n'
TWO_BY_THREE = "max_per_slice = 2\nmax_slices_per_unit = 3\n"
BY_GEO = (
    'slices = ["geo", "campaign"]\n'
    'keys = { geo = ["n", "s"], campaign = ["a", "b", "c"] }\n'
    'levels = [[], ["geo"], ["geo", "campaign"]]\n'
)
BY_DAY = (
    'slices = ["day"]\nkeys = { day = { first = 1970-01-01, last = 1970-01-08 } }\n'
    "max_per_slice = 2\nmax_slices_per_unit = 3\n"
)
QUERIES = {
    "conversions": f'measure = "conversions"\n{CAMPAIGNS}{TWO_BY_THREE}',
    "total": 'measure = "conversions"\nmax_per_slice = 3\nmax_slices_per_unit = 1\n',
    "value": f'measure = "value"\nclip = 20\n{CAMPAIGNS}{TWO_BY_THREE}',
    "average": f'measure = "average"\nclip = 20\n{CAMPAIGNS}{TWO_BY_THREE}',
    "averages": f'measure = "average"\n{CAMPAIGNS}{TWO_BY_THREE}'
    'values = [{ column = "value", clip = 20, share = 0.5 }, '
    '{ column = "items", clip = 4, share = 0.25 }]\n',
    "rate": f'measure = "rate"\n{CAMPAIGNS}{TWO_BY_THREE}'
    "base = { max_per_slice = 5, max_slices_per_unit = 2 }\n",
    "impressions": f'measure = "impressions"\n{CAMPAIGNS}'
    "max_per_slice = 4\nmax_slices_per_unit = 2\n",
    "reach": f'measure = "reach"\n{CAMPAIGNS}max_slices_per_unit = 2\nmax_frequency = 4\n',
    "levels": f'measure = "conversions"\n{BY_GEO}{TWO_BY_THREE}',
    "value levels": f'measure = "value"\nclip = 20\n{BY_GEO}{TWO_BY_THREE}',
    "running": f'measure = "conversions"\n{BY_DAY}running_totals = true\n',
}
PRIVATE_QUERIES = {
    "found conversions": f'measure = "conversions"\n{FOUND}{TWO_BY_THREE}',
    "found average": f'measure = "average"\nclip = 20\n{FOUND}{TWO_BY_THREE}',
    "found rate": f'measure = "rate"\n{FOUND}{TWO_BY_THREE}'
    "base = { max_per_slice = 5, max_slices_per_unit = 2 }\n",
    "found reach": f'measure = "reach"\n{FOUND}max_slices_per_unit = 2\nmax_frequency = 4\n',
    "found levels": 'measure = "conversions"\nslices = ["geo", "campaign"]\nkeys = "private"\n'
    f'levels = [[], ["geo"], ["geo", "campaign"]]\n{TWO_BY_THREE}',
}


def small_log(
    seed: int = 1, num_users: int = 30, num_rows: int = 400
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Impressions and conversions of few users over eight days, no two at the same second."""
    rng = np.random.default_rng(seed)
    times = rng.permutation(NUM_DAYS * DAY)[: 2 * num_rows]
    impressions = pl.DataFrame(
        {
            "user": rng.integers(0, num_users, num_rows),
            "timestamp": times[:num_rows],
            "campaign": rng.choice(["a", "b", "c", "d"], num_rows),
            "geo": rng.choice(["n", "s"], num_rows),
            "kind": rng.choice(["click", "view"], num_rows),
        }
    )
    num_conversions = num_rows // 3
    conversions = pl.DataFrame(
        {
            "user": rng.integers(0, num_users, num_conversions),
            "timestamp": times[num_rows : num_rows + num_conversions],
            "type": rng.choice(["x", "y"], num_conversions),
            "value": rng.integers(0, 120, num_conversions) / 4,
            "items": rng.integers(1, 7, num_conversions),
        }
    )
    return impressions, conversions


def write_log(folder: Path, log: tuple[pl.DataFrame, pl.DataFrame] | None = None) -> None:
    """Both tables as files."""
    impressions, conversions = log or small_log()
    impressions.write_parquet(folder / "impressions.parquet")
    conversions.write_parquet(folder / "conversions.parquet")


def settings(*names: str, epsilon: float = 1.0, privacy: str = "", rule: str = "last-touch") -> str:
    """The text of a settings file with these queries."""
    known = QUERIES | PRIVATE_QUERIES
    if any(name in PRIVATE_QUERIES for name in names) and "delta" not in privacy:
        privacy += "\ndelta = 1e-6"
    tables = "".join(f'[[query]]\nname = "{name}"\n{known[name]}' for name in names)
    head = HEAD.format(epsilon=epsilon, privacy=privacy)
    if any(f'measure = "{kind}"' in tables for kind in ("conversions", "value", "average", "rate")):
        head += ATTRIBUTION.format(rule=rule)
    return head + tables


def write_settings(folder: Path, text: str, name: str = "campaigns.toml") -> Path:
    """A settings file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def config_of(folder: Path, text: str) -> MeasureConfig:
    """The settings as `tulle measure run` reads them."""
    return read_config(write_settings(folder, text)).config


def plan_of(folder: Path, text: str) -> MeasurePlan:
    """The plan for the settings."""
    return make_measure_plan(config_of(folder, text))


def run_measure(
    config: MeasureConfig,
    out: Path,
    options: MeasureOptions | None = None,
    *,
    rng: NoiseSource | None = None,
) -> Result[MeasureRecord, Plan]:
    """Measures with DuckDB on one thread."""
    out.mkdir(exist_ok=True)
    with open_engine(num_threads=1) as engine:
        return measure(config, out, engine, rng=rng or release_rng(), options=options)


def new_ledger(path: Path, *, epsilon: float, unit: Unit | None = None) -> Ledger:
    """A ledger with one budget for everything."""
    ledger = Ledger.create(path)
    ledger.create_budget(
        Budget(
            name="all",
            unit=unit or Unit.user(),
            adjacency=Adjacency.ADD_OR_REMOVE,
            epsilon=epsilon,
            delta=1e-5,
        )
    )
    return ledger


def paying(ledger: Ledger, *, again: bool = False) -> MeasureOptions:
    """Options that charge a ledger."""
    return MeasureOptions(charge=ReleaseCharge(ledger=ledger, purpose="measure"), again=again)
