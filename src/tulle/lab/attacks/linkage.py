"""Linkage: a log without names, joined with a table that has names.

A few columns that both tables have are enough to tell most people apart; taking the names out of
a log takes nobody out of it. Noisy counts by the same columns can be joined as well, and say
about each person only what their guarantee allows.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.lab.attacks.bounds import NOT_PRIVATE, guess_ceiling
from tulle.lab.attacks.differencing import COLUMN_NAMES, SyntheticUsers, draw_users
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.fields import check_count, check_epsilon
from tulle.privacy.units import Adjacency

BoolArray = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinkageConfig:
    """Settings of the attack. Every field is public information."""

    num_users: int = 50_000
    logged_prob: float = 0.5
    """Probability of a user to be in the log."""
    listed_prob: float = 0.8
    """Probability of a user to be in the table with names."""
    epsilon: float = 1.0
    """Epsilon of the noisy counts."""
    seed: int = 1

    def __post_init__(self) -> None:
        check_count("num_users", self.num_users)
        for name in ("logged_prob", "listed_prob"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be in (0, 1].")
        check_epsilon(self.epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinkageRow:
    """The join by some columns."""

    columns: tuple[str, ...]
    share_named: float
    """Share of the log's rows that got exactly one name."""
    share_named_right: float
    """Share of the log's rows that got the right name; the bit of these people is known."""
    noisy_share_right: float
    """Share of the log's bits guessed right from noisy counts by the same columns."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinkageResult:
    """Joins by ever more columns."""

    config: LinkageConfig
    rows: tuple[LinkageRow, ...]
    num_logged: int
    ceiling: float
    """What no attacker exceeds in expectation, of the bits behind noisy counts."""

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {"attack": "linkage", "privacy": NOT_PRIVATE} | dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """What was found, in lines to print."""
        lines = ["linkage: rows of a log without names that get their name back"]
        lines += [
            f"  by {', '.join(row.columns):<32}{row.share_named_right:6.1%}; bits from noisy "
            f"counts {row.noisy_share_right:.1%} right"
            for row in self.rows
        ]
        return [
            *lines,
            f"  any attacker on noisy counts of epsilon {self.config.epsilon:g} at most "
            f"{self.ceiling:.1%}",
        ]


def attack_by_linkage(config: LinkageConfig | None = None) -> LinkageResult:
    """Draws a log and a table with names, and joins them.

    Privacy:
      For synthetic users, with seeded noise: the result is exact and not private.
    """
    config = config or LinkageConfig()
    users = draw_users(config.num_users, seed=config.seed)
    rng = np.random.default_rng([config.seed, 1])
    is_logged = rng.random(len(users)) < config.logged_prob
    is_listed = rng.random(len(users)) < config.listed_prob
    if not is_logged.any():
        raise ConfigError(f"logged_prob={config.logged_prob} leaves nobody in the log; raise it.")
    rows = []
    for num_columns in range(1, len(COLUMN_NAMES) + 1):
        columns = COLUMN_NAMES[:num_columns]
        named, right = link_rows(users, columns, is_logged, is_listed)
        guesses = _guess_from_counts(users, columns, is_logged, config)
        rows.append(
            LinkageRow(
                columns=columns,
                share_named=float(np.mean(named)),
                share_named_right=float(np.mean(right)),
                noisy_share_right=float(np.mean(guesses == users.bits[is_logged])),
            )
        )
    return LinkageResult(
        config=config,
        rows=tuple(rows),
        num_logged=int(is_logged.sum()),
        ceiling=guess_ceiling(config.epsilon),
    )


def link_rows(
    users: SyntheticUsers, columns: tuple[str, ...], is_logged: BoolArray, is_listed: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Which rows of the log get a name, and which of them the right one.

    A row gets a name if it is the only one of its kind in the log and there is one such name.

    Args:
      users: All users.
      columns: Columns that both tables have.
      is_logged: Whether each user is in the log.
      is_listed: Whether each user is in the table with names.

    Privacy:
      For synthetic users: the result is exact and not private.
    """
    cells = users.cells(columns)
    logged_here = np.bincount(cells, weights=is_logged)[cells]
    listed_here = np.bincount(cells, weights=is_listed)[cells]
    is_named = (logged_here == 1) & (listed_here == 1)
    # The one name belongs to the one row only if it is the same user who is in both.
    return is_named[is_logged], (is_named & is_listed)[is_logged]


def cell_noise(epsilon: float) -> DiscreteLaplaceConfig:
    """Noise on counts of users by cell and bit: another bit leaves one count and enters one."""
    return DiscreteLaplaceConfig.for_epsilon(epsilon, adjacency=Adjacency.REPLACE)


def _guess_from_counts(
    users: SyntheticUsers, columns: tuple[str, ...], is_logged: BoolArray, config: LinkageConfig
) -> BoolArray:
    """Whether the count of bits that are 1 is the larger one in the cell of each row of the log.

    Counts would be released for all combinations of values, which are public; only those that
    the attacker looks at are drawn here.
    """
    cells = users.cells(columns)
    num_cells = int(cells.max()) + 1
    codes = 2 * cells[is_logged] + users.bits[is_logged]
    raw_counts = np.bincount(codes, minlength=2 * num_cells).reshape(num_cells, 2)
    source = SeededNoise(config.seed + len(columns))
    noisy_counts = release_discrete_laplace(raw_counts, cell_noise(config.epsilon), rng=source)
    is_one: BoolArray = noisy_counts[:, 1] >= noisy_counts[:, 0]
    return is_one[cells[is_logged]]
