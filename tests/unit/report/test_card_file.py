import os
import pathlib

import pytest

from golden.card.fixed_card import make_card, make_plan
from tulle.errors import DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.report.card import build_card
from tulle.report.card_file import read_card, write_card

CARD = make_card()
OTHER = build_card(make_plan(), randomness=SeededNoise(1), provenance=CARD.provenance)


class Crash(BaseException):
    """The process dies here."""


def names_in(folder: pathlib.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_written_card_is_read_back(tmp_path: pathlib.Path) -> None:
    write_card(tmp_path, CARD)
    assert names_in(tmp_path) == {"card.json", "card.md"}
    assert read_card(tmp_path / "card.json") == CARD


def test_a_card_is_replaced_as_a_whole(tmp_path: pathlib.Path) -> None:
    write_card(tmp_path, CARD)
    write_card(tmp_path, OTHER)
    assert read_card(tmp_path / "card.json") == OTHER
    assert (tmp_path / "card.md").read_text().startswith("# NOT A PRIVATE RELEASE\n")
    assert names_in(tmp_path) == {"card.json", "card.md"}


def test_a_crash_before_the_rename_leaves_the_old_card(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_card(tmp_path, CARD)

    def crash(*_: pathlib.Path) -> None:
        raise Crash

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(Crash):
        write_card(tmp_path, OTHER)
    assert read_card(tmp_path / "card.json") == CARD
    assert names_in(tmp_path) == {"card.json"}


def test_a_crash_between_both_files_never_leaves_an_old_page_beside_a_new_card(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_card(tmp_path, CARD)
    rename = os.replace

    def crash_at_markdown(source: pathlib.Path, target: pathlib.Path) -> None:
        if target.name == "card.md":
            raise Crash
        rename(source, target)

    monkeypatch.setattr(os, "replace", crash_at_markdown)
    with pytest.raises(Crash):
        write_card(tmp_path, OTHER)
    assert read_card(tmp_path / "card.json") == OTHER
    assert names_in(tmp_path) == {"card.json"}


def test_a_crash_while_writing_leaves_the_old_card(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_card(tmp_path, CARD)

    def crash(_: int) -> None:
        raise Crash

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(Crash):
        write_card(tmp_path, OTHER)
    assert read_card(tmp_path / "card.json") == CARD
    assert names_in(tmp_path) == {"card.json", "card.md"}


def test_every_file_is_on_disk_before_it_gets_its_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, rename = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        steps.append("sync")
        sync(descriptor)

    def note_rename(source: pathlib.Path, target: pathlib.Path) -> None:
        steps.append(target.name)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_rename)
    write_card(tmp_path, CARD)
    assert steps == ["sync", "sync", "card.json", "card.md", "sync"]


@pytest.mark.parametrize("text", ["", "{}", '{"verdict": NaN}', "[1]", '{"a": 1, "a": 2}'])
def test_a_file_that_is_no_card_is_refused(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(DataError, match=r"card\.json cannot be read"):
        read_card(tmp_path / "card.json")


def test_half_a_card_is_refused(tmp_path: pathlib.Path) -> None:
    write_card(tmp_path, CARD)
    path = tmp_path / "card.json"
    path.write_text(path.read_text()[:500])
    with pytest.raises(DataError, match="not JSON"):
        read_card(path)


def test_bytes_that_are_no_text_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "card.json").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot be read"):
        read_card(tmp_path / "card.json")


def test_a_missing_card_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DataError, match=r"card\.json does not exist"):
        read_card(tmp_path / "card.json")
