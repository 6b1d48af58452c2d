from pathlib import Path

import pytest

from tulle.train.classifier import Classifier
from unit.serve.served_logs import trained


@pytest.fixture(scope="session")
def classifier() -> Classifier:
    """One model for all tests of this folder; nobody may change it."""
    return trained()


@pytest.fixture(scope="session")
def model_folder(classifier: Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "model"
    classifier.save(folder)
    return folder
