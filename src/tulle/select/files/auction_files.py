"""Auctions from a table with one row a candidate, whole auctions at a time.

Parquet, Arrow, delimited text, JSON lines or a table in memory; in JSON lines an auction may also
be one line with the list `candidates`. The candidates of an auction are consecutive rows. A file is
never held in memory: only the auctions of one block, the ids of all auctions, and names of ads that
are text.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.data.tables import rows as table_rows
from tulle.data.tables.memory import as_file
from tulle.data.tables.rows import RowSource, RowTable, column_names, read_row_tables, source_name
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_text, did_you_mean
from tulle.select.auctions import (
    BoolArray,
    FloatArray,
    IntArray,
)
from tulle.select.files.whole_auctions import (
    IdArray,
    SeenIds,
    auction_starts,
    refuse_repeats,
    shared_value,
    take_auction_ids,
    whole_auctions,
)

_REQUIRED = ("auction", "ad", "bid", "server_prob", "device_prob")
_OPTIONAL = ("user", "consent")
_NOT_READ = ("time", "click")
"""Roles of columns that auctions from a log have, and that no selection reads."""
_NO_PREDICTION = (
    "the set of candidates must not depend on private data, so a device may not leave one out. "
    "Where it has no prediction of its own, fill in the server's"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuctionColumns:
    """Names of the columns. Public."""

    auction: str = "auction_id"
    """Which auction a candidate is in."""
    ad: str = "ad"
    """Which ad it is."""
    bid: str = "bid"
    """What a click is worth to the advertiser, >= 0."""
    server_prob: str = "p_server"
    """Probability of a click by public data."""
    device_prob: str = "p_device"
    """Probability of a click by private data. Sensitive."""
    user: str | None = "user_id"
    """Who asked. This and the following may be absent under their default names, or be None."""
    time: str | None = "timestamp"
    """Time of the request. Not read by a selection."""
    consent: str | None = "consent"
    """Whether private data may be used."""
    click: str | None = "click"
    """Whether the candidate is clicked if shown, where that is known. Not read by a selection."""
    has_numeric_ids: bool = False
    """Auctions and ads in text files are whole numbers; otherwise they are kept as text."""

    def __post_init__(self) -> None:
        names: dict[str, str] = {}
        for role in (*_REQUIRED, *_OPTIONAL, *_NOT_READ):
            name = getattr(self, role)
            if name is None and role not in _REQUIRED:
                continue
            check_text(role, name)
            if name in names:
                raise ConfigError(
                    f"{role}={name!r} is the column of {names[name]} too; name another."
                )
            names[name] = role

    def needed(self, *, with_device: bool) -> Container[str]:
        """The columns that a reading of auctions needs, for tables that are written to disk.

        Args:
          with_device: Whether what devices know is read.
        """
        roles = set(_REQUIRED + _OPTIONAL) - (set() if with_device else {"device_prob"})
        return _NeededColumns(frozenset(getattr(self, role) for role in roles))


@dataclasses.dataclass(frozen=True)
class _NeededColumns:
    names: frozenset[str | None]

    def __contains__(self, name: object) -> bool:
        # A column that may be a refusal under another name is kept, for the reader to stop at it.
        return name in self.names or _is_like_consent(str(name))


class IdCodes:
    """Numbers texts from 0 in the order in which they first come."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._names: npt.NDArray[np.object_] = np.empty(0, dtype=object)

    def __len__(self) -> int:
        return len(self._codes)

    def encode(self, ids: pl.Series) -> npt.NDArray[np.int64]:
        """The code of each text; new ones get the next codes."""
        distinct = ids.unique(maintain_order=True)
        codes = [self._codes.setdefault(name, len(self._codes)) for name in distinct]
        return ids.replace_strict(distinct, codes, return_dtype=pl.Int64).to_numpy()

    def names(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
        """The text of each code."""
        if len(self._names) < len(self._codes):
            self._names = np.array(list(self._codes), dtype=object)
        return self._names[codes]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AuctionRows:
    """Consecutive auctions; candidates of auction i are at offsets[i] to offsets[i + 1]."""

    auction_ids: IdArray
    """[auctions], whole numbers or texts as the file has them."""
    offsets: IntArray
    ads: IntArray
    """[candidates], distinct in an auction; codes if the file has texts, see `original_ads`."""
    bids: FloatArray
    server_click_probs: FloatArray
    device_click_probs: FloatArray | None = dataclasses.field(repr=False)
    """[candidates]. Sensitive. None if it was not read; 0 where the user did not agree."""
    users: IdArray | None = dataclasses.field(repr=False)
    """[auctions]. None if the file has none, as consents."""
    consents: BoolArray | None
    """[auctions], whether private data may be used."""
    ad_codes: IdCodes | None = dataclasses.field(repr=False)
    """Names of the ads if the file has texts; the same object for all blocks of a reading."""

    def __len__(self) -> int:
        return len(self.auction_ids)

    def original_ads(self, ads: IntArray) -> IdArray:
        """Ads as the file has them, for entries of `ads`."""
        return ads if self.ad_codes is None else self.ad_codes.names(ads)


def auctions_file(
    auctions: object, columns: AuctionColumns, *, with_device: bool
) -> contextlib.AbstractContextManager[Path]:
    """The file of auctions; of a table in memory, with no column that is not needed.

    Args:
      auctions: A path or a table.
      columns: Names of its columns.
      with_device: Whether predictions of devices are needed. If not, they stay in memory.
    """
    needed = columns.needed(with_device=with_device)
    return as_file(auctions, name="auctions.parquet", columns=needed)


def read_auctions(
    source: RowSource,
    columns: AuctionColumns | None = None,
    *,
    with_device: bool,
    candidates_per_block: int = 200_000,
) -> Iterator[AuctionRows]:
    """Streams the auctions of a file or a table, in its order.

    Args:
      source: A table in memory, or a file; see `read_row_tables`.
      columns: Names of the columns; None for the default ones.
      with_device: Read what devices predict, which must be there. Otherwise that column is not
        looked at.
      candidates_per_block: Approximate number of candidates that are read at once.

    Privacy:
      Reads sensitive rows and releases nothing. Unit: the private data of one device.
      Errors name places and columns, never values.

    Raises:
      DataError: A column is missing, a value is missing or out of its range, an auction comes
        back later or has an ad twice, or there is no auction.
    """
    if candidates_per_block < 1:
        raise ConfigError(f"candidates_per_block={candidates_per_block} must be >= 1.")
    chosen = columns or AuctionColumns()
    roles, absent = _roles(source, chosen, with_device=with_device)
    tables = (
        _typed(rows, roles, has_numeric_ids=chosen.has_numeric_ids)
        for rows in read_row_tables(
            source, tuple(roles.values()), absent=absent, rows_per_table=candidates_per_block
        )
    )
    codes = IdCodes()
    seen = SeenIds()
    is_empty = True
    for rows in whole_auctions(tables, candidates_per_block):
        is_empty = False
        yield _auction_rows(rows, roles, codes, seen)
    if is_empty:
        raise DataError(f"{source_name(source)} has no auctions; it needs at least one candidate.")


def _roles(
    source: RowSource, columns: AuctionColumns, *, with_device: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    present = column_names(source)
    defaults = {field.name: field.default for field in dataclasses.fields(columns)}
    roles, absent = {}, []
    for role in (*_REQUIRED, *_OPTIONAL):
        name = getattr(columns, role)
        if name is None or (role == "device_prob" and not with_device):
            continue
        if role in _OPTIONAL and name == defaults[role] and name not in present:
            absent.append(name)
        else:
            roles[role] = name
    similar = [name for name in present if _is_like_consent(name)]
    if "consent" in absent and similar:  # to overlook a refusal would be worse than to stop
        raise DataError(
            f"{source_name(source)} has no column 'consent', but {similar[0]!r}; name it in "
            "AuctionColumns(consent=...), or set that to None if it means something else."
        )
    return roles, tuple(absent)


def _is_like_consent(name: str) -> bool:
    return bool(did_you_mean("consent", [name.lower()]))


def _typed(rows: RowTable, roles: dict[str, str], *, has_numeric_ids: bool) -> RowTable:
    ids = table_rows.whole_numbers_of if has_numeric_ids else table_rows.ids_of
    readers: dict[str, table_rows.ColumnReader] = {
        "auction": ids,
        "ad": ids,
        "bid": table_rows.reals_of,
        "server_prob": table_rows.chances_of,
        "device_prob": functools.partial(table_rows.chances_of, if_missing=_NO_PREDICTION),
        "user": table_rows.ids_of,
        "consent": table_rows.flags_of,
    }
    if "consent" in roles and "device_prob" in roles:
        rows = _without_refused(rows, roles)
    values = [readers[role](rows, name).alias(role) for role, name in roles.items()]
    return dataclasses.replace(rows, table=pl.DataFrame(values))


def _without_refused(rows: RowTable, roles: dict[str, str]) -> RowTable:
    """Zeros in place of predictions of people who did not agree: these are not looked at."""
    agreed = table_rows.flags_of(rows, roles["consent"])
    probs = rows.table[roles["device_prob"]]
    zero = pl.lit("0" if probs.dtype == pl.String else 0.0)
    kept = pl.select(pl.when(agreed).then(probs).otherwise(zero)).to_series()
    return dataclasses.replace(rows, table=rows.table.with_columns(kept.alias(probs.name)))


def _auction_rows(
    rows: RowTable, roles: dict[str, str], codes: IdCodes, seen: SeenIds
) -> AuctionRows:
    table = rows.table
    auction_ids = take_auction_ids(rows, roles["auction"], seen)
    refuse_repeats(rows, "ad", roles["ad"])
    has_text = table["ad"].dtype == pl.String
    shared: dict[str, Any] = {
        role: shared_value(rows, role, roles[role]) for role in ("user", "consent") if role in roles
    }
    return AuctionRows(
        auction_ids=auction_ids,
        offsets=np.append(auction_starts(rows), len(table)),
        ads=codes.encode(table["ad"]) if has_text else table["ad"].to_numpy(),
        bids=table["bid"].to_numpy(),
        server_click_probs=table["server_prob"].to_numpy(),
        device_click_probs=table["device_prob"].to_numpy() if "device_prob" in roles else None,
        users=shared.get("user"),
        consents=shared.get("consent"),
        ad_codes=codes if has_text else None,
    )
