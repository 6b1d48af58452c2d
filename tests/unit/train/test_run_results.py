import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest

from tulle.train.fitting import fit
from tulle.train.run_context import Progress, RunOptions
from unit.train.small_data import dp_sgd, make_examples, randomized_labels


def test_a_run_that_was_killed_while_it_exported_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_arguments: object) -> None:
        raise KeyboardInterrupt

    examples, options = make_examples(80), RunOptions(folder=tmp_path / "run")
    with monkeypatch.context() as killing:
        killing.setattr(os, "rename", kill)
        killing.setattr(shutil, "rmtree", lambda *_arguments, **_named: None)
        with pytest.raises(KeyboardInterrupt):
            fit(examples, randomized_labels(), options=options)
    assert len([*tmp_path.glob("run/.model.*")]) == 1
    fit(examples, randomized_labels(), options=dataclasses.replace(options, resume=True))
    assert [*tmp_path.glob("run/.model.*")] == []
    assert (tmp_path / "run" / "model" / "model.json").exists()


def test_a_damaged_model_is_exported_again(tmp_path: Path) -> None:
    examples, options = make_examples(80), RunOptions(folder=tmp_path / "run")
    fit(examples, randomized_labels(), options=options)
    weights = tmp_path / "run" / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-8])
    fit(examples, randomized_labels(), options=dataclasses.replace(options, resume=True))
    assert weights.read_bytes() == whole


def test_steps_that_were_lost_are_told(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.phase == "private" and progress.step == 4:
            raise KeyboardInterrupt

    examples = make_examples(200)
    options = RunOptions(folder=tmp_path / "run", checkpoint_every=3)
    with pytest.raises(KeyboardInterrupt):
        fit(examples, dp_sgd(), options=dataclasses.replace(options, watch=interrupt))
    result = fit(examples, dp_sgd(), options=dataclasses.replace(options, resume=True))
    # The second block, steps 3 to 5, was begun and is not repeated; it may be cut by the end.
    expected = min(3, result.plan.num_private_steps - 3)
    assert result.num_steps_lost == expected > 0
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert stored["steps_lost"] == expected
