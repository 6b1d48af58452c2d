"""Names of runs in the folder of all runs: a new one, or one that is not finished."""

import re
from pathlib import Path

from tulle.errors import ConfigError, RunStateError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BEGUN, _FINISHED = "run.json", "card.json"


def new_run(runs: Path, name: str | None, base: str) -> Path:
    """A folder for a new run.

    Args:
      runs: The folder of all runs.
      name: What the run shall be called; None: like `base`, numbered if that is taken.
      base: What it is about; other characters than letters, digits, '_', '.', '-' become '-'.

    Raises:
      ConfigError: The name is no plain name.
      RunStateError: A run of this name is there.
    """
    if name is not None:
        path = runs / _checked(name)
        if (path / _BEGUN).exists():
            raise RunStateError(
                f"run {name} is there already; go on with it with --resume, or choose another "
                "--name."
            )
        return path
    base = _plain(base)
    number, path = 1, runs / base
    while path.exists():
        number += 1
        path = runs / f"{base}-{number}"
    return path


def find_run(runs: Path, name: str | None, base: str) -> Path:
    """The run to go on with: the one of this name, or the newest that is not finished.

    Raises:
      RunStateError: There is none.
    """
    if name is not None:
        return runs / _checked(name)
    pattern = re.compile(rf"{re.escape(_plain(base))}(-[0-9]+)?")
    unfinished = [
        path
        for path in (runs.iterdir() if runs.is_dir() else ())
        if pattern.fullmatch(path.name)
        and (path / _BEGUN).exists()
        and not (path / _FINISHED).exists()
    ]
    if not unfinished:
        raise RunStateError(
            f"{runs} has no unfinished run called {_plain(base)}; leave out --resume to begin "
            "one, or give its --name."
        )
    return max(unfinished, key=lambda path: (path / _BEGUN).stat().st_mtime_ns)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"--name {name} must be letters, digits, '_', '.' and '-', and not begin with "
            "'.' or '-'."
        )
    return name


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)
