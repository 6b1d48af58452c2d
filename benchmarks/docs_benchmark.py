"""One published record: the command that writes it, what it measures, its main figures."""

import dataclasses
from collections.abc import Callable

Row = dict
NO_SEED_FOR_TIMES = "none; only time and memory are measured."
NO_SEED_FOR_FORMULAS = "none; nothing is drawn, the figures are computed."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One published record."""

    title: str
    script: str
    """Below benchmarks/."""
    options: str = ""
    measures: str
    columns: dict[str, tuple[str, str]]
    """Heading: key of the row, and how its value is written."""
    rows: str = "rows"
    """Which list of the record is shown."""
    keep: Callable[[Row, Row], bool] = lambda _row, _record: True
    """Which of its rows are shown, of the row and the record."""
    note: Callable[[Row], str] = lambda _record: ""
    no_seed: str = ""
