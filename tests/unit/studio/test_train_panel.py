import pytest

from tulle.errors import ConfigError
from tulle.studio.panel import FieldError, defaults
from tulle.studio.train_panel import TRAIN, answer_training
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.settings.units import ExampleLevel
from unit.studio.command_answers import said_by
from unit.train.small_data import make_shape

GIVEN = defaults(TRAIN.fields) | {"num_examples": 100_000, "batch_size": 2_000, "epochs": 1.5}


def test_dp_sgd_needs_the_noise_that_the_command_finds(capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_training(GIVEN | {"epsilon": 2.5})
    said = said_by(answer.commands[0], capsys)
    assert answer.noise_multiplier == said["noise_multiplier"]
    assert answer.epsilon == said["epsilon"]
    assert answer.steps == said["steps"] == 75
    assert answer.label_epsilon is None


def test_two_phases_split_their_budget_as_the_command_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = answer_training(GIVEN | {"method": "hybrid", "label_share": 0.35})
    said = said_by(answer.commands[0], capsys)
    assert answer.noise_multiplier == said["noise_multiplier"]
    assert answer.label_epsilon == said["label_epsilon"] == pytest.approx(1.05)
    assert answer.sensitive_columns_epsilon == said["sensitive_columns_epsilon"]
    assert answer.basic_epsilon == said["basic_epsilon"]


def test_mosaic_needs_one_noise_for_all_sums_whatever_batches_others_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = answer_training(GIVEN | {"method": "mosaic", "batch_size": 200_000})
    said = said_by(answer.commands[0], capsys)
    assert answer.noise_multiplier == said["noise_multiplier"]
    assert answer.epsilon == said["epsilon"]
    assert (answer.steps, answer.sampling_prob, answer.label_epsilon) == (None, None, None)
    config = MosaicConfig(unit=ExampleLevel())
    trained = config.calibrate(epsilon=GIVEN["epsilon"], delta=GIVEN["delta"])
    assert answer.noise_multiplier == trained.make(make_shape()).noise_multiplier


@pytest.mark.parametrize("method", ["dp-sgd", "mosaic"])
def test_less_epsilon_needs_more_noise(method: str) -> None:
    given = GIVEN | {"method": method}
    low, high = (answer_training(given | {"epsilon": e}).noise_multiplier for e in (1.0, 4.0))
    assert low > high


def test_a_batch_of_more_rows_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size=200000 must be <= num_examples=100000"):
        answer_training(GIVEN | {"batch_size": 200_000})


def test_runs_that_take_minutes_to_account_for_are_refused() -> None:
    with pytest.raises(FieldError, match="625,000 steps") as refused:
        answer_training(GIVEN | {"batch_size": 16, "epochs": 100.0})
    assert refused.value.field_name == "batch_size"
