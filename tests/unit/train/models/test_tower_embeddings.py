"""Which rows the features of a role read."""

import pytest
import torch

from tulle.data.prepared.feature import PreparedFeature
from tulle.train.models.tower_model import InitialValues, RoleEmbeddings, build_embeddings
from tulle.train.settings.models import EmbeddingDim, TableSharing, tower_layout


def feature(name: str, num_ids: int, table: str | None = None) -> PreparedFeature:
    return PreparedFeature(name=name, role="public", num_ids=num_ids, table=table or name)


SHARED = [feature("a", 10, "public"), feature("b", 10, "public")]
SEPARATE = [feature("a", 10), feature("b", 20), feature("c", 10)]


def build(
    features: list[PreparedFeature],
    sharing: TableSharing = TableSharing.AS_PREPARED,
    dim: EmbeddingDim = 4,
    role: str = "public",
) -> RoleEmbeddings:
    initial = InitialValues(0, "cpu", torch.float32)
    layout = tower_layout(features, dim=dim, sharing=sharing)[role]
    return build_embeddings(layout, stddev=0.5, initial=initial)


def test_features_of_one_table_share_rows() -> None:
    embeddings = build(SHARED)
    assert {n: tuple(v.shape) for n, v in embeddings.parameters.items()} == {
        "public.table.0": (10, 4)
    }
    (lookup,) = embeddings.look_up(embeddings.reads(torch.tensor([[3, 3]])))
    assert lookup.reads.rows.tolist() == [[3, 3]]


def test_a_feature_can_have_rows_of_its_own_in_spite_of_a_shared_table() -> None:
    embeddings = build(SHARED, TableSharing.PER_FEATURE)
    assert embeddings.parameters["public.table.0"].shape == (20, 4)
    (lookup,) = embeddings.look_up(embeddings.reads(torch.tensor([[3, 3]])))
    assert lookup.reads.rows.tolist() == [[3, 13]]


@pytest.mark.parametrize("sharing", TableSharing)
def test_separate_tables_lie_one_below_the_other(sharing: TableSharing) -> None:
    embeddings = build(SEPARATE, sharing)
    table = embeddings.parameters["public.table.0"]
    assert table.shape == (40, 4)
    (lookup,) = embeddings.look_up(embeddings.reads(torch.tensor([[9, 19, 0]])))
    assert lookup.reads.rows.tolist() == [[9, 29, 30]]
    assert torch.equal(lookup.values[0], table[[9, 29, 30]])
    assert embeddings.width == 12


def test_the_fourth_root_rule_gives_a_tensor_for_each_dimension() -> None:
    embeddings = build(
        [feature("a", 16), feature("b", 10_000), feature("c", 17)], dim="fourth root"
    )
    assert {n: tuple(v.shape) for n, v in embeddings.parameters.items()} == {
        "public.table.0": (33, 4),
        "public.table.1": (10_000, 20),
    }
    small, large = embeddings.look_up(embeddings.reads(torch.tensor([[1, 2, 3]])))
    assert small.reads.rows.tolist() == [[1, 19]]
    assert large.reads.rows.tolist() == [[2]]
    assert embeddings.width == 28


def test_the_fourth_root_is_that_of_the_shared_table() -> None:
    assert build(SHARED, dim="fourth root").width == 2 * int(2 * 10**0.25)


def test_a_role_without_features_reads_nothing() -> None:
    embeddings = build(SHARED, role="sensitive")
    assert embeddings.width == 0
    assert embeddings.parameters == {}
    assert embeddings.look_up(embeddings.reads(torch.zeros(3, 0, dtype=torch.int64))) == ()


def test_initial_values_have_the_stated_scale() -> None:
    values = build([feature("a", 10_000)], dim=8).parameters["public.table.0"]
    # The relative error of the deviation of 80,000 values is 0.0025; this is 12 times that.
    assert abs(float(values.std()) / 0.5 - 1) < 0.03
    assert abs(float(values.mean())) < 0.02
