"""A run is a folder: what was set, what was planned, and all that came of it.

Settings, plan and facts are fixed when the folder is made. `run.json` is written
last and holds their digests: a folder without it is no run, and one whose settings
or plan were changed since is refused.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tulle.atomic_files import (
    check_room,
    clear_staged,
    reporting_disk_errors,
    short_name,
    sync_folder,
    write_text,
)
from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import Scalar, Settings, check_fields, parse_json, parse_toml, toml_text
from tulle.privacy.plan import Plan
from tulle.runs.checkpoints import Checkpoints, DamagedFileError, read_tensors, write_tensors
from tulle.runs.records import Records

_SETTINGS, _PLAN, _RUN, _LOCK = "settings.toml", "plan.json", "run.json", "run.lock"
_RECORDS, _CHECKPOINTS = "records.jsonl", "checkpoints"
_FIXED = (_SETTINGS, _PLAN, _RUN, _LOCK, _RECORDS, _CHECKPOINTS)
_FORMAT = "tulle run 1"
_RUN_KEYS = ("format", "run_id", "settings_sha256", "plan_fingerprint", "facts", "inode")
_MORE_BYTES = 1 << 16
"""Bytes that are kept free for what a file says about its array."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_ANOTHER_RUN = "restore it from a copy of this run, or begin a run of another name"
_MAX_SHOWN = 60
"""Letters of a value that a message shows; longer ones are cut."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RunFolder:
    """A run on disk. Made by `create`, found again by `open`."""

    path: Path
    run_id: str
    """32 hexadecimal digits, drawn at random."""
    settings: Mapping[str, Any]
    plan: Plan
    facts: Mapping[str, Scalar]
    """Single values that tie the run to its data. Not for a public card."""

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        settings: Mapping[str, object],
        plan: Plan,
        facts: Mapping[str, Scalar],
    ) -> "RunFolder":
        """Makes the folder of a new run.

        Args:
          path: A folder that does not exist or is empty.
          settings: All that the user chose, as TOML can say it; nothing is None.
          plan: What will run and what it will cost.
          facts: What else must be the same to go on: data fingerprint, rows, seed.

        Raises:
          RunStateError: The folder holds something already.
        """
        folder, text, facts = Path(path).absolute(), toml_text(settings), Settings(facts)
        run: dict[str, object] = {
            "format": _FORMAT,
            "run_id": secrets.token_hex(16),
            "settings_sha256": _sha256(text.encode()),
            "plan_fingerprint": plan.fingerprint(),
            "facts": dict(facts),
        }
        with reporting_disk_errors(folder):
            _make_folder(folder)
            run["inode"] = folder.stat().st_ino
            with _locked(folder):
                _refuse_used(folder)
                clear_staged(folder)
                # run.json comes last: with it the folder is a run, and all it vouches for is there.
                write_text(folder / _SETTINGS, text)
                write_text(folder / _PLAN, plan.to_json() + "\n")
                write_text(folder / _RUN, _json_text(run))
                sync_folder(folder.parent)
        return cls.open(folder)

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """Opens a run, if its settings and plan are those it was begun with.

        Raises:
          RunStateError: The folder is no run, or was changed.
        """
        folder = Path(path).absolute()
        with reporting_disk_errors(folder):
            is_run = (folder / _RUN).exists()
        if not is_run:
            raise RunStateError(
                f"{folder.name} is no run: it has no {_RUN}; name the folder of a run, or begin "
                "one (`tulle train` without --resume)."
            )
        run = _read_run(folder / _RUN)
        settings = _read_bytes(folder / _SETTINGS)
        if _sha256(settings) != run["settings_sha256"]:
            raise _changed(folder / _SETTINGS)
        try:
            plan = Plan.from_json(_read_bytes(folder / _PLAN).decode())
        except (ConfigError, UnicodeDecodeError) as error:
            raise _changed(folder / _PLAN) from error
        if plan.fingerprint() != run["plan_fingerprint"]:
            raise _changed(folder / _PLAN)
        return cls(
            path=folder,
            run_id=run["run_id"],
            settings=parse_toml(_SETTINGS, settings.decode()),
            plan=plan,
            facts=Settings(run["facts"]),
        )

    def check_same(
        self, *, settings: Mapping[str, object], plan: Plan, facts: Mapping[str, Scalar]
    ) -> None:
        """Refuses to go on with anything but what the run was begun with.

        Args:
          settings: All that the user chose now.
          plan: What would run now.
          facts: What ties the run to its data now.

        Raises:
          RunStateError: Names the first thing that differs. Facts are named without their
            values, which may tell about the data.
        """
        if changed := first_difference(self.settings, parse_toml(_SETTINGS, toml_text(settings))):
            raise RunStateError(
                f"{self.path.name} was begun with {changed}; give the settings of then to "
                "resume it, or choose another name for a new run."
            )
        if changed := first_difference(self.facts, Settings(facts)):
            raise RunStateError(
                f"{self.path.name} was begun with another {changed.name}; give the data and seed "
                "of then to resume it, or choose another name for a new run."
            )
        if changed := first_difference(self.plan.to_dict(), plan.to_dict()):
            raise RunStateError(
                f"{self.path.name} was planned with {changed}; resume it with the tulle that "
                "planned it, or choose another name for a new run."
            )

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps every other process from running this run, until the end of the block.

        Raises:
          RunStateError: Another process holds it, it is a copy, or one was killed while it wrote
            an array.
        """
        with _locked(self.path):
            self._refuse_copy()
            # Before the staged files are cleared, one of which may be a draw that is paid.
            with reporting_disk_errors(self.path):
                self._adopt_arrays()
            clear_staged(self.path)
            clear_staged(self.path / _CHECKPOINTS)
            yield

    @property
    def records(self) -> Records:
        """What happened, in `records.jsonl`."""
        return Records(self.path / _RECORDS)

    def checkpoints(self, *, keep: int = 2) -> Checkpoints:
        """The weights so far, in `checkpoints/`."""
        return Checkpoints(self.path / _CHECKPOINTS, run_id=self.run_id, keep=keep)

    def path_of(self, name: str) -> Path:
        """Path of an artifact of this name, there or not: card.json, report.html."""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _FIXED:
            raise ConfigError(
                f"name={name!r} must be a plain file name of letters, digits, '_', '-' and '.', "
                f"and none of {', '.join(_FIXED)}."
            )
        return self.path / name

    def write_json(self, name: str, data: object) -> None:
        """Replaces an artifact by plain data in one step, safely on disk."""
        path = self.path_of(name)
        try:
            text = _json_text(data)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{name} cannot be written as JSON: {error}.") from None
        write_text(path, text)

    def read_json(self, name: str) -> Any:
        """Reads what `write_json` wrote."""
        path = self.path_of(name)
        try:
            return parse_json(name, _read_bytes(path).decode())
        except (ConfigError, UnicodeDecodeError) as error:
            raise _changed(path) from error

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """Writes an array, safely on disk, once and for all, as `NAME.safetensors`.

        What was drawn at random must not be drawn again, so it is never replaced. If the process
        is killed once it is whole under its hidden name, `hold` puts it in place.

        Privacy:
          Writes what it is given; randomize labels before they come here.
        """
        path = self._array_path(name)
        if path.exists():
            raise RunStateError(
                f"{self.path.name}/{path.name} is there and is never replaced; read it with "
                "read_array(), or begin a run of another name."
            )
        # A disk that fills up half way would leave a part that may not be drawn a second time.
        check_room(self.path, array.nbytes + _MORE_BYTES)
        write_tensors(path, {"array": array}, {"name": name, "run_id": self.run_id})

    def read_array(self, name: str) -> NDArray[Any]:
        """Reads what `write_array` wrote in this run.

        Raises:
          RunStateError: The file is missing, cut, changed, or of another run.
        """
        path = self._array_path(name)
        stored = read_tensors(path)
        if stored.head != {"name": name, "run_id": self.run_id} or [*stored.tensors] != ["array"]:
            raise RunStateError(
                f"{self.path.name}/{path.name} is of another run or another name; {_ANOTHER_RUN}."
            )
        return stored.tensors["array"]

    def has_array(self, name: str) -> bool:
        """Whether `write_array` put it in place."""
        return self._array_path(name).exists()

    def _refuse_copy(self) -> None:
        # Original and copy would both go on, and take the same steps twice for one price.
        if self.path.stat().st_ino != _read_run(self.path / _RUN)["inode"]:
            raise RunStateError(
                f"{self.path.name} is a copy, or came from another disk: the run may go on in its "
                "original folder only. Resume that one, or begin a run of another name."
            )

    def _adopt_arrays(self) -> None:
        """Puts arrays in place that were whole when their process was killed."""
        for staged in self.path.glob(".*.safetensors.*.tmp"):
            name = staged.name[1:].partition(".safetensors.")[0]
            # An empty file shows nothing of the draw, so it may be made again.
            if staged.stat().st_size == 0 or self.has_array(name):
                continue
            try:
                is_whole = read_tensors(staged).head == {"name": name, "run_id": self.run_id}
            except DamagedFileError:
                is_whole = False
            if not is_whole:
                # A part of it may have been seen, so it must not be drawn again.
                raise RunStateError(
                    f"{self.path.name}/{name}.safetensors was cut off while it was written, and "
                    f"nothing is drawn twice for one price; {_ANOTHER_RUN}."
                )
            os.replace(staged, self._array_path(name))
            sync_folder(self.path)

    def _array_path(self, name: str) -> Path:
        return self.path_of(f"{name}.safetensors")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One entry with both its values."""

    name: str
    """Place of the entry: `model.layers[2]`."""
    then: object
    now: object

    def __str__(self) -> str:
        return f"{self.name}={_shown(self.then)}, not {_shown(self.now)}"


def first_difference(then: object, now: object, name: str = "") -> Difference | None:
    """The first entry that differs; None if all are equal.

    A whole number equals the same number with a point. True and False equal no number.

    Args:
      then: Plain data: tables, lists and single values.
      now: What it is compared with.
      name: Where both are found.
    """
    pairs: list[tuple[str, object, object]]
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        keys = {**then, **now}
        pairs = [(f".{key}", then.get(key, _NOT_SET), now.get(key, _NOT_SET)) for key in keys]
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = [(f"[{i}]", *both) for i, both in enumerate(zip(then, now, strict=True))]
    elif isinstance(then, bool) is isinstance(now, bool) and then == now:
        return None
    else:
        return Difference(name=name, then=then, now=now)
    for part, old, new in pairs:
        if found := first_difference(old, new, f"{name}{part}".removeprefix(".")):
            return found
    return None


def _make_folder(folder: Path) -> None:
    """Makes the folder, or takes an empty one, or one whose making was cut off."""
    if folder.exists() and not folder.is_dir():
        raise RunStateError(f"{folder.name} is a file; choose another name for the run.")
    folder.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in folder.iterdir()}
    if names and _LOCK not in names:
        raise _used(folder)


def _refuse_used(folder: Path) -> None:
    # Without run.json nothing was run, so what a killed process left is made anew.
    half_made = (_LOCK, _SETTINGS, _PLAN)
    for path in folder.iterdir():
        if path.name not in half_made and not re.fullmatch(r"\..*\.tmp", path.name):
            raise _used(folder)


def _used(folder: Path) -> RunStateError:
    return RunStateError(
        f"{folder.name} exists and is not empty; go on with the run in it with resume=True, or "
        "choose another output."
    )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with contextlib.ExitStack() as closing:
        with reporting_disk_errors(folder / _LOCK):
            lock = closing.enter_context((folder / _LOCK).open("ab"))
            try:
                # Freed by the system when the process ends, however it ends.
                fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunStateError(
                    f"{folder.name} is in use by another process; wait for it, or choose "
                    "another name."
                ) from None
        yield


def _read_run(path: Path) -> dict[str, Any]:
    try:
        stored = parse_json(_RUN, _read_bytes(path).decode())
        if isinstance(stored, dict) and stored.get("format", _FORMAT) != _FORMAT:
            raise RunStateError(
                f"{short_name(path)} has format={stored['format']!r}, not {_FORMAT!r}; use "
                "the tulle that wrote it, or begin a run of another name."
            )
        run = check_fields(_RUN, stored, _RUN_KEYS)
        Settings(run["facts"])
    except (ConfigError, UnicodeDecodeError) as error:
        raise _changed(path) from error
    if not isinstance(run["run_id"], str) or not _RUN_ID.fullmatch(run["run_id"]):
        raise _changed(path)
    return run


def _read_bytes(path: Path) -> bytes:
    with reporting_disk_errors(path):
        return path.read_bytes()


def _changed(path: Path) -> RunStateError:
    return RunStateError(f"{short_name(path)} is not as it was written; {_ANOTHER_RUN}.")


def _json_text(data: object) -> str:
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class _NotSet:
    def __repr__(self) -> str:
        return "(not set)"


_NOT_SET = _NotSet()


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
