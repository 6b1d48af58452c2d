"""What a label mechanism must be everywhere, and the files that a new one touches."""

import dataclasses
import json
import typing
from pathlib import Path

import pytest

from tulle.audit.verbs import RANDOMIZERS
from tulle.cli.labels_options import LabelOptions, LabelPlanOptions
from tulle.labels.label_mechanism import LabelKind
from tulle.labels.label_noise import RowNoise
from tulle.labels.mechanisms.catalogue import (
    LABEL_MECHANISMS,
    mechanism_class,
    mechanism_from,
    settings_of_word,
)
from tulle.labels.mechanisms.unit_noise import UnitNoise
from tulle.labels.unit_rows import group_rows
from tulle.privacy.codec import plain_data
from tulle.privacy.events import Event
from tulle.privacy.units import Unit
from tulle.report.label_variances import variance_section
from tulle.report.labels_report import channel_facts, channel_figures

FILES = """To add a mechanism for labels:
1. src/tulle/labels/mechanisms/NAME.py: its mechanism (RowMechanism of labels/label_mechanism.py, or
   UnitResponse of unit_response.py) with `describe` and `channel_facts`, and its settings class
   with `kind`, `example` and `noise` (LabelSettings of labels/label_noise.py).
2. src/tulle/labels/mechanisms/catalogue.py: a line in the list of settings.
3. src/tulle/labels/__init__.py: the settings class among the public names
   (tests/golden/public_names.txt follows).
4. src/tulle/cli/labels_options.py: the word in the help of --mechanism, and an option for each
   setting that no other mechanism has (tests/golden/help.txt follows).
5. docs/label-mechanisms.md and a page below docs/theory, which tests/test_theory_pages.py asks for.
Plans, releases, plain data, pages and audits ask the mechanism itself."""

_SOURCE = Path(__file__).parents[2] / "src" / "tulle"
_ROWS = group_rows(Unit.user(), owner_ids=[1, 1, 2])

each_word = pytest.mark.parametrize("word", LABEL_MECHANISMS)


@each_word
def test_a_mechanism_states_its_event_before_a_label_is_read(word: str) -> None:
    noise = LABEL_MECHANISMS[word].example().noise(1.0)
    assert isinstance(noise, UnitNoise if noise.is_for_units else RowNoise), FILES
    assert (noise.name, noise.epsilon) == (word, 1.0), FILES
    assert isinstance(noise.event(_ROWS), Event), FILES


@each_word
def test_settings_have_a_form_in_plain_data(word: str) -> None:
    example = LABEL_MECHANISMS[word].example()
    assert mechanism_from(json.loads(json.dumps(plain_data(example)))) == example, FILES


@each_word
def test_every_setting_is_an_option_of_the_same_name(word: str) -> None:
    options = {field.name for field in dataclasses.fields(LabelOptions)}
    assert set(settings_of_word(word)) <= options, FILES


@each_word
def test_the_help_names_the_word(word: str) -> None:
    hints = typing.get_type_hints(LabelPlanOptions, include_extras=True)
    (option,) = hints["mechanism"].__metadata__
    assert word.removesuffix("-clipped") in option.help, FILES


@each_word
def test_the_settings_are_a_public_name(word: str) -> None:
    import tulle

    assert LABEL_MECHANISMS[word].__name__ in tulle.labels.__all__, FILES


@each_word
def test_a_record_leads_back_to_the_mechanism_and_its_pictures(word: str) -> None:
    noise = LABEL_MECHANISMS[word].example().noise(2.0)
    mechanism = typing.cast(RowNoise | UnitNoise, noise).mechanism
    described = json.loads(json.dumps(mechanism.describe()))
    known = mechanism_class(described)
    assert known is type(mechanism), FILES
    assert known.label_kind in LabelKind, FILES
    assert channel_figures(channel_facts(described)), FILES
    assert variance_section(described).blocks, FILES


@each_word
def test_every_mechanism_is_audited(word: str) -> None:
    assert f"{word}-labels" in {randomizer.name for randomizer in RANDOMIZERS}, FILES


def test_there_is_one_table_of_words() -> None:
    words = [f'"{word}"' for word in LABEL_MECHANISMS if "-" in word]
    naming = {
        path.relative_to(_SOURCE).as_posix()
        for path in _SOURCE.rglob("*.py")
        if sum(word in path.read_text() for word in words) > 3
    }
    assert naming == set(), FILES
