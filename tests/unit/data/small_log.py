"""A log of a few hundred rows as a CSV file, and its layout."""

from pathlib import Path

from tulle.data.features.feature_plan import FeaturePlan, hash_all
from tulle.data.schema import Kind, Schema
from tulle.data.tables.layout import Layout, layout_for
from tulle.data.tables.sources import LogFiles

SCHEMA = Schema(
    label="click",
    public=("site", "price"),
    sensitive=("age", "city"),
    unit="user",
    time="at",
    ignored=("note",),
    kinds={"price": Kind.REAL, "at": Kind.TIMESTAMP},
)
HEADER = "click,site,price,age,city,user,at,note"
SALT = bytes(range(16))


def lines(num_rows: int, *, first: int = 0) -> list[str]:
    return [
        f"{row % 3 == 0:d},site{row % 7},{row / 4},{'' if row % 5 == 0 else row % 90},"
        f"city{row % 11},user{row // 3},{row * 1800},ignored {row}"
        for row in range(first, first + num_rows)
    ]


def write_log(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def small_layout() -> Layout:
    return layout_for(Path("small.csv"), SCHEMA)


def small_log(*paths: Path, rows_per_block: int = 40) -> LogFiles:
    return LogFiles(paths=paths, layout=small_layout(), rows_per_block=rows_per_block)


def small_plan() -> FeaturePlan:
    return hash_all(SCHEMA, 1000, 500, salt=SALT)
