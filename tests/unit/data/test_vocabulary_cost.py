"""What vocabularies cost travels with the data that were encoded by them."""

from pathlib import Path

import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.features.column_features import HashedFeature, VocabularyFeature
from tulle.data.features.encoder import Encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.private_vocabulary import PrivateVocabularyConfig
from tulle.data.preparation import PrepareResult, VocabularyPayment, prepare_log
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.prepared.writer import DatasetWriter
from tulle.privacy.events import Composed, DiscreteLaplace, EpsilonDelta, Event, event_to_json
from tulle.privacy.units import Adjacency, Unit
from unit.data.small_log import SALT, SCHEMA, lines, small_log, small_plan, write_log


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return write_log(tmp_path / "small.csv", lines(120))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "ledger.db")
    made.create_budget(
        Budget(
            name="rows", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=90.0, delta=0.01
        )
    )
    return made


def plan_with(*vocabulary_columns: str) -> FeaturePlan:
    return FeaturePlan(
        schema=SCHEMA,
        features=tuple(
            VocabularyFeature(column=column, min_count=2)
            if column in vocabulary_columns
            else HashedFeature(column=column, num_bins=64)
            for column in SCHEMA.features
        ),
        salt=SALT,
    )


def prepare_paid(
    csv: Path, folder: Path, ledger: Ledger, plan: FeaturePlan | None = None, epsilon: float = 9.0
) -> PrepareResult:
    private = PrivateVocabularyConfig(unit=Unit.example(), epsilon=epsilon, delta=1e-4)
    payment = VocabularyPayment(private=private, ledger=ledger)
    return prepare_log(small_log(csv), plan or plan_with("city"), folder, payment=payment)


def spent(ledger: Ledger) -> list[Event]:
    return [spend.request.event for spend in ledger.spends("rows")]


@pytest.mark.parametrize("columns", [("city",), ("age", "city"), ("site", "city")])
def test_the_charged_event_is_on_record(
    csv: Path, tmp_path: Path, ledger: Ledger, columns: tuple[str, ...]
) -> None:
    made = prepare_paid(csv, tmp_path / "out", ledger, plan_with(*columns)).dataset
    (charged,) = spent(ledger)
    dataset, encoder = PreparedDataset.open(tmp_path / "out"), Encoder.from_files(tmp_path / "out")
    assert made.vocabulary_event == dataset.vocabulary_event == encoder.vocabulary_event == charged
    assert dataset.vocabulary_event is not None
    assert event_to_json(dataset.vocabulary_event) == event_to_json(charged)


def test_the_event_is_that_of_the_noise(csv: Path, tmp_path: Path, ledger: Ledger) -> None:
    event = prepare_paid(csv, tmp_path / "out", ledger).dataset.vocabulary_event
    assert isinstance(event, Composed)
    noise, leak = event.events
    assert isinstance(noise, DiscreteLaplace)
    assert noise.scale == pytest.approx(1 / 9)
    assert leak == EpsilonDelta(epsilon=0.0, delta=1e-4)


@pytest.mark.parametrize("columns", [(), ("site",)])
def test_hashing_and_public_vocabularies_cost_nothing(
    csv: Path, tmp_path: Path, columns: tuple[str, ...]
) -> None:
    dataset = prepare_log(small_log(csv), plan_with(*columns), tmp_path / "out").dataset
    assert dataset.vocabulary_event is None
    assert Encoder.from_files(dataset.folder).vocabulary_event is None


def test_an_interrupted_run_keeps_the_event(
    csv: Path, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DatasetWriter, "append", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare_paid(csv, tmp_path / "out", ledger)
    begun = Encoder.from_files(tmp_path / "out.partial" / "data")
    dataset = prepare_paid(csv, tmp_path / "out", ledger).dataset
    (charged,) = spent(ledger)
    assert begun.vocabulary_event == dataset.vocabulary_event == charged


def test_a_test_set_keeps_the_event_of_its_training_set(
    csv: Path, tmp_path: Path, ledger: Ledger
) -> None:
    train = prepare_paid(csv, tmp_path / "train", ledger).dataset
    encoder = Encoder.from_files(train.folder)
    test = prepare_log(small_log(csv), encoder, tmp_path / "test").dataset
    assert test.vocabulary_event == train.vocabulary_event is not None
    assert Encoder.from_files(test.folder).vocabulary_event == train.vocabulary_event
    assert len(spent(ledger)) == 1


def test_the_fingerprint_covers_the_event(csv: Path, tmp_path: Path, ledger: Ledger) -> None:
    # With that little noise both keep every value, so that the arrays are the same.
    datasets = [
        prepare_paid(csv, tmp_path / f"out{epsilon}", ledger, epsilon=epsilon).dataset
        for epsilon in (19.0, 20.0)
    ]
    first, second = (
        {name: array.sha256 for name, array in dataset.head.arrays.items()} for dataset in datasets
    )
    assert first == second
    assert datasets[0].vocabulary_event != datasets[1].vocabulary_event
    assert datasets[0].fingerprint != datasets[1].fingerprint
    hashed = prepare_log(small_log(csv), small_plan(), tmp_path / "hashed").dataset
    assert hashed.vocabulary_event is None
