"""A second browser, written step by step from the specification's text and for nothing else.

It loops over epochs and over every impression, keeps every store as a plain dict, rounds in
exact fractions, and draws the histogram of a single epoch twice, as the text says. Tests compare
the package with it.
"""

import math
from fractions import Fraction
from typing import Any

DAY = 86_400


class LiteralBrowser:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.impressions: list[dict[str, Any]] = []
        self.site_store: dict[tuple[int, str], int] = {}
        self.global_store: dict[int, int] = {}
        self.quota_store: dict[tuple[int, str], int] = {}
        self.epoch_start: Fraction | None = None
        self.last_clear: int | None = None

    def save(self, now: int, site: str, options: dict[str, Any], intermediary: str | None) -> None:
        self.impressions.append(
            {
                "time": now,
                "site": site,
                "intermediary": intermediary,
                "conversion_sites": set(options.get("conversionSites", [])),
                "conversion_callers": set(options.get("conversionCallers", [])),
                "lifetime": min(options.get("lifetimeDays", 30), self.config["maxLookbackDays"]),
                "index": options["histogramIndex"],
                "match": options.get("matchValue", 0),
                "priority": options.get("priority", 0),
            }
        )

    def measure(
        self, now: int, site: str, options: dict[str, Any], intermediary: str | None
    ) -> list[int]:
        size, value = options["histogramSize"], options.get("value", 1)
        credit = options.get("credit", [1])
        lookback = min(
            options.get("lookbackDays", self.config["maxLookbackDays"]),
            self.config["maxLookbackDays"],
        )
        current = self.epoch(now)
        is_single = self.epoch(now - lookback * DAY) == current
        norm = 0
        if is_single:
            found = self.matching(now, site, intermediary, current, lookback, options)
            if not found:
                return [0] * size
            norm = sum(self.fill(found, size, value, credit))
        used = []
        for epoch in range(self.start_epoch(now), current + 1):
            found = self.matching(now, site, intermediary, epoch, lookback, options)
            if found and self.deduct(epoch, site, found, options, is_single, norm):
                used += found
        return self.fill(used, size, value, credit) if used else [0] * size

    def epoch(self, time: int) -> int:
        period = self.config["privacyBudgetEpochDays"] * DAY
        if self.epoch_start is None:
            drawn = time - Fraction(self.config["epochStart"]) * period
            self.epoch_start = Fraction(math.floor(drawn / 3600) * 3600)
        return math.floor((time - self.epoch_start) / period)

    def start_epoch(self, now: int) -> int:
        earliest = self.epoch(now - self.config["maxLookbackDays"] * DAY)
        if self.last_clear is not None:
            return max(earliest, self.epoch(self.last_clear) + 1)
        return earliest

    def matching(self, now, site, intermediary, epoch, lookback, options):
        found = []
        for saved in self.impressions:
            if self.epoch(saved["time"]) != epoch:
                continue
            if (
                now > saved["time"] + saved["lifetime"] * DAY
                or now > saved["time"] + lookback * DAY
            ):
                continue
            if saved["conversion_sites"] and site not in saved["conversion_sites"]:
                continue
            caller = site if intermediary is None else intermediary
            if saved["conversion_callers"] and caller not in saved["conversion_callers"]:
                continue
            if options.get("matchValues") and saved["match"] not in options["matchValues"]:
                continue
            if options.get("impressionSites") and saved["site"] not in options["impressionSites"]:
                continue
            caller = saved["site"] if saved["intermediary"] is None else saved["intermediary"]
            if options.get("impressionCallers") and caller not in options["impressionCallers"]:
                continue
            found.append(saved)
        return found

    def deduct(self, epoch, site, found, options, is_single, norm) -> bool:
        value, config = options.get("value", 1), self.config
        noise_scale = 2 * options.get("maxValue", 1) / options.get("epsilon", 1.0)
        own = math.ceil((norm if is_single else 2 * value) / noise_scale * 1_000_000)
        shared = math.ceil(2 * value / noise_scale * 1_000_000)
        own_left = self.site_store.get((epoch, site), config["perSitePrivacyBudget"])
        global_left = self.global_store.get(epoch, config["globalPrivacyBudgetPerEpoch"])
        if own > own_left or shared > global_left:
            return False
        for saved in found:
            key = epoch, saved["site"]
            if shared > self.quota_store.get(key, config["impressionSiteQuotaPerEpoch"]):
                return False
        self.site_store[epoch, site] = own_left - own
        self.global_store[epoch] = global_left - shared
        done = set()
        for saved in found:
            key = epoch, saved["site"]
            if key not in done:
                done.add(key)
                left = self.quota_store.get(key, config["impressionSiteQuotaPerEpoch"])
                self.quota_store[key] = left - shared
        return True

    def fill(self, found, size, value, credit) -> list[int]:
        ranked = sorted(found, key=lambda saved: (saved["priority"], saved["time"]), reverse=True)
        top = ranked[: len(credit)]
        weights = [Fraction(weight) for weight in credit[: len(top)]]
        shares = [value * weight / sum(weights) for weight in weights]
        first = 0
        for n in range(1, len(shares)):
            second = n
            fraction_1, fraction_2 = shares[first] % 1, shares[second] % 1
            if fraction_1 == 0 and fraction_2 == 0:
                continue
            if fraction_1 + fraction_2 > 1:
                step_1, step_2 = 1 - fraction_1, 1 - fraction_2
            else:
                step_1, step_2 = -fraction_1, -fraction_2
            if Fraction(self.config["fairlyAllocateCreditFraction"]) < step_2 / (step_1 + step_2):
                step, first, second = step_1, second, first
            else:
                step = step_2
            shares[second] += step
            shares[first] -= step
        histogram = [0] * size
        for saved, share in zip(top, shares, strict=True):
            assert share.denominator == 1
            if saved["index"] < size:
                histogram[saved["index"]] += int(share)
        return histogram

    def clear_for_site(self, site: str) -> None:
        kept = []
        for saved in self.impressions:
            if saved["intermediary"] is None and saved["site"] == site:
                continue
            if saved["intermediary"] == site:
                continue
            if site in saved["conversion_sites"]:
                saved["conversion_sites"].remove(site)
                if not saved["conversion_sites"]:
                    continue
            if site in saved["conversion_callers"]:
                saved["conversion_callers"].remove(site)
                if not saved["conversion_callers"]:
                    continue
            kept.append(saved)
        self.impressions = kept

    def clear_history(self, now: int, sites: list[str], forget_visits: bool) -> None:
        if not forget_visits:
            for site in sites:
                for epoch in range(self.start_epoch(now), self.epoch(now) + 1):
                    self.site_store[epoch, site] = 0
            return
        if not sites:
            self.impressions, self.site_store, self.quota_store = [], {}, {}
            self.global_store = {}
        else:
            self.impressions = [saved for saved in self.impressions if saved["site"] not in sites]
            for store in (self.site_store, self.quota_store):
                for key in [key for key in store if key[1] in sites]:
                    del store[key]
        self.last_clear = now
