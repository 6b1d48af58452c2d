"""A table shared out by rows: row r belongs to process r % size, with its noise.

In each step a process fetches the rows that its examples read. Their owners bring them up
to date first, each row once however many processes read it, and take back its gradients.
Lazy noise is drawn by the owner alone, so every row has one noise, as in one process.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tulle.train.models.contributions import BatchReads, TableReads
from tulle.train.models.tower_model import ForwardPass, TowerModel
from tulle.train.steps.age_table import AgeTable
from tulle.train.steps.lazy_rows import MOMENTUM, LazyRows, Normals
from tulle.train.steps.processes.processes import LEADER, Processes


class ShardedRows:
    """One table of which this process owns every size-th row.

    Privacy:
      The same as for `LazyRows`. Ids and gradients that go between processes are raw.
    """

    def __init__(
        self,
        own_weights: Tensor,
        ages: AgeTable,
        processes: Processes,
        *,
        noise: Normals,
        noise_stddev: float,
    ) -> None:
        """Takes this process's rows: rank, rank + size, …, in this order."""
        self._weights, self._processes = own_weights, processes
        self._rows = LazyRows(own_weights, ages, noise=noise, noise_stddev=noise_stddev)
        self._route: _Route | None = None

    def leaving(self, rows: Tensor) -> list[int]:
        """How many of some rows each process owns."""
        owners = rows % self._processes.size
        return torch.bincount(owners, minlength=self._processes.size).tolist()

    def fetch(self, rows: Tensor, leaving: Sequence[int], arriving: Sequence[int]) -> Tensor:
        """The weights of rows, wherever they are, with all noise up to the present step.

        Args:
          rows: Distinct rows that the examples of this process read, int64.
          leaving: How many of them each process owns.
          arriving: How many rows of this process each other wants.

        Privacy:
          Tells their owners which rows are read, and nobody else.
        """
        size = self._processes.size
        order = torch.argsort(rows % size, stable=True)
        wanted = torch.div(rows[order], size, rounding_mode="floor")
        asked = self._processes.exchange(wanted, leaving, arriving)
        # Two processes may read a row in one step, and it must get its noise once.
        distinct, places = torch.unique(asked, return_inverse=True)
        self._rows.catch_up(distinct)
        came = self._processes.exchange(self._weights[asked], arriving, leaving)
        self._route = _Route(
            order=order,
            leaving=tuple(leaving),
            arriving=tuple(arriving),
            distinct=distinct,
            places=places,
        )
        weights = torch.empty_like(came)
        weights[order] = came
        return weights

    def give_back(self, gradients: Tensor, expected_size: float) -> None:
        """Adds up what all processes have for each row, at its owner.

        Args:
          gradients: [rows, dim]: clipped sums, for the rows that were fetched last.
          expected_size: Expected size of the batch of all processes, which is public.
        """
        route = self._route
        if route is None:
            return
        self._route = None
        came = self._processes.exchange(gradients[route.order], route.leaving, route.arriving)
        sums = came.new_zeros(len(route.distinct), came.shape[1])
        sums.index_add_(0, route.places, came)
        self._rows.add_gradient(route.distinct, sums.div_(expected_size))

    def collect(self, weights: Tensor | None) -> Tensor | None:
        """Brings weights and momentum of all rows to the leader, with all their noise.

        Args:
          weights: The leader's whole table, to be filled in; None at the followers.

        Returns:
          The momentum of the whole table at the leader, if there is any; else None.

        Privacy:
          The same as for `LazyRows.release_state`, for the whole table.
        """
        released = self._rows.release_state()
        collect_rows(self._weights, weights, self._processes)
        if MOMENTUM not in released:
            return None
        momentum = None if weights is None else torch.empty_like(weights)
        collect_rows(released[MOMENTUM], momentum, self._processes)
        return momentum

    def load_momentum(self, own_momentum: Tensor) -> None:
        """Goes on from the momentum of this process's rows."""
        self._rows.load_state({MOMENTUM: own_momentum})


def share_out(whole: Tensor | None, own: Tensor, processes: Processes) -> None:
    """Gives each process its rows of a table that the leader has, in place.

    Args:
      whole: The leader's table; None at the followers.
      own: [own rows, dim]: rows of this process, to be filled in.
      processes: The processes that share the table.
    """
    if whole is None:
        if len(own):
            processes.receive(own, LEADER)
        return
    for rank in range(min(processes.size, len(whole))):
        rows = whole[rank :: processes.size]
        if rank == LEADER:
            own.copy_(rows)
        else:
            processes.send(rows.contiguous(), rank)


def collect_rows(own: Tensor, whole: Tensor | None, processes: Processes) -> None:
    """Puts the rows of all processes together at the leader; undoes `share_out`.

    Args:
      own: Rows of this process.
      whole: The leader's table, which gets all rows; None at the followers.
      processes: The processes that share the table.
    """
    if whole is None:
        if len(own):
            processes.send(own, LEADER)
        return
    for rank in range(min(processes.size, len(whole))):
        rows = whole[rank :: processes.size]
        if rank == LEADER:
            rows.copy_(own)
        else:
            came = torch.empty_like(rows, memory_format=torch.contiguous_format)
            processes.receive(came, rank)
            rows.copy_(came)


def num_own_rows(num_rows: int, processes: Processes) -> int:
    """Rows of a table that this process owns."""
    return len(range(processes.rank, num_rows, processes.size))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Route:
    """Which way rows came, for their gradients to go back."""

    order: Tensor
    """The fetched rows by owner."""
    leaving: tuple[int, ...]
    arriving: tuple[int, ...]
    distinct: Tensor
    """Own rows that somebody read."""
    places: Tensor
    """Place of each row that was asked for, among `distinct`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FetchedRows:
    """Some rows of a table, as they are now."""

    rows: Tensor
    """Distinct and in order."""
    values: Tensor
    """[rows, dim]."""


class FetchedTables(TowerModel):
    """A model whose tables are elsewhere: it reads rows that were fetched for one batch.

    Gradients are by the places of rows among the fetched ones.
    """

    def __init__(self, model: TowerModel, tables: frozenset[str]) -> None:
        """Takes the model and which of its tables are elsewhere."""
        self._model, self._elsewhere = model, tables
        self._fetched: Mapping[str, FetchedRows] = {}

    def hold(self, fetched: Mapping[str, FetchedRows]) -> None:
        """These rows are read until the next call: all that a batch needs."""
        self._fetched = fetched

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Every parameter by name; tables that are elsewhere have no rows."""
        return {
            name: values.new_empty(0, values.shape[1]) if name in self._elsewhere else values
            for name, values in self._model.parameters.items()
        }

    @property
    def output_bias(self) -> Tensor:
        """[1]: the parameter that is added to every logit."""
        return self._model.output_bias

    @property
    def tables(self) -> frozenset[str]:
        """Names of the parameters of which an example reads few rows."""
        return self._model.tables

    def reads(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> BatchReads:
        """Which of the fetched rows the model would read."""
        reads = self._model.reads(public_ids, sensitive_ids)
        sensitive = reads.sensitive
        return dataclasses.replace(
            reads,
            public=tuple(self._placed(read) for read in reads.public),
            sensitive=None if sensitive is None else tuple(map(self._placed, sensitive)),
        )

    def forward_reads(self, reads: BatchReads) -> ForwardPass:
        """Computes logits from reads of fetched rows."""
        return self._model.forward_reads(reads)

    def _placed(self, read: TableReads) -> TableReads:
        if read.table not in self._elsewhere:
            return read
        fetched = self._fetched[read.table]
        places = torch.searchsorted(fetched.rows, read.rows)
        return dataclasses.replace(read, rows=places, values=fetched.values)
