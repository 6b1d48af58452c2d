"""The page of all benchmarks from the published records: python benchmarks/docs_benchmarks.py.

A test checks that the page is up to date and that no record and no script is missing.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from docs_benchmark import Benchmark
from docs_quality_list import QUALITY
from docs_speed_list import SPEED
from docs_tables import TABLES
from record import PUBLISHED, read_record

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
GROUPS = {"Speed": SPEED, "Quality": QUALITY}
INTRODUCTION = """# Benchmarks

Every measured figure on these pages comes from a record in `benchmarks/published`, or is printed
by the command beside it. This page lists all records, for those who want to check or repeat a
measurement: what each record measures, the command that repeats it, the machine, and the main
figures. Timings are ratios to a peer or to a limit where there is one, measured in the same run.
AUC loss is 1 - AUC. Run the commands in the repository, in an environment made by `make test`;
`make bench` runs those that need neither other data nor a GPU.
"""


def benchmarks_page() -> str:
    """The text of the page, from the records as published."""
    parts = [INTRODUCTION, *_contents()]
    for group, benchmarks in GROUPS.items():
        parts.append(f"## {group}\n")
        for name, benchmark in benchmarks.items():
            record = read_record(PUBLISHED / f"{name}.json")
            parts += _section(name, benchmark, record)
    return "\n".join(parts)


def main() -> None:
    PAGE.write_text(benchmarks_page())
    print(PAGE.name)


def _contents() -> list[str]:
    lines = ["| record | what | command |", "|---|---|---|"]
    for benchmarks in GROUPS.values():
        for name, benchmark in benchmarks.items():
            lines.append(
                f"| [{name}](#{_anchor(benchmark.title)}) | {benchmark.title} "
                f"| `benchmarks/{benchmark.script}` |"
            )
    return [*lines, ""]


def _section(name: str, benchmark: Benchmark, record: dict) -> list[str]:
    command = f"python benchmarks/{benchmark.script} {benchmark.options}".strip()
    note = benchmark.note(record)
    return [
        f"### {benchmark.title}\n",
        f"{benchmark.measures}\n",
        *_table(benchmark, record),
        *([f"{note}\n"] if note else []),
        f"- Again: `{command}`",
        f"- Machine: {_machine(record)}.",
        f"- Versions: {_versions(record)}.",
        f"- Seeds: {_seeds(benchmark, record)}",
        f"- Record: [{name}.json](../benchmarks/published/{name}.json){_full_table(name)}\n",
    ]


def _table(benchmark: Benchmark, record: dict) -> list[str]:
    shown = [row for row in record[benchmark.rows] if benchmark.keep(row, record)]
    if not shown:
        raise SystemExit(f"{benchmark.script}: no row of the record is kept for the page.")
    lines = [
        f"| {' | '.join(benchmark.columns)} |",
        "|---" * len(benchmark.columns) + "|",
    ]
    for row in shown:
        cells = [_cell(row[key], form) for key, form in benchmark.columns.values()]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(value: object, form: str) -> str:
    if value is None:
        return ""
    scale, written = {"ms": (1e3, ",.1f"), "M": (1e-6, ".1f"), "MB": (1e-6, ",.0f")}.get(
        form, (None, form)
    )
    return format(value if scale is None else value * scale, written)


def _machine(record: dict) -> str:
    machine = record["machine"]
    device = record.get("gpu") or record.get("device")
    notes = f"; {record['notes'][0].rstrip('.')}" if record.get("notes") else ""
    return (
        f"{machine['processor']}, {machine['num_cores']} cores"
        + (f", {device}" if device and device != "cpu" else "")
        + f", {record['date']}{notes}"
    )


def _versions(record: dict) -> str:
    torch = {"torch": record["torch"]} if isinstance(record.get("torch"), str) else {}
    own = ", ".join(f"{name} {version}" for name, version in (record["versions"] | torch).items())
    peers = ", ".join(
        f"{name} {version}" for name, version in record.get("peer_versions", {}).items()
    )
    if isinstance(record.get("peer"), str):
        peers = record["peer"]
    return own + (f"; peer: {peers}" if peers else "")


def _seeds(benchmark: Benchmark, record: dict) -> str:
    if benchmark.no_seed:
        return benchmark.no_seed
    seeds = record.get("seeds", record.get("seed"))
    if seeds is None or "seed" in record["rows"][0]:
        seeds = sorted({row["seed"] for row in record["rows"]})
    return f"{', '.join(map(str, seeds)) if isinstance(seeds, list) else seeds}."


def _full_table(name: str) -> str:
    if name not in TABLES:
        return "."
    page = TABLES[name][0]
    return f"; more on [{page.removesuffix('.md')}]({page})."


def _anchor(title: str) -> str:
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -")
    return kept.replace(" ", "-")


if __name__ == "__main__":
    main()
