"""One release for one payment: look, pay, draw, write, mark, put in place.

In this order nothing can get out unpaid, data that cannot be used cost nothing, and a command
that is repeated finds the first release again in place of drawing anew, which would average out.
"""

import dataclasses
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol

from tulle.errors import RunStateError
from tulle.privacy.plan import Plan
from tulle.runs.charging import (
    PaidRelease,
    ReleaseCharge,
    ReleaseKind,
    open_payments,
    released_as,
)
from tulle.runs.record import RecordType, Result
from tulle.runs.release_files import ReleaseFiles

Watch = Callable[[int], None]
"""Takes the rows done so far."""


class Draw(Protocol[RecordType]):
    """Makes what is released, and its record."""

    def check(self) -> None:
        """Looks at all raw data and refuses what cannot be used, before anything is spent."""

    def digest(self) -> bytes:
        """What tells the raw data from others. As sensitive as they are."""

    def write(self, files: ReleaseFiles[RecordType]) -> RecordType:
        """Draws, and writes what is released and its record under their hidden names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """Bookkeeping of a release. None of it changes what is promised."""

    charge: ReleaseCharge | None = None
    again: bool = False
    """Pay and draw again although the ledger has this release already."""
    watch: Watch | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRelease(Generic[RecordType]):
    """What is released where, and who pays for it."""

    plan: Plan
    kind: ReleaseKind
    out: Path
    """The file that is released."""
    record_type: type[RecordType]
    """The kind of record that the release has; that of a table lies beside it."""
    options: ReleaseOptions

    def files(self, path: Path, tag: str) -> ReleaseFiles[RecordType]:
        """The files of a draw under a name."""
        return ReleaseFiles(path, tag, self.record_type)


def release_once(
    release: OneRelease[RecordType], draw: Draw[RecordType]
) -> Result[RecordType, Plan]:
    """Draws what is released, or finds it if it was released before.

    Privacy:
      Event: that of the plan, charged before the first draw. Relies on: the hidden files are
      not looked at before they are in place.

    Raises:
      SpendRefusedError: A budget does not cover it. Nothing was spent.
      RunStateError: The file exists, or an earlier release of the same is gone.
    """
    if release.options.charge is None:
        # No ledger knows this draw, so no later try may take its hidden files for its own.
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
    with open_payments(release.options.charge, release.kind) as payments:
        release_id = payments.release_id(release.plan, draw.digest())
        files = release.files(release.out, release_id)
        paid = None if release.options.again else payments.paid(release_id)
        # A second draw of what is out would let a reader average the noise away.
        if paid is not None and paid.is_out:
            return _released(release, _stored(release, paid, files), is_stored=True)
        files.refuse_existing()
        if paid is None:
            payments.check(release.plan)
        else:
            # The paid try may have named another output; its hidden half must not be found there.
            release.files(paid.path, release_id).discard()
        # Whatever can fail for a reason other than the draw fails here, while it is still free.
        files.try_writing()
        draw.check()
        if paid is None:
            spend = payments.pay(release.plan, release_id, release.out)
        else:
            spend = payments.take_up(paid)
        record = _write(draw, files)
        # Marked before it gets its name: killed in between, the draw counts as seen and is found by
        # its hash. In the other order it could be read and then drawn anew for the same payment.
        spend.mark_released(released_as=released_as(files.hidden_sha256(record), release.out))
        files.put_in_place()
    return _released(release, record, is_stored=False)


def _released(
    release: OneRelease[RecordType], record: RecordType, *, is_stored: bool
) -> Result[RecordType, Plan]:
    return Result(plan=record.plan, record=record, path=release.out, is_stored=is_stored)


def _write(draw: Draw[RecordType], files: ReleaseFiles[RecordType]) -> RecordType:
    files.discard()
    try:
        return draw.write(files)
    except BaseException:
        files.discard()
        raise


def _stored(
    release: OneRelease[RecordType], paid: PaidRelease, files: ReleaseFiles[RecordType]
) -> RecordType:
    """The record of a release that is out, its files in their place or copied to a new one."""
    out = files.table.absolute()
    # The hash in the ledger decides, not the name: a file that was edited is not what was released.
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
            record = files.take_copy(path, record)
        return record
    raise RunStateError(
        f"this {release.kind.name} was made of these data with this plan, as spend "
        f"{paid.spend.id} says, into {paid.path}, which is gone or changed. Restore it with its "
        "record, or pay for a second one with --again."
    )
