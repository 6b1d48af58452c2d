"""Runs a target and puts its figures beside the published ones, with a verdict for each claim."""

import dataclasses
import math
from collections.abc import Callable, Mapping

from tulle.lab.reproduction.judging import Findings, Judgement, OwnFigure, judge
from tulle.lab.reproduction.published import (
    PublishedFigure,
    PublishedTarget,
    published_target,
)
from tulle.lab.reproduction.settings import ReproductionSettings

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
