"""The plan of a release of counts: who is trusted, with what, and what it costs."""

import dataclasses

from tulle.measure.trust.value_counts import ValueCountsConfig
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.conditions import Bound
from tulle.privacy.plan import Plan
from tulle.privacy.settings import Scalar


def plan_counts(
    config: ValueCountsConfig, *, name: str, value_column: str, user_column: str
) -> Plan:
    """Fixes trust model, event and guarantee before any value is read.

    Args:
      config: The mechanism with its settings.
      name: Of the plan.
      value_column: What each user holds.
      user_column: Who holds it.
    """
    settings: dict[str, Scalar] = {
        field.name: getattr(config, field.name) for field in dataclasses.fields(config)
    }
    return Plan(
        name=name,
        mechanism=config.mechanism,
        settings=settings,
        event=config.event(),
        guarantee=config.guarantee,
        trust=config.trust_model,
        columns=ColumnRoles(label=None, sensitive=(value_column,), unit=user_column),
        bounds=(Bound(what="values per user", limit=1, where="one entry a user in release()"),),
        assumptions=config.assumptions,
    )
