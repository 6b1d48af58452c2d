"""The library as its source says it, read once for all tests of the reference."""

from pathlib import Path

from public_names import read_library

ROOT = Path(__file__).parents[3]
LIBRARY = read_library(ROOT / "src" / "tulle")
