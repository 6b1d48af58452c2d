"""A browser with Attribution Level 1: the calls of pages, and what a person can clear.

It follows W3C's "Attribution Level 1" (working draft of May 2026) as far as numbers go.
Encryption, permissions, user activation and the HTTP headers are left out.
"""

from tulle.errors import ConfigError
from tulle.measure.w3c.attribution_state import AttributionState, Conversion, Draws, SavedImpression
from tulle.measure.w3c.options import (
    DAY_SECONDS,
    ConversionOptions,
    ImpressionOptions,
    PublicSuffixes,
    W3cLimits,
    check_conversion,
    check_impression,
    parse_site,
    range_error,
)


class Browser:
    """One user agent profile. Times are whole seconds and never go back."""

    def __init__(
        self, limits: W3cLimits, draws: Draws, *, suffixes: PublicSuffixes | None = None
    ) -> None:
        self.is_enabled = True
        """Whether the person lets the API work. Pages cannot tell."""
        self.state = AttributionState(limits, draws)
        self._limits = limits
        self._suffixes = suffixes or PublicSuffixes()
        self._now: int | None = None

    def save_impression(
        self, site: str, options: ImpressionOptions, *, now: int, intermediary: str | None = None
    ) -> None:
        """Keeps an impression that `site` shows; `intermediary` is the site of a frame in it.

        Args:
          site: The page's site.
          options: What the page passes.
          now: Time in seconds.
          intermediary: The site of a frame that makes the call in the page's place.
        """
        self._advance(now)
        own_site, caller = self._callers(site, intermediary)
        check_impression(options, self._limits)
        conversion_sites, conversion_callers = (
            self._sites(options, f"conversion_{kind}", f"max_conversion_{kind}_per_impression")
            for kind in ("sites", "callers")
        )
        if not self.is_enabled:
            return
        lifetime_days = min(options.lifetime_days, self._limits.max_lookback_days)
        self.state.impressions.append(
            SavedImpression(
                timestamp=now,
                lifetime=lifetime_days * DAY_SECONDS,
                histogram_index=options.histogram_index,
                priority=options.priority,
                site=own_site,
                caller=caller,
                match_value=options.match_value,
                conversion_sites=conversion_sites,
                conversion_callers=conversion_callers,
            )
        )

    def measure_conversion(
        self, site: str, options: ConversionOptions, *, now: int, intermediary: str | None = None
    ) -> tuple[int, ...]:
        """The histogram that goes, encrypted, into a report.

        Args:
          site: The page's site.
          options: What the page passes.
          now: Time in seconds.
          intermediary: The site of a frame that makes the call in the page's place.

        Privacy:
          None by itself: a report may be read only as part of a sum with noise of scale
          2 * max_value / epsilon. What it takes from budgets is told at
          `AttributionState.attribute`.
        """
        self._advance(now)
        own_site, caller = self._callers(site, intermediary)
        conversion = self._checked(own_site, caller, options, now)
        histogram = [0] * options.histogram_size
        if self.is_enabled:
            outcome = self.state.attribute(conversion)
            for touch, part in zip(outcome.touches, outcome.parts, strict=True):
                if touch.histogram_index < len(histogram):
                    histogram[touch.histogram_index] += part
        return tuple(histogram)

    def clear_impressions_for_site(self, site: str, *, now: int) -> None:
        """What a site can ask for: drops impressions that it saved or that are for it alone."""
        self._advance(now)
        cleared = parse_site(site, self._suffixes)
        kept = (_without(impression, cleared) for impression in self.state.impressions)
        self.state.impressions = [impression for impression in kept if impression is not None]

    def clear_browsing_history(
        self, sites: tuple[str, ...], *, forget_visits: bool, now: int
    ) -> None:
        """What a person can ask for.

        With `forget_visits` all traces of the sites go (of all sites if none is named), and no
        epoch up to this one can be asked about again. Without, the sites lose their budgets.

        Args:
          sites: Sites whose data go; empty for all.
          forget_visits: Whether also that the sites were visited is forgotten.
          now: Time in seconds.
        """
        self._advance(now)
        parsed = frozenset(parse_site(site, self._suffixes) for site in sites)
        if forget_visits:
            self.state.forget_visits(parsed, now)
        elif parsed:
            self.state.use_up_budgets(parsed, now)
        else:
            raise ConfigError("sites is empty; name one, or set forget_visits=True to forget all.")

    def _advance(self, now: int) -> None:
        if self._now is not None and now < self._now:
            raise ConfigError(f"now={now} is before {self._now}; give events in order of time.")
        self._now = now

    def _callers(self, site: str, intermediary: str | None) -> tuple[str, str]:
        own_site = parse_site(site, self._suffixes)
        caller = own_site if intermediary is None else parse_site(intermediary, self._suffixes)
        return own_site, caller

    def _checked(self, site: str, caller: str, options: ConversionOptions, now: int) -> Conversion:
        limits = self._limits
        check_conversion(options, limits)
        lookback_days = min(
            options.lookback_days or limits.max_lookback_days, limits.max_lookback_days
        )
        return Conversion(
            now=now,
            site=site,
            caller=caller,
            lookback=lookback_days * DAY_SECONDS,
            histogram_size=options.histogram_size,
            epsilon=options.epsilon,
            value=options.value,
            max_value=options.max_value,
            credit=options.credit,
            match_values=frozenset(options.match_values),
            impression_sites=self._sites(
                options, "impression_sites", "max_impression_sites_for_conversion"
            ),
            impression_callers=self._sites(
                options, "impression_callers", "max_impression_callers_for_conversion"
            ),
        )

    def _sites(
        self, options: ImpressionOptions | ConversionOptions, name: str, limit: str
    ) -> frozenset[str]:
        """The sites of a list of hosts that must not be too long."""
        hosts, most = getattr(options, name), getattr(self._limits, limit)
        if len(hosts) > most:
            raise range_error(f"{name} has {len(hosts)} entries; give at most {most}.")
        return frozenset(parse_site(host, self._suffixes) for host in hosts)


def _without(impression: SavedImpression, site: str) -> SavedImpression | None:
    """The impression as it is after a site cleared its data; None if nothing of it is left."""
    if impression.caller == site:
        return None
    conversion_sites = impression.conversion_sites - {site}
    conversion_callers = impression.conversion_callers - {site}
    # An empty set would stand for all sites.
    if impression.conversion_sites and not conversion_sites:
        return None
    if impression.conversion_callers and not conversion_callers:
        return None
    return impression._replace(
        conversion_sites=conversion_sites, conversion_callers=conversion_callers
    )
