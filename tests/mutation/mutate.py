"""Mutation run: python tests/mutation/mutate.py --seed 1 --number 200 --output mutants.json.

Makes small random changes in the code that guarantees rest on, one at a time, and runs the tests
that guard it. A change that no test notices survives: it is equivalent, it touches utility only,
or a test is missing. `survivors.toml` explains each survivor of the published run.

Why a tool of our own: a sample must be found again after the code around it was moved or merged,
so a mutant is known by function and statement; the tests of an area are chosen by hand, because all
of them would run for most of an hour; and faults inside SQL count too. cosmic-ray knows a mutant by
file and position, changes files in place and has one test command for all of them. mutmut copies
the tree and runs all tests once to learn which of them reach what.
"""

import argparse
import collections
import contextlib
import dataclasses
import hashlib
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutation.areas import AREAS, KNOWN, ROOT, SOURCE, TESTS, Known
from mutation.sites import Site, find_sites

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """A change, and the area whose tests should notice it."""

    area: str
    site: Site
    occurrence: int = 0
    """Number of this place among those of the area that say exactly the same."""

    @property
    def id(self) -> str:
        """A short name that stays when the file is moved or formatted."""
        name = repr((self.area, *self.site.key, self.occurrence))
        return hashlib.sha256(name.encode()).hexdigest()[:12]

    def row(self) -> Row:
        """All that is needed to know it again."""
        site = self.site
        return {
            "id": self.id,
            "area": self.area,
            "file": Path(os.path.relpath(site.file, ROOT)).as_posix(),
            "line": site.line,
            "qualified_name": site.qualified_name,
            "statement": site.statement,
            "occurrence": self.occurrence,
            "kind": site.kind,
            "index": site.index,
            "before": site.before,
            "after": site.after,
        }


def mutants_of(area: str, files: Iterable[Path]) -> list[Mutant]:
    """All mutants of some files."""
    seen: collections.Counter[object] = collections.Counter()
    found = []
    for file in sorted(files, key=lambda path: (path.name, path)):
        for site in find_sites(file):
            found.append(Mutant(area=area, site=site, occurrence=seen[site.key]))
            seen[site.key] += 1
    return found


def sample_mutants(mutants: Sequence[Mutant], number: int, *, seed: int) -> list[Mutant]:
    """Some mutants: a file by its number of places, then a kind of change, then a place."""
    rng = random.Random(f"{seed} {mutants[0].area}")  # noqa: S311
    left = list(mutants)
    chosen: list[Mutant] = []
    while left and len(chosen) < number:
        file = rng.choice(left).site.file
        here = [mutant for mutant in left if mutant.site.file == file]
        kind = rng.choice(sorted({mutant.site.kind for mutant in here}))
        mutant = rng.choice([mutant for mutant in here if mutant.site.kind == kind])
        if mutant.site.is_python():
            chosen.append(mutant)
        # Another change of the same words would say little more.
        left = [other for other in left if not _is_same_place(other, mutant)]
    return chosen


def known_mutants(known: Sequence[Known] = KNOWN) -> list[Mutant]:
    """Mutants that once survived and must be caught ever since."""
    found = []
    for wanted in known:
        matching = [
            mutant
            for mutant in mutants_of(wanted.area, AREAS[wanted.area].source_files())
            if wanted.statement in mutant.site.statement
            and (mutant.site.before, mutant.site.after) == (wanted.before, wanted.after)
        ]
        if not matching:
            raise SystemExit(f"no statement of {wanted.area} says {wanted.statement!r} any more.")
        found += matching
    return found


def find_again(rows: Sequence[Row], sites: Sequence[Site]) -> tuple[list[Mutant], list[Row]]:
    """Earlier mutants in the present tree, and those whose statement is gone.

    A statement counts as the same if it stands in a function of the same name, wherever that is
    now, or if it stands in one place only.
    """
    by_place: dict[object, list[Site]] = collections.defaultdict(list)
    by_text: dict[object, list[Site]] = collections.defaultdict(list)
    for site in sorted(sites, key=lambda site: (site.file.name, site.file, site.start)):
        by_place[site.key].append(site)
        by_text[site.key[1:]].append(site)
    found, lost = [], []
    for row in rows:
        key = (row["statement"], row["kind"], row["index"], row["after"])
        places = by_place[(row["qualified_name"], *key)]
        here = [site for site in places if site.file.name == Path(row["file"]).name]
        places = here or places
        if not places and len(by_text[key]) == 1:
            places = by_text[key]
        if places:
            place = places[min(row["occurrence"], len(places) - 1)]
            found.append(Mutant(area=row["area"], site=place, occurrence=row["occurrence"]))
        else:
            lost.append(row)
    return found, lost


class Copy:
    """A copy of the sources that stands in for the installed package, in subprocesses too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "src" / SOURCE.name
        shutil.copytree(SOURCE, self.source)
        self.environment = os.environ | {
            "PYTHONPATH": str(folder / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",  # Else a file of the same second and size is not read.
            "OMP_NUM_THREADS": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        }
        code = f"import {SOURCE.name}; print({SOURCE.name}.__file__)"
        command = [sys.executable, "-c", f"import subprocess, sys; {_AGAIN}", code]
        shown = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
        if Path(shown.strip()).parent != self.source:
            raise SystemExit(f"the copy does not stand in for the package: {shown.strip()} does.")

    def run(self, tests: Sequence[Path], options: Sequence[str], limit_s: float) -> tuple[str, str]:
        """The outcome of tests: survived, caught or timeout, and the first test that failed."""
        command = [
            *(sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"),
            *("--hypothesis-seed=0", f"--basetemp={self.folder / 'tmp'}", *options),
            *map(str, tests),
        ]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            shown, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return "timeout", ""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        if process.returncode in _NOTHING_FAILED:
            return "survived", ""
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", shown, re.MULTILINE)
        return "caught", failed[1] if failed else shown.strip().splitlines()[-1]

    def judge(self, mutant: Mutant, limit_s: float) -> Row:
        """What became of a mutant; mirrored tests run first."""
        begin = time.monotonic()
        area, file = AREAS[mutant.area], self.source / mutant.site.file.relative_to(SOURCE)
        original, times = file.read_bytes(), file.stat()
        file.write_bytes(mutant.site.mutate(original))
        try:
            first = mirrored_tests(mutant.site.file)
            rest = [path for path in area.test_files() if path not in first]
            outcome, failed = "survived", ""
            for tests in filter(None, (first, rest)):
                outcome, failed = self.run(tests, area.options, limit_s)
                if outcome != "survived":
                    break
        finally:
            file.write_bytes(original)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        took = round(time.monotonic() - begin, 1)
        return mutant.row() | {"outcome": outcome, "first_failing_test": failed, "seconds": took}


# Nothing failed, or nothing was selected of the mirrored tests.
_NOTHING_FAILED = (0, 5)
# A subprocess of a subprocess, as tests of commands start them.
_AGAIN = (
    "print(subprocess.run([sys.executable, '-c', sys.argv[1]], capture_output=True, "
    "text=True, check=True).stdout)"
)


def mirrored_tests(file: Path) -> list[Path]:
    """Tests that are named after a source file; failing that, those of its small folder."""
    folder = TESTS / "unit" / file.parent.relative_to(SOURCE)
    named = sorted(folder.glob(f"test_{file.stem}*.py"))
    is_small = folder.parent not in (TESTS, TESTS / "unit")
    return named or (sorted(folder.glob("test_*.py")) if is_small else [])


def _is_same_place(one: Mutant, other: Mutant) -> bool:
    return (one.site.file, one.site.start, one.site.end) == (
        other.site.file,
        other.site.start,
        other.site.end,
    )


def run_mutants(mutants: Sequence[Mutant], *, jobs: int) -> Iterator[Row]:
    """Judges mutants, each in one of several copies, after a clean run of every area."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: queue.Queue[Copy] = queue.Queue()
        for number in range(jobs):
            copies.put(Copy(Path(folder) / str(number)))

        def with_a_copy(work: Any) -> Any:
            copy = copies.get()
            try:
                return work(copy)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            areas = list(dict.fromkeys(mutant.area for mutant in mutants))
            tasks = [lambda copy, name=name: clean_seconds(copy, name, mutants) for name in areas]
            seconds = dict(zip(areas, pool.map(with_a_copy, tasks), strict=True))
            limits = {name: _TIMES_CLEAN * clean + _EXTRA_S for name, clean in seconds.items()}
            yield from pool.map(
                with_a_copy,
                [lambda copy, m=mutant: copy.judge(m, limits[m.area]) for mutant in mutants],
            )


# Tests that take several times as long as on the clean tree hang, even on a busier machine.
_TIMES_CLEAN, _EXTRA_S = 3.0, 60.0


def clean_seconds(copy: Copy, name: str, mutants: Sequence[Mutant]) -> float:
    """Time that the tests of an area take on the tree as it is; an error if one fails."""
    begin, area = time.monotonic(), AREAS[name]
    files = [file for m in mutants if m.area == name for file in mirrored_tests(m.site.file)]
    tests = list(dict.fromkeys([*files, *area.test_files()]))
    outcome, failed = copy.run(tests, area.options, limit_s=3600.0)
    if outcome != "survived":
        raise SystemExit(f"the tests of {name} fail without any mutant: {outcome} {failed}")
    took = time.monotonic() - begin
    _say(f"{name}: green in {took:.0f} s")
    return took


def summary(rows: Sequence[Row]) -> list[Row]:
    """Totals of each area and of all; known mutants are not among random ones."""
    names = [name for name in AREAS if any(row["area"] == name for row in rows)]
    totals = []
    for name in [*names, "all"]:
        mine = [row for row in rows if name in (row["area"], "all") and not row["known"]]
        counts = collections.Counter(row["outcome"] for row in mine)
        totals.append(
            {
                "area": name,
                "mutants": len(mine),
                **{outcome: counts[outcome] for outcome in ("caught", "timeout", "survived")},
                "survived_at_first": sum(row["first_outcome"] == "survived" for row in mine),
            }
        )
    return totals


def choose(arguments: argparse.Namespace) -> tuple[list[Mutant], list[Row]]:
    """Mutants to judge, and rows of an earlier run that are kept as they are."""
    if arguments.again:
        rows = json.loads(arguments.again.read_text(encoding="utf-8"))["rows"]
        if arguments.area:
            rows = [row for row in rows if row["area"] in arguments.area]
        kept = [row for row in rows if _is_kept(row, arguments)]
        wanted = [row for row in rows if row not in kept]
        sites = [site for file in sorted(SOURCE.rglob("*.py")) for site in find_sites(file)]
        found, lost = find_again(wanted, sites)
        for row in lost:
            _say(f"gone: {row['id']} {row['file']} {row['qualified_name']}: {row['statement']}")
        return found, kept
    chosen = []
    areas = arguments.area or list(AREAS)
    for place, name in enumerate(areas):
        number = arguments.number // len(areas) + (place < arguments.number % len(areas))
        mutants = mutants_of(name, AREAS[name].source_files())
        chosen += sample_mutants(mutants, number, seed=arguments.seed)
    return chosen, []


def _first_outcomes(again: Path | None) -> dict[str, str]:
    """What became of mutants before tests were written for those that survived."""
    if again is None:
        return {}
    rows = json.loads(again.read_text(encoding="utf-8"))["rows"]
    outcomes = {row["id"]: row.get("first_outcome") or row.get("outcome") for row in rows}
    return {name: outcome for name, outcome in outcomes.items() if outcome}


def _is_kept(row: Row, arguments: argparse.Namespace) -> bool:
    if arguments.mutant:
        return row["id"] not in arguments.mutant
    return bool(arguments.survivors) and row["outcome"] != "survived"


def judged_rows(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """Rows of the run so far, after each mutant."""
    mutants, rows = choose(arguments)
    known = [m for m in known_mutants() if m.area in (arguments.area or AREAS)]
    is_known = {mutant.id for mutant in known}
    rows = [row for row in rows if row["id"] not in is_known]
    mutants = [*known, *(mutant for mutant in mutants if mutant.id not in is_known)]
    earlier = _first_outcomes(arguments.again)
    for row in run_mutants(mutants, jobs=arguments.jobs):
        first = earlier.get(row["id"], row["outcome"])
        rows = [*rows, row | {"known": row["id"] in is_known, "first_outcome": first}]
        _say(f"{len(rows)} {row['outcome']:8} {row['id']} {_shown(row)}")
        yield rows


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--seed", type=int, default=1, help="seed of the sample")
    made.add_argument("--number", type=int, default=200, help="mutants over all areas")
    made.add_argument("--area", action="append", choices=list(AREAS), help="only this area")
    made.add_argument("--jobs", type=int, default=2, help="mutants judged at the same time")
    made.add_argument("--again", type=Path, help="judge the mutants of this earlier result")
    made.add_argument(
        "--survivors", action="store_true", help="with --again: judge those alone that survived"
    )
    made.add_argument(
        "--mutant", action="append", help="with --again: judge this one alone; can be repeated"
    )
    made.add_argument("--output", type=Path, help="JSON file for the result")
    return made


def main() -> None:
    """Runs the command; exit code 1 if a known mutant survived."""
    arguments = parser().parse_args()
    rows: list[Row] = []
    for rows in judged_rows(arguments):
        if arguments.output:
            record = {"seed": arguments.seed, "summary": summary(rows), "rows": rows}
            arguments.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    for total in summary(rows):
        _say(str(total))
    sys.exit(any(row["known"] and row["outcome"] == "survived" for row in rows))


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def _shown(row: Row) -> str:
    place = f"{row['file']}:{row['line']} {row['qualified_name']}"
    return f"{place}: {row['before']!r} -> {row['after']!r} {row['first_failing_test']}"


if __name__ == "__main__":
    main()
