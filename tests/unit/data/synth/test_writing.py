"""Synthetic logs by their names."""

from pathlib import Path

import pytest

import tulle
from tulle.errors import ConfigError


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ("attribution", "log.tsv"),
        ("search", "log.parquet"),
        ("taobao-tables", "tables"),
        ("impressions", "log"),
        ("auctions", "auctions.parquet"),
    ],
)
def test_a_seed_fixes_the_log(tmp_path: Path, shape: str, name: str) -> None:
    first, second = (
        tulle.data.write_synthetic(shape, tmp_path / f"{n}-{name}", rows=50, seed=1) for n in "ab"
    )
    files = [sorted(path.rglob("*")) if path.is_dir() else [path] for path in (first, second)]
    assert files[0]
    for one, other in zip(*files, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'search'"):
        tulle.data.write_synthetic("serch", tmp_path / "log.parquet", rows=5)
    (tmp_path / "log.parquet").write_text("mine")
    with pytest.raises(ConfigError, match="exists"):
        tulle.data.write_synthetic("search", tmp_path / "log.parquet", rows=5)
    assert (tmp_path / "log.parquet").read_text() == "mine"
