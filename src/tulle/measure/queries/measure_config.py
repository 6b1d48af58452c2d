"""A whole measurement: which log, credited how, which questions, for which budget."""

import dataclasses

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog
from tulle.measure.attribution.data_driven import ChannelGame, DataDrivenConfig
from tulle.measure.attribution.rules import Attribution, ChannelWeights
from tulle.measure.queries.query import Query
from tulle.mechanisms.centred_noise import check_confidence
from tulle.privacy.fields import check_epsilon, check_finite, check_text, did_you_mean
from tulle.privacy.units import Unit

NOISE_LAWS = ("laplace", "gaussian")
"""Laws of noise that a measurement can have."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MeasureConfig:
    """Settings of a measurement. Every field is public information; the log is only named."""

    name: str = "measurement"
    log: AdLog
    attribution: Attribution | None
    """How conversions are credited; None if no query is about conversions."""
    game: ChannelGame | None = None
    """Settings for learning the weights of the attribution's channels from the log, privately."""
    game_share: float = 0.2
    """Fraction of epsilon that is spent on learning weights of channels."""
    unit: Unit
    epsilon: float
    """What everything together may cost one unit."""
    delta: float = 0.0
    """Delta of the guarantee, for Gaussian noise and for slices that are found privately."""
    noise: str = "laplace"
    """Noise of the sums: laplace, or gaussian, with less noise where a unit is in many slices."""
    queries: tuple[Query, ...]
    confidence: float = 0.95
    key_share: float = 0.25
    """Fraction of a query's budget that is spent on finding its slices privately."""

    def __post_init__(self) -> None:
        check_text("name", self.name)
        object.__setattr__(self, "queries", tuple(self.queries))
        check_epsilon(self.epsilon)
        if not 0 <= check_finite("delta", self.delta) < 1e-2:
            raise ConfigError(f"delta={self.delta} must be in [0, 0.01), e.g. 1e-9.")
        if self.noise not in NOISE_LAWS:
            raise ConfigError(
                f"noise={self.noise!r} is unknown{did_you_mean(self.noise, NOISE_LAWS)}; "
                "use laplace or gaussian."
            )
        if not 0 < self.key_share < 1:
            raise ConfigError(f"key_share={self.key_share} must be in (0, 1), e.g. 0.25.")
        check_confidence(self.confidence)
        if not self.queries:
            raise ConfigError("there is no query; ask for at least one table.")
        names = [query.name for query in self.queries]
        if len(set(names)) < len(names):
            raise ConfigError("two queries have the same name; give each its own.")
        self._check_delta()
        self._check_columns()
        self._check_attribution()

    @property
    def has_private_keys(self) -> bool:
        """True if some query finds its slices privately."""
        return any(query.has_private_keys for query in self.queries)

    @property
    def data_driven(self) -> DataDrivenConfig | None:
        """How the weights of channels are learnt; None if they are given."""
        if self.game is None:
            return None
        return DataDrivenConfig(epsilon=self.epsilon * self.game_share, game=self.game)

    @property
    def query_epsilon(self) -> float:
        """What is left for the queries."""
        return self.epsilon if self.game is None else self.epsilon * (1 - self.game_share)

    def _check_delta(self) -> None:
        needs_delta = self.has_private_keys or self.noise == "gaussian"
        if needs_delta and self.delta == 0:
            what = "Gaussian noise" if self.noise == "gaussian" else "finding slices privately"
            raise ConfigError(
                f"delta=0 is too little for {what}; set it, e.g. to 1e-9, or use Laplace noise "
                "and give the slices as keys."
            )
        if not needs_delta and self.delta > 0:
            raise ConfigError(
                f"delta={self.delta:g} is not needed: noise is Laplace and all slices are given; "
                "set it to 0."
            )

    def _check_columns(self) -> None:
        """Refuses a log whose rows nobody can tell apart by user or time where that matters."""
        columns, has_conversions = self.log.columns, self.log.conversions is not None
        if columns.user is None and (has_conversions or not self.unit.owner.is_one_row):
            raise ConfigError(
                f"user is needed with unit='{self.unit}': the column that says whose a row is, "
                "e.g. user='user_id'."
            )
        has_windows = self.unit.window_seconds is not None
        if columns.impression_time is None and (has_conversions or has_windows):
            raise ConfigError(
                "time is needed for a unit with a window and for conversions: the column with "
                "the time of a row, e.g. time='timestamp'."
            )

    def _check_attribution(self) -> None:
        asking = [query.name for query in self.queries if query.quantity.needs_conversions]
        if asking and self.log.conversions is None:
            raise ConfigError(f"query {asking[0]!r} is about conversions; name their table.")
        if asking and self.attribution is None:
            raise ConfigError(
                f"query {asking[0]!r} is about conversions and needs an attribution rule, "
                "e.g. last-touch with a lookback."
            )
        if not asking and self.attribution is not None:
            raise ConfigError("no query is about conversions; leave attribution out.")
        if self.game is None:
            return
        rule = None if self.attribution is None else self.attribution.rule
        if not isinstance(rule, ChannelWeights) or rule.column != self.game.column:
            raise ConfigError(
                f"game learns weights of {self.game.column!r}; the attribution's rule must be "
                "ChannelWeights of that column, with any weights."
            )
        if self.attribution is not None and (
            self.attribution.max_touches is not None or self.attribution.kind_lookback_seconds
        ):
            raise ConfigError(
                "weights of channels are learnt from every impression within one lookback; leave "
                "max_touches and lookback_by_kind out."
            )
        if self.unit.owner.is_one_row:
            raise ConfigError(
                f"weights of channels are learnt from paths of users; protect the unit user, not "
                f"'{self.unit}'."
            )
        if not 0 < self.game_share < 1:
            raise ConfigError(f"game_share={self.game_share} must be in (0, 1), e.g. 0.2.")
