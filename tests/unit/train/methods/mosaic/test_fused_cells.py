import numpy as np
import pytest

from tulle.train.methods.mosaic.cell_model import CellModel
from tulle.train.methods.mosaic.fused_cells import fused_cells
from unit.train.exported_folders import SEPARATE
from unit.train.methods.mosaic.test_cell_export import (
    MIXED,
    OF_CLASSES,
    RATE_TIMES_VALUE,
    TRUNCATED,
    A,
    both_ids,
    of_one_head,
    table_of,
)

TWICE = of_one_head(0.25, (table_of(A), table_of(A, seed=7), table_of(A, A, seed=8)))


@pytest.mark.parametrize("model", [MIXED, TRUNCATED, RATE_TIMES_VALUE, OF_CLASSES, TWICE])
def test_the_arrangement_predicts_what_the_model_predicts(model: CellModel) -> None:
    public, sensitive = both_ids(model)
    ids = [*public.T, *([None] * 2 if sensitive is None else sensitive.T)]
    fused = fused_cells(model, SEPARATE)
    found = fused.predicted(ids, len(public))
    expected = model.predicted(public, sensitive)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.std(found) > 0.01


def test_columns_that_no_table_looks_at_are_not_needed() -> None:
    fused = fused_cells(TWICE, SEPARATE)
    assert fused.columns == (0,)
    public, _ = both_ids(TWICE)
    ids = [public[:, 0], None, None, None, None]
    np.testing.assert_allclose(fused.predicted(ids, len(public)), TWICE.predicted(public, None))
    with pytest.raises(ValueError, match="needs the ids of feature 0"):
        fused.predicted([None] * 5, 3)
