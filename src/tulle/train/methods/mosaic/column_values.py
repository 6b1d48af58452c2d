"""The values of a column that tables of cells tell apart: the frequent ones, and all others as one.

How frequent the values of a public column are is public. Values of a sensitive column are counted
with noise, and a value whose count does not stand out of the noise is merged with the others. A
sensitive column with many values also gets a coarse form, which groups values by how frequent they
are: rare values, each too rare for a cell of its own, then still tell something together.

Where it is known which values there are, few of them are all kept. Each public fact about them is
one more coarse form, which groups values of which the same is known: what a group's table explains,
the table of single values need not, so that a value of few rows stays at its group.

Bins of numbers and of times lie in order, and keep it: a bin with too few rows is merged with its
neighbours, and so are bins where a table must be smaller. What is no bin, such as a missing value,
stands apart.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.feature import PreparedFeature
from tulle.train.methods.mosaic.cell_model import CellPart

FloatArray = NDArray[np.float64]
Ranks = NDArray[np.int32] | None
"""What each id of a column was in an earlier model; None if it had no table of it."""

_CLASS_EDGES = (30, 60, 125, 250, 500, 1_000, 4_000, 20_000, 100_000, 500_000)
"""Numbers of rows that separate the frequency classes of a coarse form."""
_CLEAR_DEVIATIONS = 3.0
"""Class edges below this many standard deviations of the noise on a count are dropped: noise would
scatter values across them at random."""
_KEPT_DEVIATIONS = 4.0
"""Standard deviations of noise that a noisy count must exceed for its value to be kept. Of 50,000
values that no row has, one or two are kept by mistake: 50,000 * P(N(0, 1) > 4) = 1.6."""
_SEEN_DEVIATIONS = 2.0
"""Deviations of noise that a noisy count must exceed for typical rows to have its value."""
_FEW_VALUES = 64
"""Number of values up to which all values of a sensitive column are kept, whatever their noisy
counts: so few cells cost little even if some are empty."""
_FEW_KNOWN = 1024
"""The same for values that are known to occur, as none of them was made by noise. A pair then still
tells 2^18 / 1024 = 256 values of another column apart."""
VALUES, FREQUENCY, FIRST_FACT = 0, 1, 2
"""Numbers of the forms of a column: its values, frequency classes, and facts from there on."""
LEAST_ROWS = 0.5
"""Values with fewer rows than this, by exact or noisy counts, are taken as not occurring."""
_LEAST_COUNT = 1e-9
"""Number of rows added to each bin before bins are merged, so that their sum is not 0."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ColumnValues:
    """A column, or a coarse form of it, as tables see it. Nothing in it is raw."""

    name: str
    """Name of the column, in words."""
    role: str
    """'public' or 'sensitive'."""
    column: int
    """Place of the column among the features of that role."""
    ranks: NDArray[np.int32]
    """Rank of each id: 0 for the others, 1 for the most frequent value, and so on; in a coarse
    form the frequency class."""
    counts: FloatArray
    """Number of rows of each rank: exact for a public column, noisy for a sensitive one."""
    form: int = VALUES
    """What ranks are: single values, frequency classes, or groups by a fact, one number each."""
    order: str = ""
    """"line" or "cycle" if some ranks are bins that lie in that order; empty if none do."""
    num_bins: int = 0
    """Number of these bins: ranks 1 to num_bins. Ranks above them stand apart."""
    likely: FloatArray | None = None
    """[ids]: how frequent each id of a sensitive column is, by noisy counts; None in coarse forms
    and for public columns."""

    @property
    def num_values(self) -> int:
        """Number of values that are told apart, the others among them as one."""
        return len(self.counts)

    @property
    def num_occurring(self) -> int:
        """Number of values that rows have, as far as it is known."""
        return int((self.counts >= LEAST_ROWS).sum())

    @property
    def source(self) -> tuple[str, int]:
        """Role and place of the column; a coarse form has those of the column it is made of."""
        return self.role, self.column

    @property
    def identity(self) -> tuple[str, int, int]:
        """Key that tells a column from others and from its coarse forms, whatever their names."""
        return self.role, self.column, self.form

    @property
    def is_of_fact(self) -> bool:
        """Whether ranks are groups of values of which the same is publicly known."""
        return self.form >= FIRST_FACT

    def num_bins_of(self, size: int) -> int:
        """Number of bins in order, if only `size` values are told apart; 0 if no order is left."""
        num_apart = self.num_values - 1 - self.num_bins
        return max(0, size - 1 - num_apart) if self.num_bins else 0

    def limited_counts(self, size: int) -> FloatArray:
        """Number of rows of each value, if only `size` values are told apart."""
        return np.bincount(self._places(size), self.counts, minlength=size).astype(np.float64)

    def part(self, size: int) -> CellPart:
        """The column as a part of a table that tells only `size` values apart."""
        lookup = self._places(size)[self.ranks].astype(np.int32)
        return CellPart(role=self.role, column=self.column, lookup=lookup, size=size)

    def _places(self, size: int) -> NDArray[np.int64]:
        """Place of each rank among `size` values: rare ones join the others, bins a neighbour."""
        ranks = np.arange(self.num_values)
        num_bins = self.num_bins_of(size)
        if size >= self.num_values or num_bins == 0:
            return np.where(ranks < size, ranks, 0)
        counts = self.counts[1 : self.num_bins + 1] + _LEAST_COUNT
        # The middle of each bin among all rows, in parts of about as many rows each.
        middles = (np.cumsum(counts) - counts / 2) / counts.sum()
        bins = 1 + np.minimum(np.floor(middles * num_bins).astype(np.int64), num_bins - 1)
        apart = ranks[self.num_bins + 1 :] - self.num_bins + num_bins
        return np.concatenate([[0], bins, apart])


def public_values(
    name: str,
    column: int,
    raw_counts: NDArray[np.int64],
    feature: PreparedFeature | None = None,
    earlier: Ranks = None,
) -> ColumnValues:
    """Values of a public column: every value that occurs has its own rank.

    Args:
      name: Name of the column.
      column: Place of the column among the public features.
      raw_counts: [ids]: exact number of rows that have each id.
      feature: Says which ids are bins that lie in order; None: none of them are.
      earlier: [ids]: value of each id in an earlier model, whose values stay; None: there is none.

    Privacy:
      Counts of a public column are public; nothing else may be given here.
    """
    counts = raw_counts.astype(np.float64)
    if feature is not None and feature.order:
        return _in_order(feature, column, counts, least=LEAST_ROWS, earlier=earlier)
    return _ranked(name, "public", column, counts, least=LEAST_ROWS, earlier=earlier)


def sensitive_values(
    name: str,
    column: int,
    noisy_counts: FloatArray,
    count_stddev: float,
    feature: PreparedFeature | None = None,
    *,
    earlier: Ranks = None,
    classes: Ranks = None,
) -> list[ColumnValues]:
    """Values of a sensitive column by noisy counts and, if it has many, its coarse forms.

    Args:
      name: Name of the column.
      column: Place of the column among the sensitive features.
      noisy_counts: [ids]: number of rows that have each id, with noise.
      count_stddev: Standard deviation of the noise on each count.
      feature: Says which ids are bins that lie in order, and which are known values; None: none
        of them are.
      earlier: [ids]: value of each id in an earlier model, whose values stay; None: there is none.
      classes: [ids]: frequency class of each id in an earlier model; None: there is none.
    """
    least = _KEPT_DEVIATIONS * count_stddev
    if feature is not None and feature.num_known:
        forms = _known_forms(feature, column, noisy_counts, count_stddev, earlier, classes)
    elif feature is not None and feature.order:
        forms = [_in_order(feature, column, noisy_counts, least=least, earlier=earlier)]
    elif len(noisy_counts) <= _FEW_VALUES:
        forms = [_ranked(name, "sensitive", column, noisy_counts, least=-np.inf)]
    else:
        values = _ranked(name, "sensitive", column, noisy_counts, least=least, earlier=earlier)
        forms = [values, _by_frequency(name, column, noisy_counts, count_stddev, classes)]
    return [dataclasses.replace(forms[0], likely=_likely(noisy_counts, count_stddev)), *forms[1:]]


def _likely(noisy_counts: FloatArray, count_stddev: float) -> FloatArray:
    """How frequent each id is, about. What does not stand out of the noise is left out."""
    clear = np.where(noisy_counts > _SEEN_DEVIATIONS * count_stddev, noisy_counts, 0.0)
    return clear if clear.any() else np.maximum(noisy_counts, _LEAST_COUNT)


def _by_frequency(
    name: str, column: int, noisy_counts: FloatArray, count_stddev: float, classes: Ranks = None
) -> ColumnValues:
    """The coarse form of a sensitive column by how frequent values are, as far as noise shows it.

    Args:
      name: Name of the column.
      column: Place of the column among the sensitive features.
      noisy_counts: [ids]: number of rows that have each id, with noise.
      count_stddev: Standard deviation of the noise on each count.
      classes: [ids]: frequency class of each id in an earlier model; None: there is none.
    """
    edges = [edge for edge in _CLASS_EDGES if edge > _CLEAR_DEVIATIONS * count_stddev]
    num_classes = len(edges) + 1 if classes is None else int(classes.max()) + 1
    if classes is None:
        classes = np.digitize(noisy_counts, edges).astype(np.int32)
    positive = np.maximum(noisy_counts, 0)
    rows = np.bincount(classes, positive, minlength=num_classes).astype(np.float64)
    return ColumnValues(
        name=f"frequency of {name}",
        role="sensitive",
        column=column,
        ranks=classes,
        counts=rows,
        form=FREQUENCY,
    )


def _known_forms(
    feature: PreparedFeature,
    column: int,
    noisy_counts: FloatArray,
    count_stddev: float,
    earlier: Ranks,
    classes: Ranks,
) -> list[ColumnValues]:
    """Forms of a sensitive column whose values are known: values, frequencies and facts.

    Args:
      feature: Says which ids are known values, and what is known of them. It is public.
      column: Place of the column among the sensitive features.
      noisy_counts: [ids]: number of rows that have each id, with noise.
      count_stddev: Standard deviation of the noise on each count.
      earlier: [ids]: value of each id in an earlier model, whose values stay; None: there is none.
      classes: [ids]: frequency class of each id in an earlier model; None: there is none.
    """
    first, number = feature.first_known, feature.num_known
    end = first + number + 2  # behind the known values those that are missing, and all others
    # No row has an id of another feature: what counts show there is noise alone.
    counts, own = np.zeros(len(noisy_counts)), slice(first, end)
    counts[own] = noisy_counts[own]
    is_few = number <= _FEW_KNOWN
    known = None if earlier is None else earlier[own]
    least = -np.inf if is_few else _KEPT_DEVIATIONS * count_stddev
    groups = np.arange(number + 2)
    forms = [_form_of_known(feature.name, column, counts, own, groups, least=least, earlier=known)]
    if not is_few:
        forms.append(_by_frequency(feature.name, column, counts, count_stddev, classes))
    for place, fact in enumerate(feature.facts):
        num_groups = len(set(fact.groups))
        if not 1 < num_groups < number:
            continue  # it tells nothing, or as much as the values themselves
        groups = np.array([*fact.groups, num_groups, num_groups + 1])
        name = f"{fact.name} of {feature.name}"
        form = _form_of_known(name, column, counts, own, groups, least=-np.inf)
        forms.append(dataclasses.replace(form, form=FIRST_FACT + place))
    return forms


def _form_of_known(
    name: str,
    column: int,
    counts: FloatArray,
    own: slice,
    groups: NDArray[np.int64],
    *,
    least: float,
    earlier: Ranks = None,
) -> ColumnValues:
    """A form of known values by groups of them, of which those of few rows are others.

    Args:
      name: Name of the form.
      column: Place of the column among the sensitive features.
      counts: [ids]: number of rows that have each id.
      own: Ids of the known values, of missing and of all other values.
      groups: Group of each of these ids.
      least: Number of rows that a group must exceed to have a rank of its own.
      earlier: [groups]: value of each in an earlier model, which stays; None: there is none.
    """
    found = np.bincount(groups, counts[own]).astype(np.float64)
    of_groups, kept = _ranks(found, least=least, earlier=earlier)
    ranks = np.zeros(len(counts), np.int32)
    ranks[own] = of_groups[groups]
    others = max(found.sum() - found[kept].sum(), 0.0)
    return ColumnValues(
        name=name,
        role="sensitive",
        column=column,
        ranks=ranks,
        counts=np.maximum(np.concatenate([[others], found[kept]]), 0.0),
    )


def _ranks(
    counts: FloatArray, *, least: float, earlier: Ranks = None
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Rank of each id, from 1 on if its count exceeds `least`, else 0; and the ids by rank.

    Args:
      counts: [ids]: number of rows of each id, exact or noisy.
      least: Number of rows that an id must exceed.
      earlier: [ids]: value of each id in an earlier model, whose values stay; None: there is none.
    """
    is_kept = counts > least if earlier is None else (counts > least) | (earlier > 0)
    # A stable sort: equal counts keep the order of their ids on every machine.
    order = np.argsort(-counts, kind="stable")
    kept = order[is_kept[order]]
    ranks = np.zeros(len(counts), np.int32)
    ranks[kept] = np.arange(1, len(kept) + 1)
    return ranks, kept


def _ranked(
    name: str,
    role: str,
    column: int,
    counts: FloatArray,
    *,
    least: float,
    earlier: Ranks = None,
) -> ColumnValues:
    """Ranks the values whose counts exceed `least`, and those of `earlier`; others get rank 0."""
    ranks, kept = _ranks(counts, least=least, earlier=earlier)
    others = max(counts.sum() - counts[kept].sum(), 0.0)
    return ColumnValues(
        name=name,
        role=role,
        column=column,
        ranks=ranks,
        counts=np.maximum(np.concatenate([[others], counts[kept]]), 0.0),
    )


def _in_order(
    feature: PreparedFeature,
    column: int,
    counts: FloatArray,
    *,
    least: float,
    earlier: Ranks = None,
) -> ColumnValues:
    """Ranks in the order of bins. A bin with too few rows is merged with the next ones.

    Args:
      feature: Says which ids are bins, and which ones behind them stand apart.
      column: Place of the column among the features of its role.
      counts: [ids]: number of rows of each id, exact or noisy.
      least: Number of rows that a bin must exceed to stay alone.
      earlier: [ids]: value of each id in an earlier model, whose bins stay; None: there is none.
    """
    end = feature.first_bin + feature.num_bins
    in_bins, apart = counts[feature.first_bin : end], counts[end : end + feature.num_apart]
    # No id but these is one of the feature, so there are no others.
    ranks = np.zeros(len(counts), np.int32)
    are_known = np.zeros(len(apart), np.bool_)
    if earlier is None:
        ranks[feature.first_bin : end] = _merged_bins(in_bins, least)
    else:
        ranks[feature.first_bin : end] = earlier[feature.first_bin : end]
        are_known = earlier[end : end + feature.num_apart] > 0
    groups = max(1, int(ranks.max()))
    # Of a public column only those that occur; of a sensitive one all, since they are few.
    is_public = feature.role == "public"
    kept = np.flatnonzero((apart > least) | are_known) if is_public else np.arange(len(apart))
    ranks[end + kept] = groups + 1 + np.arange(len(kept))
    found = np.bincount(ranks, counts, minlength=groups + 1 + len(kept)).astype(np.float64)
    found[0] = 0.0
    return ColumnValues(
        name=feature.name,
        role=feature.role,
        column=column,
        ranks=ranks,
        counts=np.maximum(found, 0.0),
        order=feature.order,
        num_bins=groups,
    )


def _merged_bins(counts: FloatArray, least: float) -> NDArray[np.int32]:
    """Number of the group of each bin, from 1 on: bins with few rows join their neighbours.

    Args:
      counts: [bins]: number of rows of each bin.
      least: Number of rows that a group must exceed.
    """
    ranks = np.zeros(len(counts), np.int32)
    groups, waiting = 1, 0.0
    for place, count in enumerate(counts):
        if waiting > least:
            groups, waiting = groups + 1, 0.0
        ranks[place] = groups
        waiting += count
    if groups > 1 and waiting <= least:
        ranks[ranks == groups] = groups - 1
    return ranks
