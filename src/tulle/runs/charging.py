"""What every verb that releases takes from its caller: a ledger, the time of the data, a seed.

The words are the same in all four jobs: `ledger`, `purpose`, `at`, `until`, `again` and `seed`.
Here they become the charge and the source of noise that the release protocol works with.

A release is paid once, also when a command is repeated or was killed. The ledger knows it by a
keyed hash of its plan and of its data. The spend is marked released, with the hash of the table,
before the table is put in place. So a spend that is still open never got out, and the same command
may have it without paying again; one that is marked released must be found by that hash, not drawn
anew.
"""

import contextlib
import dataclasses
import fcntl
import hmac
import os
import secrets
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from tulle.accounting.ledger import Ledger, OpenSpend
from tulle.accounting.ledger_rows import Spend, SpendStatus
from tulle.accounting.spans import Moment, Span, span_of
from tulle.errors import ConfigError, RunStateError
from tulle.privacy.events import Event
from tulle.privacy.fields import Scalar
from tulle.privacy.plan import Assumption, Plan, Status
from tulle.privacy.units import Adjacency, Unit

_KEY_BYTES = 32
"""Length of the key beside a ledger: as long as the hash, so that no guess of it is easier."""
_WHERE = " in "
"""Stands between a release and its path in the notes of a ledger."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseKind:
    """Releases that share one key and are kept apart from those of other kinds."""

    name: str
    """The word for them in the notes of the ledger, e.g. "label release"."""
    key_ending: str = ""
    """Ending of the key's file beside the ledger; empty if ids are drawn at random."""
    adjacency: Adjacency | None = None
    """The only adjacency under which budgets can count them; None if any can."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseCharge:
    """Which ledger pays for a release, under which purpose, for data of which time."""

    ledger: Ledger
    purpose: str
    at: datetime | None = None
    """Time that the data are from; needed where a charged budget renews."""
    until: datetime | None = None
    """Last moment of the data; None: they are of one moment or day."""

    def check_span(self, first_second: float, last_second: float, *, of: str) -> None:
        """Refuses to charge another time than the data are from.

        Args:
          first_second: First moment of the data, in seconds since 1970 UTC.
          last_second: Last moment of the data.
          of: What has these times, for the message, e.g. "the log".

        Privacy:
          A budget that renews is charged in every window that the data touch, and in no other.
        """
        # Without a time only budgets that never renew can be charged, and they count everything.
        if self.at is None:
            return
        until = self.at if self.until is None else self.until
        if first_second < self.at.timestamp() or last_second > until.timestamp():
            raise ConfigError(
                f"{of} has times outside of at (--at) {self.at} to until (--until) {until}; give "
                "the whole time of the data, so that every window is charged, or use a budget "
                "that does not renew."
            )


def charge_to(
    ledger: Ledger | os.PathLike[str] | str | None,
    *,
    job: str,
    purpose: str | None = None,
    at: Moment | None = None,
    until: Moment | None = None,
    again: bool = False,
    unit: Unit | str | None = None,
) -> ReleaseCharge | None:
    """The charge for one release, or None where no ledger pays.

    Args:
      ledger: An open ledger or the path of one.
      job: The purpose of releases of this job, where the caller names none: "labels".
      purpose: What the ledger calls the release; None: the job.
      at: When the data are from, where a charged budget renews. A day is one of the time zone of
        the budgets, or else of the unit.
      until: Last day or moment of the data.
      again: Whether a second release of the same data is asked for.
      unit: The unit of the release, where it is known by now.

    Raises:
      ConfigError: A setting of the ledger is given without a ledger, or a time cannot be read.
    """
    if ledger is None:
        for name, value in (("purpose", purpose), ("at", at), ("until", until)):
            if value is not None:
                raise ConfigError(
                    f"{name}={str(value)!r} is for a ledger; give a ledger too, or leave it out."
                )
        if again:
            raise ConfigError(
                "again is for a ledger, which alone knows the first release; give a ledger "
                "too, or leave it out."
            )
        return None
    opened = ledger if isinstance(ledger, Ledger) else Ledger.open(Path(ledger))
    named = job if purpose is None else purpose
    zone = opened.time_zone(named, unit, at=at, until=until)
    first, last = span_of(at, until, zone=zone)
    return ReleaseCharge(ledger=opened, purpose=named, at=first, until=last)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseTerms:
    """How a release is carried out, as far as its plan and card say so. Public."""

    has_ledger: bool = False
    """Whether a ledger pays, and so knows the release again."""
    noise_source: str = "operating-system entropy"
    """The source of the noise in words. Never its state."""


def release_plan(
    draft: Plan,
    terms: ReleaseTerms,
    *,
    what: str,
    assumed: Sequence[Assumption] = (),
    noise_word: str = "noise",
) -> Plan:
    """Completes the plan of a release by how it is carried out, and checks what it claims.

    Args:
      draft: Mechanism, event and guarantee, with what the code enforces and checks.
      terms: Who pays, and where the noise comes from.
      what: What is released, e.g. "measurement".
      assumed: What nobody checks; it stands last.
      noise_word: What is drawn, as the settings call it: "noise" or "draws".

    Raises:
      ConfigError: The plan claims a smaller epsilon than its events give.
    """
    # The accountant loads scipy, and whoever carries out a finished plan does without.
    from tulle.accounting.accountant import verify_plan

    settings: dict[str, Scalar] = dict(draft.settings)
    settings |= {"charged to a ledger": terms.has_ledger, f"{noise_word} from": terms.noise_source}
    paid = (paid_once(what),) if terms.has_ledger else ()
    plan = dataclasses.replace(
        draft,
        settings=settings,
        assumptions=(*draft.assumptions, *paid, *assumed),
    )
    # Last, on the plan as it is stored: what is added above is part of what a reader relies on.
    verify_plan(plan)
    return plan


def paid_once(what: str) -> Assumption:
    """The assumption of a release that a ledger pays for: nobody draws it twice for one price.

    Args:
      what: What is released, e.g. "measurement".
    """
    return Assumption(
        statement=f"The same {what} is not drawn a second time without being paid.",
        status=Status.ENFORCED,
        evidence="The ledger knows it by a keyed hash of data and plan, and what was given out by "
        "a hash; a repeated command returns that.",
    )


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
        """Path of the table, or the path where it was to go."""
        said = self.spend.released_as or self.spend.request.note
        return Path(said.partition(_WHERE)[2])

    @property
    def table_sha256(self) -> str:
        """Hash of the table that got out; empty if none was said to."""
        return (self.spend.released_as or "").partition(_WHERE)[0]


def released_as(table_sha256: str, path: Path) -> str:
    """What the ledger keeps of a table that gets out."""
    return f"{table_sha256}{_WHERE}{path.absolute()}"


class ReleasePayments:
    """Payments for releases of one kind on a ledger, while one process makes them.

    Made by `open_payments`, which keeps other releases of that kind away. Without a key, releases
    are known by ids that were drawn at random, and several may be under way.
    """

    def __init__(self, charge: ReleaseCharge, kind: ReleaseKind, key: bytes = b"") -> None:
        self._charge, self._kind, self._key = charge, kind, key

    def release_id(self, plan: Plan, data_digest: bytes) -> str:
        """The name of a release: the same for the same plan and data, and for no other."""
        if not self._key:
            raise ConfigError(
                f"a {self._kind.name} is known by its id; open_payments() has the key."
            )
        # A fingerprint has a fixed length, so no other pair of plan and data gives this message.
        message = plan.fingerprint().encode() + data_digest
        return hmac.digest(self._key, message, "sha256").hex()[:32]

    def check(self, plan: Plan, *, event: Event | None = None) -> None:
        """Refuses what the ledger would refuse, before raw data are read.

        Args:
          plan: What is to be released.
          event: The part of its event that is not paid yet; None: all of it.
        """
        self._check_adjacency()
        self._charge.ledger.check(
            plan.event if event is None else event,
            purpose=self._charge.purpose,
            unit=plan.guarantee.unit,
            at=self._charge.at,
            until=self._charge.until,
        )

    def paid(self, release_id: str) -> PaidRelease | None:
        """The last payment for this release, if there is one that it can rest on.

        An open one counts only if it charged the same purpose and time.
        """
        ledger, name = self._charge.ledger, self._name(release_id)
        budgets = [b for b in ledger.budgets() if b.counts(self._charge.purpose)]
        spends = {spend.id: spend for b in budgets for spend in ledger.spends(b.name)}
        # After `again` there are several; a repeated command asks for the newest of them.
        for spend in (spends[number] for number in sorted(spends, reverse=True)):
            paid = PaidRelease(spend=spend)
            is_this = spend.request.note.partition(_WHERE)[0] == name
            if is_this and (paid.is_out or self._charges_alike(spend)):
                return paid
        return None

    def pay(
        self, plan: Plan, release_id: str, path: Path | None = None, *, event: Event | None = None
    ) -> OpenSpend:
        """Charges the cost to the ledger. It stays open until it is marked released.

        Args:
          plan: What is to be released.
          release_id: The name of the release.
          path: Where it is to go; None if that does not matter.
          event: The part of its event that is not paid yet; None: all of it.

        Raises:
          SpendRefusedError: A budget does not cover it. Nothing was spent.
        """
        self._check_adjacency()
        where = "" if path is None else f"{_WHERE}{path.absolute()}"
        return self._charge.ledger.spend(
            plan.event if event is None else event,
            purpose=self._charge.purpose,
            note=f"{self._name(release_id)}{where}",
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

    def _name(self, release_id: str) -> str:
        return f"{self._kind.name} {release_id}".rstrip()

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
def open_payments(charge: ReleaseCharge, kind: ReleaseKind) -> Iterator[ReleasePayments]:
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
        # A new key in place of a damaged one would make every earlier release look unpaid.
        if len(key) != _KEY_BYTES:
            raise RunStateError(
                f"{path.name} is damaged: it must have {_KEY_BYTES} bytes. Restore it; with "
                "another key earlier releases are not found again."
            )
        yield ReleasePayments(charge, kind, key)


def _key_file(path: Path) -> Path:
    if not path.exists():
        # Whole on disk before it has its name: nobody may read a key of which a part is missing.
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
