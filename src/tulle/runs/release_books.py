"""One release for one payment, also when a command is repeated or was killed.

A ledger knows a release by a keyed hash of its plan and of its data. The spend is
marked released, with the hash of the table, before the table is put in place. So a
spend that is still open never got out, and the same command may have it without
paying again; one that is marked released must be found by that hash, not drawn anew.
"""

import contextlib
import dataclasses
import fcntl
import hmac
import os
import secrets
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tulle.accounting.budget import Span
from tulle.accounting.ledger import Ledger, OpenSpend
from tulle.accounting.ledger_rows import Spend, SpendStatus
from tulle.errors import ConfigError, RunStateError
from tulle.privacy.conditions import Assumption, Status
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency

_KEY_BYTES = 32
_WHERE = " in "


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseKind:
    """Releases that share one key and are kept apart from those of other kinds."""

    name: str
    """In the notes of the ledger, e.g. "label release"."""
    key_ending: str
    """Of the key's file beside the ledger."""
    adjacency: Adjacency | None = None
    """The only one under which budgets can count them; None if any can."""


def paid_once(what: str) -> Assumption:
    """What a card may say of a release on the books.

    Args:
      what: Is released, e.g. "measurement".
    """
    return Assumption(
        statement=f"The same {what} is not drawn a second time without being paid.",
        status=Status.ENFORCED,
        evidence="The ledger knows it by a keyed hash of data and plan, and what was given out by "
        "a hash; a repeated command returns that.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseCharge:
    """Which ledger pays for a release, under which purpose, for data of which time."""

    ledger: Ledger
    purpose: str
    at: datetime | None = None
    """When the data are from; needed where a charged budget renews."""
    until: datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaidRelease:
    """A spend of the ledger for one release, and where its table was to go."""

    spend: Spend

    @property
    def is_out(self) -> bool:
        """True if the table may have been seen."""
        return self.spend.status is not SpendStatus.OPEN

    @property
    def path(self) -> Path:
        """Where the table is, or was to go."""
        said = self.spend.released_as or self.spend.request.note
        return Path(said.partition(_WHERE)[2])

    @property
    def table_sha256(self) -> str:
        """Hash of the table that got out; empty if none was said to."""
        return (self.spend.released_as or "").partition(_WHERE)[0]


def released_as(table_sha256: str, path: Path) -> str:
    """What the ledger keeps of a table that gets out."""
    return f"{table_sha256}{_WHERE}{path.absolute()}"


class ReleaseBooks:
    """A ledger while one process makes releases of a kind on it. Made by `open_books`."""

    def __init__(self, charge: ReleaseCharge, kind: ReleaseKind, key: bytes) -> None:
        self._charge, self._kind, self._key = charge, kind, key

    def release_id(self, plan: Plan, data_digest: bytes) -> str:
        """The name of a release: the same for the same plan and data, and for no other."""
        message = plan.fingerprint().encode() + data_digest
        return hmac.digest(self._key, message, "sha256").hex()[:32]

    def check(self, plan: Plan) -> None:
        """Refuses what the ledger would refuse, before raw data are read."""
        self._check_adjacency()
        self._charge.ledger.check(
            plan.event,
            purpose=self._charge.purpose,
            unit=plan.guarantee.unit,
            at=self._charge.at,
            until=self._charge.until,
        )

    def paid(self, release_id: str) -> PaidRelease | None:
        """The last payment for this release, if there is one that it can rest on.

        An open one counts only if it charged the same purpose and time.
        """
        ledger, prefix = self._charge.ledger, self._note(release_id)
        budgets = [b for b in ledger.budgets() if b.counts(self._charge.purpose)]
        spends = {spend.id: spend for b in budgets for spend in ledger.spends(b.name)}
        for spend in (spends[number] for number in sorted(spends, reverse=True)):
            paid = PaidRelease(spend=spend)
            is_this = spend.request.note.startswith(prefix)
            if is_this and (paid.is_out or self._charges_alike(spend)):
                return paid
        return None

    def pay(self, plan: Plan, release_id: str, path: Path) -> OpenSpend:
        """Puts the cost on the books. It stays open until it is marked released.

        Raises:
          SpendRefusedError: A budget does not cover it. Nothing was spent.
        """
        self._check_adjacency()
        return self._charge.ledger.spend(
            plan.event,
            purpose=self._charge.purpose,
            note=f"{self._note(release_id)}{path.absolute()}",
            unit=plan.guarantee.unit,
            at=self._charge.at,
            until=self._charge.until,
        )

    def take_up(self, paid: PaidRelease) -> OpenSpend:
        """The open spend of a try that did not get to its end."""
        return self._charge.ledger.reopen(paid.spend.id, note=paid.spend.request.note)

    def _charges_alike(self, spend: Spend) -> bool:
        span = Span.of(self._charge.at, self._charge.until)
        return (spend.request.purpose, spend.request.span) == (self._charge.purpose, span)

    def _note(self, release_id: str) -> str:
        return f"{self._kind.name} {release_id}{_WHERE}"

    def _check_adjacency(self) -> None:
        only = self._kind.adjacency
        for budget in self._charge.ledger.budgets():
            if only is None or not budget.counts(self._charge.purpose):
                continue
            if budget.adjacency is not only:
                raise ConfigError(
                    f"budget {budget.name!r} counts under {budget.adjacency.value}, and a "
                    f"{self._kind.name} protects under {only.value}; charge it to a budget with "
                    f"adjacency {only.value}."
                )


@contextlib.contextmanager
def open_books(charge: ReleaseCharge, kind: ReleaseKind) -> Iterator[ReleaseBooks]:
    """Keeps other releases of this kind off the ledger until this one is done.

    The key of the hashes lies beside the ledger, readable by its owner alone. Without it
    nobody can compare a guess of the data with what the ledger says.

    Raises:
      RunStateError: Another process makes a release of this kind on this ledger.
    """
    path = charge.ledger.path.with_name(f"{charge.ledger.path.name}.{kind.key_ending}")
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(_key_file(path).open("rb"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            key = file.read()
        except BlockingIOError:
            raise RunStateError(
                f"another process makes a {kind.name} on {charge.ledger.path.name}; wait until "
                "it is done."
            ) from None
        except OSError as error:
            raise RunStateError(f"{path.name} cannot be used: {error.strerror or error}.") from None
        if len(key) != _KEY_BYTES:
            raise RunStateError(
                f"{path.name} is damaged: it must have {_KEY_BYTES} bytes. Restore it; with "
                "another key earlier releases are not found again."
            )
        yield ReleaseBooks(charge, kind, key)


def _key_file(path: Path) -> Path:
    if not path.exists():
        staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(staged, path)  # the first of several processes wins
        finally:
            staged.unlink(missing_ok=True)
    return path
