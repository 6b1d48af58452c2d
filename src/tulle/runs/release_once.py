"""One released table for one payment: look, pay, draw, write, mark, put in place.

In this order nothing can get out unpaid, data that cannot be used cost nothing, and a command
that is repeated finds the first table again in place of drawing anew, which would average out.
"""

import dataclasses
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Protocol

from tulle.errors import RunStateError
from tulle.privacy.plan import Plan
from tulle.runs.release_books import (
    PaidRelease,
    ReleaseCharge,
    ReleaseKind,
    open_books,
    released_as,
)
from tulle.runs.release_files import Record, ReleaseFiles

Watch = Callable[[int], None]
"""Takes the rows done so far."""


class Draw(Protocol[Record]):
    """Makes one table and its record."""

    def check(self) -> None:
        """Looks at all raw data and refuses what cannot be used, before anything is spent."""

    def digest(self) -> bytes:
        """What tells the raw data from others. As sensitive as they are."""

    def write(self, files: ReleaseFiles[Record]) -> Record:
        """Draws, and writes table and record under their hidden names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """Bookkeeping of a release. None of it changes what is promised."""

    charge: ReleaseCharge | None = None
    again: bool = False
    """Pay and draw again although the ledger has this release already."""
    watch: Watch | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Released(Generic[Record]):
    """A released table and how it came about."""

    table: Path
    record: Record
    is_stored: bool
    """True if it was released before, so that nothing was spent or drawn."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRelease(Generic[Record]):
    """What is released where, and who pays for it."""

    plan: Plan
    kind: ReleaseKind
    out: Path
    """Of the table."""
    parse_record: Callable[[str], Record]
    options: ReleaseOptions

    def files(self, path: Path, tag: str) -> ReleaseFiles[Record]:
        """The files of a draw under a name."""
        return ReleaseFiles(path, tag, self.parse_record)


def release_once(release: OneRelease[Record], draw: Draw[Record]) -> Released[Record]:
    """Draws the table, or finds it if it was released before.

    Privacy:
      Event: that of the plan, charged before the first draw. Relies on: the hidden files are
      not looked at before they are in place.

    Raises:
      SpendRefusedError: A budget does not cover it. Nothing was spent.
      RunStateError: The file exists, or an earlier release of the same is gone.
    """
    if release.options.charge is None:
        files = release.files(release.out, secrets.token_hex(8))
        files.refuse_existing()
        files.discard_all()
        files.try_writing()
        draw.check()
        record = _write(draw, files)
        try:
            files.put_in_place()
        except BaseException:
            files.discard()
            raise
        return _released(release, record, is_stored=False)
    with open_books(release.options.charge, release.kind) as books:
        release_id = books.release_id(release.plan, draw.digest())
        files = release.files(release.out, release_id)
        paid = None if release.options.again else books.paid(release_id)
        if paid is not None and paid.is_out:
            return _released(release, _stored(release, paid, files), is_stored=True)
        files.refuse_existing()
        if paid is None:
            books.check(release.plan)
        else:
            release.files(paid.path, release_id).discard()
        files.try_writing()
        draw.check()
        if paid is None:
            spend = books.pay(release.plan, release_id, release.out)
        else:
            spend = books.take_up(paid)
        record = _write(draw, files)
        spend.mark_released(released_as=released_as(record.table_sha256, release.out))
        files.put_in_place()
    return _released(release, record, is_stored=False)


def _released(release: OneRelease[Record], record: Record, *, is_stored: bool) -> Released[Record]:
    return Released(table=release.out, record=record, is_stored=is_stored)


def _write(draw: Draw[Record], files: ReleaseFiles[Record]) -> Record:
    files.discard()
    try:
        return draw.write(files)
    except BaseException:
        files.discard()
        raise


def _stored(release: OneRelease[Record], paid: PaidRelease, files: ReleaseFiles[Record]) -> Record:
    """The record of a release that is out, its table in its place or copied to a new one."""
    out = files.table.absolute()
    for path in dict.fromkeys((out, paid.path)):
        record = release.files(path, files.tag).found(paid.table_sha256)
        if record is None or record.plan.fingerprint() != release.plan.fingerprint():
            continue
        if path != out:
            if path.suffix != out.suffix:
                raise RunStateError(
                    f"this {release.kind.name} is stored in {path}, and a copy has the same form; "
                    f"name a file that ends in {path.suffix}, not {out.suffix}."
                )
            files.refuse_existing()
            record = _renamed(record, out.name)
            files.take_copy(path, record)
        return record
    raise RunStateError(
        f"this {release.kind.name} was made of these data with this plan, as spend "
        f"{paid.spend.id} says, into {paid.path}, which is gone or changed. Restore it with its "
        "record, or pay for a second one with --again."
    )


def _renamed(record: Any, name: str) -> Any:
    return dataclasses.replace(record, table=name)
