"""The Criteo Sponsored Search Conversion Log: clicks on product ads and their sales.

Tab-separated, without a header, 23 columns in the order of the log's README,
-1 where a value is missing. Roles as in the paper on semi-sensitive features:
device, audience and user are sensitive; what is known only after the sale, and
the price, which gives the sale away, are left out.
"""

import dataclasses

from tulle.data.schema import Kind, Schema
from tulle.data.tables.layout import Layout

_AFTER_THE_CLICK = ("SalesAmountInEuro", "time_delay_for_conversion")
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


def search_by_user() -> Layout:
    """The same log with the user as unit of privacy, and so not as a feature.

    Rows without a user must be dropped, see `tulle.data.units`.
    """
    schema = dataclasses.replace(
        SEARCH.schema, sensitive=("device_type", "audience_id"), unit="user_id"
    )
    return dataclasses.replace(SEARCH, name="search-by-user", schema=schema)
