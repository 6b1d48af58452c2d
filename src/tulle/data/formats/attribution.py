"""The Criteo Attribution Modeling for Bidding log: impressions and conversions in 30 days.

Tab-separated with a header; -1 where there was no conversion or click before.
Roles as in the paper on semi-sensitive features: cat1 and cat2 sensitive,
the campaign and the other categories public, the user as unit.
"""

from tulle.data.schema import Kind, Schema
from tulle.data.tables.layout import Layout

_OUTCOMES = (
    "conversion_timestamp",
    "conversion_id",
    "attribution",
    "click",
    "click_pos",
    "click_nb",
    "cpo",
)

ATTRIBUTION = Layout(
    name="attribution",
    columns=(
        "timestamp",
        "uid",
        "campaign",
        "conversion",
        "conversion_timestamp",
        "conversion_id",
        "attribution",
        "click",
        "click_pos",
        "click_nb",
        "cost",
        "cpo",
        "time_since_last_click",
        *(f"cat{number}" for number in range(1, 10)),
    ),
    separator="\t",
    has_header=True,
    missing=("", "-1"),
    quote=None,
    schema=Schema(
        label="conversion",
        public=("campaign", *(f"cat{number}" for number in range(3, 10))),
        sensitive=("cat1", "cat2"),
        unit="uid",
        time="timestamp",
        ignored=(*_OUTCOMES, "cost", "time_since_last_click"),
        kinds={"timestamp": Kind.TIMESTAMP},  # seconds since the first click of the log
    ),
    outcomes=_OUTCOMES,
)
