"""The mutation run itself: what it changes, that it finds a change again, and that tests notice."""

import json
import tomllib
from pathlib import Path

import pytest

from mutation import areas, mutate
from mutation.areas import AREAS, ROOT, Area, Known
from mutation.mutate import find_again, known_mutants, mutants_of, sample_mutants
from mutation.sites import find_sites

SOURCE = '''"""Words < and > of a docstring are no operators."""

LIMIT: "int < 3" = 5
QUERY = """SELECT id FROM spends WHERE first <= :last"""


class Counter:
    """A class."""

    def add(self, number: int = 2) -> int:
        """Adds one and more."""
        if not number > LIMIT and number != 7:
            raise ValueError(f"number={number - 1} is < {LIMIT + 1}")
        self.total = min(number, 3) + number
        return sum(range(number)) - number**2
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "counter.py"
    path.write_text(SOURCE)
    return path


def changed_lines(file: Path) -> set[str]:
    """Lines that a mutant has and the source has not."""
    before = SOURCE.splitlines()
    return {
        line.strip()
        for site in find_sites(file)
        for line in site.mutate(file.read_bytes()).decode().splitlines()
        if line not in before
    }


@pytest.mark.parametrize(
    "line",
    [
        'LIMIT: "int < 3" = 6',
        'LIMIT: "int < 3" = 4',
        'QUERY = """SELECT id FROM spends WHERE first < :last"""',
        "def add(self, number: int = 3) -> int:",
        "if not number >= LIMIT and number != 7:",
        "if not number > LIMIT or number != 7:",
        "if not number > LIMIT and number == 7:",
        "if  number > LIMIT and number != 7:",
        "pass",
        "self.total = max(number, 3) + number",
        "self.total = min(number, 3) - number",
        "return sum(range((number) + 1)) - number**2",
        "return sum(range(number)) + number**2",
        "return sum(range(number)) - number*2",
    ],
)
def test_a_small_change_is_made(file: Path, line: str) -> None:
    assert line in changed_lines(file)


def test_text_for_people_and_annotations_stay(file: Path) -> None:
    shown = "\n".join(changed_lines(file))
    for text in ("Words", "Adds", "int <= 3", "is <=", "number + 1}", "LIMIT - 1"):
        assert text not in shown


def test_every_mutant_is_one_change_that_is_told_from_the_others(file: Path) -> None:
    mutants = mutants_of("ledger", [file])
    assert len({mutant.id for mutant in mutants}) == len(mutants) > 20
    assert all(mutant.site.before != mutant.site.after for mutant in mutants)


def test_a_seed_gives_the_same_sample_and_no_place_twice(file: Path) -> None:
    mutants = mutants_of("ledger", [file])
    first = sample_mutants(mutants, 12, seed=1)
    assert first == sample_mutants(mutants, 12, seed=1)
    assert first != sample_mutants(mutants, 12, seed=2)
    places = [(mutant.site.start, mutant.site.end) for mutant in first]
    assert len(set(places)) == len(places) == 12


def test_a_mutant_is_found_again_in_another_file_and_format(file: Path, tmp_path: Path) -> None:
    rows = [mutant.row() for mutant in mutants_of("ledger", [file])]
    moved = tmp_path / "merged.py"
    text = SOURCE.replace("if not number > LIMIT and", "if (not number > LIMIT\n            and")
    moved.write_text("OTHER = 1\n\n" + text.replace("!= 7:", "!= 7):"))
    found, lost = find_again(rows, find_sites(moved))
    assert lost == []
    assert [mutant.id for mutant in found] == [row["id"] for row in rows]
    assert {mutant.site.file for mutant in found} == {moved}


def test_a_statement_that_is_gone_is_named(file: Path) -> None:
    rows = [mutant.row() for mutant in mutants_of("ledger", [file])]
    file.write_text(SOURCE.replace("min(number, 3) + number", "number"))
    _, lost = find_again(rows, find_sites(file))
    assert {row["statement"] for row in lost} == {"self.total = min(number, 3) + number"}


def test_known_mutants_are_in_the_tree() -> None:
    assert {mutant.area for mutant in known_mutants()} == {"ledger", "accounting"}
    with pytest.raises(SystemExit, match="no statement of ledger says 'no such words'"):
        known_mutants([Known(area="ledger", statement="no such words", before="<", after=">")])


@pytest.mark.parametrize("name", AREAS)
def test_an_area_has_sources_and_tests(name: str) -> None:
    assert AREAS[name].source_files()
    assert AREAS[name].test_files()


@pytest.fixture
def small_area(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one tested function, in place of tulle."""
    package, tests = tmp_path / "src" / "tulle", tmp_path / "tests"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "sums.py").write_text("def double(number):\n    return 2 * number + unused(0)\n")
    with (package / "sums.py").open("a") as source:
        source.write("\n\ndef unused(number):\n    return number > 7 and number\n")
    (tests / "unit").mkdir(parents=True)
    (tests / "unit" / "test_sums.py").write_text(
        "import subprocess, sys\n\n"
        "def test_double():\n"
        "    code = 'from tulle.sums import double; print(double(3))'\n"
        "    done = subprocess.run([sys.executable, '-c', code], stdout=subprocess.PIPE)\n"
        "    assert done.stdout.split() == [b'6']\n"
    )
    (tmp_path / "pyproject.toml").write_text("")
    for module in (areas, mutate):
        for name, value in {"SOURCE": package, "TESTS": tests, "ROOT": tmp_path}.items():
            monkeypatch.setattr(module, name, value)
    area = Area(sources=("*.py",), tests=("unit",))
    monkeypatch.setattr(mutate, "AREAS", {"sums": area})
    monkeypatch.setattr(mutate, "known_mutants", list)
    return package


def test_a_fault_in_a_subprocess_is_caught_and_one_that_nobody_sees_survives(
    small_area: Path,
) -> None:
    wanted = {("*", "/"), (">", ">=")}
    mutants = mutants_of("sums", [small_area / "sums.py"])
    mutants = [m for m in mutants if (m.site.before, m.site.after) in wanted]
    rows = list(mutate.run_mutants(mutants, jobs=1))
    assert [row["outcome"] for row in rows] == ["caught", "survived"]
    assert rows[0]["first_failing_test"].endswith("test_sums.py::test_double")
    assert "2 * number" in (small_area / "sums.py").read_text()
    totals = mutate.summary([row | {"known": False, "first_outcome": "survived"} for row in rows])
    expected = {"caught": 1, "timeout": 0, "survived": 1, "survived_at_first": 2}
    assert totals[-1] == {"area": "all", "mutants": 2, **expected}


def test_an_area_that_is_not_green_is_an_error(small_area: Path) -> None:
    (small_area / "sums.py").write_text("def double(number):\n    return 3 * number\n")
    mutants = mutants_of("sums", [small_area / "sums.py"])
    with pytest.raises(SystemExit, match="the tests of sums fail without any mutant"):
        list(mutate.run_mutants(mutants[:1], jobs=1))


@pytest.mark.parametrize("which", ["survivors", "one by its name"])
def test_some_alone_can_be_judged_again(small_area: Path, tmp_path: Path, which: str) -> None:
    mutants = mutants_of("sums", [small_area / "sums.py"])
    rows = [mutant.row() | {"outcome": "caught", "known": False} for mutant in mutants]
    rows[0]["outcome"] = "survived"
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps({"rows": rows}))
    wanted = ["--survivors"] if which == "survivors" else ["--mutant", rows[0]["id"]]
    arguments = mutate.parser().parse_args(["--again", str(earlier), *wanted])
    found, kept = mutate.choose(arguments)
    assert [mutant.id for mutant in found] == [rows[0]["id"]]
    assert kept == rows[1:]
    assert mutate._first_outcomes(earlier)[rows[0]["id"]] == "survived"


def test_every_published_survivor_is_explained() -> None:
    published = ROOT / "benchmarks" / "published" / "mutants.json"
    rows = json.loads(published.read_text())["rows"]
    survivors = {row["id"] for row in rows if row["outcome"] == "survived" and not row["known"]}
    explained = tomllib.loads(Path(__file__).with_name("survivors.toml").read_text())
    assert set(explained) == survivors
    for entry in explained.values():
        assert entry["why"] in {"equivalent", "utility", "message", "speed"}
        assert len(entry["explanation"]) > 20
