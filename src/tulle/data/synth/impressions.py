"""Impression and conversion logs for measurement, from stated rates.

Users see ads of campaigns on publishers' sites and may click. Each impression causes a
conversion with a probability that depends on its campaign and is higher after a click, after
a log-normal delay; users also convert without any ad. What an impression causes after
the end of the log is not in it.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tulle.data.synth.zipf import CodeArray, CodeTable, ZipfLaw, normal_deviates, salt_of, scramble
from tulle.data.threads import map_in_order
from tulle.errors import ConfigError

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

USERS_PER_BLOCK = 1 << 13
"""Users that share one key of the generator: another number would give another log for the same
seed."""
# A few dozen slices by region and age, as campaign reports have, each with many users.
NUM_REGIONS = 12
NUM_AGE_GROUPS = 6
_DAY = 86_400


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImpressionConfig:
    """Settings of an impression and conversion log. Every field is public information."""

    num_users: int
    num_days: int = 30
    first_second: int = 1_767_225_600
    """Second at which the log begins: 2026-01-01 UTC, the begin of a window of units per 7 days."""
    mean_impressions: float = 8.0
    """Impressions of a user over the whole log, on average."""
    activity_stddev: float = 1.2
    """Spread of the log of users' activity: 0 makes all users alike, 2 very unequal."""
    num_publishers: int = 500
    num_advertisers: int = 50
    campaigns_per_advertiser: int = 8
    click_prob: float = 0.05
    """Click probability of a typical campaign; campaigns differ by a factor of about 1.5."""
    view_conversion_prob: float = 0.004
    """Probability that an impression without a click causes a conversion."""
    click_conversion_prob: float = 0.08
    """Probability that a clicked impression causes a conversion."""
    organic_conversions: float = 0.05
    """Conversions of a user that no ad caused, over the whole log, on average."""
    median_delay_days: float = 1.0
    delay_stddev: float = 1.5
    """Standard deviation of the log of the delay."""
    median_value: float = 40.0
    median_price: float = 0.002
    """What an impression costs; clicks cost nothing more."""

    def __post_init__(self) -> None:
        for field in ("num_users", "num_days", "num_publishers", "num_advertisers"):
            if not 1 <= getattr(self, field) < 2**31:
                raise ConfigError(f"{field}={getattr(self, field)} must be >= 1 and below 2^31.")
        if not 1 <= self.num_campaigns <= 10**6:
            raise ConfigError(
                f"num_advertisers * campaigns_per_advertiser = {self.num_campaigns} must be "
                "between 1 and 1,000,000."
            )
        for field in ("click_prob", "view_conversion_prob", "click_conversion_prob"):
            if not 0 <= getattr(self, field) <= 0.25:
                raise ConfigError(f"{field}={getattr(self, field)} must be between 0 and 0.25.")
        for field in ("mean_impressions", "median_delay_days", "median_value", "median_price"):
            if not getattr(self, field) > 0:
                raise ConfigError(f"{field}={getattr(self, field)} must be > 0.")
        for field in ("activity_stddev", "delay_stddev", "organic_conversions"):
            if not 0 <= getattr(self, field) <= 10:
                raise ConfigError(f"{field}={getattr(self, field)} must be between 0 and 10.")

    @property
    def num_campaigns(self) -> int:
        """Campaigns of all advertisers together."""
        return self.num_advertisers * self.campaigns_per_advertiser

    @property
    def campaign_law(self) -> ZipfLaw:
        """How impressions spread over campaigns."""
        return ZipfLaw(num_values=self.num_campaigns, exponent=0.8, shift=2.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImpressionBlock:
    """All events of some users. Ids of users, publishers and campaigns start at 1."""

    impression_user: CodeArray
    impression_time: IntArray
    publisher: CodeArray
    campaign: CodeArray
    clicked: npt.NDArray[np.bool_]
    price: FloatArray
    impression_id: IntArray
    conversion_user: CodeArray
    conversion_time: IntArray
    conversion_advertiser: CodeArray
    conversion_value: FloatArray
    conversion_id: IntArray
    cause: IntArray
    """The impression that caused each conversion, or -1. Known here only: no log shows it."""


def advertiser_of(config: ImpressionConfig, campaigns: npt.NDArray[np.integer]) -> CodeArray:
    """The advertiser of each campaign; big campaigns are spread over all advertisers."""
    return ((campaigns - 1) % config.num_advertisers + 1).astype(np.int32)


def region_of(users: CodeArray) -> CodeArray:
    """The region each user lives in, from 1 to NUM_REGIONS."""
    return (scramble(users, salt_of("region")) % np.uint32(NUM_REGIONS) + 1).astype(np.int32)


def age_group_of(users: CodeArray) -> CodeArray:
    """The age group of each user, from 1 to NUM_AGE_GROUPS."""
    return (scramble(users, salt_of("age")) % np.uint32(NUM_AGE_GROUPS) + 1).astype(np.int32)


def generate_impression_blocks(
    config: ImpressionConfig, *, seed: int, num_threads: int | None = None
) -> Iterator[ImpressionBlock]:
    """All events of the log, 8,192 users at a time, each block in order of time.

    Args:
      config: What the log looks like.
      seed: Fixes the log; from 0 to 2^64 - 1.
      num_threads: Number of threads; by default one for each core, up to 8.
    """
    if not 0 <= seed < 2**64:
        raise ConfigError(f"seed={seed} must be between 0 and 2^64 - 1.")
    log = _Log(config, seed)
    blocks = range(-(-config.num_users // USERS_PER_BLOCK))
    return map_in_order(log.block, blocks, num_threads)


_VALUE_STDDEV = 0.8
"""Spread of the logarithm of a conversion's value: the largest 2% are above five times the median,
so that a cap on values matters."""


class _Rates:
    """Probabilities by campaign and typical values by advertiser; entry 0 is not used."""

    def __init__(self, config: ImpressionConfig) -> None:
        campaigns = np.arange(config.num_campaigns + 1)
        advertisers = np.arange(config.num_advertisers + 1)
        self.click = _varied(config.click_prob, campaigns, "click")
        self.after_click = _varied(config.click_conversion_prob, campaigns, "after click")
        self.after_view = _varied(config.view_conversion_prob, campaigns, "after view")
        self.value = config.median_value * np.exp(normal_deviates(advertisers, salt_of("value")))


def _varied(prob: float, numbers: IntArray, name: str) -> FloatArray:
    return np.minimum(prob * np.exp(0.4 * normal_deviates(numbers, salt_of(name))), 1.0)


class _Log:
    def __init__(self, config: ImpressionConfig, seed: int) -> None:
        self._config = config
        self._seed = seed
        self._rates = _Rates(config)
        self._campaigns = CodeTable(config.campaign_law)
        publishers = ZipfLaw(num_values=config.num_publishers, exponent=1.0, shift=1.0)
        self._publishers = CodeTable(publishers)

    def block(self, index: int) -> ImpressionBlock:
        """All events of one block of users."""
        config = self._config
        key = np.array([self._seed, index], dtype=np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key))
        first = index * USERS_PER_BLOCK + 1
        users = np.arange(first, min(first + USERS_PER_BLOCK, config.num_users + 1), dtype=np.int32)
        spread = config.activity_stddev
        activity = np.exp(spread * rng.standard_normal(len(users)) - spread**2 / 2)
        counts = rng.poisson(config.mean_impressions * activity)
        shown_to = np.repeat(users, counts)
        time = np.sort(rng.integers(0, config.num_days * _DAY, len(shown_to)))
        shown_to = rng.permutation(shown_to)
        campaign = self._campaigns.codes(_words(rng, len(time)))
        clicked = rng.random(len(time)) < self._rates.click[campaign]
        chance = np.where(
            clicked, self._rates.after_click[campaign], self._rates.after_view[campaign]
        )
        caused = np.flatnonzero(rng.random(len(time)) < chance)
        # Room for 2^32 events in each block keeps ids unique without counting ahead.
        ids = (np.int64(index) << 32) + np.arange(len(time))
        converted = self._conversions(rng, shown_to[caused], time[caused], campaign[caused])
        organic = self._organic(rng, users)
        user, when, advertiser = (
            np.concatenate(parts) for parts in zip(converted, organic, strict=True)
        )
        cause = np.concatenate([ids[caused], np.full(len(organic[0]), -1)])
        order = np.argsort(when, kind="stable")
        order = order[when[order] < config.num_days * _DAY]
        value = self._rates.value[advertiser] * np.exp(
            _VALUE_STDDEV * rng.standard_normal(len(when))
        )
        return ImpressionBlock(
            impression_user=shown_to,
            impression_time=time + config.first_second,
            publisher=self._publishers.codes(_words(rng, len(time))),
            campaign=campaign,
            clicked=clicked,
            price=config.median_price * np.exp(0.7 * rng.standard_normal(len(time))),
            impression_id=ids,
            conversion_user=user[order],
            conversion_time=when[order] + config.first_second,
            conversion_advertiser=advertiser[order],
            conversion_value=value[order],
            conversion_id=(np.int64(index) << 32) + np.arange(len(order)),
            cause=cause[order],
        )

    def _conversions(
        self, rng: np.random.Generator, users: CodeArray, times: IntArray, campaigns: CodeArray
    ) -> tuple[npt.NDArray[np.integer], ...]:
        config = self._config
        logs = np.log(config.median_delay_days) + config.delay_stddev * rng.standard_normal(
            len(users)
        )
        # A delay beyond the log's end is dropped whatever it is; the cap avoids overflow.
        delays = np.minimum(np.exp(logs), 2.0 * config.num_days) * _DAY
        when = times + delays.astype(np.int64)
        return users, when, advertiser_of(config, campaigns)

    def _organic(
        self, rng: np.random.Generator, users: CodeArray
    ) -> tuple[npt.NDArray[np.integer], ...]:
        config = self._config
        who = np.repeat(users, rng.poisson(config.organic_conversions, len(users)))
        when = rng.integers(0, config.num_days * _DAY, len(who))
        advertiser = rng.integers(1, config.num_advertisers + 1, len(who)).astype(np.int32)
        return who, when, advertiser


def _words(rng: np.random.Generator, size: int) -> npt.NDArray[np.uint32]:
    return rng.integers(0, 2**32, size, dtype=np.uint32)
