import asyncio
import threading

import pytest

from tulle.errors import ConfigError, RunInterruptedError
from tulle.studio.answering import Answers
from tulle.studio.panel import Given, NumberField, Panel
from waiting import HANG_S

FIELD = NumberField(name="number", label="number", default=1.0, least=0.0, most=9.0)
ONE = (("number", "1"),)


def test_a_slow_answer_holds_up_no_other() -> None:
    may_end = threading.Event()

    def slow(_given: Given) -> str:
        may_end.wait(HANG_S)
        return "late"

    answers = Answers([_panel("slow", slow), _panel("fast", lambda _given: "at once")])

    async def ask_both() -> list[str]:
        late = asyncio.ensure_future(answers.ask(_of(answers, "slow"), ONE))
        early = await answers.ask(_of(answers, "fast"), ONE)
        was_late = not late.done()
        may_end.set()
        return [early, await late] if was_late else []

    assert asyncio.run(ask_both()) == ["at once", "late"]


def test_an_answer_is_computed_once() -> None:
    asked: list[float] = []

    def note(given: Given) -> float:
        asked.append(given["number"])
        return float(given["number"])

    answers = Answers([_panel("note", note)])
    for text in ("1", "2", "1"):
        found = asyncio.run(answers.ask(_of(answers, "note"), (("number", text),)))
        assert found == float(text)
    assert asked == [1.0, 2.0]


def test_an_error_is_passed_on_and_not_kept() -> None:
    asked: list[Given] = []

    def refuse(given: Given) -> float:
        asked.append(given)
        raise ConfigError("number=1 is no good.") if len(asked) < 2 else OverflowError("too large")

    answers = Answers([_panel("refuse", refuse)])
    for message in ("number=1 is no good", "out of the range of numbers"):
        with pytest.raises(ConfigError, match=message):
            asyncio.run(answers.ask(_of(answers, "refuse"), ONE))
    assert len(asked) == 2


def test_stopping_lets_go_of_answers_under_way_and_begins_no_other() -> None:
    may_end = threading.Event()
    has_begun = threading.Event()

    def slow(_given: Given) -> bool:
        has_begun.set()
        return may_end.wait(HANG_S)

    answers = Answers([_panel("slow", slow)])

    async def stop_while_asking() -> None:
        waiting = asyncio.ensure_future(answers.ask(_of(answers, "slow"), ONE))
        while not has_begun.is_set():
            await asyncio.sleep(0.01)
        answers.stop()
        for asked in (waiting, answers.ask(_of(answers, "slow"), ONE)):
            with pytest.raises(RunInterruptedError, match="the studio was stopped"):
                await asked

    asyncio.run(stop_while_asking())
    assert not may_end.is_set()
    may_end.set()


def _panel(name: str, answer: object) -> Panel:
    return Panel(name=name, title=name, purpose="", fields=(FIELD,), answer=answer)  # type: ignore[arg-type]


def _of(answers: Answers, name: str) -> Panel:
    panel = answers.panel(name)
    assert panel is not None
    return panel
