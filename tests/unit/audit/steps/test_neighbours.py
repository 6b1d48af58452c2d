"""Neighbours differ in labels of canaries alone, and every run has ids of its own."""

import numpy as np
import pytest
import torch

from tulle.audit.steps.neighbours import ROWS_PER_RUN, Background, NeighbourRows, along_canaries


@pytest.mark.parametrize("background", Background)
def test_two_data_sets_differ_in_the_labels_of_canaries_alone(background: Background) -> None:
    rows = NeighbourRows(num_runs=5, background=background)
    one, other = rows.examples(0), rows.examples(1)
    assert one.labels is not None
    assert other.labels is not None
    assert np.flatnonzero(one.labels != other.labels).tolist() == rows.canaries.tolist()
    assert np.array_equal(one.public_features, other.public_features)
    assert np.array_equal(one.sensitive_features, other.sensitive_features)
    assert one.num_rows == rows.num_rows == 5 * ROWS_PER_RUN


@pytest.mark.parametrize("background", Background)
def test_no_two_runs_share_an_id(background: Background) -> None:
    rows = NeighbourRows(num_runs=7, background=background)
    ids = rows.examples(0).public_features[:, 0].reshape(7, ROWS_PER_RUN)
    for run, own in enumerate(ids):
        others = np.delete(ids, run, axis=0)
        assert not set(own) & set(others.ravel())


def test_other_rows_read_the_canarys_weights_only_if_they_are_aligned() -> None:
    for background, is_shared in ((Background.APART, False), (Background.ALIGNED, True)):
        ids = NeighbourRows(num_runs=3, background=background).examples(0).public_features[:, 0]
        by_run = ids.reshape(3, ROWS_PER_RUN)
        assert np.all((by_run[:, 1:] == by_run[:, :1]) == is_shared)


def test_weights_along_a_canary_are_those_of_its_ids_in_the_direction_of_its_gradient() -> None:
    weights = {name: torch.zeros(4, 1) for name in ("public.table.0", "sensitive.table.0")}
    # A gradient of norm 1: the sensitive row is read eight times where the public one is once.
    weights["public.table.0"][2] = 1 / 65**0.5
    weights["sensitive.table.0"][2] = 8 / 65**0.5
    weights["public.table.0"][3] = 100.0
    assert along_canaries(weights) == pytest.approx([0.0, 1.0], abs=1e-6)
