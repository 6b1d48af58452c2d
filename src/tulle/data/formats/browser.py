"""Impression and conversion tables, as browser measurement sees them.

The words are those of the W3C attribution drafts and of the Attribution
Reporting API: publishers show ads of advertisers, users convert on sites of
advertisers. That a user was on a site is itself what is protected, so nothing
but the time of a row is taken to be public. Ids of rows are not read.
"""

from tulle.data.schema import Kind, Schema
from tulle.data.tables.layout import Layout

IMPRESSIONS = Layout(
    name="browser-impressions",
    columns=(
        "impression_id",
        "timestamp",
        "user",
        "publisher",
        "advertiser",
        "campaign",
        "interaction",
    ),
    separator=",",
    has_header=True,
    missing=("",),
    quote='"',
    schema=Schema(
        label=None,
        sensitive=("publisher", "advertiser", "campaign", "interaction"),
        unit="user",
        time="timestamp",
        ignored=("impression_id",),
        kinds={"timestamp": Kind.TIMESTAMP},
    ),
)
"""One row an impression; `interaction` says view or click."""

CONVERSIONS = Layout(
    name="browser-conversions",
    columns=("conversion_id", "timestamp", "user", "advertiser", "conversion_type", "value"),
    separator=",",
    has_header=True,
    missing=("",),
    quote='"',
    schema=Schema(
        label="value",
        sensitive=("advertiser", "conversion_type"),
        unit="user",
        time="timestamp",
        ignored=("conversion_id",),
        kinds={"value": Kind.REAL, "timestamp": Kind.TIMESTAMP},
    ),
)
"""One row a conversion; `value` is what it is worth to the advertiser."""
