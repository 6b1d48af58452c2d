"""The surface that users see: public names of every package, and the help of every command.

A change on purpose is stored again by

    TULLE_WRITE_GOLDEN=1 pytest tests/golden/test_surface.py

and the commit says what changed for whom.
"""

import importlib
import os
import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import tulle
from tulle.cli.main import app

_HERE = Path(__file__).parent


def test_public_names_are_the_listed_ones() -> None:
    lines = []
    for name in sorted(["tulle", *_packages()]):
        exported = getattr(importlib.import_module(name), "__all__", ())
        lines += [f"{name}.{public}" for public in sorted(exported)]
    _assert_stored("\n".join(lines) + "\n", _HERE / "public_names.txt")


def test_every_public_name_is_there_and_nothing_else_is_shown() -> None:
    for name in ["tulle", *_packages()]:
        package = importlib.import_module(name)
        exported = getattr(package, "__all__", ())
        for public in exported:
            assert hasattr(package, public), f"{name}.{public}"
        if exported:
            assert set(dir(package)) == set(exported), name


def test_public_names_are_attributes_of_tulle_without_an_import_of_their_own() -> None:
    # In a process of its own: here, an import elsewhere has made them attributes already.
    in_new_process(f"""
        import sys, tulle
        packages = [name for name in {tulle.__all__} if name.islower() and name != "load"]
        for name in packages:
            if name != "errors":
                assert f"tulle.{{name}}" not in sys.modules, name
            assert name in dir(tulle), name
        for name in packages:
            assert getattr(tulle, name) is sys.modules[f"tulle.{{name}}"], name
        assert not hasattr(tulle, "nonsense")
    """)


def test_import_and_dir_of_tulle_load_no_library() -> None:
    in_new_process("""
        import sys, tulle
        assert "train" in dir(tulle)
        loaded = {"torch", "polars", "numpy", "duckdb", "scipy", "typer"} & set(sys.modules)
        assert not loaded, loaded
    """)


def test_the_help_of_every_command_is_the_stored_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parts = []
    for words in _commands():
        result = CliRunner().invoke(app, [*words, "--help"], prog_name="tulle")
        assert result.exit_code == 0, words
        parts.append(f"=== tulle {' '.join(words)}".rstrip() + f"\n{result.output.rstrip()}\n")
    _assert_stored("\n".join(parts), _HERE / "help.txt")


def in_new_process(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _packages() -> list[str]:
    """Names of all packages directly below `tulle`, whatever they export."""
    return [f"tulle.{found.name}" for found in pkgutil.iter_modules(tulle.__path__) if found.ispkg]


def _commands() -> list[list[str]]:
    """All groups and commands as words after `tulle`, the bare `tulle` first."""
    found: list[list[str]] = []

    def visit(command: object, words: list[str]) -> None:
        found.append(words)
        for name, inner in sorted(getattr(command, "commands", {}).items()):
            visit(inner, [*words, name])

    visit(typer.main.get_command(app), [])
    return found


def _assert_stored(found: str, path: Path) -> None:
    if os.environ.get("TULLE_WRITE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")
