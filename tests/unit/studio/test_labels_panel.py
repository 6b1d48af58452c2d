import pathlib
from typing import Any

import pytest

from tulle.studio.labels_panel import LABELS, answer_labels
from tulle.studio.panel import defaults
from unit.studio.command_answers import run_command, said_by

GIVEN = defaults(LABELS.fields)


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "0 or 1", "epsilon": 1.5},
        {"kind": "classes", "num_classes": 7},
        {"kind": "numbers", "label_high": 12},
    ],
    ids=lambda given: given["kind"],
)
def test_noise_of_a_label_is_what_the_commands_say(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: dict[str, Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = answer_labels(GIVEN | given)
    assert run_command(answer.commands[0]) == 0
    said = said_by(answer.commands[1], capsys)
    found = [(one.name, one.variance) for one in answer.mechanisms]
    assert [name for name, _ in found] == [row["mechanism"] for row in said["options"]]
    assert [v for _, v in found] == pytest.approx([row["variance"] for row in said["options"]])


def test_the_chance_of_a_flip_is_that_of_the_accountant(capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_labels(GIVEN | {"kind": "classes", "num_classes": 4, "epsilon": 1.0})
    said = said_by("tulle account rr --epsilon 1 --num-values 4", capsys)
    assert answer.truth_prob == pytest.approx(said["truth_prob"], rel=1e-9)
    assert answer.flip_prob == pytest.approx(1 - said["truth_prob"], rel=1e-9)


def test_a_number_has_no_chance_of_a_flip() -> None:
    answer = answer_labels(GIVEN | {"kind": "numbers", "label_high": 5})
    assert answer.truth_prob is None
    assert len(answer.mechanisms) > 1
