"""Writes impression and conversion logs in the browser layouts.

The impressions have three columns more than the layout: region and age group of the
user, and the price. Events come 8,192 users at a time, in order of time within these.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tulle.data.formats.browser import CONVERSIONS, IMPRESSIONS
from tulle.data.synth.hashing import salt_of, scramble
from tulle.data.synth.impressions import (
    ImpressionBlock,
    ImpressionConfig,
    advertiser_of,
    age_group_of,
    generate_impression_blocks,
    region_of,
)
from tulle.data.synth.table_files import TableForm, write_table
from tulle.data.synth.text import (
    TextMatrix,
    choose_text,
    constant_text,
    decimal_text,
    integer_text,
    join_lines,
)
from tulle.errors import ConfigError

_NAMES = {"publisher", "advertiser", "campaign", "interaction", "geo", "age_group"}


def write_impression_logs(
    config: ImpressionConfig, impressions: Path, conversions: Path, *, seed: int
) -> None:
    """Writes the impressions and the conversions of one log, each whole or not at all.

    Args:
      config: What the log looks like.
      impressions: File to write, in the form its suffix says.
      conversions: File to write, in the form its suffix says.
      seed: Fixes the log; `generate_impression_blocks` with it gives the causes too.
    """
    if impressions == conversions:
        raise ConfigError(f"impressions and conversions are both {str(impressions)!r}; use two.")
    form = TableForm(
        columns=(*IMPRESSIONS.columns, "geo", "age_group", "price"),
        names=frozenset(_NAMES),
        reals=frozenset({"price"}),
    )
    # Making the events again is cheaper than holding the second file's lines back.
    blocks = generate_impression_blocks(config, seed=seed)
    write_table(impressions, form, (_impression_lines(config, block) for block in blocks))
    form = TableForm(
        columns=CONVERSIONS.columns,
        names=frozenset({"advertiser", "conversion_type"}),
        reals=frozenset({"value"}),
    )
    blocks = generate_impression_blocks(config, seed=seed)
    write_table(conversions, form, (_conversion_lines(block) for block in blocks))


def _impression_lines(config: ImpressionConfig, block: ImpressionBlock) -> bytes:
    num_rows = len(block.campaign)
    fields = {
        "impression_id": integer_text(block.impression_id),
        "timestamp": integer_text(block.impression_time),
        "user": integer_text(block.impression_user),
        "publisher": _named("news{}.example", block.publisher),
        "advertiser": _named("shop{}.example", advertiser_of(config, block.campaign)),
        "campaign": _named("campaign-{}", block.campaign),
        "interaction": choose_text(
            block.clicked, constant_text("click", num_rows), constant_text("view", num_rows)
        ),
        "geo": _named("region-{}", region_of(block.impression_user)),
        "age_group": _named("age-{}", age_group_of(block.impression_user)),
        "price": decimal_text(np.rint(block.price * 1e6).astype(np.int64), 6),
    }
    columns = (*IMPRESSIONS.columns, "geo", "age_group", "price")
    return join_lines([fields[name] for name in columns], IMPRESSIONS.separator)


def _conversion_lines(block: ImpressionBlock) -> bytes:
    num_rows = len(block.conversion_id)
    kind = scramble(block.conversion_id & 0xFFFFFFFF, salt_of("conversion type"))
    kinds = constant_text("purchase", num_rows), constant_text("signup", num_rows)
    fields = {
        "conversion_id": integer_text(block.conversion_id),
        "timestamp": integer_text(block.conversion_time),
        "user": integer_text(block.conversion_user),
        "advertiser": _named("shop{}.example", block.conversion_advertiser),
        "conversion_type": choose_text(kind < 0xC0000000, *kinds),
        "value": decimal_text(np.rint(block.conversion_value * 100).astype(np.int64), 2),
    }
    return join_lines([fields[name] for name in CONVERSIONS.columns], CONVERSIONS.separator)


def _named(pattern: str, numbers: npt.NDArray[np.integer]) -> TextMatrix:
    before, after = (constant_text(text, len(numbers)) for text in pattern.split("{}"))
    return np.hstack([before, integer_text(numbers), after])
