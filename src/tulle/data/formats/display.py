"""The Criteo Display Ads log: clicks on ads, 13 counts and 26 hashed categories.

Tab-separated, without a header, in the order of time but without a time
column. The labelled file only: the test file of the challenge has no label.
Roles as in the papers on semi-sensitive features: what the columns mean is
not known, so the even-numbered ones are taken to be sensitive.
"""

from tulle.data.schema import Kind, Schema
from tulle.data.tables.layout import Layout

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
