"""Vocabularies are paid when the data are prepared, steps and labels when a model is trained."""

import dataclasses
from pathlib import Path

import pytest

from tulle.accounting.accountant import pld_epsilon
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.refusal import SpendRefusedError
from tulle.data.features.column_features import HashedFeature, VocabularyFeature
from tulle.data.features.encoder import Encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.private_vocabulary import PrivateVocabularyConfig
from tulle.data.preparation import VocabularyPayment, prepare_log
from tulle.data.prepared.dataset import PreparedDataset
from tulle.errors import ConfigError
from tulle.privacy.events import Composed, Event
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.charging import ReleaseCharge
from tulle.train.fitting import FitResult, fit
from tulle.train.methods.hybrid import HybridConfig
from tulle.train.methods.method import Method
from tulle.train.run_context import RunOptions
from tulle.train.settings.phases import PublicTower
from unit.data.small_log import SALT, SCHEMA, lines, small_log, write_log
from unit.train.small_data import dp_sgd, private_phase, randomized_labels, two_phase

EPSILON, DELTA = 6.0, 1e-4
PRIVATE = PrivateVocabularyConfig(unit=Unit.example(), epsilon=0.5, delta=1e-6)
FEATURES = FeaturePlan(
    schema=SCHEMA,
    features=(
        HashedFeature(column="site", num_bins=16),
        HashedFeature(column="price", num_bins=16),
        VocabularyFeature(column="age", min_count=2),
        VocabularyFeature(column="city", min_count=2),
    ),
    salt=SALT,
)


def make_ledger(path: Path, epsilon: float = EPSILON) -> Ledger:
    """One budget for everything, as large as the target."""
    ledger = Ledger.create(path)
    ledger.create_budget(
        Budget(
            name="rows",
            unit=Unit.example(),
            adjacency=Adjacency.REPLACE,
            epsilon=epsilon,
            delta=DELTA,
        )
    )
    return ledger


def prepare_paid(folder: Path, ledger: Ledger) -> PreparedDataset:
    log = small_log(write_log(folder / "small.csv", lines(300)))
    payment = VocabularyPayment(private=PRIVATE, ledger=ledger)
    return prepare_log(log, FEATURES, folder / "prepared", payment=payment).dataset


def calibrated(config: Method) -> Method:
    """With the noise that the target leaves, not a given one."""
    if isinstance(config, HybridConfig):
        config = dataclasses.replace(config, private_phase=private_phase())
    return config.calibrate(epsilon=EPSILON, delta=DELTA)


def train(data: PreparedDataset, config: Method, ledger: Ledger, folder: Path) -> FitResult:
    options = RunOptions(folder=folder, charge=ReleaseCharge(ledger=ledger, purpose="training"))
    return fit(data, config, options=options)


def spent(ledger: Ledger) -> list[tuple[str, Event]]:
    return [(spend.request.purpose, spend.request.event) for spend in ledger.spends("rows")]


def parts_of(event: Event) -> tuple[Event, ...]:
    """What is composed in the end, one by one."""
    if isinstance(event, Composed):
        return tuple(part for inner in event.events for part in parts_of(inner))
    return (event,)


FROZEN = two_phase(
    private_phase=private_phase(noise_multiplier=1.0, public_tower=PublicTower.FREEZE)
)


@pytest.mark.parametrize("config", [two_phase(), FROZEN, dp_sgd()])
def test_vocabulary_and_training_are_charged_once_and_make_up_the_plan(
    tmp_path: Path, config: Method
) -> None:
    ledger = make_ledger(tmp_path / "ledger.db", epsilon=90.0)
    data = prepare_paid(tmp_path, ledger)
    assert spent(ledger) == [("vocabulary", PRIVATE.event(FEATURES))]
    result = train(data, config, ledger, tmp_path / "run")
    (first, vocabulary), (second, training) = spent(ledger)
    assert (first, second) == ("vocabulary", "training")
    claimed = result.plan.privacy.event
    assert parts_of(claimed) == parts_of(vocabulary) + parts_of(training)
    assert pld_epsilon(claimed, DELTA, Adjacency.REPLACE) == pytest.approx(
        ledger.state("rows").spent_epsilon, rel=1e-3
    )


def test_a_budget_of_the_target_holds_vocabulary_labels_and_steps(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db")
    data = prepare_paid(tmp_path, ledger)
    result = train(data, calibrated(two_phase()), ledger, tmp_path / "run")
    assert result.plan.privacy.guarantee.epsilon == EPSILON
    state = ledger.state("rows")
    assert state.num_spends == 2
    # Nothing is left over: had one of them been left out of the plan, it would not have fitted.
    assert 0.99 * EPSILON < state.spent_epsilon <= EPSILON


def test_a_budget_that_vocabularies_have_used_refuses_the_training(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db", epsilon=0.97 * EPSILON)
    data = prepare_paid(tmp_path, ledger)
    with pytest.raises(SpendRefusedError):
        train(data, calibrated(two_phase()), ledger, tmp_path / "run")
    assert [purpose for purpose, _ in spent(ledger)] == ["vocabulary"]


def test_resuming_and_test_rows_charge_nothing(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db", epsilon=90.0)
    data = prepare_paid(tmp_path, ledger)
    (tmp_path / "test").mkdir()
    log = small_log(write_log(tmp_path / "test" / "small.csv", lines(60, first=900)))
    test = prepare_log(log, Encoder.from_files(data.folder), tmp_path / "test" / "prepared").dataset
    train(data, two_phase(), ledger, tmp_path / "run")
    before = spent(ledger)
    options = RunOptions(
        folder=tmp_path / "run",
        resume=True,
        charge=ReleaseCharge(ledger=ledger, purpose="training"),
    )
    again = fit(data, two_phase(), test=test, options=options)
    assert again.metrics is not None
    assert spent(ledger) == before
    assert len(before) == 2


def test_labels_alone_do_not_claim_what_they_never_read(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db", epsilon=90.0)
    data = prepare_paid(tmp_path, ledger)
    result = train(data, randomized_labels(), ledger, tmp_path / "run")
    (_, vocabulary), (_, training) = spent(ledger)
    assert result.plan.privacy.event == training
    assert vocabulary == PRIVATE.event(FEATURES)


def test_given_noise_with_vocabularies_that_use_up_delta_is_refused_and_costs_nothing(
    tmp_path: Path,
) -> None:
    ledger = make_ledger(tmp_path / "ledger.db")
    dataset = prepare_paid(tmp_path, ledger)
    config = dp_sgd(private_phase=private_phase(noise_multiplier=2.0))
    num_spends = len(ledger.spends("rows"))
    with pytest.raises(ConfigError, match="no finite epsilon"):
        fit(
            dataset,
            config.calibrate(epsilon=EPSILON, delta=PRIVATE.delta),
            options=RunOptions(
                folder=tmp_path / "run", charge=ReleaseCharge(ledger=ledger, purpose="training")
            ),
        )
    assert len(ledger.spends("rows")) == num_spends
    assert not (tmp_path / "run").exists()
