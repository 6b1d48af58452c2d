"""Auctions from a file with one row a candidate, whole auctions at a time.

Parquet, delimited text or JSON lines; in JSON lines an auction may also be one line with the
list `candidates`. The candidates of an auction are consecutive rows. A file is never held in
memory: only the auctions of one block, the ids of all auctions, and names of ads that are text.
"""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.data import declared_values
from tulle.data.id_codes import IdCodes
from tulle.data.row_files import RowTable, column_names, read_row_tables
from tulle.data.seen_ids import IdArray, SeenIds
from tulle.data.whole_auctions import (
    auction_starts,
    refuse_repeats,
    shared_value,
    take_auction_ids,
    whole_auctions,
)
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_text, did_you_mean

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_REQUIRED = ("auction", "ad", "bid", "server_prob", "device_prob")
_OPTIONAL = ("user", "time", "consent", "click")
_NO_PREDICTION = (
    "the set of candidates must not depend on private data, so a device may not leave one out. "
    "Where it has no prediction of its own, fill in the server's"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuctionColumns:
    """Names of the columns. Public."""

    auction: str = "auction_id"
    ad: str = "ad"
    bid: str = "bid"
    """What a click is worth to the advertiser, >= 0."""
    server_prob: str = "p_server"
    """Chance of a click by public data."""
    device_prob: str = "p_device"
    """Chance of a click by private data. Sensitive."""
    user: str | None = "user_id"
    """This and the following may be absent under their default names, or be None."""
    time: str | None = "timestamp"
    consent: str | None = "consent"
    click: str | None = "click"
    """Whether the candidate is clicked if shown, where that is known. Sensitive."""
    has_numeric_ids: bool = False
    """Auctions and ads in text files are whole numbers; otherwise they are kept as text."""

    def __post_init__(self) -> None:
        names: dict[str, str] = {}
        for role in (*_REQUIRED, *_OPTIONAL):
            name = getattr(self, role)
            if name is None and role in _OPTIONAL:
                continue
            check_text(role, name)
            if name in names:
                raise ConfigError(
                    f"{role}={name!r} is the column of {names[name]} too; name another."
                )
            names[name] = role


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
    clicks: BoolArray | None = dataclasses.field(repr=False)
    """[candidates]. Sensitive. None if it was not read, or the file has none."""
    users: IdArray | None = dataclasses.field(repr=False)
    """[auctions]. None if the file has none, as times and consents."""
    times: IntArray | None = dataclasses.field(repr=False)
    """[auctions], whole seconds."""
    consents: BoolArray | None
    """[auctions], whether private data may be used."""
    ad_codes: IdCodes | None = dataclasses.field(repr=False)
    """Names of the ads if the file has texts; the same object for all blocks of a reading."""

    def __len__(self) -> int:
        return len(self.auction_ids)

    def original_ads(self, ads: IntArray) -> IdArray:
        """Ads as the file has them, for entries of `ads`."""
        return ads if self.ad_codes is None else self.ad_codes.names(ads)


def read_auctions(
    path: Path,
    columns: AuctionColumns | None = None,
    *,
    with_device: bool,
    candidates_per_block: int = 200_000,
) -> Iterator[AuctionRows]:
    """Streams the auctions of a file, in its order.

    Args:
      path: Ends in .parquet, .csv, .tsv, .jsonl or .ndjson; text may end in .gz or .zst too.
      columns: Names of the columns; None for the default ones.
      with_device: Read what devices know: their predictions, which must be there, and clicks,
        if they are. Otherwise these columns are not looked at.
      candidates_per_block: About how many candidates are read at once.

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
    roles, absent = _roles(path, chosen, with_device=with_device)
    tables = (
        _typed(rows, roles, has_numeric_ids=chosen.has_numeric_ids)
        for rows in read_row_tables(
            path, tuple(roles.values()), absent=absent, rows_per_table=candidates_per_block
        )
    )
    codes = IdCodes()
    seen = SeenIds()
    is_empty = True
    for rows in whole_auctions(tables, candidates_per_block):
        is_empty = False
        yield _auction_rows(rows, roles, codes, seen)
    if is_empty:
        raise DataError(f"{path.name} has no auctions; it needs at least one candidate.")


def _roles(
    path: Path, columns: AuctionColumns, *, with_device: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    present = column_names(path)
    defaults = {field.name: field.default for field in dataclasses.fields(columns)}
    roles, absent = {}, []
    for role in (*_REQUIRED, *_OPTIONAL):
        name = getattr(columns, role)
        is_for_devices = role in ("device_prob", "click")
        if name is None or (is_for_devices and not with_device):
            continue
        if role in _OPTIONAL and name == defaults[role] and name not in present:
            absent.append(name)
        else:
            roles[role] = name
    similar = [name for name in present if did_you_mean("consent", [name.lower()])]
    if "consent" in absent and similar:  # to overlook a refusal would be worse than to stop
        raise DataError(
            f"{path.name} has no column 'consent', but {similar[0]!r}; name it in "
            "AuctionColumns(consent=...), or set that to None if it means something else."
        )
    return roles, tuple(absent)


def _typed(rows: RowTable, roles: dict[str, str], *, has_numeric_ids: bool) -> RowTable:
    ids = declared_values.whole_numbers_of if has_numeric_ids else declared_values.ids_of
    readers: dict[str, declared_values.ColumnReader] = {
        "auction": ids,
        "ad": ids,
        "bid": declared_values.reals_of,
        "server_prob": declared_values.chances_of,
        "device_prob": functools.partial(declared_values.chances_of, if_missing=_NO_PREDICTION),
        "user": declared_values.ids_of,
        "time": declared_values.times_of,
        "consent": declared_values.flags_of,
        "click": declared_values.flags_of,
    }
    if "consent" in roles and "device_prob" in roles:
        rows = _without_refused(rows, roles)
    values = [readers[role](rows, name).alias(role) for role, name in roles.items()]
    return dataclasses.replace(rows, table=pl.DataFrame(values))


def _without_refused(rows: RowTable, roles: dict[str, str]) -> RowTable:
    """Zeros in place of predictions of people who did not agree: these are not looked at."""
    agreed = declared_values.flags_of(rows, roles["consent"])
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
        role: shared_value(rows, role, roles[role])
        for role in ("user", "time", "consent")
        if role in roles
    }
    from_devices = {
        role: table[role].to_numpy() for role in ("device_prob", "click") if role in roles
    }
    return AuctionRows(
        auction_ids=auction_ids,
        offsets=np.append(auction_starts(rows), len(table)),
        ads=codes.encode(table["ad"]) if has_text else table["ad"].to_numpy(),
        bids=table["bid"].to_numpy(),
        server_click_probs=table["server_prob"].to_numpy(),
        device_click_probs=from_devices.get("device_prob"),
        clicks=from_devices.get("click"),
        users=shared.get("user"),
        times=shared.get("time"),
        consents=shared.get("consent"),
        ad_codes=codes if has_text else None,
    )
