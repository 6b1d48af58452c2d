"""Gauss-Legendre rules on [0, 1], right to the last digits near its ends too."""

import functools

import numpy as np

from tulle.select.auctions import FloatArray

_NUM_STEPS = 5


@functools.cache
def unit_nodes(num_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights that integrate polynomials of degree 2 num_nodes - 1 exactly.

    Roots are found as angles from the nearer end: a node close to it is then as precise as one
    in the middle, which rules from eigenvalues are not.
    """
    angles = np.pi * (4 * np.arange((num_nodes + 1) // 2) + 3) / (4 * num_nodes + 2)
    for _ in range(_NUM_STEPS):
        last, value = _legendre(num_nodes, angles)
        slopes = num_nodes * (last - np.cos(angles) * value)
        angles += value * np.sin(angles) / slopes
    last, _ = _legendre(num_nodes, angles)
    weights = (np.sin(angles) / (num_nodes * last)) ** 2
    mirrored = slice(0, num_nodes // 2)
    return (
        np.concatenate([np.sin(angles / 2) ** 2, np.cos(angles[mirrored] / 2) ** 2]),
        np.concatenate([weights, weights[mirrored]]),
    )


def _legendre(degree: int, angles: FloatArray) -> tuple[FloatArray, FloatArray]:
    """At the cosines of angles, the polynomials of one degree less and of this degree.

    The three-term recurrence for differences, in which the distance from 1 is a factor.
    """
    distance = 2 * np.sin(angles / 2) ** 2
    last, change = np.ones_like(angles), -distance
    for k in range(2, degree + 1):
        value = last + change
        change = ((k - 1) * change - (2 * k - 1) * distance * value) / k
        last = value
    return last, last + change
