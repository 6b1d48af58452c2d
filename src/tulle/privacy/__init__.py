"""The words of a guarantee: who is protected, against what, by which events, and in which plan."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.privacy import events
    from tulle.privacy.guarantee import Claim, Guarantee, Interval, Release
    from tulle.privacy.plan import Assumption, Bound, ColumnRoles, Plan, Status
    from tulle.privacy.units import Adjacency, Owner, Scope, TrustModel, Unit
    from tulle.privacy.windows import TimeWindows

__all__ = [
    "Adjacency",
    "Assumption",
    "Bound",
    "Claim",
    "ColumnRoles",
    "Guarantee",
    "Interval",
    "Owner",
    "Plan",
    "Release",
    "Scope",
    "Status",
    "TimeWindows",
    "TrustModel",
    "Unit",
    "events",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
