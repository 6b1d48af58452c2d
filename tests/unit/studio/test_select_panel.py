import pathlib

import pytest

from tulle.studio.panel import FieldError, defaults
from tulle.studio.select_panel import SELECT, answer_selection, auctions_text
from unit.studio.command_answers import said_by

GIVEN = defaults(SELECT.fields) | {"num_candidates": 6, "num_finalists": 3, "epsilon": 2.0}


def test_captured_gain_is_what_the_command_says(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = answer_selection(GIVEN)
    (name,) = answer.downloads
    (tmp_path / name).write_text(auctions_text(GIVEN))
    said = said_by(answer.commands[0], capsys)
    (best,) = said["recommended"]
    assert answer.recommended == best["mechanism"]
    assert answer.best == pytest.approx(best["captured_share"], rel=1e-9)
    options = said["options"]
    by_length = [o["captured_share"] for o in options if o["num_finalists"] is not None]
    by_gamma = [o["captured_share"] for o in options if o["gamma"] is not None]
    assert [y for _, y in answer.finalist_curve] == pytest.approx(by_length, rel=1e-9)
    assert [y for _, y in answer.gamma_curve] == pytest.approx(by_gamma, rel=1e-9)
    assert answer.by_finalists == answer.finalist_curve[2][1]
    assert said["baseline"]["welfare"] == pytest.approx(answer.baseline_welfare, rel=1e-9)


def test_a_cutoff_between_those_of_the_planner_is_answered_too() -> None:
    answer = answer_selection(GIVEN | {"gamma": 0.33})
    assert dict(answer.gamma_curve)[0.33] == answer.by_gamma
    assert len(answer.gamma_curve) == len(answer_selection(GIVEN).gamma_curve) + 1


def test_more_epsilon_captures_more() -> None:
    shares = [share for _, share in answer_selection(GIVEN).epsilon_curve if share is not None]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


def test_a_list_longer_than_the_auction_is_refused() -> None:
    with pytest.raises(FieldError, match="num_finalists=7 must be <= num_candidates=6"):
        answer_selection(GIVEN | {"num_finalists": 7})
