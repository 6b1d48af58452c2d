from pathlib import Path

import pytest

from tulle.accounting.ledger import Ledger
from unit.labels.label_files import ledger_with, write_clicks


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    write_clicks(tmp_path / "clicks.parquet")
    return tmp_path / "clicks.parquet"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return ledger_with(tmp_path / "ledger.db", epsilon=1.5)
