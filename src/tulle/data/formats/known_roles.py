"""Roles that a known log must not lose when somebody writes their own schema for it.

A schema file can call any column public, and a public column is not protected. For
a log that we know, a column that is sensitive there, or that tells the label in
other words, is public only if somebody says so by name.
"""

from collections.abc import Sequence

from tulle.data.formats.public import LAYOUTS
from tulle.data.schema import Schema
from tulle.data.tables.layout import Layout
from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean

# When a schema counts as one of a known log: three quarters of its columns are there, and three
# names that other logs do not have. Less would refuse strangers' schemas; more would let a known
# log pass as a strange one once a few columns have other names.
_LEAST_TELLING = 3
_LEAST_SHARE = 0.75
_COMMON_NAMES = frozenset(
    (
        "advertiser",
        "attribution",
        "audience_id",
        "brand",
        "campaign",
        "campaign_id",
        "click",
        "click_timestamp",
        "clk",
        "conversion",
        "conversion_id",
        "conversion_timestamp",
        "conversion_type",
        "cost",
        "customer",
        "device_type",
        "impression_id",
        "interaction",
        "label",
        "occupation",
        "partner_id",
        "price",
        "product_brand",
        "product_country",
        "product_id",
        "product_price",
        "product_title",
        "publisher",
        "time_stamp",
        "timestamp",
        "uid",
        "user",
        "user_id",
        "value",
    )
)
"""Names of the layouts that any other log may have too."""


def check_known_roles(
    schema: Schema, *, allowed_public: Sequence[str] = (), format_name: str | None = None
) -> None:
    """Refuses a schema that makes a protected column of a known log public.

    A schema is taken for one of a known log if at least three quarters of the columns
    it uses are columns of that log, and it names either three columns that hardly any
    other log has or every column that the known layout uses.

    Args:
      schema: The roles that were chosen.
      allowed_public: Columns that are public deliberately, by name.
      format_name: The layout by which the log is read. If it is a known one, the schema
        is one of that log, whatever it names.

    Raises:
      ConfigError: A column is public that the layout calls sensitive, unit, label or
        outcome; or allowed_public names a column that is not public.
    """
    allowed = _checked_names(allowed_public, schema)
    for layout in LAYOUTS.values():
        if layout.name != format_name and not _is_of(schema, layout):
            continue
        protected = _protected(layout)
        exposed = [c for c in _shown(schema) if c in protected and c not in allowed]
        if exposed:
            column = exposed[0]
            others = f" (and also {', '.join(map(repr, exposed[1:]))})" if exposed[1:] else ""
            raise ConfigError(
                f"column {column!r}{others} is public in the schema, but in format "
                f"{layout.name!r} it is {protected[column]}; make it sensitive or ignored, or "
                f"allow it by name if that is meant: allowed_public=[{column!r}]."
            )


def _shown(schema: Schema) -> tuple[str, ...]:
    """Columns that are taken for public: those that are features, and the weight."""
    return schema.public if schema.weight is None else (*schema.public, schema.weight)


def _is_of(schema: Schema, layout: Layout) -> bool:
    shared = [column for column in schema.used if column in layout.columns]
    if len(shared) < _LEAST_SHARE * len(schema.used):
        return False
    named = {*shared, *schema.ignored} & set(layout.columns)
    is_whole = named >= set(layout.schema.used)
    return is_whole or len(named - _COMMON_NAMES) >= _LEAST_TELLING


def _protected(layout: Layout) -> dict[str, str]:
    """Reason in words why each column that is not for the public is not."""
    roles = layout.schema
    protected = dict.fromkeys(roles.sensitive, "sensitive")
    protected |= dict.fromkeys(layout.outcomes, "an outcome that tells the label")
    if roles.unit is not None:
        protected[roles.unit] = "the unit of privacy"
    if roles.label is not None:
        protected[roles.label] = "the label"
    return protected


def _checked_names(allowed_public: Sequence[str], schema: Schema) -> frozenset[str]:
    if isinstance(allowed_public, str):
        raise ConfigError(
            f"allowed_public={allowed_public!r} must be a list of columns; "
            f"write [{allowed_public!r}]."
        )
    for column in allowed_public:
        if column not in _shown(schema):
            raise ConfigError(
                f"allowed_public names column {column!r}, which is not public in the schema"
                f"{did_you_mean(column, schema.public)}; name a public column or leave it out."
            )
    return frozenset(allowed_public)
