"""The Taobao display ads log: clicks, ads and user profiles.

Comma-separated with headers. Roles as in the paper on private ad selection: all
features of users are sensitive, those of ads are public. The log comes in three
files, see `taobao_tables`.
"""

from tulle.data.schema import Kind, Schema
from tulle.data.tables.layout import Layout

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
"""The three tables joined; also the layout of a file that holds them so."""
