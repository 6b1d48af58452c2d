"""The measured ratios on the page of comparisons: python benchmarks/docs_comparison.py.

The page holds a pair of comments; what is between them is written anew from the published
records. A test checks that it is up to date.
"""

import json
import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "comparison.md"
MARKS = re.compile("<!-- ratios -->.*<!-- end ratios -->", re.DOTALL)
ROWS, BATCH = 2_400_000, 16_384


def comparison_page() -> str:
    """The text of the page, with the ratios as published."""
    lines = [
        "| work | peer | tulle is | record |",
        "|---|---|---|---|",
        *_steps(),
        *_counts(),
        *_choices(),
    ]
    table = "\n".join(lines)
    text, count = MARKS.subn(f"<!-- ratios -->\n\n{table}\n\n<!-- end ratios -->", PAGE.read_text())
    if count != 1:
        raise SystemExit(f"{PAGE.name} needs one pair of comments for ratios, has {count}.")
    return text


def main() -> None:
    PAGE.write_text(comparison_page())
    print(PAGE.name)


def _steps() -> Iterator[str]:
    record = _record("dpsgd")
    for model, words in (("mlp", "a perceptron"), ("fm", "a factorization machine")):
        seconds = {
            row["step"]: row["seconds"]
            for row in record["rows"]
            if (row["model"], row["num_rows"], row["batch_size"]) == (model, ROWS, BATCH)
        }
        yield _line(
            f"a private step of {words}, {ROWS:,} table rows, batch {BATCH:,}, CPU",
            f"Opacus {record['peer_versions']['opacus']}, ghost clipping",
            seconds["opacus ghost"] / seconds["tulle lazy"],
            "dpsgd",
        )


def _counts() -> Iterator[str]:
    record = _record("measure")
    for row in record["rows"]:
        if row["peer"] and row["peer"].startswith("PipelineDP"):
            version = record["peer"].rpartition(" ")[2]
            yield _line(
                f"bounded counts of {row['num_impressions']:,} rows, one machine",
                f"PipelineDP {version}, local backend",
                1 / row["time_over_peer"],
                "measure",
            )


def _choices() -> Iterator[str]:
    record = _record("select_speed")
    for row in record["peers"]:
        if row["peer"] == "opendp":
            peer = f"OpenDP {record['peer_versions']['opendp']}"
            yield _line(
                f"{row['choice']}, many auctions at once",
                peer,
                row["times_as_fast"],
                "select_speed",
            )
            yield _line(
                f"{row['choice']}, one auction at a time",
                peer,
                row["single_per_second"] / row["peer_per_second"],
                "select_speed",
            )


def _line(work: str, peer: str, speed: float, name: str) -> str:
    said = f"{speed:.3g} times as fast" if speed >= 1 else f"{1 / speed:.3g} times as slow"
    return f"| {work} | {peer} | {said} | [{name}.json](../benchmarks/published/{name}.json) |"


def _record(name: str) -> dict:
    return json.loads((ROOT / "benchmarks" / "published" / f"{name}.json").read_text())


if __name__ == "__main__":
    main()
