"""The layouts of public logs, by the names they have on the command line.

Each says how the file is written, and which of its columns are public or sensitive,
mostly as in the papers that use the log.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from tulle.data.schema import Kind, Schema
from tulle.data.tables.layout import Layout

# The log has no header. Its readme numbers the columns behind the label: 13 counts, then 26
# categories.
_COUNTS = tuple(f"int_feature_{number}" for number in range(1, 14))
_CATEGORIES = tuple(f"categorical_feature_{number}" for number in range(14, 40))
_FEATURES = (*_COUNTS, *_CATEGORIES)

DISPLAY = Layout(
    name="display",
    columns=("label", *_FEATURES),
    separator="\t",
    has_header=False,
    missing=("",),
    quote=None,
    schema=Schema(
        label="label",
        public=_FEATURES[0::2],
        sensitive=_FEATURES[1::2],
        kinds=dict.fromkeys(_COUNTS, Kind.INTEGER),
    ),
)
"""The Criteo Display Ads log: clicks on ads, 13 counts and 26 hashed categories.

Tab-separated, without a header, in the order of time but without a time column. The labelled file
only: the test file of the challenge has no label. Roles as in the papers on semi-sensitive
features: what the columns mean is not known, so the even-numbered ones are taken to be sensitive.
"""


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
"""The Criteo Attribution Modeling for Bidding log: impressions and conversions in 30 days.

Tab-separated with a header; -1 where there was no conversion or click before. Roles as in the paper
on semi-sensitive features: cat1 and cat2 sensitive, the campaign and the other categories public,
the user as unit.
"""


_AFTER_THE_CLICK = ("SalesAmountInEuro", "time_delay_for_conversion")
# The seven categories of a product are the levels of one hierarchy, numbered by the log itself.
_PRODUCT = (
    "product_gender",
    "product_brand",
    *(f"prod_category{number}" for number in range(1, 8)),
    "product_country",
    "product_id",
    "product_title",
    "partner_id",
)

SEARCH = Layout(
    name="search",
    columns=(
        "Sale",
        *_AFTER_THE_CLICK,
        "click_timestamp",
        "nb_clicks_1week",
        "product_price",
        "product_age_group",
        "device_type",
        "audience_id",
        *_PRODUCT,
        "user_id",
    ),
    separator="\t",
    has_header=False,
    missing=("", "-1"),
    quote=None,
    schema=Schema(
        label="Sale",
        public=("nb_clicks_1week", "product_age_group", *_PRODUCT),
        sensitive=("device_type", "audience_id", "user_id"),
        time="click_timestamp",
        ignored=(*_AFTER_THE_CLICK, "product_price"),
        kinds={"nb_clicks_1week": Kind.INTEGER},
    ),
    outcomes=(*_AFTER_THE_CLICK, "product_price"),
)
"""The Criteo Sponsored Search Conversion Log: clicks on product ads and their sales.

Tab-separated, without a header, 23 columns in the order of the log's README, -1 where a value is
missing. Roles as in the paper on semi-sensitive features: device, audience and user are sensitive;
what is known only after the sale, and the price, which gives the sale away, are left out.
"""


def search_by_user() -> Layout:
    """The same log with the user as unit of privacy, and so not as a feature.

    Rows without a user must be dropped, see `tulle.data.row_arrays`.
    """
    schema = dataclasses.replace(
        SEARCH.schema, sensitive=("device_type", "audience_id"), unit="user_id"
    )
    return dataclasses.replace(SEARCH, name="search-by-user", schema=schema)


AD_FEATURES = ("cate_id", "campaign_id", "customer", "brand", "price")
USER_FEATURES = (
    "cms_segid",
    "cms_group_id",
    "final_gender_code",
    "age_level",
    "pvalue_level",
    "shopping_level",
    "occupation",
    "new_user_class_level",
)
CLICKS = ("user", "time_stamp", "adgroup_id", "pid", "nonclk", "clk")
MISSING = ("", "NULL")

TAOBAO = Layout(
    name="taobao",
    columns=(*CLICKS, *AD_FEATURES, *USER_FEATURES),
    separator=",",
    has_header=True,
    missing=MISSING,
    quote=None,
    schema=Schema(
        label="clk",
        public=("adgroup_id", "pid", *AD_FEATURES),
        sensitive=USER_FEATURES,
        unit="user",
        time="time_stamp",
        ignored=("nonclk",),
        kinds={"price": Kind.REAL},
    ),
    outcomes=("nonclk",),
)
"""The Taobao display ads log: clicks, ads and user profiles.

Comma-separated with headers. Roles as in the paper on private ad selection: all features of users
are sensitive, those of ads are public. The log comes in three files, see `taobao_tables`; this is
the three tables joined, and also the layout of a file that holds them so.
"""


# Impressions and conversions as browser measurement sees them, in the words of the W3C attribution
# drafts and of the Attribution Reporting API. That a user was on a site is itself what is
# protected, so nothing but the time of a row is taken to be public. Ids of rows are not read.
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


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            DISPLAY,
            ATTRIBUTION,
            SEARCH,
            search_by_user(),
            TAOBAO,
            IMPRESSIONS,
            CONVERSIONS,
        )
    }
)
"""Taobao's log is in three files: read those with `read_taobao_blocks`."""
