import pathlib

import pytest

from tulle.studio.measure_panel import MEASURE, answer_measurement
from tulle.studio.panel import defaults
from unit.studio.command_answers import said_by

GIVEN = defaults(MEASURE.fields) | {"num_campaigns": 3, "num_geos": 4, "expected_count": 2.5}


@pytest.mark.parametrize("max_per_user", [1, 3])
@pytest.mark.parametrize("total_weight", [0.0, 20.0])
def test_errors_of_levels_are_those_of_the_command(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    total_weight: float,
    max_per_user: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = answer_measurement(
        GIVEN | {"total_weight": total_weight, "max_per_user": max_per_user, "tau": 7.0}
    )
    for name, text in answer.files.items():
        (tmp_path / name).write_text(text)
    said = said_by(answer.commands[0], capsys)
    assert [level.name for level in answer.levels] == [row["level"] for row in said["queries"]]
    for level, row in zip(answer.levels, said["queries"], strict=True):
        assert level.stddev == pytest.approx(row["noise_stddev"], rel=1e-9)
        assert level.error == pytest.approx(row["rmsre"], rel=1e-9)
        assert level.num_slices == len(row["slices"])


def test_adding_up_never_makes_a_level_worse_and_a_level_without_a_share_is_added_up() -> None:
    answer = answer_measurement(GIVEN | {"campaign_weight": 0.0})
    top, middle, leaves = answer.levels
    assert middle.measured_stddev is None
    assert middle.measured_error is None
    assert middle.stddev > 0
    for level in (top, leaves):
        assert level.measured_stddev is not None
        assert level.stddev < level.measured_stddev


def test_the_best_shares_are_at_least_as_good_as_those_set() -> None:
    answer = answer_measurement(GIVEN)
    assert sum(answer.best_shares) == pytest.approx(1)
    assert answer.best_error < answer.error
    weights = dict(
        zip(("total_weight", "campaign_weight", "geo_weight"), answer.best_shares, strict=True)
    )
    assert answer_measurement(GIVEN | weights).error == pytest.approx(answer.best_error)
