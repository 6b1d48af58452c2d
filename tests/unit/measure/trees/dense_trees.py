"""Random irregular trees, and least squares on them by dense linear algebra."""

import numpy as np
import numpy.typing as npt

from tulle.measure.trees.slice_tree import NO_PARENT, SliceTree

FloatArray = npt.NDArray[np.float64]


def random_tree(rng: np.random.Generator, *, depth: int = 4) -> SliceTree:
    """One or two roots, up to four children a node, leaves at any level."""
    parents = [NO_PARENT] * int(rng.integers(1, 3))
    levels = [0] * len(parents)
    nodes = list(range(len(parents)))
    for level in range(1, depth):
        below = []
        for node in nodes:
            for _ in range(int(rng.integers(0, 5))):
                below.append(len(parents))
                parents.append(node)
                levels.append(level)
        nodes = below
    leaves = np.setdiff1d(np.arange(len(parents)), parents)
    return SliceTree(
        parents=np.array(parents), levels=np.array(levels), leaf_nodes=rng.permutation(leaves)
    )


def regular_tree(*branching: int) -> SliceTree:
    """One root, and as many children for each node of a level as `branching` says."""
    parents, levels, start, size = [np.array([NO_PARENT])], [np.array([0])], 0, 1
    for level, children in enumerate(branching, 1):
        parents.append(np.repeat(np.arange(start, start + size), children))
        start, size = start + size, size * children
        levels.append(np.full(size, level))
    return SliceTree(
        parents=np.concatenate(parents),
        levels=np.concatenate(levels),
        leaf_nodes=np.arange(start, start + size),
    )


def random_variances(rng: np.random.Generator, tree: SliceTree, unmeasured: float) -> FloatArray:
    variances = np.exp(rng.normal(0, 1.5, tree.num_nodes))
    variances[rng.random(tree.num_nodes) < unmeasured] = np.inf
    return variances


def leaf_matrix(tree: SliceTree) -> FloatArray:
    """[nodes, leaves], 1 where a leaf is at or below a node, by walking up from each leaf."""
    matrix = np.zeros((tree.num_nodes, len(tree.leaf_nodes)))
    for place, leaf in enumerate(tree.leaf_nodes):
        node = int(leaf)
        while node != NO_PARENT:
            matrix[node, place] = 1.0
            node = int(tree.parents[node])
    return matrix


def whitened(tree: SliceTree, variances: FloatArray) -> FloatArray:
    """The design matrix of the nodes that were measured, in units of their noise."""
    is_measured = np.isfinite(variances)
    rows: FloatArray = leaf_matrix(tree)[is_measured] / np.sqrt(variances[is_measured])[:, None]
    return rows


def whitened_totals(noisy: FloatArray, variances: FloatArray) -> FloatArray:
    is_measured = np.isfinite(variances)
    found: FloatArray = noisy[is_measured] / np.sqrt(variances[is_measured])
    return found
