"""The embeddings of one role's features, in one tensor for each dimension.

A dataset that was prepared with shared tables gives all features of a role ids
in one space; with separate tables each feature has a space of its own. A model
either keeps these spaces (`AS_PREPARED`: one embedding a role, or one a feature,
as the data say) or gives every feature rows of its own in any case
(`PER_FEATURE`: of a shared space, each feature gets a full copy).

Tables of the same dimension lie one below the other in one tensor, so that a
role needs one gather in the usual case.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from tulle.data.prepared.format import PreparedFeature
from tulle.errors import ConfigError
from tulle.train.contributions import TableContribution
from tulle.train.models.initial_values import InitialValues
from tulle.train.table_reads import TableReads

FOURTH_ROOT: Literal["fourth root"] = "fourth root"
EmbeddingDim = int | Literal["fourth root"]
"""A number, or int(2 V^0.25) for a table of V rows (the hybrid paper, Training Details)."""

_LARGEST_DIM = 1 << 16


class TableSharing(enum.Enum):
    """Which features share embedding rows."""

    AS_PREPARED = "as prepared"
    """Those that share a table of the dataset."""
    PER_FEATURE = "per feature"
    """None."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Lookup:
    """Rows that the examples of a batch read from one tensor."""

    reads: TableReads
    values: Tensor
    """[batch, features, dim]."""

    def contribution(self, grads: Tensor) -> TableContribution:
        """What the examples add to the gradient of the tensor, from that by `values`."""
        reads = self.reads
        return TableContribution(table=reads.table, ids=reads.rows, grads=grads, reads=reads)


class RoleEmbeddings:
    """The embedding rows of the features of one role. Make one with `build_embeddings`."""

    def __init__(self, tables: Sequence["_Table"]) -> None:
        self._tables = tuple(tables)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """One tensor [rows, dim] for each dimension."""
        return {table.name: table.values for table in self._tables}

    @property
    def width(self) -> int:
        """Numbers in the embeddings of one example."""
        return sum(len(table.columns) * table.values.shape[1] for table in self._tables)

    def reads(self, ids: Tensor) -> tuple[TableReads, ...]:
        """The rows that ids stand for, one entry for each tensor.

        Args:
          ids: [batch, features of the role], int64.

        Privacy:
          What it returns is as sensitive as the ids.
        """
        return tuple(table.reads(ids) for table in self._tables)

    def look_up(self, reads: Sequence[TableReads]) -> tuple[Lookup, ...]:
        """One gather for each tensor; nothing if the role has no features."""
        return tuple(
            Lookup(
                reads=read,
                values=torch.nn.functional.embedding(read.rows, read.source(table.values)),
            )
            for read, table in zip(reads, self._tables, strict=True)
        )


def build_embeddings(
    role: str,
    features: Sequence[PreparedFeature],
    *,
    dim: EmbeddingDim,
    sharing: TableSharing,
    stddev: float,
    initial: InitialValues,
) -> RoleEmbeddings:
    """Embeddings with normal initial values.

    Args:
      role: `public` or `sensitive`.
      features: Of all roles, in the order of the dataset.
      dim: Of each embedding.
      sharing: Which features share rows.
      stddev: Of the initial values.
      initial: Draws them.
    """
    spaces: dict[str | int, _Space] = {}
    of_role = [feature for feature in features if feature.role == role]
    for column, feature in enumerate(of_role):
        key = feature.table if sharing is TableSharing.AS_PREPARED else column
        space = spaces.setdefault(key, _Space())
        space.columns.append(column)
        space.num_rows = max(space.num_rows, feature.num_ids)
    by_dim: dict[int, list[_Space]] = {}
    for space in spaces.values():
        space_dim = int(2 * space.num_rows**0.25) if isinstance(dim, str) else dim
        by_dim.setdefault(space_dim, []).append(space)
    return RoleEmbeddings(
        [
            _stack(f"{role}.table.{index}", group, len(of_role), stddev, initial, group_dim)
            for index, (group_dim, group) in enumerate(by_dim.items())
        ]
    )


def flat_values(lookups: Sequence[Lookup]) -> list[Tensor]:
    """[batch, features x dim] for each lookup; views, no copies."""
    return [lookup.values.flatten(1) for lookup in lookups]


def table_contributions(lookups: Sequence[Lookup], grads: Tensor) -> list[TableContribution]:
    """Contributions from the gradient by the concatenated flat values."""
    if not lookups:
        return []
    widths = [lookup.values.shape[1] * lookup.values.shape[2] for lookup in lookups]
    parts = torch.split(grads, widths, dim=1)
    return [
        lookup.contribution(part.reshape(lookup.values.shape))
        for lookup, part in zip(lookups, parts, strict=True)
    ]


def check_embedding_dim(name: str, value: object) -> None:
    """A dimension, or the rule for one."""
    if value == FOURTH_ROOT and isinstance(value, str):
        return
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not 1 <= value <= _LARGEST_DIM:  # type: ignore[operator]
        raise ConfigError(
            f"{name}={value!r} must be a whole number from 1 to {_LARGEST_DIM}, or "
            f"{FOURTH_ROOT!r} for int(2 V^0.25) by table."
        )


@dataclasses.dataclass(eq=False)
class _Space:
    """Ids that mean the same row, whichever of some columns they are in."""

    columns: list[int] = dataclasses.field(default_factory=list)
    num_rows: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Table:
    """Spaces of one dimension in one tensor."""

    name: str
    values: Tensor
    """[rows, dim]."""
    columns: tuple[int, ...]
    """Of the role's ids."""
    column_index: Tensor | None
    """The same as a tensor, or None if they are all of the role's columns in order."""
    first_rows: Tensor | None
    """Of each column's space, or None if all begin at row 0."""
    may_repeat: bool
    """Whether two columns share a space, so that an example can read a row twice."""

    def reads(self, ids: Tensor) -> TableReads:
        rows = ids if self.column_index is None else ids[:, self.column_index]
        if self.first_rows is not None:
            rows = rows + self.first_rows
        return TableReads(table=self.name, rows=rows, may_repeat=self.may_repeat)


def _stack(
    name: str,
    spaces: Sequence[_Space],
    num_columns: int,
    stddev: float,
    initial: InitialValues,
    dim: int,
) -> _Table:
    first_rows: dict[int, int] = {}
    num_rows = 0
    for space in spaces:
        first_rows |= dict.fromkeys(space.columns, num_rows)
        num_rows += space.num_rows
    values = initial.normal(num_rows, dim, stddev)
    columns = tuple(sorted(first_rows))
    offsets = [first_rows[column] for column in columns]
    return _Table(
        name=name,
        values=values,
        columns=columns,
        column_index=None
        if len(columns) == num_columns
        else torch.tensor(columns, device=values.device),
        first_rows=torch.tensor(offsets, device=values.device) if any(offsets) else None,
        may_repeat=any(len(space.columns) > 1 for space in spaces),
    )
