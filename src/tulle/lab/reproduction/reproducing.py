"""Runs a target, puts its figures beside the published ones, judges its claims, and shows all.

A reproduction is plain text for a terminal, and Markdown for a file.
"""

import dataclasses
import enum
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tulle.errors import ConfigError, DataError
from tulle.lab.markets.claims import Verdict
from tulle.lab.reproduction.published import (
    Findings,
    Judgement,
    OwnFigure,
    PublishedFigure,
    PublishedTarget,
    figure_text,
    judge,
    published_target,
)


class ReproductionScale(enum.Enum):
    """How much of the published experiment is run."""

    REDUCED = "reduced"
    """Fewer rows, epochs and values of epsilon: minutes on two cores."""
    PAPER = "paper"
    """Rows, epochs and grids of the paper where they are known: hours, or a GPU."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReproductionSettings:
    """What to run on. Every field is public."""

    data: Path | None = None
    """The user's copy of the data; None for a synthetic set of the same kind."""
    scale: ReproductionScale = ReproductionScale.REDUCED
    seed: int = 1
    """Seed of synthetic data, of noise and of first weights: a fixed one is no private release."""
    say: Callable[[str], None] = lambda _: None
    """Function that is told what begins."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**31:
            raise ConfigError(f"seed={self.seed} must be between 0 and 2^31 - 1.")
        if self.data is not None and not self.data.exists():
            raise DataError(f"--data {self.data.name} is not there; give the path of your copy.")

    @property
    def is_paper(self) -> bool:
        """Whether the scale is that of the paper."""
        return self.scale is ReproductionScale.PAPER


_NOTHING = "-"


Experiment = Callable[[ReproductionSettings], Findings]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FigureRow:
    """One figure, ours and theirs; either may be missing."""

    name: str
    ours: OwnFigure | None
    published: PublishedFigure | None

    def to_dict(self) -> dict[str, object]:
        """Plain data; a figure that is 'never' has no value."""
        ours, published = self.ours, self.published
        return {
            "figure": self.name,
            "ours": None if ours is None else _finite(ours.value),
            "ours_error": None if ours is None else _finite(ours.error),
            "published": None if published is None else published.value,
            "published_error": None if published is None else published.error,
            "unit": None if published is None else published.unit,
            "source": None if published is None else published.source,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What came out. As sensitive as the data of the run; not a private release."""

    target: PublishedTarget
    settings: ReproductionSettings
    findings: Findings
    rows: tuple[FigureRow, ...]
    judgements: tuple[Judgement, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        data = self.settings.data
        return {
            "target": self.target.name,
            "title": self.target.title,
            "document": self.target.document,
            "note": self.target.note,
            "release": "not a private release",
            "data": "synthetic" if data is None else data.name,
            "scale": self.settings.scale.value,
            "seed": self.settings.seed,
            "setting": self.findings.setting,
            "figures": [row.to_dict() for row in self.rows],
            "claims": [judgement.to_dict() for judgement in self.judgements],
        }


def reproduce(
    name: str, settings: ReproductionSettings, *, experiments: Mapping[str, Experiment]
) -> Reproduction:
    """Runs one target.

    Args:
      name: Name of the target.
      settings: Data, scale and seed of the run.
      experiments: How each target is run; see `experiments.EXPERIMENTS`.

    Privacy:
      Not a private release: exact figures of the data, and noise from a fixed seed. For
      synthetic data, public logs and people who agreed.
    """
    target = published_target(name)
    findings = experiments[name](settings)
    return compare(target, settings, findings)


def compare(
    target: PublishedTarget, settings: ReproductionSettings, findings: Findings
) -> Reproduction:
    """Figures side by side, those of the paper first, and all verdicts.

    Args:
      target: Figures and claims of the paper.
      settings: Settings of the run.
      findings: Figures of the run.
    """
    published = {figure.name: figure for figure in target.figures}
    names = dict.fromkeys((*published, *findings.figures))
    return Reproduction(
        target=target,
        settings=settings,
        findings=findings,
        rows=tuple(
            FigureRow(name=name, ours=findings.figures.get(name), published=published.get(name))
            for name in names
        ),
        judgements=tuple(judge(claim, findings) for claim in target.claims),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


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
