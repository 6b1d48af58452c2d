"""Small faults that the tests notice: python benchmarks/quality/mutants.py.

Runs tests/mutation/mutate.py and writes what became of each mutant, with machine and versions.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from mutation.mutate import judged_rows, summary
from record import PUBLISHED, print_table, versions, write_record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample")
    parser.add_argument("--number", type=int, default=200, help="mutants over all areas")
    parser.add_argument("--jobs", type=int, default=2, help="mutants judged at the same time")
    parser.add_argument("--again", type=Path, help="judge the mutants of this earlier result")
    parser.add_argument(
        "--survivors", action="store_true", help="with --again: judge those alone that survived"
    )
    parser.add_argument(
        "--mutant", action="append", help="with --again: judge this one alone; can be repeated"
    )
    parser.add_argument("--output", type=Path, default=PUBLISHED / "mutants.json")
    parser.set_defaults(area=None)
    options = parser.parse_args()
    for rows in judged_rows(options):
        facts = {
            "versions": versions("numpy", "torch", "hypothesis", "pytest"),
            "seed": options.seed,
            "summary": summary(rows),
        }
        # After each of them: the run takes an hour.
        write_record(options.output, "mutants that the tests notice", rows, facts)
    print_table(summary(rows))


if __name__ == "__main__":
    main()
