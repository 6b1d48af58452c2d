"""Settings of a selection as a TOML file, which planning writes and every later step reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy.fields import check_choice, check_count, check_finite, check_text
from tulle.privacy.units import Unit
from tulle.runs.toml_tables import check_flag, check_table, read_toml
from tulle.runs.toml_text import toml_text
from tulle.select.billing.prices import PricingRule
from tulle.select.decision_accounting import Shuffle, UserReports
from tulle.select.mechanism_table import mechanism_table, read_mechanism
from tulle.select.selection_config import Candidates, Consent, Pricing, SelectionConfig

_POSTED = "posted"
_PRIVACY = (
    *("max_decisions_per_user", "least_finalists", "delta", "min_cell_size"),
    *("user_reports", "consent", "candidates", "planned_on_devices"),
)


def read_settings(path: Path) -> SelectionConfig:
    """The selection that a file describes, strictly.

    Raises:
      ConfigError: A setting is unknown, missing or wrong, or two do not go together.
      DataError: The file cannot be read.
    """
    return settings_of(read_toml(path), name=path.stem, what=path.name)


def settings_of(
    data: Mapping[str, Any], *, name: str, what: str = "the settings"
) -> SelectionConfig:
    """The selection that tables of settings describe, strictly.

    Args:
      data: As TOML gives them.
      name: Of the selection, if the tables have none.
      what: Where the tables are from, for messages.
    """
    tables = check_table(what, data, ("mechanism", "privacy"), ("pricing", "name"))
    return SelectionConfig(
        name=check_text("name", tables.get("name", name)),
        mechanism=read_mechanism(tables["mechanism"]),
        pricing=_pricing(tables.get("pricing", {})),
        **_privacy(tables["privacy"]),
    )


def settings_text(config: SelectionConfig) -> str:
    """The file that `read_settings` reads back to the same selection."""
    privacy: dict[str, Any] = {
        "unit": str(config.unit),
        "least_finalists": config.least_finalists,
        "delta": config.delta,
        "consent": config.consent.value,
    }
    if config.max_decisions_per_user is not None:
        privacy["max_decisions_per_user"] = config.max_decisions_per_user
    if config.is_planned_on_devices:
        privacy["planned_on_devices"] = True
    if config.shuffle is not None:
        privacy["min_cell_size"] = config.shuffle.min_cell_size
        privacy["user_reports"] = config.shuffle.user_reports.value
    return toml_text(
        {
            "name": config.name,
            "mechanism": mechanism_table(config.mechanism),
            "privacy": privacy,
            "pricing": {"rule": config.pricing.name, "reserve": config.pricing.reserve},
        }
    )


def read_pricing(rule: object, reserve: object) -> Pricing:
    """The pricing of this name."""
    amount = check_finite("reserve", reserve)
    if rule == _POSTED:
        return Pricing(is_posted=True, reserve=amount)
    try:
        chosen = check_choice("rule", rule, PricingRule)
    except ConfigError as error:
        raise ConfigError(f"{str(error).rstrip('.')}, or {_POSTED!r}.") from None
    return Pricing(rule=chosen, reserve=amount)


def _pricing(table: object) -> Pricing:
    fields = check_table("[pricing]", table, (), ("rule", "reserve"))
    return read_pricing(
        fields.get("rule", PricingRule.SECOND_PRICE.value), fields.get("reserve", 0.0)
    )


def _privacy(table: object) -> dict[str, Any]:
    fields = check_table("[privacy]", table, ("unit",), _PRIVACY)
    given: dict[str, Any] = {"unit": Unit.parse(check_text("[privacy] unit", fields["unit"]))}
    for name in ("max_decisions_per_user", "least_finalists"):
        if name in fields:
            given[name] = check_count(f"[privacy] {name}", fields[name])
    if "delta" in fields:
        given["delta"] = check_finite("[privacy] delta", fields["delta"])
    if "min_cell_size" in fields:
        size = check_count("[privacy] min_cell_size", fields["min_cell_size"])
        reports = fields.get("user_reports", UserReports.ONE_PER_CELL.value)
        given["shuffle"] = Shuffle(
            min_cell_size=size,
            user_reports=check_choice("[privacy] user_reports", reports, UserReports),
        )
    elif "user_reports" in fields:
        raise ConfigError("[privacy] user_reports is for a shuffle; give min_cell_size too.")
    if "consent" in fields:
        given["consent"] = check_choice("[privacy] consent", fields["consent"], Consent)
    if "candidates" in fields:
        given["candidates"] = check_choice("[privacy] candidates", fields["candidates"], Candidates)
    if "planned_on_devices" in fields:
        name = "[privacy] planned_on_devices"
        given["is_planned_on_devices"] = check_flag(name, fields["planned_on_devices"])
    return given
