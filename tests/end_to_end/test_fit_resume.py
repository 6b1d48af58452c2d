"""A training run that is killed outright again and again ends as planned, and costs no more."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.prepared.dataset import PreparedDataset
from tulle.errors import RunStateError
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.folder import RunFolder
from tulle.train.fitting import fit
from tulle.train.methods.method import Method
from tulle.train.methods.mosaic import cell_training
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import RunOptions
from tulle.train.settings.phases import CosineDecay
from tulle.train.settings.units import ExampleLevel
from tulle.train.training_run import load_model
from unit.train.small_data import (
    dp_sgd,
    label_phase,
    make_examples,
    planned,
    private_phase,
    two_phase,
    write_dataset,
)
from waiting import wait_until

NUM_KILLS = 8
MOSAIC = MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=8.0, delta=1e-6)

TRAIN = """
import os, sys
from pathlib import Path
from tulle.accounting.ledger import Ledger
from tulle.data.prepared.dataset import PreparedDataset
from tulle.train.fitting import fit
from tulle.train.methods.train_plan import TrainPlan
from tulle.runs.charging import ReleaseCharge
from tulle.train.run_context import RunOptions
from tulle.train.settings.phases import CosineDecay

home = Path(sys.argv[1])
plan = TrainPlan.from_json((home / "plan.json").read_text())
taken = os.open(home / "steps.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
whole = CosineDecay.rate_factor

def noting(self, step, num_steps):
    if num_steps == plan.num_private_steps:
        os.write(taken, f"{step}\\n".encode())
    return whole(self, step, num_steps)

CosineDecay.rate_factor = noting
options = RunOptions(
    folder=home / "run",
    resume=(home / "run" / "run.json").exists(),
    charge=ReleaseCharge(ledger=Ledger.open(home / "ledger.db"), purpose="training"),
    checkpoint_every=25,
)
print("begun", flush=True)
dataset = PreparedDataset.open(home / "data")
fit(dataset, plan, test=PreparedDataset.open(home / "test"), options=options)
print("finished", flush=True)
"""


def start(home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TRAIN, str(home)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line == "begun\n", child.communicate()[1]
    return child


def wait_for_steps(taken: Path, num_steps: int, child: subprocess.Popen[str]) -> None:
    """Returns when this process has taken some steps, or has ended."""
    before = num_lines(taken)
    wait_until(lambda: child.poll() is not None or num_lines(taken) >= before + num_steps)


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.long("kills at random moments; every cut of the protocol is in tests/contract")
def test_a_run_that_is_killed_at_random_moments_ends_as_planned(tmp_path: Path) -> None:
    examples = make_examples(400)
    write_dataset(tmp_path / "data", examples)
    write_dataset(tmp_path / "test", make_examples(400, seed=1))
    config = two_phase(
        label_phase=label_phase(epochs=10.0),
        private_phase=private_phase(noise_multiplier=8.0, epochs=600.0),
    )
    plan = planned(config)
    (tmp_path / "plan.json").write_text(plan.to_json())
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.create_budget(
        Budget(
            name="training",
            unit=Unit.example(),
            adjacency=Adjacency.REPLACE,
            epsilon=plan.privacy.guarantee.epsilon * 1.5,
            delta=1e-4,
        )
    )
    chance = random.Random(4)  # noqa: S311
    num_killed, labels = 0, set()
    for number in range(NUM_KILLS):
        child = start(tmp_path)
        if number < 2:  # These may die before the run is paid for.
            time.sleep(chance.uniform(0.0, 0.5))
        else:
            num_steps = chance.randint(1, plan.num_private_steps // 20)
            wait_for_steps(tmp_path / "steps.txt", num_steps, child)
        child.send_signal(signal.SIGKILL)
        _, errors = child.communicate()
        assert child.returncode in (-signal.SIGKILL, 0), errors
        num_killed += child.returncode == -signal.SIGKILL
        if (tmp_path / "run" / "run.json").exists():
            folder = RunFolder.open(tmp_path / "run")
            if folder.has_array("randomized_labels"):
                labels.add(folder.read_array("randomized_labels").tobytes())
    child = start(tmp_path)
    output, errors = child.communicate()
    assert (child.returncode, output) == (0, "finished\n"), errors

    assert num_killed >= 3
    folder = RunFolder.open(tmp_path / "run")
    labels.add(folder.read_array("randomized_labels").tobytes())
    assert len(labels) == 1
    assert len(ledger.spends("training")) == 1
    begun = [record for record in folder.records.read() if record["kind"] == "block begun"]
    charged = [step for record in begun for step in range(record["start"], record["end"])]  # type: ignore[arg-type]
    assert charged == list(range(plan.num_private_steps))
    taken = Counter(map(int, (tmp_path / "steps.txt").read_text().split()))
    assert set(taken.values()) == {1}
    assert set(taken) <= set(charged)
    assert len(taken) >= plan.num_private_steps - 25 * num_killed
    assert folder.path_of("result.json").exists()
    weights = load_model(folder.path_of("model")).model.parameters
    assert all(np.isfinite(values.numpy()).all() for values in weights.values())


DIE_WHILE_EXPORTING = """
import os, sys
from pathlib import Path
from tulle.train import trained_model as model_folder
from tulle.train.fitting import fit
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import RunOptions
from tulle.data.prepared.dataset import PreparedDataset

home = Path(sys.argv[1])
plan = TrainPlan.from_json((home / "plan.json").read_text())
dataset = PreparedDataset.open(home / "data")
places = {
    "folder": (model_folder.Path, "mkdir"),
    "room": (model_folder, "check_room"),
    "loader": (model_folder.shutil, "copyfile"),
    "tensors": (model_folder, "save_file"),
    "digest": (model_folder, "hash_file"),
    "description": (model_folder.Path, "write_text"),
    "place": (model_folder, "put_in_place"),
    "rename": (model_folder.os, "rename"),
}

def deadly(point):
    where, when = point.split()
    owner, name = places[where]
    original, exporting = getattr(owner, name), model_folder.write_model_folder
    is_armed = False

    def dying(*arguments, **named):
        if is_armed and when == "before":
            os._exit(9)
        result = original(*arguments, **named)
        if is_armed:
            os._exit(9)
        return result

    def armed(*arguments, **named):
        nonlocal is_armed
        is_armed = True
        exporting(*arguments, **named)

    setattr(owner, name, dying)
    for module in sys.modules.values():
        if getattr(module, "write_model_folder", None) is exporting:
            module.write_model_folder = armed

for point in sys.argv[2:]:
    if os.fork() == 0:
        deadly(point)
        fit(dataset, plan, options=RunOptions(folder=home / point))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 9, point
"""

NOTHING_WRITTEN = (
    *("folder before", "folder after", "room before", "room after"),
    *("loader before", "loader after", "tensors before"),
)
CUT_OFF = ("tensors after", "digest before", "digest after", "description before")
WHOLE = ("description after", "place before", "rename before", "rename after", "place after")


def killed_while_exporting(home: Path, config: Method, points: tuple[str, ...]) -> TrainPlan:
    """Leaves one run for each point, which was killed there."""
    write_dataset(home / "data", make_examples(400))
    plan = planned(config)
    (home / "plan.json").write_text(plan.to_json())
    killed = subprocess.run(
        [sys.executable, "-c", DIE_WHILE_EXPORTING, str(home), *points],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == 0, killed.stderr
    return plan


def model_files(folder: Path) -> list[dict[str, bytes]]:
    """What is on disk of models of a run, hidden or in place."""
    found = [*folder.glob(".model.*.partial"), *folder.glob("model")]
    return [{path.name: path.read_bytes() for path in model.iterdir()} for model in found]


def resumed(home: Path, point: str, plan: TrainPlan) -> None:
    options = RunOptions(folder=home / point, resume=True)
    fit(PreparedDataset.open(home / "data"), plan, options=options)


def refuse_to_draw(*_arguments: object, **_named: object) -> None:
    pytest.fail("a second model was made for one price")


def test_a_model_of_cells_that_was_whole_when_the_run_was_killed_is_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = killed_while_exporting(tmp_path, MOSAIC, WHOLE)
    monkeypatch.setattr(cell_training, "train_on_cells", refuse_to_draw)
    for point in WHOLE:
        (written,) = model_files(tmp_path / point)
        assert written.keys() == {"model.safetensors", "model.json", "load_model.py"}
        resumed(tmp_path, point, plan)
        assert model_files(tmp_path / point) == [written]
        assert (tmp_path / point / "result.json").exists()
        kinds = [record["kind"] for record in RunFolder.open(tmp_path / point).records.read()]
        assert kinds == ["started", "started", "model kept"]


def test_a_model_of_cells_that_was_cut_off_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of it may have been seen."""
    plan = killed_while_exporting(tmp_path, MOSAIC, CUT_OFF)
    monkeypatch.setattr(cell_training, "train_on_cells", refuse_to_draw)
    for point in CUT_OFF:
        for _ in range(2):
            with pytest.raises(RunStateError, match="was cut off while it was written"):
                resumed(tmp_path, point, plan)


def test_a_run_on_cells_that_was_killed_before_the_first_byte_begins_anew(tmp_path: Path) -> None:
    plan = killed_while_exporting(tmp_path, MOSAIC, NOTHING_WRITTEN)
    for point in NOTHING_WRITTEN:
        assert not any("model.safetensors" in files for files in model_files(tmp_path / point))
        resumed(tmp_path, point, plan)
        assert len(model_files(tmp_path / point)) == 1


@pytest.mark.long("kills real processes at fourteen points; cells are killed so in make test")
def test_steps_that_were_taken_give_the_same_model_wherever_its_export_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = (*(p for p in NOTHING_WRITTEN if "room" not in p), *CUT_OFF, *WHOLE)
    plan = killed_while_exporting(tmp_path, dp_sgd(), points)
    monkeypatch.setattr(CosineDecay, "rate_factor", refuse_to_draw)
    for point in points:
        written = model_files(tmp_path / point)
        resumed(tmp_path, point, plan)
        (model,) = model_files(tmp_path / point)
        for cut in written:
            assert {name: model[name] for name in cut} == cut
