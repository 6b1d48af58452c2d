import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from golden.card.fixed_card import make_plan
from tulle.errors import ConfigError, RunStateError
from tulle.runs.folder import RunFolder, first_difference

SETTINGS: dict[str, Any] = {"method": "hybrid", "model": {"layers": [64, 32]}, "delta": 1e-7}
FACTS = {"data_fingerprint": "f" * 64, "num_rows": 1000, "seed": None}


def create(path: pathlib.Path) -> RunFolder:
    return RunFolder.create(path, settings=SETTINGS, plan=make_plan(), facts=FACTS)


@pytest.fixture
def run(tmp_path: pathlib.Path) -> RunFolder:
    return create(tmp_path / "first")


def test_a_run_is_found_again_as_it_was_made(run: RunFolder) -> None:
    again = RunFolder.open(run.path)
    assert again.run_id == run.run_id
    assert len(run.run_id) == 32
    assert again.settings == SETTINGS
    assert again.plan == make_plan()
    assert dict(again.facts) == FACTS
    again.check_same(settings=SETTINGS, plan=make_plan(), facts=FACTS)


def test_two_runs_have_different_ids(tmp_path: pathlib.Path) -> None:
    assert create(tmp_path / "a").run_id != create(tmp_path / "b").run_id


def test_an_empty_folder_and_missing_parents_are_fine(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        made = create(path)
        assert RunFolder.open(path).run_id == made.run_id


@pytest.mark.parametrize("name", ["notes.txt", "settings.toml", "run.json", ".hidden"])
def test_a_folder_with_something_in_it_is_refused_and_left_alone(
    tmp_path: pathlib.Path, name: str
) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(RunStateError, match=r"not empty; .*resume=True, or choose another output"):
        create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_run_is_never_made_over_another(run: RunFolder) -> None:
    with pytest.raises(RunStateError, match="resume=True"):
        create(run.path)
    (run.path / "run.json").unlink()
    run.records.append({"step": 1})
    with pytest.raises(RunStateError, match="resume=True"):
        create(run.path)


def test_a_file_in_its_place_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunStateError, match="file is a file"):
        create(tmp_path / "file")


@pytest.mark.parametrize("num_writes", range(3))
def test_a_making_that_was_cut_off_is_no_run_and_is_made_anew(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, num_writes: int
) -> None:
    replace, calls = os.replace, iter(range(9))

    def dying(source: pathlib.Path, target: pathlib.Path) -> None:
        if next(calls) == num_writes:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dying)
        with pytest.raises(KeyboardInterrupt):
            create(tmp_path)
    (tmp_path / ".run.json.0123.tmp").write_text("half")
    with pytest.raises(RunStateError, match=r"is no run: it has no run\.json"):
        RunFolder.open(tmp_path)
    create(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["plan.json", "run.json", "run.lock", "settings.toml"]


def test_settings_that_toml_cannot_say_make_no_folder(tmp_path: pathlib.Path) -> None:
    for settings, facts in (({"clip": None}, FACTS), (SETTINGS, {"rows": [1]})):
        with pytest.raises(ConfigError):
            RunFolder.create(
                tmp_path / "run",
                settings=settings,
                plan=make_plan(),
                facts=facts,  # type: ignore[arg-type]
            )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["settings.toml", "plan.json", "run.json"])
@pytest.mark.parametrize("damage", ["gone", "cut", "other", "binary"])
def test_a_changed_folder_is_refused(run: RunFolder, name: str, damage: str) -> None:
    path = run.path / name
    text = path.read_text()
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_text(text[:-3])
    elif damage == "binary":
        path.write_bytes(b"\xff" + text.encode())
    else:
        other = make_plan(name="other").to_json()
        path.write_text({"settings.toml": text + "a = 1\n", "plan.json": other}.get(name, "{}"))
    with pytest.raises(RunStateError, match=name):
        RunFolder.open(run.path)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "tulle run 2"},
        {"run_id": "x"},
        {"run_id": 1},
        {"facts": [1]},
        {"facts": {"rows": [1]}},
        {"plan_fingerprint": "0" * 64},
        {"settings_sha256": "0" * 64},
        {"extra": 1},
    ],
)
def test_a_run_json_of_another_kind_is_refused(run: RunFolder, change: dict[str, object]) -> None:
    path = run.path / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunStateError):
        RunFolder.open(run.path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"settings": {**SETTINGS, "model": {"layers": [64, 16]}}},
            r"begun with model\.layers\[1\]=32, not 16",
        ),
        ({"settings": {**SETTINGS, "seed": 4}}, r"seed=\(not set\), not 4"),
        ({"facts": {**FACTS, "data_fingerprint": "e" * 64}}, "another data_fingerprint"),
        ({"facts": {**FACTS, "seed": 0}}, "another seed"),
        ({"facts": {"num_rows": 1000, "seed": None}}, "another data_fingerprint"),
        (
            {"plan": make_plan(settings={**make_plan().settings, "steps": 200})},
            r"planned with settings\.steps=100, not 200",
        ),
    ],
)
def test_going_on_with_something_else_is_refused_by_name(
    run: RunFolder, change: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"settings": SETTINGS, "plan": make_plan(), "facts": FACTS}
    with pytest.raises(RunStateError, match=message) as refusal:
        run.check_same(**given | change)
    assert "ffff" not in str(refusal.value)
    assert "eeee" not in str(refusal.value)


def test_a_run_is_held_by_one_process_only(run: RunFolder) -> None:
    hold = (
        "import sys\nfrom tulle.errors import RunStateError\n"
        "from tulle.runs.folder import RunFolder\n"
        "try:\n    with RunFolder.open(sys.argv[1]).hold(): print('held')\n"
        "except RunStateError as error: print(error)\n"
    )
    command = [sys.executable, "-c", hold, str(run.path)]
    with run.hold():
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert told.startswith("first is in use by another process")
        with pytest.raises(RunStateError, match="in use"), run.hold():
            pass
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "held\n"


def test_holding_clears_what_a_killed_process_left(run: RunFolder) -> None:
    run.checkpoints().save(1, "private", {"w": np.zeros(1)}, {})
    staged = [run.path / ".card.json.01.tmp", run.path / "checkpoints" / ".x.01.tmp"]
    for path in staged:
        path.touch()
    with run.hold():
        assert not any(path.exists() for path in staged)


def test_a_fault_while_held_lets_the_run_go(run: RunFolder) -> None:
    with pytest.raises(ValueError, match="any"), run.hold():
        raise ValueError("any")
    with run.hold():
        pass


def test_plain_data_comes_back(run: RunFolder) -> None:
    for data in ({"auc": 0.7, "labels": ["ü", None]}, [1]):
        run.write_json("result.json", data)
        assert run.read_json("result.json") == data
    run.path_of("result.json").write_text("{")
    with pytest.raises(RunStateError, match=r"result\.json is not as it was written"):
        run.read_json("result.json")
    with pytest.raises(RunStateError, match=r"none\.json cannot be used: No such file"):
        run.read_json("none.json")
    for bad in ({"auc": float("nan")}, {"auc": object()}):
        with pytest.raises(ConfigError, match=r"result\.json cannot be written as JSON"):
            run.write_json("result.json", bad)


@pytest.mark.parametrize(
    "name", ["", "..", ".x", "a/b", "/etc/x", "run.json", "plan.json", "records.jsonl", "a\n", None]
)
def test_an_artifact_has_a_plain_name_of_its_own(run: RunFolder, name: str) -> None:
    with pytest.raises(ConfigError, match="plain file name"):
        run.path_of(name)


def test_an_array_is_kept_once_it_is_drawn(run: RunFolder) -> None:
    labels = np.arange(5, dtype=np.int8)
    assert not run.has_array("labels")
    run.write_array("labels", labels)
    assert run.has_array("labels")
    with pytest.raises(RunStateError, match=r"labels\.safetensors is there and is never replaced"):
        run.write_array("labels", 1 - labels)
    back = RunFolder.open(run.path).read_array("labels")
    assert back.dtype == np.int8
    np.testing.assert_array_equal(back, labels)


def hide_array(run: RunFolder, name: str) -> pathlib.Path:
    """Takes an array back to where it was written and not yet in place."""
    hidden = run.path / f".{name}.safetensors.0123456789abcdef.tmp"
    (run.path / f"{name}.safetensors").rename(hidden)
    return hidden


def test_an_array_that_was_whole_when_its_process_was_killed_is_put_in_place(
    run: RunFolder,
) -> None:
    run.write_array("labels", np.arange(5))
    hidden = hide_array(run, "labels")
    with run.hold():
        np.testing.assert_array_equal(run.read_array("labels"), np.arange(5))
    assert not hidden.exists()


def test_an_array_that_was_cut_off_cannot_be_drawn_again(
    run: RunFolder, tmp_path: pathlib.Path
) -> None:
    second = create(tmp_path / "second")
    second.write_array("labels", np.arange(5))
    run.write_array("labels", np.arange(5))
    hidden = hide_array(run, "labels")
    whole = hidden.read_bytes()
    other = (second.path / "labels.safetensors").read_bytes()
    for content in (whole[:1], whole[:-1], b"x" + whole[1:], other):
        hidden.write_bytes(content)
        for _ in range(2):
            with pytest.raises(RunStateError, match="was cut off while it was written"):
                run.hold().__enter__()
    hidden.write_bytes(b"")
    with run.hold():
        assert not hidden.exists()
        assert not run.has_array("labels")


def test_a_full_disk_is_noticed_before_a_byte_of_an_array_is_written(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(RunStateError, match="No space left on device"):
            run.write_array("labels", np.arange(5))
    assert list(run.path.glob("*.safetensors*")) == []
    run.write_array("labels", np.arange(5))


def test_an_array_that_is_cut_or_of_another_run_is_refused(
    run: RunFolder, tmp_path: pathlib.Path
) -> None:
    run.write_array("labels", np.arange(5))
    path = run.path / "labels.safetensors"
    content = path.read_bytes()
    with pytest.raises(RunStateError, match="No such file"):
        run.read_array("other")
    (run.path / "other.safetensors").write_bytes(content)
    with pytest.raises(RunStateError, match="another run or another name"):
        run.read_array("other")
    second = create(tmp_path / "second")
    (second.path / path.name).write_bytes(content)
    with pytest.raises(RunStateError, match="another run or another name"):
        second.read_array("labels")
    path.write_bytes(content[:-1])
    with pytest.raises(RunStateError, match="not as it was written"):
        run.read_array("labels")


def test_records_and_checkpoints_belong_to_the_run(run: RunFolder, tmp_path: pathlib.Path) -> None:
    run.records.append({"step": 1})
    assert RunFolder.open(run.path).records.read() == [{"step": 1}]
    run.checkpoints(keep=1).save(1, "private", {"w": np.zeros(1)}, {})
    latest = RunFolder.open(run.path).checkpoints().latest()
    assert latest is not None
    second = create(tmp_path / "second")
    (second.path / "checkpoints").mkdir()
    (second.path / "checkpoints" / latest.path.name).write_bytes(latest.path.read_bytes())
    with pytest.raises(RunStateError, match="not as this run wrote it"):
        second.checkpoints().latest()


def test_a_copy_of_a_run_may_be_read_and_not_run(run: RunFolder, tmp_path: pathlib.Path) -> None:
    shutil.copytree(run.path, tmp_path / "copy")
    copy = RunFolder.open(tmp_path / "copy")
    assert copy.run_id == run.run_id
    with pytest.raises(RunStateError, match="is a copy"), copy.hold():
        pass
    run.path.rename(tmp_path / "moved")
    with RunFolder.open(tmp_path / "moved").hold():
        pass


THEN: dict[str, Any] = {"epsilon": 3, "model": {"layers": [64, 32], "bias": True}, "phases": [{}]}


def test_equal_settings_do_not_differ() -> None:
    same = {"epsilon": 3.0, "phases": [{}], "model": {"layers": [64, 32], "bias": True}}
    assert first_difference(THEN, same) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epsilon": 1}, "epsilon=3, not 1"),
        ({"model": {"layers": [64, 16], "bias": True}}, "model.layers[1]=32, not 16"),
        ({"model": {"layers": [64], "bias": True}}, "model.layers=[64, 32], not [64]"),
        ({"model": {"layers": [64, 32], "bias": 1}}, "model.bias=True, not 1"),
        ({"model": {"layers": [64, 32]}}, "model.bias=True, not (not set)"),
        ({"seed": 1}, "seed=(not set), not 1"),
        ({"phases": [{"steps": 1}]}, "phases[0].steps=(not set), not 1"),
        ({"epsilon": "x" * 99}, f"epsilon=3, not '{'x' * 59}..."),
    ],
)
def test_the_first_difference_is_told_with_both_values(change: dict[str, Any], told: str) -> None:
    assert str(first_difference(THEN, THEN | change)) == told
