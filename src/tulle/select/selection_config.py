"""Everything that a selection of ads promises and asks: mechanism, unit, prices, consent.

The parts only go together in some ways. What does not is refused here, before any data.
"""

import dataclasses
import enum

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_finite, check_text
from tulle.privacy.units import Owner, Unit
from tulle.select.ad_prices import PaidEvent
from tulle.select.baselines.greedy import NonPersonalised
from tulle.select.billing.prices import PricingRule
from tulle.select.billing.reserve import check_reserve
from tulle.select.decision_accounting import DecisionAccounting, Shuffle
from tulle.select.floors.shortlist import Cutoff, TopCandidates
from tulle.select.mechanism_table import DecidingMechanism
from tulle.select.slots import SlotMechanism

MAX_EPSILON = 40.0
"""Of one decision."""


class Consent(enum.Enum):
    """Whose data may personalise a choice."""

    COLUMN = "column"
    """A column of the auctions says who opted in; the others get the server's winner."""
    EVERYONE = "everyone"
    """The operator says that only people who opted in are in the data."""


class Candidates(enum.Enum):
    """Who decides which ads take part in an auction."""

    SERVER = "server"
    """Public data alone."""
    DEVICE = "device"
    """Private data, e.g. apps that are installed. Refused: see `SelectionConfig`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pricing:
    """What chosen ads pay. Public."""

    rule: PricingRule = PricingRule.SECOND_PRICE
    is_posted: bool = False
    """One price for each ad and cell of equal finalists: the mean of the rule's over the cell."""
    reserve: float = 0.0
    """Least server score that takes part, and what the last of an auction pays by second price."""

    def __post_init__(self) -> None:
        check_reserve(self.reserve)
        if self.is_posted and self.rule is not PricingRule.SECOND_PRICE:
            raise ConfigError("posted prices are means of second prices; leave out other rules.")

    @property
    def name(self) -> str:
        """As in a settings file."""
        return "posted" if self.is_posted else self.rule.value


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """A selection of ads. Every field is public information."""

    name: str
    mechanism: DecidingMechanism
    unit: Unit
    """One decision ("impression") or all decisions about a user ("user")."""
    max_decisions_per_user: int | None = None
    """Personalised decisions; any further ones get the server's winner."""
    least_finalists: int = 2
    """Auctions with fewer finalists get the server's winner; more finalists cost less."""
    delta: float = 0.0
    shuffle: Shuffle | None = None
    """If set, only counts of each cell leave, and cells that are too small get the winner."""
    pricing: Pricing = dataclasses.field(default_factory=Pricing)
    consent: Consent = Consent.COLUMN
    candidates: Candidates = Candidates.SERVER
    is_planned_on_devices: bool = False
    """True if private predictions, of a panel, chose the mechanism. They must not be those of
    the people that are decided on: nothing was paid for that."""

    def __post_init__(self) -> None:
        check_text("name", self.name)
        check_count("least_finalists", self.least_finalists, least=2)
        if not 0 <= check_finite("delta", self.delta) < 1:
            raise ConfigError(f"delta={self.delta} must be in [0, 1), e.g. 1e-6.")
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
        if self.candidates is Candidates.DEVICE:
            raise ConfigError(
                "candidates='device' is refused: if private data decide which ads take part, an "
                "ad that one device can show and another cannot gives the device away at any "
                "epsilon. Offer the same ads to all, score unwanted ones low, and add 'no ad' as "
                "a candidate."
            )
        self._check_unit()
        self._check_shuffle()

    @property
    def accounting(self) -> DecisionAccounting:
        """What decisions cost."""
        return DecisionAccounting(
            mechanism=self.mechanism,
            least_finalists=self.least_finalists,
            max_decisions_per_user=self.max_decisions_per_user or 1,
            shuffle=self.shuffle,
        )

    def _check_unit(self) -> None:
        if self.unit not in (Unit.impression(), Unit.user()):
            raise ConfigError(
                f"unit='{self.unit}' is not for selection; use 'impression' for one decision, or "
                "'user' with max_decisions_per_user. For a window, decide each one on its own and "
                "charge a budget that renews."
            )
        if self.unit.owner is Owner.USER and self.max_decisions_per_user is None:
            raise ConfigError("unit='user' needs max_decisions_per_user, e.g. 20.")
        if self.max_decisions_per_user is not None:
            check_count("max_decisions_per_user", self.max_decisions_per_user)
            if self.unit.owner is not Owner.USER:
                raise ConfigError("max_decisions_per_user is for unit='user'; leave it out.")

    def _check_shuffle(self) -> None:
        if self.shuffle is None:
            return
        if isinstance(self.mechanism, SlotMechanism):
            raise ConfigError("several slots are not shuffled; leave out min_cell_size.")
        if not self.pricing.is_posted:
            raise ConfigError(
                f"pricing={self.pricing.name!r} is refused with shuffling: exact amounts are a "
                "fingerprint, since a price that differs between auctions says which one it was. "
                "Use 'posted', one price for each ad and cell."
            )
        if self.delta == 0:
            raise ConfigError(
                "delta=0 is refused with min_cell_size: shuffling hides reports up to a delta > 0; "
                "set e.g. delta = 1e-6."
            )

    @property
    def is_paid_by_click(self) -> bool:
        """True if a bill needs clicks, which the selection does not protect."""
        return not self.pricing.is_posted and self.pricing.rule.paid_event is PaidEvent.CLICK


def shows_one_ad(mechanism: DecidingMechanism) -> bool:
    """True if a shortlist keeps the server's winner alone, in every auction."""
    if isinstance(mechanism, NonPersonalised):
        return False
    shortlist = mechanism.shortlist
    return shortlist in (Cutoff(gamma=0.0), TopCandidates(num_finalists=1))
