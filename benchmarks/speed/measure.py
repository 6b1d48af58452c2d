"""Speed and memory of measurement: python benchmarks/speed/measure.py [--peer-python PATH].

Attribution is timed in turns against SQL that was written by hand for the same totals and that
DuckDB runs as it is: last touch by an ASOF join, six rules by one join and windows. Bounded slice
counts are timed against PipelineDP's local backend, which needs an environment of its own. Each
turn is a process of its own, so that its peak memory is known; the median of several turns. With
--large N instead, a log of N impressions is attributed and counted once under --memory-limit,
spilling to disk.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, versions, write_record

NUM_DAYS = 30
NUM_CAMPAIGNS = 200
ROWS_PER_FILE = 10_000_000
MAX_SLICES, MAX_PER_SLICE = 5, 4
EPSILON = 1.0
TARGETS = {"attribution over hand-written SQL": 1.3, "peak GB": 1.5, "speed over PipelineDP": 30.0}

PREAMBLE = """
import json, resource, sys, time
from pathlib import Path
folder, num_threads, limit = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] or None
def report(seconds, total):
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(json.dumps({"wall_seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_gb": int(peak.split()[1]) / 1e6, "total": total}))
"""
OURS = """
from tulle.measure.ad_log import AdLog, FileTable, LogColumns, Side
from tulle.measure.attribution.rules import Attribution
from tulle.measure.attribution.rules import *
from tulle.measure.engines.credit_tables import credit_totals
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.engine import open_engine
from tulle.measure.engines.log_checks import check_log
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import Amount, Bounds, SliceColumn, SliceJob, Subject
from tulle.privacy.units import Unit
SIX = (LastTouch(), FirstTouch(), Linear(), PositionBased(), TimeDecay(), PriorityTouch())
log = AdLog(impressions=FileTable(paths=tuple(sorted(folder.glob("impressions*.parquet")))),
    conversions=FileTable(paths=(folder / "conversions.parquet",)), columns=LogColumns(kind="kind"))
campaign = SliceColumn(name="campaign", side=Side.IMPRESSION, column="campaign")
def credited(engine, rules):
    week = [Attribution(rule=rule, lookback_seconds=604_800) for rule in rules]
    totals = credit_totals(engine, log, week, [campaign])
    return float(totals["last-touch"].sum())
def counted(engine):
    job = SliceJob(name="counts", subject=Subject.IMPRESSIONS, slices=(campaign,),
        amounts=(Amount(name="impressions"),), steps=1, keys=None,
        bounds=Bounds(max_per_slice={per_slice}, max_slices_per_unit={slices}))
    (found,) = slice_totals(engine, log, None, [job], unit=Unit.user(), salt=bytes(range(16)))
    return float(found.raw_steps.sum())
def checked(engine):
    return float(check_log(engine, log)[1])
start = time.perf_counter()
with open_engine("duckdb", num_threads=num_threads, memory_limit=limit,
        spill_folder=folder / "spill" if limit else None) as engine:
    total = {work}
report(time.perf_counter() - start, total)
"""
HAND = """
import duckdb
start = time.perf_counter()
connection = duckdb.connect(config={{"threads": num_threads}})
for name in ("impressions", "conversions"):
    files = folder / f"{{name}}*.parquet"
    connection.sql(f"CREATE VIEW {{name}} AS SELECT * FROM read_parquet('{{files}}')")
rows = connection.sql('''{sql}''').fetchall()
report(time.perf_counter() - start, float(sum(row[1] for row in rows)))
"""
LAST_SQL = """
SELECT campaign, COUNT(*) FROM (
  SELECT i.campaign, c.timestamp - i.timestamp AS age
  FROM conversions c ASOF JOIN impressions i ON c."user" = i."user" AND c.timestamp >= i.timestamp)
WHERE age <= 604800 GROUP BY campaign
"""
SIX_SQL = """
WITH c AS (SELECT ROW_NUMBER() OVER () AS id, "user", timestamp FROM conversions),
m AS (SELECT c.id, i.campaign, i.kind, i.timestamp AS t, c.timestamp - i.timestamp AS age
  FROM c JOIN impressions i ON i."user" = c."user"
    AND i.timestamp <= c.timestamp AND i.timestamp >= c.timestamp - 604800),
w AS (SELECT campaign, ROW_NUMBER() OVER (PARTITION BY id ORDER BY t DESC) AS back,
    ROW_NUMBER() OVER (PARTITION BY id ORDER BY t) AS front, COUNT(*) OVER (PARTITION BY id) AS n,
    ROW_NUMBER() OVER (PARTITION BY id
      ORDER BY CASE kind WHEN 'click' THEN 0 ELSE 1 END, t DESC) AS p,
    POW(2.0, -age / 604800.0) / SUM(POW(2.0, -age / 604800.0)) OVER (PARTITION BY id) AS decay
  FROM m)
SELECT campaign, SUM(CASE WHEN back = 1 THEN 1 ELSE 0 END),
  SUM(CASE WHEN front = 1 THEN 1 ELSE 0 END),
  SUM(1.0 / n), SUM(CASE WHEN n = 1 THEN 1.0 WHEN n = 2 THEN 0.5 WHEN back = 1 OR front = 1 THEN 0.4
    ELSE 0.2 / (n - 2) END), SUM(decay), SUM(CASE WHEN p = 1 THEN 1 ELSE 0 END)
FROM w GROUP BY campaign
"""


def ours(work: str) -> str:
    return PREAMBLE + OURS.format(work=work, per_slice=MAX_PER_SLICE, slices=MAX_SLICES)


WORKS = {
    "last touch": (ours("credited(engine, SIX[:1])"), PREAMBLE + HAND.format(sql=LAST_SQL)),
    "six rules at once": (ours("credited(engine, SIX)"), PREAMBLE + HAND.format(sql=SIX_SQL)),
}


def main() -> None:
    options = parsed_options()
    facts: dict[str, object] = {
        "versions": versions("numpy", "duckdb", "sqlglot", "polars"),
        "targets": TARGETS,
        "repeats": options.repeats,
        "seed": options.seed,
    }
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_log(folder, options.large or options.impressions, options.seed)
        if options.large:
            rows = large_rows(folder, options)
        else:
            rows = attribution_rows(folder, options)
            rows.append(alone_row("checks of the log", ours("checked(engine)"), folder, options))
        if options.peer_python is not None and not options.large:
            row, facts["peer"] = peer_row(folder, options)
            rows.append(row)
    output = options.output or PUBLISHED / f"measure{'_large' if options.large else ''}.json"
    record = write_record(output, "measurement", rows, facts)
    print_table([{k: v for k, v in row.items() if k != "total"} for row in record["rows"]])


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--impressions", type=int, default=10_000_000)
    parser.add_argument("--large", type=int, default=0, help="instead: a log under a limit")
    parser.add_argument("--memory-limit", default="3GB", help="of DuckDB for the large log")
    parser.add_argument("--peer-rows", type=int, default=1_000_000)
    parser.add_argument("--peer-python", type=Path, help="interpreter with pipeline-dp")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="for the logs; they are removed")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def write_log(folder: Path, num_impressions: int, seed: int) -> None:
    """Impressions of a tenth as many users, by a power law; a conversion for every other user."""
    rng = np.random.default_rng(seed)
    num_users = num_impressions // 10
    for start in range(0, num_impressions, ROWS_PER_FILE):
        num_rows = min(ROWS_PER_FILE, num_impressions - start)
        frame = impressions(rng, num_rows, num_users)
        frame.write_parquet(folder / f"impressions-{start // ROWS_PER_FILE:03}.parquet")
    conversions = events(rng, num_impressions // 20, num_users)
    pl.DataFrame(conversions).write_parquet(folder / "conversions.parquet")


def impressions(rng: np.random.Generator, num_rows: int, num_users: int) -> pl.DataFrame:
    rows = events(rng, num_rows, num_users)
    rows["campaign"] = rng.integers(0, NUM_CAMPAIGNS, num_rows, dtype=np.int32)
    clicks = pl.Series(rng.random(num_rows) < 0.05)
    kind = pl.when(clicks).then(pl.lit("click")).otherwise(pl.lit("view"))
    return pl.DataFrame(rows).with_columns(kind=kind)


def events(rng: np.random.Generator, num_rows: int, num_users: int) -> dict[str, np.ndarray]:
    # The chance of user k falls as (k + 10)^-0.7: the busiest has some thousand impressions.
    uniform = rng.random(num_rows)
    users = ((num_users + 10) ** 0.3 - 10**0.3) * uniform + 10**0.3
    return {
        "user": np.minimum(users ** (1 / 0.3) - 10, num_users - 1).astype(np.int64),
        "timestamp": rng.integers(0, NUM_DAYS * 86_400, num_rows),
    }


def run(script: str, folder: Path, options: argparse.Namespace, limit: str = "") -> dict:
    command = [sys.executable, "-c", script, str(folder), str(options.threads), limit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def attribution_rows(folder: Path, options: argparse.Namespace) -> list[dict[str, object]]:
    rows = []
    for name, scripts in WORKS.items():
        turns = [
            [run(script, folder, options) for script in scripts] for _ in range(options.repeats)
        ]
        if any(turn[0]["total"] != turn[1]["total"] for turn in turns):
            raise SystemExit(f"{name}: totals differ from those of hand-written SQL")
        mine, hand = ([turn[side] for turn in turns] for side in (0, 1))
        ratios = [a["wall_seconds"] / b["wall_seconds"] for a, b in turns]
        rows.append(
            row_of(name, options.impressions, mine)
            | {"peer": "hand-written SQL", "peer_wall_seconds": median(hand, "wall_seconds")}
            | {"time_over_peer": statistics.median(ratios), "peer_peak_gb": median(hand, "peak_gb")}
        )
    return rows


def alone_row(
    name: str, script: str, folder: Path, options: argparse.Namespace
) -> dict[str, object]:
    turns = [run(script, folder, options) for _ in range(options.repeats)]
    return row_of(name, options.impressions, turns) | NO_PEER


def peer_row(folder: Path, options: argparse.Namespace) -> tuple[dict[str, object], str]:
    """The first rows of the log, counted within the same bounds by both."""
    head = pl.scan_parquet(folder / "impressions-*.parquet").head(options.peer_rows).collect()
    part = folder / "part"
    part.mkdir()
    head.write_parquet(part / "impressions-000.parquet")
    (part / "conversions.parquet").symlink_to(folder / "conversions.parquet")
    np.save(part / "rows.npy", np.stack([head["user"].to_numpy(), head["campaign"].to_numpy()]))
    peer = [str(options.peer_python), str(Path(__file__).with_name("measure_peer.py"))]
    peer += [str(part / "rows.npy"), str(MAX_SLICES), str(MAX_PER_SLICE), str(EPSILON)]
    turns = []
    for _ in range(options.repeats):
        mine = run(ours("counted(engine)"), part, options)
        done = subprocess.run(peer, capture_output=True, text=True, check=True)
        turns.append((mine, json.loads(done.stdout.splitlines()[-1])))
    ratios = [a["wall_seconds"] / b["wall_seconds"] for a, b in turns]
    row = row_of("bounded slice counts", options.peer_rows, [mine for mine, _ in turns]) | {
        "peer": "PipelineDP, local backend",
        "peer_wall_seconds": median([other for _, other in turns], "wall_seconds"),
        "time_over_peer": statistics.median(ratios),
        "peer_peak_gb": None,
    }
    return row, f"pipeline-dp {turns[0][1]['version']}"


def large_rows(folder: Path, options: argparse.Namespace) -> list[dict[str, object]]:
    works = {
        "last touch": "credited(engine, SIX[:1])",
        "six rules at once": "credited(engine, SIX)",
        "bounded slice counts": "counted(engine)",
    }
    return [
        row_of(
            f"{name}, limit {options.memory_limit}",
            options.large,
            [run(ours(work), folder, options, options.memory_limit)],
        )
        | NO_PEER
        for name, work in works.items()
    ]


NO_PEER = dict.fromkeys(("peer", "peer_wall_seconds", "time_over_peer", "peer_peak_gb"))


def row_of(name: str, num_impressions: int, turns: list[dict]) -> dict[str, object]:
    return {
        "work": name,
        "num_impressions": num_impressions,
        "wall_seconds": median(turns, "wall_seconds"),
        "cpu_seconds": median(turns, "cpu_seconds"),
        "peak_gb": max(turn["peak_gb"] for turn in turns),
    }


def median(turns: list[dict], name: str) -> float:
    return statistics.median(turn[name] for turn in turns)


if __name__ == "__main__":
    main()
