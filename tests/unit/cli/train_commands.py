"""Commands of training as the tests give them, and a small prepared dataset."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tulle.cli import main
from tulle.data.prepared.writer import DatasetWriter, hold_partial
from unit.data.prepared.small_dataset import CONTENTS, SETTINGS, block

SYNTH = "synth:search --rows 600 --quiet"


def run(text: str) -> int:
    return main.run_with(shlex.split(text))


def facts_of(text: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code = run(f"{text} --json")
    shown = capsys.readouterr()
    assert code == 0, shown.err
    data: dict[str, Any] = json.loads(shown.out)
    return data


def error_of(text: str, code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(text) == code, capsys.readouterr().err
    return capsys.readouterr().err


def write_prepared(path: Path, *, label_of_last_row: float = 1.0, num_rows: int = 120) -> None:
    rows = block(0, num_rows)
    rows["labels"] = rows["labels"].copy()
    rows["labels"][-1] = label_of_last_row
    with (
        hold_partial(path, SETTINGS, resume=True) as partial,
        DatasetWriter(partial, CONTENTS) as writer,
    ):
        writer.append(rows, position={"row": num_rows}, num_bad_lines=0)
        writer.finish({"sources": SETTINGS["sources"]})
