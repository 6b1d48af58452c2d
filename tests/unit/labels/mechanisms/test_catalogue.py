"""Label mechanisms by their words: settings, refusals, and the split of epsilon."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
from tulle.labels.label_grid import prior_weights
from tulle.labels.label_noise import RowNoise
from tulle.labels.label_plan import ANY_MECHANISM, BestMechanism, chosen_mechanism
from tulle.labels.mechanisms.bin_response import BinRr
from tulle.labels.mechanisms.catalogue import (
    LABEL_MECHANISMS,
    mechanism_by_word,
    mechanism_from,
    noise_of,
)
from tulle.labels.mechanisms.label_prior import LearntPriorNoise, split_epsilon
from tulle.labels.mechanisms.prior_response import PriorRr
from tulle.labels.mechanisms.unbiased_response import UnbiasedRr
from tulle.labels.mechanisms.unit_noise import JointRr, UnitNoise, UnitRr
from tulle.labels.mechanisms.unit_response import JointResponse
from tulle.privacy.codec import json_schema, plain_data


@pytest.mark.parametrize("word", LABEL_MECHANISMS)
def test_every_word_is_noise_of_that_name_and_epsilon(word: str) -> None:
    noise = noise_of(LABEL_MECHANISMS[word].example(), 1.5)
    assert (noise.name, noise.epsilon) == (word, 1.5)


@pytest.mark.parametrize("word", LABEL_MECHANISMS)
def test_plain_data_are_the_settings_and_the_settings_plain_data(word: str) -> None:
    settings = LABEL_MECHANISMS[word].example()
    data = json.loads(json.dumps(plain_data(settings)))
    assert data["kind"] == word
    assert mechanism_from(data) == settings
    assert noise_of(data, 1.5).settings() == settings.noise(1.5).settings()


def test_the_json_schema_lists_every_mechanism_with_what_it_needs() -> None:
    found = json_schema(ANY_MECHANISM, title="mechanism")["anyOf"]
    kinds = {each["properties"]["kind"]["const"]: each for each in found}
    assert set(kinds) == {*LABEL_MECHANISMS, "best"}
    assert set(kinds["unbiased"]["required"]) == {"kind", "label_low", "label_high"}
    assert "atoms" in kinds["unbiased"]["properties"]


@pytest.mark.parametrize("word", ["prior-rr", "rr-on-bins", "unbiased"])
def test_a_learnt_prior_is_paid_out_of_the_same_epsilon(word: str) -> None:
    settings = plain_data(LABEL_MECHANISMS[word].example()) | {"prior_epsilon": 0.3}
    del settings["prior"]
    noise = noise_of(settings, 1.5)
    assert isinstance(noise, LearntPriorNoise)
    assert noise.prior.epsilon == 0.3
    assert noise.epsilon <= 1.5
    assert noise.epsilon == pytest.approx(1.5)


@given(st.floats(1e-3, 50), st.floats(1e-6, 0.999))
def test_the_parts_of_epsilon_never_exceed_the_whole(epsilon: float, share: float) -> None:
    prior_epsilon = epsilon * share
    label_epsilon = split_epsilon(epsilon, prior_epsilon)
    assert label_epsilon + prior_epsilon <= epsilon
    assert label_epsilon == pytest.approx(epsilon - prior_epsilon, abs=1e-9)


@pytest.mark.parametrize("prior_epsilon", [0.0, -1.0, 2.0, 3.0, math.nan, math.inf])
def test_a_prior_must_leave_something_for_the_labels(prior_epsilon: float) -> None:
    with pytest.raises(ConfigError, match="prior_epsilon="):
        split_epsilon(2.0, prior_epsilon)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, None, True])
def test_an_epsilon_that_no_release_has_is_refused(epsilon: float | None) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        noise_of("rr", epsilon)


def test_settings_of_another_mechanism_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="num_classes is for class-rr, prior-rr, not for rr"):
        mechanism_by_word("rr", {"num_classes": 3})
    with pytest.raises(ConfigError, match="'clip'"):
        mechanism_by_word("laplace", {"label_low": 0, "label_high": 3, "clip": True})
    with pytest.raises(ConfigError, match="did you mean 'unit-rr'"):
        mechanism_by_word("unit-r")
    with pytest.raises(ConfigError, match="row_share is for the mechanism unit-rr"):
        chosen_mechanism(None, {"row_share": "own"})
    assert chosen_mechanism(None, {"base_rate": 0.1}) == BestMechanism(base_rate=0.1)


def test_what_labels_are_must_be_declared() -> None:
    with pytest.raises(ConfigError, match="label_low and label_high"):
        mechanism_by_word("unbiased", {"label_low": 0})
    with pytest.raises(ConfigError, match="needs num_classes"):
        mechanism_by_word("prior-rr", {"prior_epsilon": 0.1})
    with pytest.raises(ConfigError, match="label_low, label_high and label_step"):
        UnbiasedRr(label_low=3, label_high=0)
    with pytest.raises(ConfigError, match="without it is class-rr"):
        PriorRr(num_classes=3)
    with pytest.raises(ConfigError, match="exclude each other"):
        BinRr(label_low=0, label_high=3, prior=(1, 1, 1, 1), prior_epsilon=0.1)
    with pytest.raises(ConfigError, match="the cap"):
        UnitRr(row_share="equal")


def test_weights_of_a_prior_may_be_a_list_or_an_array() -> None:
    lists: Any = [0.5, 0.25, 0.25]
    made = PriorRr(num_classes=3, prior=lists)
    assert made.prior == (0.5, 0.25, 0.25)
    arrays: Any = np.array(lists)
    assert PriorRr(num_classes=3, prior=arrays) == made


def test_words_stand_for_enums() -> None:
    noise = JointRr(row_choice="random", max_conversions_per_unit=2).noise(1.0)
    assert isinstance(noise, UnitNoise)
    with pytest.raises(ConfigError, match="row_choice='last' is unknown"):
        JointRr(row_choice="last")


def test_noise_keeps_the_epsilon_that_it_has() -> None:
    response = UnitNoise(mechanism=JointResponse(epsilon=2.0))
    assert noise_of(response, None).epsilon == 2.0
    with pytest.raises(ConfigError, match="is not that of the mechanism"):
        noise_of(response, 1.0)
    assert isinstance(noise_of(noise_of("rr", 1.0), 1.0), RowNoise)
    with pytest.raises(ConfigError, match="must be a word"):
        noise_of(object(), 1.0)  # type: ignore[arg-type]


def test_weights_come_from_a_list_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prior.json"
    path.write_text(json.dumps([3, 1]))
    for prior in (path, str(path), [3, 1], np.array([0.75, 0.25])):
        assert prior_weights(prior, 2).tolist() == [0.75, 0.25]
    assert prior_weights(None, 4).tolist() == [0.25] * 4
    for wrong in ([-1, 2], [True, 1], ["1", 2], [0, 0], 3):
        with pytest.raises(DataError, match="prior"):
            prior_weights(wrong, 2)  # type: ignore[arg-type]
    path.write_text("{}")
    with pytest.raises(DataError, match="prior"):
        prior_weights(path, 2)
