import numpy as np
import pytest

from tulle.select.baselines.unit_nodes import unit_nodes


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 8, 13, 60, 500])
def test_powers_are_integrated_exactly_up_to_the_degree(num_nodes: int) -> None:
    nodes, weights = unit_nodes(num_nodes)
    assert nodes.min() > 0
    assert nodes.max() < 1
    for power in {0, 1, num_nodes, 2 * num_nodes - 1}:
        assert weights @ nodes**power == pytest.approx(1 / (power + 1), rel=2e-13)
    # One degree more is not.
    if num_nodes <= 8:
        wrong = weights @ nodes ** (2 * num_nodes)
        assert abs(wrong * (2 * num_nodes + 1) - 1) > 1e-10


@pytest.mark.parametrize("num_nodes", [1, 4, 20])
def test_nodes_are_those_of_numpy(num_nodes: int) -> None:
    nodes, weights = unit_nodes(num_nodes)
    expected_nodes, expected_weights = np.polynomial.legendre.leggauss(num_nodes)
    order = np.argsort(nodes)
    np.testing.assert_allclose(nodes[order], (expected_nodes + 1) / 2, rtol=1e-13)
    np.testing.assert_allclose(weights[order], expected_weights / 2, rtol=1e-12)
