"""What each player of a game is worth, from the worth of every set of players.

Both values are linear in the worths, so that many games are valued by one product. A set is
a number whose bit i says that player i is in it; worths are in the order of these numbers.
"""

import enum
import functools
import math

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError

FloatArray = npt.NDArray[np.float64]


class CoalitionValue(enum.Enum):
    """How the worth of all players together is laid on each of them."""

    SHAPLEY = "shapley"
    """What a player adds to those before it, on average over all orders of players.

    The values add up to the worth of all less that of none (Shapley 1953).
    """
    REMOVAL = "removal"
    """What is lost if the player goes and all others stay. Need not add up."""


def coalition_values(worths: FloatArray, value: CoalitionValue) -> FloatArray:
    """The value of each player: [..., 2^players] worths give [..., players] values."""
    num_players = int(np.shape(worths)[-1]).bit_length() - 1
    if num_players < 1 or np.shape(worths)[-1] != 1 << num_players:
        raise ConfigError(
            f"worths has {np.shape(worths)[-1]} sets; it must have 2^players, the empty set first."
        )
    return np.asarray(worths @ _coefficients(num_players, value))


@functools.lru_cache(maxsize=64)
def _coefficients(num_players: int, value: CoalitionValue) -> FloatArray:
    """[sets, players]: how much the worth of a set counts for a player."""
    sets = np.arange(1 << num_players)
    columns = []
    for player in range(num_players):
        with_player = sets[(sets >> player) & 1 == 1]
        chances = _chances(with_player, num_players, value)
        column = np.zeros(len(sets))
        column[with_player] = chances
        column[with_player ^ (1 << player)] = -chances
        columns.append(column)
    return np.stack(columns, axis=1)


def _chances(
    with_player: npt.NDArray[np.int64], num_players: int, value: CoalitionValue
) -> FloatArray:
    """The chance that the player comes as the last of each set that has it."""
    sizes = np.bitwise_count(with_player)
    if value is CoalitionValue.REMOVAL:
        return np.asarray(sizes == num_players, dtype=np.float64)
    # (s - 1)! (n - s)! / n! orders have the other s - 1 before it and the rest after it.
    of_size = [1 / (size * math.comb(num_players, size)) for size in range(1, num_players + 1)]
    return np.asarray(np.array(of_size)[sizes - 1])
