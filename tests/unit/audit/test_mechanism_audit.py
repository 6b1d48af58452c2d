"""Every randomizer keeps its claim, and with half of its noise none does."""

import importlib
import inspect
import pkgutil
from types import ModuleType

import numpy as np
import pytest

import tulle.labels
import tulle.measure
import tulle.mechanisms
import tulle.select
from contract import test_randomizers
from tulle.audit.mechanism_audit import (
    LEAST_DRAWS,
    Randomizer,
    Trial,
    audit_randomizer,
    learnt_scores,
)
from tulle.audit.verbs import RANDOMIZERS, find_randomizer
from tulle.errors import ConfigError
from tulle.lab.audited_randomizers import LAB_RANDOMIZERS
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.privacy.events import RandomizedResponse
from tulle.privacy.units import Adjacency

NUM_DRAWS = 20_000
FALSE_ALARM = 1e-9

EVERY = (*RANDOMIZERS, *LAB_RANDOMIZERS)
each_randomizer = pytest.mark.parametrize("randomizer", EVERY, ids=lambda each: each.name)


@each_randomizer
def test_the_randomizer_keeps_its_claim(randomizer: Randomizer) -> None:
    audit = audit_randomizer(
        randomizer, num_draws=NUM_DRAWS, rng=SeededNoise(1), false_alarm_prob=FALSE_ALARM
    )
    assert audit.verdict == "holds"
    assert audit.profile.epsilon_lower_bound <= audit.profile.claimed_epsilon


@each_randomizer
def test_half_of_its_noise_is_caught(randomizer: Randomizer) -> None:
    audit = audit_randomizer(
        randomizer,
        num_draws=NUM_DRAWS,
        rng=SeededNoise(2),
        noise_factor=0.5,
        false_alarm_prob=FALSE_ALARM,
    )
    assert audit.verdict == "VIOLATED"


# Their sums are one of two that a row moves, and the second is lost among all rows.
LESS_SEEN = {"laplace-label-sums"}


@each_randomizer
def test_noise_that_is_a_fifth_too_small_is_caught_by_more_draws(randomizer: Randomizer) -> None:
    audit = audit_randomizer(
        randomizer,
        num_draws=2 * NUM_DRAWS,
        rng=SeededNoise(3),
        noise_factor=0.8,
        false_alarm_prob=FALSE_ALARM,
    )
    assert audit.profile.is_violated == (randomizer.name not in LESS_SEEN)


def test_every_randomizer_of_the_contract_is_audited() -> None:
    audited = {module for randomizer in RANDOMIZERS for module in randomizer.modules}
    listed = {name_below_tulle(module) for module in test_randomizers.CONFIG_CLASSES}
    assert listed <= audited


# Draws that others are made of: each is audited by what it is used in.
INGREDIENTS = {
    "mechanisms.entropy",
    "mechanisms.exact",
    "mechanisms.thresholds",
}


def test_every_module_of_mechanisms_that_draws_is_audited_or_an_ingredient() -> None:
    audited = {module for randomizer in RANDOMIZERS for module in randomizer.modules}
    drawing = {name_below_tulle(m) for m in modules_below(tulle.mechanisms) if draws(m)}
    assert drawing - INGREDIENTS <= audited
    assert not INGREDIENTS & audited


# What passes on the draws of others, chooses rows, or says what a mechanism can do.
NO_RANDOMIZERS = {
    "labels.label_mechanism",
    "labels.label_noise",
    "labels.mechanisms.unbiased_search",
    "labels.mechanisms.unit_noise",
    "labels.label_release",
    "measure.attribution.data_driven",
    "measure.queries.answers",
    "measure.queries.measuring",
    "measure.queries.slice_queries",
    "measure.queries.tree_query",
    "select.decisions.draws",
    "select.evaluation.estimate",
    "select.evaluation.evaluate_files",
    "select.mechanisms.mechanism",
    "select.serving",
}

# Reach adds the noise of audited randomizers to counts of its own; not audited as a whole.
REACH = {
    "measure.reach",
}


@pytest.mark.parametrize(
    "package", [tulle.labels, tulle.measure, tulle.select], ids=lambda p: p.__name__
)
def test_every_release_of_labels_totals_and_choices_is_audited(package: ModuleType) -> None:
    audited = {module for randomizer in RANDOMIZERS for module in randomizer.modules}
    drawing = {name_below_tulle(m) for m in modules_below(package) if draws(m)}
    assert drawing - NO_RANDOMIZERS - REACH <= audited


def test_names_are_distinct_and_lead_to_their_randomizers() -> None:
    assert len({randomizer.name for randomizer in EVERY}) == len(EVERY)
    assert all(find_randomizer(each.name) is each for each in RANDOMIZERS)
    with pytest.raises(ConfigError, match="did you mean 'laplace'"):
        find_randomizer("laplase")


def test_draws_on_operating_system_entropy_keep_the_claim_too() -> None:
    audit = audit_randomizer(
        find_randomizer("randomized-bits"),
        num_draws=NUM_DRAWS,
        rng=release_rng(),
        false_alarm_prob=FALSE_ALARM,
    )
    assert audit.verdict == "holds"


def test_an_output_that_betrays_one_input_alone_is_caught() -> None:
    """A value that comes once in 49 draws, and on the neighbour only."""

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> np.ndarray:
        outputs = (rng.words(num_draws) % 3).astype(np.int64)
        if is_neighbour:
            outputs[::49] = 7
        return outputs

    trial = Trial(event=RandomizedResponse(epsilon=1.0), adjacency=Adjacency.REPLACE, draw=draw)
    leaking = Randomizer(name="leaking", modules=(), make=lambda _: trial)
    audit = audit_randomizer(leaking, num_draws=NUM_DRAWS, rng=SeededNoise(4))
    assert audit.verdict == "VIOLATED"


def test_learnt_scores_order_outputs_by_their_likelihood_ratio() -> None:
    rng = np.random.default_rng(0)
    chances = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    first, second = (rng.choice([10, 5, 7], 40_000, p=row) for row in chances)
    scores, neighbour_scores = learnt_scores(first, second)
    assert scores.size == neighbour_scores.size == 30_000
    expected = np.sort(np.log(chances[1] / chances[0]))
    np.testing.assert_allclose(np.unique(scores), expected, atol=0.1)


def test_rows_are_scored_as_wholes() -> None:
    """Each bit alone says nothing; together they say all."""
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2, 4000)
    same, different = np.stack([bits, bits], axis=1), np.stack([bits, 1 - bits], axis=1)
    scores, neighbour_scores = learnt_scores(same, different)
    assert scores.max() < neighbour_scores.min()


@pytest.mark.parametrize("wrong", [{"num_draws": LEAST_DRAWS - 1}, {"noise_factor": 0.0}])
def test_settings_without_meaning_are_refused(wrong: dict[str, float]) -> None:
    settings = {"num_draws": NUM_DRAWS, "rng": SeededNoise(1)} | wrong
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        audit_randomizer(RANDOMIZERS[0], **settings)  # type: ignore[arg-type]


def modules_below(package: ModuleType) -> list[ModuleType]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(module.name) for module in found if not module.ispkg]


def name_below_tulle(module: ModuleType) -> str:
    return module.__name__.removeprefix("tulle.")


def draws(module: ModuleType) -> bool:
    """Whether something public that is defined there takes a source of noise."""
    own = [value for name, value in vars(module).items() if not name.startswith("_")]
    own = [value for value in own if getattr(value, "__module__", None) == module.__name__]
    methods = [
        method
        for value in own
        if inspect.isclass(value)
        for name, method in vars(value).items()
        if not name.startswith("_")
    ]
    functions = filter(inspect.isfunction, own + methods)
    return any("rng" in inspect.signature(function).parameters for function in functions)
