"""The public logs of the papers: their layouts, synthetic twins, and how many rows are run."""

import dataclasses

from tulle.lab.reproduction.log_rows import LogKind

_SMALL_PUBLIC_BINS, _SMALL_SENSITIVE_BINS = 10_000, 5_000


def display_log(*, is_paper: bool) -> LogKind:
    """Clicks of the Criteo Display Ads log."""
    from tulle.data.formats.display import DISPLAY
    from tulle.data.synth import shapes

    return _sized(
        LogKind(shape=shapes.DISPLAY, layout=DISPLAY, reduced_rows=120_000, paper_rows=40_000_000),
        is_paper=is_paper,
    )


def search_log(*, is_paper: bool) -> LogKind:
    """Sales of the Criteo Sponsored Search Conversion log."""
    from tulle.data.formats.search import SEARCH
    from tulle.data.synth import shapes

    return _sized(
        LogKind(shape=shapes.SEARCH, layout=SEARCH, reduced_rows=120_000, paper_rows=16_000_000),
        is_paper=is_paper,
    )


def attribution_log(*, is_paper: bool) -> LogKind:
    """Conversions of the Criteo Attribution log, two of its columns sensitive."""
    from tulle.data.formats.attribution import ATTRIBUTION
    from tulle.data.synth import shapes

    return _sized(
        LogKind(
            shape=shapes.ATTRIBUTION,
            layout=ATTRIBUTION,
            reduced_rows=160_000,
            paper_rows=16_000_000,
        ),
        is_paper=is_paper,
    )


def public_attribution_log() -> LogKind:
    """The same with every feature public, as label DP has it."""
    from tulle.data.formats.attribution import ATTRIBUTION
    from tulle.data.synth import shapes

    schema = ATTRIBUTION.schema
    public = dataclasses.replace(schema, public=(*schema.public, *schema.sensitive), sensitive=())
    return LogKind(
        shape=shapes.ATTRIBUTION,
        layout=dataclasses.replace(ATTRIBUTION, schema=public),
        reduced_rows=600_000,
        paper_rows=5_947_563,
    )


def _sized(kind: LogKind, *, is_paper: bool) -> LogKind:
    """A reduced run has small tables: every row of a table takes noise, and time."""
    if is_paper:
        return kind
    return dataclasses.replace(
        kind, public_bins=_SMALL_PUBLIC_BINS, sensitive_bins=_SMALL_SENSITIVE_BINS
    )
