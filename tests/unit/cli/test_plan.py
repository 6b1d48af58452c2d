from pathlib import Path

import numpy as np
import pytest

from tulle.data.prepared.dataset import PreparedDataset
from tulle.runs.folder import RunFolder
from tulle.train.fitting import make_plan
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.hybrid import HybridConfig
from tulle.train.methods.label_projection.method import LabelProjectionConfig
from tulle.train.methods.private_steps import StepsMethod
from tulle.train.settings.phases import PrivatePhase
from tulle.train.settings.step_noise import BandedNoise
from tulle.train.settings.units import ExampleLevel, UserLevel
from unit.cli.train_commands import SYNTH, error_of, facts_of, run, write_prepared

pytestmark = pytest.mark.usefixtures("folder")


def test_few_rows_get_a_smaller_batch(capsys: pytest.CaptureFixture[str]) -> None:
    settings = facts_of(
        f"plan {SYNTH} --method hybrid --model lr --epsilon 1 --test-fraction 0", capsys
    )["settings"]
    assert (settings["num_rows"], settings["max_batch_size"]) == (600, 150)
    settings = facts_of(
        f"plan {SYNTH} --method dp-sgd --epsilon 1 --test-fraction 0 --batch-size 300", capsys
    )["settings"]
    assert settings["max_batch_size"] == 300


@pytest.mark.parametrize(
    ("options", "config"),
    [
        ("--method dp-sgd --unit example", DpSgdConfig(unit=ExampleLevel())),
        ("--method hybrid --unit example", HybridConfig(unit=ExampleLevel())),
        ("--method label-projection --unit example", LabelProjectionConfig(unit=ExampleLevel())),
        ("--method dp-sgd --unit user", DpSgdConfig(unit=UserLevel())),
        (
            "--method dp-sgd --noise banded --bands 3 --unit example",
            DpSgdConfig(
                private_phase=PrivatePhase(noise=BandedNoise(num_bands=3)), unit=ExampleLevel()
            ),
        ),
    ],
)
def test_the_command_makes_the_plan_that_python_makes(
    options: str, config: StepsMethod, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prepared(folder / "prepared")
    command = f"plan --data prepared --test-fraction 0 --epsilon 2 --quiet {options}"
    calibrated = config.calibrate(epsilon=2.0, delta=1e-7)
    plan = make_plan(PreparedDataset.open(folder / "prepared"), calibrated)
    assert facts_of(command, capsys) == plan.privacy.to_dict()


@pytest.mark.parametrize("method", ["mosaic", "rr"])
def test_who_names_users_gets_their_guarantee_unless_rows_are_asked_for(
    method: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prepared(folder / "prepared")
    command = f"plan --data prepared --method {method} --epsilon 2 --quiet"
    assert facts_of(command, capsys)["guarantee"]["unit"] == "user"
    assert facts_of(f"{command} --unit user", capsys)["guarantee"]["unit"] == "user"
    assert facts_of(f"{command} --unit example", capsys)["guarantee"]["unit"] == "example"


def test_the_rows_of_a_user_in_a_window_are_a_unit_of_their_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prepared(folder / "prepared")
    command = "plan --data prepared --epsilon 2 --quiet --unit"
    assert "window 'fortnight' is unknown" in error_of(f"{command} 'user per fortnight'", 2, capsys)
    assert "use 'example'" in error_of(f"{command} 'example per day'", 2, capsys)
    log = "plan synth:attribution --rows 3000 --epsilon 2 --quiet --unit"
    whole, days = (facts_of(f"{log} '{unit}'", capsys) for unit in ("user", "user per 7 days"))
    assert days["guarantee"]["unit"] == "user per 7 days"
    assert days["settings"]["noise_multiplier"] == whole["settings"]["noise_multiplier"]


def test_a_settings_file_may_say_who_is_protected(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prepared(folder / "prepared")
    (folder / "run.toml").write_text('[unit]\nkind = "example"\n[target]\nepsilon = 2.0\n')
    facts = facts_of("plan --data prepared --config run.toml --quiet", capsys)
    assert facts["guarantee"]["unit"] == "example"


def test_plan_prints_what_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"plan {SYNTH} --method hybrid --model lr --epsilon 1 --seed 0") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith(
        "epsilon=1, delta=1e-07 (example, replace, labels and sensitive columns)"
    )
    assert "sensitive columns)" in lines[2]
    names = {line[:22].strip() for line in lines}
    wanted = {"sampler", "clip norm", "noise multiplier", "steps", "max batch size", "seed"}
    assert wanted <= names


def test_plan_reads_no_label_and_no_feature(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prepared(folder / "wrong", label_of_last_row=2.0)
    path = folder / "wrong" / "sensitive_features.i32"
    path.write_bytes(np.full(path.stat().st_size // 4, -7, np.int32).tobytes())
    command = "--data wrong --method hybrid --unit example --epsilon 1 --quiet"
    assert facts_of(f"plan {command}", capsys)["guarantee"]["epsilon"] == 1
    assert "a label is not 0 or 1" in error_of(f"train {command}", 4, capsys)
    assert not (folder / "runs").exists()


def test_a_finished_plan_is_run_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = facts_of(
        f"plan {SYNTH} --method hybrid --model lr --epsilon 1 --output plan.json", capsys
    )
    facts = facts_of(f"train {SYNTH} --plan plan.json", capsys)
    assert RunFolder.open(facts["run"]).plan.to_dict() == planned
    more = f"train {SYNTH} --plan plan.json --epochs 2"
    assert "--epochs is given too" in error_of(more, 2, capsys)
    other = f"train {SYNTH} --plan plan.json".replace("600", "700")
    assert "was made for other data" in error_of(other, 2, capsys)
    exists = f"plan {SYNTH} --method hybrid --model lr --epsilon 1 --output plan.json"
    assert "'plan.json' exists" in error_of(exists, 2, capsys)
    text = (folder / "plan.json").read_text()
    (folder / "plan.json").write_text(
        text.replace('"epsilon":1.0,"epsilon_milestones"', '"epsilon":0.5,"epsilon_milestones"')
    )
    assert run(f"train {SYNTH} --plan plan.json") == 2


def test_a_finished_plan_of_hybrid_is_not_one_of_mosaic(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"plan {SYNTH} --method hybrid --model lr --epsilon 1 --output plan.json") == 0
    text = (folder / "plan.json").read_text()
    (folder / "plan.json").write_text(text.replace('"hybrid', '"mosaic'))
    error = error_of(f"train {SYNTH} --plan plan.json", 2, capsys)
    assert "which is of hybrid" in error


def test_a_baseline_has_a_plan_that_promises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    planned = facts_of(f"plan {SYNTH} --method nonprivate", capsys)
    assert planned["guarantee"]["epsilon"] is None
    assert planned["event"]["kind"] == "NonPrivate"
