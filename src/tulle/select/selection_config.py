"""Everything that a selection of ads promises and asks: mechanism, privacy, prices.

The parts only go together in some ways. What does not is refused here, before any data.
"""

import dataclasses
import enum
from typing import Literal

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_delta, check_text
from tulle.privacy.units import Owner, Unit
from tulle.select.auctions import check_reserve
from tulle.select.billing.prices import PaidEvent, PricingRule
from tulle.select.decision_accounting import DecisionAccounting, Shuffle, UserReports
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import NonPersonalised
from tulle.select.mechanisms.noisy_max import NoisyMax
from tulle.select.mechanisms.shortlists import Cutoff, TopCandidates
from tulle.select.mechanisms.slots import SlotMechanism

DecidingMechanism = FloorMechanism | NoisyMax | NonPersonalised | SlotMechanism
"""Mechanisms that decisions can be drawn by; others are for comparisons."""

MAX_EPSILON = 40.0
"""Largest epsilon of one decision: above it no draw of 64 bits would ever miss the favourite."""

_POSTED: Literal["posted"] = "posted"


class Consent(enum.Enum):
    """People whose data may personalise a choice."""

    COLUMN = "column"
    """A column of the auctions says who opted in; the others get the server's winner."""
    EVERYONE = "everyone"
    """The operator says that only people who opted in are in the data."""


class Candidates(enum.Enum):
    """Who decides which ads take part in an auction."""

    SERVER = "server"
    """Public data alone."""
    DEVICE = "device"
    """Private data, e.g. apps that are installed. Refused: see `SelectionPrivacy`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pricing:
    """What chosen ads pay. Every field is public information."""

    rule: PricingRule | Literal["posted"] = PricingRule.SECOND_PRICE
    """How a price follows from bids and the server's predictions; "posted" for one price for each
    ad and cell of equal finalists, the mean of its second prices over the cell."""
    reserve: float = 0.0
    """Least server score that takes part, and what the last of an auction pays by second price."""

    def __post_init__(self) -> None:
        check_reserve(self.reserve)
        if not isinstance(self.rule, PricingRule) and self.rule != _POSTED:
            raise ConfigError(f"rule={self.rule!r} must be a PricingRule, or 'posted'.")

    @property
    def is_posted(self) -> bool:
        """True for one price for each ad and cell."""
        return self.rule == _POSTED

    @property
    def price_rule(self) -> PricingRule:
        """Rule that prices of single auctions follow; posted prices are means of second prices."""
        return self.rule if isinstance(self.rule, PricingRule) else PricingRule.SECOND_PRICE

    @property
    def is_paid_by_click(self) -> bool:
        """True if a bill needs clicks, which the selection does not protect."""
        return self.price_rule.paid_event is PaidEvent.CLICK

    @property
    def name(self) -> str:
        """The rule as a settings file has it."""
        return self.rule.value if isinstance(self.rule, PricingRule) else self.rule


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionPrivacy:
    """Who is protected, how far, and who may be personalised for. Every field is public."""

    unit: Unit
    """One decision ("impression"), or all decisions about a user ("user")."""
    least_finalists: int = 2
    """Auctions with fewer finalists get the server's winner; more finalists cost less."""
    delta: float = 0.0
    """The delta of the guarantee; 0 for a pure epsilon."""
    consent: Consent = Consent.COLUMN
    """People whose data may personalise a choice."""
    max_decisions_per_user: int | None = None
    """Most personalised decisions of a user; any further ones get the server's winner."""
    planned_on_devices: bool | None = None
    """True if private predictions, of a panel, chose the mechanism. They must not be those of
    the people that are decided on: nothing was charged for that."""
    min_cell_size: int | None = None
    """Least number of decisions that share finalists, for shuffling. Then only counts of each cell
    leave, and cells that are too small get the winner."""
    user_reports: UserReports | None = None
    """How many reports of one user a shuffle may hold."""
    candidates: Candidates | None = None
    """Who decides which ads take part; must be the server."""

    def __post_init__(self) -> None:
        check_count("least_finalists", self.least_finalists, least=2)
        check_delta(self.delta)
        if self.candidates is Candidates.DEVICE:
            raise ConfigError(
                "candidates='device' is refused: if private data decide which ads take part, an "
                "ad that one device can show and another cannot gives the device away at any "
                "epsilon. Offer the same ads to all, score unwanted ones low, and add 'no ad' as "
                "a candidate."
            )
        self._check_unit()
        # Equal settings are equal objects and equal files, whichever way they were said.
        if not self.planned_on_devices:
            object.__setattr__(self, "planned_on_devices", None)
        object.__setattr__(self, "candidates", None)
        if self.min_cell_size is None:
            if self.user_reports is not None:
                raise ConfigError("user_reports is for a shuffle; give min_cell_size too.")
        else:
            reports = self.user_reports or UserReports.ONE_PER_CELL
            object.__setattr__(self, "user_reports", reports)
            Shuffle(min_cell_size=self.min_cell_size, user_reports=reports)

    @property
    def is_by_user(self) -> bool:
        """True if all decisions of a user are protected together."""
        return self.unit.owner is Owner.USER

    @property
    def shuffle(self) -> Shuffle | None:
        """Shuffler that mixes the reports of each cell; None if choices leave as they are."""
        if self.min_cell_size is None:
            return None
        return Shuffle(
            min_cell_size=self.min_cell_size,
            user_reports=self.user_reports or UserReports.ONE_PER_CELL,
        )

    def _check_unit(self) -> None:
        if self.unit not in (Unit.impression(), Unit.user()):
            raise ConfigError(
                f"unit='{self.unit}' is not for selection; use 'impression' for one decision, or "
                "'user' with max_decisions_per_user. For a window, decide each one on its own and "
                "charge a budget that renews."
            )
        if self.is_by_user and self.max_decisions_per_user is None:
            raise ConfigError("unit='user' needs max_decisions_per_user, e.g. 20.")
        if self.max_decisions_per_user is not None:
            check_count("max_decisions_per_user", self.max_decisions_per_user)
            if not self.is_by_user:
                raise ConfigError("max_decisions_per_user is for unit='user'; leave it out.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """A selection of ads. Every field is public information."""

    name: str
    """Name of the selection on cards."""
    mechanism: DecidingMechanism
    """How ads are drawn."""
    privacy: SelectionPrivacy
    """Who is protected, how far, and who may be personalised for."""
    pricing: Pricing = dataclasses.field(default_factory=Pricing)
    """What chosen ads pay."""

    def __post_init__(self) -> None:
        check_text("name", self.name)
        if not isinstance(self.mechanism, DecidingMechanism):
            raise ConfigError(
                f"mechanism={self.mechanism!r} is for comparisons (tulle select simulate), not for "
                "decisions; use e.g. FloorMechanism."
            )
        if self.mechanism.epsilon > MAX_EPSILON:
            raise ConfigError(
                f"epsilon={self.mechanism.epsilon:g} is above {MAX_EPSILON:g}: no draw of 64 bits "
                "would ever miss the favourite. Lower it."
            )
        if shows_one_ad(self.mechanism):
            raise ConfigError(
                f"mechanism {self.mechanism.name!r} leaves one ad to choose from, and a decision "
                'would be charged for nothing; use kind = "non-personalised".'
            )
        if self.privacy.shuffle is not None:
            self._check_shuffle()

    @property
    def accounting(self) -> DecisionAccounting:
        """What decisions cost."""
        return DecisionAccounting(
            mechanism=self.mechanism,
            least_finalists=self.privacy.least_finalists,
            max_decisions_per_user=self.privacy.max_decisions_per_user or 1,
            shuffle=self.privacy.shuffle,
        )

    def _check_shuffle(self) -> None:
        if self.mechanism.num_slots > 1:
            raise ConfigError("several slots are not shuffled; leave out min_cell_size.")
        if not self.pricing.is_posted:
            raise ConfigError(
                f"pricing={self.pricing.name!r} is refused with shuffling: exact amounts are a "
                "fingerprint, since a price that differs between auctions says which one it was. "
                "Use 'posted', one price for each ad and cell."
            )
        if self.privacy.delta == 0:
            raise ConfigError(
                "delta=0 is refused with min_cell_size: shuffling hides reports up to a delta > 0; "
                "set e.g. delta = 1e-6."
            )


def shows_one_ad(mechanism: DecidingMechanism) -> bool:
    """True if a mechanism that is charged keeps the server's winner alone, in every auction."""
    if mechanism.epsilon == 0:
        return False
    return mechanism.shortlist in (Cutoff(gamma=0.0), TopCandidates(num_finalists=1))
