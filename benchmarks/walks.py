"""Traces the six main journeys and writes what it finds into docs/architecture.md.

    python benchmarks/walks.py

A journey is one command on small synthetic data, each in a process of its own. Python tells a
profiler of every function that is called; what is counted are functions of tulle that run while no
module is being loaded, and the files that they are in. Work that threads and other processes do is
not seen.
"""

import contextlib
import dataclasses
import inspect
import io
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from types import FrameType

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "tulle"
PAGE = ROOT / "docs" / "architecture.md"

_CAMPAIGNS = """
[log]
impressions = "log/impressions.csv"
conversions = "log/conversions.csv"
[columns]
user = "user"
[attribution]
rule = "last-touch"
lookback = "7 days"
[privacy]
unit = "user"
epsilon = 2.0
[[query]]
name = "by region"
measure = "conversions"
slices = ["geo"]
keys = { geo = ["region-1", "region-2"] }
max_per_slice = 2
max_slices_per_unit = 1
"""
_LEDGER = "budget create ledger.db --name all --epsilon 9 --delta 1e-4 --adjacency"
_PREPARE = (
    "data synth search --rows 3000 --seed 1 --output log.tsv",
    "data prepare log.tsv --layout search --output prepared --quiet",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Journey:
    """One command, and the commands that make what it reads."""

    name: str
    before: tuple[str, ...]
    command: str


JOURNEYS = (
    Journey(
        name="train, Mosaic",
        before=(*_PREPARE, f"{_LEDGER} replace --unit example"),
        command="train prepared --epsilon 3 --output run --ledger ledger.db --quiet",
    ),
    Journey(
        name="train, DP-SGD",
        before=(*_PREPARE, f"{_LEDGER} replace --unit example"),
        command="train prepared --epsilon 3 --output run --ledger ledger.db --quiet "
        "--method dp-sgd --epochs 1 --batch-size 256",
    ),
    Journey(
        name="measure",
        before=(
            "data synth impressions --rows 300 --seed 1 --output log",
            f"{_LEDGER} add-remove --unit user",
        ),
        command="measure run campaigns.toml --output results --ledger ledger.db --quiet",
    ),
    Journey(
        name="release labels",
        before=(
            "data synth attribution --rows 300 --seed 1 --output log.parquet",
            f"{_LEDGER} replace --unit example",
        ),
        command="labels release log.parquet --layout attribution --mechanism rr --epsilon 2 "
        "--output noisy.parquet --ledger ledger.db --quiet",
    ),
    Journey(
        name="select ads",
        before=(
            "data synth auctions --rows 100 --seed 1 --output auctions.parquet",
            "select plan auctions.parquet --epsilon 3 --private-stddev 0.6 --consent everyone "
            "--output selection.toml",
        ),
        command="select decide selection.toml auctions.parquet --output choices.parquet --quiet",
    ),
    Journey(
        name="spend a budget",
        before=(f"{_LEDGER} add-remove --unit 'user per 7 days'",),
        command="budget spend ledger.db --purpose counts --at 2026-01-14 "
        """--event '{"kind": "DiscreteLaplace", "scale": 2.0}'""",
    ),
)

BEFORE = {
    "train, Mosaic": 113,
    "train, DP-SGD": 137,
    "measure": 90,
    "release labels": 72,
    "select ads": 85,
    "spend a budget": 18,
}
"""Files entered at commit 3ec3f23, before the redesign, counted by this script with the options
that these commands had then."""

_CODEC = ("with_options", "settings_from", "plain_data")
"""Functions of the codec through which settings go from one form into another."""
_NOT_SETTINGS = ("runs/", "data/", "privacy/")
"""Who calls the codec from here has cards, records and schemas, not the settings of a run."""
_BEGIN, _END = "<!-- walks -->", "<!-- /walks -->"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Walk:
    """What one journey entered."""

    name: str
    files: tuple[str, ...]
    """Files below src/tulle of which a function ran, in the order of their first call."""
    num_functions: int
    deepest: int
    """Most functions of tulle that waited for one another."""
    translations: tuple[str, ...]
    """Each time that settings changed their form: who asked the codec for what. What a plan says
    about itself is not counted, since nobody reads it back."""
    num_loaded: int
    """Modules of tulle that are loaded at the end."""


class _Tracer:
    """Is told of calls and returns by `sys.setprofile`."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.functions: set[object] = set()
        self.translations: list[str] = []
        self.deepest = 0
        self._depth = self._loading = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return"):
            return
        code, step = frame.f_code, 1 if event == "call" else -1
        if code.co_name == "<module>":
            self._loading += step
        elif (file := _place(frame)) is not None and code.co_flags & inspect.CO_OPTIMIZED:
            self._depth += step
            if step > 0 and not self._loading:
                self._enter(file, frame)

    def _enter(self, file: str, frame: FrameType) -> None:
        self.files.setdefault(file)
        self.functions.add(frame.f_code)
        self.deepest = max(self.deepest, self._depth)
        name, caller = frame.f_code.co_name, frame.f_back
        if not file.startswith("privacy/") or name not in _CODEC or caller is None:
            return
        asked_in, asker = _place(caller) or "", caller.f_code.co_name
        if not asked_in.startswith(_NOT_SETTINGS) and asker != "words":
            self.translations.append(f"{asker} -> {name}")


def _place(frame: FrameType) -> str | None:
    """The file of a function below src/tulle; None if it is elsewhere."""
    name = frame.f_code.co_filename
    return os.path.relpath(name, SOURCE) if name.startswith(f"{SOURCE}{os.sep}") else None


def trace(journey: Journey) -> Walk:
    """Runs one journey in an empty folder, in this process."""
    from tulle.cli.main import run_with

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for line in journey.before:
            _run(run_with, line)
        pathlib.Path("campaigns.toml").write_text(_CAMPAIGNS, encoding="utf-8")
        tracer = _Tracer()
        sys.setprofile(tracer)
        try:
            _run(run_with, journey.command)
        finally:
            sys.setprofile(None)
    return Walk(
        name=journey.name,
        files=tuple(tracer.files),
        num_functions=len(tracer.functions),
        deepest=tracer.deepest,
        translations=tuple(tracer.translations),
        num_loaded=sum(name.split(".")[0] == "tulle" for name in sys.modules),
    )


def trace_apart(journey: Journey) -> Walk:
    """Runs one journey in a process of its own, where nothing is loaded yet."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", journey.name],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = json.loads(done.stdout)
    return Walk(**{name: tuple(v) if isinstance(v, list) else v for name, v in found.items()})


def page_lines(walks: Sequence[Walk]) -> list[str]:
    """The table of all journeys, and the files that each enters, package by package."""
    lines = [
        "| journey | files entered | before the redesign | functions | deepest call | settings "
        "change form | modules loaded |",
        "|---|---|---|---|---|---|---|",
    ]
    for walk in walks:
        lines.append(
            f"| {walk.name} | {len(walk.files)} | {BEFORE[walk.name]} | {walk.num_functions} "
            f"| {walk.deepest} | {len(walk.translations)} | {walk.num_loaded} |"
        )
    for journey, walk in zip(JOURNEYS, walks, strict=True):
        lines += ["", f"**{walk.name}**: `tulle {journey.command.split(' --event')[0]}`", ""]
        packages: dict[str, list[str]] = {}
        for file in walk.files:
            package, _, rest = file.rpartition("/")
            packages.setdefault(package or "tulle", []).append(rest.removesuffix(".py"))
        lines += [f"- `{package}/` {', '.join(names)}" for package, names in packages.items()]
    return lines


def write_page(lines: Sequence[str]) -> None:
    """Puts the lines between the two marks of the page."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{_BEGIN}.*{_END}", re.DOTALL)
    body = "\n".join((_BEGIN, "", *lines, "", _END))
    PAGE.write_text(pattern.sub(lambda _: body, text), encoding="utf-8")


def _run(run_with: Callable[[Sequence[str]], int], line: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_with(shlex.split(line))
    if code != 0:
        raise SystemExit(f"tulle {line}: exit code {code}\n{err.getvalue()}")


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        (journey,) = (each for each in JOURNEYS if each.name == sys.argv[2])
        print(json.dumps(dataclasses.asdict(trace(journey))))
        return
    write_page(page_lines([trace_apart(journey) for journey in JOURNEYS]))


if __name__ == "__main__":
    main()
