"""How many tables a run of Mosaic measured, and in how many scans of its rows."""

import re
from collections.abc import Iterable

from tulle.train.run_context import Progress

_TABLES = re.compile(r"(\d+) tables")


def scans_and_tables(reports: Iterable[Progress]) -> tuple[int, int]:
    """Numbers of scans and of measured tables, from all progress reports of a run.

    A table that is measured in two rounds counts twice. Each scan sums tables with the same
    predictions; the last one corrects the overall level and measures no table.
    """
    abouts = [report.about for report in reports]
    numbers = [found for about in abouts if (found := _TABLES.search(about))]
    return len(abouts), sum(int(found[1]) for found in numbers)
