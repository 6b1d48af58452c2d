"""A reproduction for people: plain text for a terminal, Markdown for a file."""

from collections import Counter
from collections.abc import Iterator

from tulle.lab.markets.claims import Verdict
from tulle.lab.reproduction.judging import figure_text
from tulle.lab.reproduction.reproducing import FigureRow, Reproduction

_NOTHING = "-"


def reproduction_text(found: Reproduction) -> str:
    """Text of a reproduction for a terminal."""
    return "\n".join(_text_lines(found))


def reproduction_markdown(found: Reproduction) -> str:
    """Markdown of a reproduction for a file."""
    return "\n".join(_markdown_lines(found)) + "\n"


def shown_rows(found: Reproduction) -> list[FigureRow]:
    """Figures that the paper has or a claim is about."""
    used = {name for claim in found.target.claims for name in claim.names}
    # Of a published grid, only what this run has too.
    return [
        row for row in found.rows if row.ours is not None and (row.published or row.name in used)
    ]


def verdict_counts(found: Reproduction) -> str:
    """How many claims hold, in one line."""
    counts = Counter(judgement.verdict for judgement in found.judgements)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)


def caveat(found: Reproduction) -> str:
    """What the verdicts are about."""
    size = (
        ""
        if found.settings.is_paper
        else "A reduced run can miss what the paper's size shows; see --scale paper. "
    )
    if found.settings.data is None:
        return (
            f"{size}Synthetic data: a verdict says whether a claim holds here, not in the paper's "
            "data; --data takes your copy. Not a private release."
        )
    return f"{size}Exact figures of your data, noise from a fixed seed: not a private release."


def _text_lines(found: Reproduction) -> Iterator[str]:
    target, rows = found.target, shown_rows(found)
    yield f"{target.name}: {target.title}"
    yield target.document
    yield f"run: {found.findings.setting}, scale {found.settings.scale.value}"
    if target.note:
        yield f"note: {target.note}"
    width = max((len(row.name) for row in rows), default=6)
    yield ""
    yield f"{'figure':<{width}}  {'ours':>18}  {'published':>18}"
    for row in rows:
        yield f"{row.name:<{width}}  {_ours(row):>18}  {_published(row):>18}"
    yield ""
    for judgement in found.judgements:
        yield f"{judgement.verdict.value:<15} {judgement.claim.text} [{judgement.claim.source}]"
        yield f"{'':<15} {judgement.reason}"
    yield ""
    yield f"claims: {verdict_counts(found)}. {caveat(found)}"


def _markdown_lines(found: Reproduction) -> Iterator[str]:
    target = found.target
    yield f"# {target.name}: {target.title}"
    yield f"\n{target.document}.\n\nRun: {found.findings.setting}, scale "
    yield f"{found.settings.scale.value}, seed {found.settings.seed}. {caveat(found)}"
    if target.note:
        yield f"\n{target.note}"
    yield "\n| claim | verdict | why | source |\n|---|---|---|---|"
    for judgement in found.judgements:
        cells = (
            judgement.claim.text,
            judgement.verdict.value,
            judgement.reason,
            judgement.claim.source,
        )
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield "\n| figure | ours | published | source |\n|---|---|---|---|"
    for row in shown_rows(found):
        source = row.published.source if row.published else _NOTHING
        cells = (row.name, _ours(row), _published(row), source)
        yield f"| {' | '.join(map(_cell, cells))} |"


def _ours(row: FigureRow) -> str:
    return _NOTHING if row.ours is None else figure_text(row.ours.value, row.ours.error)


def _published(row: FigureRow) -> str:
    if row.published is None:
        return _NOTHING
    return figure_text(row.published.value, row.published.error)


def _cell(text: str) -> str:
    return text.replace("|", "/")
