"""Settings of a selection as a TOML file, which planning writes and every later step reads.

Privacy and prices are in the file as their classes have them. A mechanism is written flat: what its
shortlist and its scores need stands beside its epsilon.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.fields import parse_toml, read_toml, toml_text
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import NonPersonalised
from tulle.select.mechanisms.noisy_max import (
    Calibration,
    ClippedScores,
    NoisyMax,
    ScaledScores,
)
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.shortlists import AllCandidates, Cutoff, Shortlist, TopCandidates
from tulle.select.mechanisms.slots import SlotMechanism
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.shortlist_outcomes import AdaptiveTop
from tulle.select.selection_config import (
    DecidingMechanism,
    Pricing,
    SelectionConfig,
    SelectionPrivacy,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResponseTable:
    """Randomized response over the finalists, for one slot or several."""

    kind: ClassVar[str] = "randomized-response"

    epsilon: float
    """Epsilon of one decision."""
    num_slots: int | None = None
    """Number of ads on a page."""
    num_boosted: int | None = None
    """Number of the device's favourites that are drawn more often; for one slot."""
    num_finalists: int | None = None
    """Number of ads with the best server scores that can be drawn."""
    gamma: float | None = None
    """Cutoff instead of num_finalists: ads with a server score of at least 1 - gamma times the best
    can be drawn."""
    private_stddev: float | None = None
    """Standard deviation of what devices know beyond the server, instead of both: then as many
    finalists as pay off in each auction can be drawn."""

    def mechanism(self) -> DecidingMechanism:
        """Returns the mechanism that the table describes."""
        shortlist = _shortlist(self)
        num_boosted = 1 if self.num_boosted is None else self.num_boosted
        if self.num_slots in (None, 1):
            return FloorMechanism(
                epsilon=self.epsilon, shortlist=shortlist, num_boosted=num_boosted
            )
        if num_boosted != 1:
            raise ConfigError("num_boosted is for one slot; leave it or num_slots out.")
        return SlotMechanism(epsilon=self.epsilon, num_slots=self.num_slots, shortlist=shortlist)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMaxTable:
    """The candidate with the largest noisy score."""

    kind: ClassVar[str] = "noisy-max"

    epsilon: float
    """Epsilon of one decision."""
    noise: NoiseKind = NoiseKind.EXPONENTIAL
    """Law of the noise."""
    calibration: Calibration = Calibration.STANDARD
    """How the rate of the noise follows from epsilon."""
    width: float | None = None
    """Width that scores are clipped to around the server's; without it each auction is scaled."""
    num_finalists: int | None = None
    """Number of ads with the best server scores that can be drawn."""
    gamma: float | None = None
    """Cutoff instead of num_finalists: ads with a server score of at least 1 - gamma times the best
    can be drawn."""
    private_stddev: float | None = None
    """Standard deviation of what devices know beyond the server, instead of both: then as many
    finalists as pay off in each auction can be drawn."""
    monotonic: bool | None = None
    """Setting that is refused: private data may move scores in both directions."""

    def mechanism(self) -> DecidingMechanism:
        """Returns the mechanism that the table describes."""
        return NoisyMax(
            epsilon=self.epsilon,
            noise=self.noise,
            score_bound=ScaledScores() if self.width is None else ClippedScores(width=self.width),
            calibration=self.calibration,
            shortlist=_shortlist(self),
            monotonic=bool(self.monotonic),
        )


MechanismTable = ResponseTable | NoisyMaxTable | NonPersonalised


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionFile:
    """Settings of a selection of ads, as `tulle select plan` writes them."""

    name: str | None = None
    """Name of the selection on cards; without it that of the file."""
    mechanism: MechanismTable
    """How ads are drawn."""
    privacy: SelectionPrivacy
    """Who is protected, how far, and who may be personalised for."""
    pricing: Pricing = dataclasses.field(default_factory=Pricing)
    """What chosen ads pay."""


def read_settings(path: Path) -> SelectionConfig:
    """Reads the selection that a file describes, strictly.

    Raises:
      ConfigError: A setting is unknown, missing or wrong, or two do not go together.
      DataError: The file cannot be read.
    """
    return settings_of(read_toml(path), name=path.stem, what=path.name)


def parse_settings(text: str, *, name: str) -> SelectionConfig:
    """Reads what `settings_text` wrote.

    Args:
      text: TOML.
      name: The name of the selection, if the text has none.
    """
    return settings_of(parse_toml("the settings", text), name=name)


def settings_of(
    data: Mapping[str, Any], *, name: str, what: str = "the settings"
) -> SelectionConfig:
    """Reads the selection that tables of settings describe, strictly.

    Args:
      data: The tables, as TOML gives them.
      name: The name of the selection, if the tables have none.
      what: Where the tables are from, for messages.
    """
    _refuse_greedy(data.get("mechanism"))
    file: SelectionFile = settings_from(SelectionFile, data, what=what)
    return SelectionConfig(
        name=name if file.name is None else file.name,
        mechanism=_mechanism(file.mechanism),
        privacy=file.privacy,
        pricing=file.pricing,
    )


def settings_text(config: SelectionConfig) -> str:
    """Writes the file that `read_settings` reads back to the same selection."""
    file = SelectionFile(
        name=config.name,
        mechanism=_table_of(config.mechanism),
        privacy=config.privacy,
        pricing=config.pricing,
    )
    return toml_text(plain_data(file))


def mechanism_table(mechanism: DecidingMechanism) -> dict[str, Any]:
    """Returns the table of a settings file that has this mechanism.

    Raises:
      ConfigError: The mechanism is one for comparisons alone.
    """
    return plain_data(_table_of(mechanism))


def _mechanism(table: MechanismTable) -> DecidingMechanism:
    return table if isinstance(table, NonPersonalised) else table.mechanism()


def _refuse_greedy(table: object) -> None:
    """Refuses the mechanism that comparisons have and decisions must not, by its reason."""
    if isinstance(table, dict) and table.get("kind") == "greedy":
        raise ConfigError(
            "kind='greedy' protects nobody; it is for comparisons (tulle select simulate)."
        )


def _table_of(mechanism: DecidingMechanism) -> MechanismTable:
    if isinstance(mechanism, NonPersonalised):
        return mechanism
    shortlist = mechanism.shortlist.settings(mechanism.epsilon)
    if isinstance(mechanism, NoisyMax):
        bound = mechanism.score_bound
        if not isinstance(bound, ScaledScores | ClippedScores):
            raise ConfigError(
                f"mechanism {mechanism.name!r} is for comparisons, not for decisions."
            )
        return NoisyMaxTable(
            epsilon=mechanism.epsilon,
            noise=mechanism.noise,
            calibration=mechanism.calibration,
            width=bound.width if isinstance(bound, ClippedScores) else None,
            **shortlist,
        )
    if isinstance(mechanism, SlotMechanism):
        return ResponseTable(epsilon=mechanism.epsilon, num_slots=mechanism.num_slots, **shortlist)
    num_boosted = None if mechanism.num_boosted == 1 else mechanism.num_boosted
    return ResponseTable(epsilon=mechanism.epsilon, num_boosted=num_boosted, **shortlist)


def _shortlist(table: ResponseTable | NoisyMaxTable) -> Shortlist:
    names = ("num_finalists", "gamma", "private_stddev")
    given = [name for name in names if getattr(table, name) is not None]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} are two shortlists; leave one out.")
    if table.num_finalists is not None:
        return TopCandidates(num_finalists=table.num_finalists)
    if table.gamma is not None:
        return Cutoff(gamma=table.gamma)
    if table.private_stddev is not None:
        prior = LogitNormalPrior(private_stddev=table.private_stddev)
        return AdaptiveTop(epsilon=table.epsilon, prior=prior)
    return AllCandidates()
