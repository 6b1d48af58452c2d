"""The layouts of public logs, by the names they have on the command line."""

from collections.abc import Mapping
from types import MappingProxyType

from tulle.data.formats.attribution import ATTRIBUTION
from tulle.data.formats.browser import CONVERSIONS, IMPRESSIONS
from tulle.data.formats.display import DISPLAY
from tulle.data.formats.search import SEARCH, search_by_user
from tulle.data.formats.taobao import TAOBAO
from tulle.data.tables.layout import Layout

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
