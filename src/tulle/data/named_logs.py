"""The log behind a caller's name for the data: files or a table in memory, and column roles.

Roles come from a schema, from the layout of a public log by its name, or from both: then the
schema gives the roles and the layout the form of the files.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tulle.data.formats.known_roles import check_known_roles
from tulle.data.formats.public import LAYOUTS
from tulle.data.formats.taobao_tables import TaobaoTables
from tulle.data.schema import Schema, read_schema
from tulle.data.tables.layout import BadLines, Layout
from tulle.data.tables.sources import Log, open_log
from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean

FilePath = str | os.PathLike[str]
SchemaLike = Schema | Mapping[str, Any] | FilePath
"""Roles of columns: a schema, the same as plain data, or a TOML or JSON file of one."""

TAOBAO_TABLES = "taobao-tables"
"""Layout of a log in three files, which are joined while they are read."""


def log_of(
    data: object,
    schema: SchemaLike | None = None,
    *,
    layout: str | None = None,
    allow_public: Sequence[str] = (),
    skip_bad_lines: bool = False,
) -> Log:
    """Opens a log. No row is read yet.

    Args:
      data: A path, several paths, or a table of polars, pandas, Arrow or DuckDB.
      schema: Roles of the columns.
      layout: Name of a public log, in place of a schema or with one.
      allow_public: Columns that may be public though a known log protects them.
      skip_bad_lines: Count and leave out lines that cannot be read; else they are refused.

    Raises:
      ConfigError: Roles are missing, make a protected column of a known log public, or the
        layout is unknown.
    """
    log = log_as_said(data, schema, layout=layout, skip_bad_lines=skip_bad_lines)
    check_known_roles(log.layout.schema, allowed_public=allow_public, format_name=layout)
    return log


def log_as_said(
    data: object,
    schema: SchemaLike | None = None,
    *,
    layout: str | None = None,
    skip_bad_lines: bool = False,
) -> Log:
    """Opens a log with the roles that somebody gave its columns, also if a known log protects more.

    Nothing may be released or trained on by these roles: `log_of` is for that.

    Args:
      data: The same as for `log_of`.
      schema: The same as for `log_of`.
      layout: The same as for `log_of`.
      skip_bad_lines: The same as for `log_of`.

    Raises:
      ConfigError: Roles are missing, or the layout is unknown.
    """
    roles = None if schema is None else schema_of(schema)
    if layout == TAOBAO_TABLES:
        return _joined(data, has_schema=roles is not None, skip_bad_lines=skip_bad_lines)
    known = None if layout is None else _layout(layout)
    if roles is None and known is None:
        raise ConfigError(
            "the roles of columns are missing: give a schema, which names the role of each column, "
            "or the layout of a public log by its name."
        )
    return open_log(data, roles, layout=known, skip=skip_bad_lines)


def schema_of(given: SchemaLike) -> Schema:
    """Returns the roles, whichever way they were given."""
    if isinstance(given, Schema):
        return given
    if isinstance(given, Mapping):
        return Schema.from_dict(dict(given))
    return read_schema(Path(given))


def _layout(name: str) -> Layout:
    if name not in LAYOUTS:
        known = [*LAYOUTS, TAOBAO_TABLES]
        raise ConfigError(
            f"layout={name!r} is unknown{did_you_mean(name, known)}; use one of "
            f"{', '.join(known)}, or a schema."
        )
    return LAYOUTS[name]


def _joined(data: object, *, has_schema: bool, skip_bad_lines: bool) -> TaobaoTables:
    paths: Sequence[Any] = data if isinstance(data, list | tuple) else [data]
    if len(paths) != 3 or has_schema:
        raise ConfigError(
            f"layout={TAOBAO_TABLES!r} needs three files and no schema: raw_sample, ad_feature and "
            "user_profile, in this order."
        )
    raw_sample, ad_feature, user_profile = (Path(path) for path in paths)
    return TaobaoTables(
        raw_sample=raw_sample,
        ad_feature=ad_feature,
        user_profile=user_profile,
        bad_lines=BadLines.SKIP if skip_bad_lines else BadLines.REFUSE,
    )
