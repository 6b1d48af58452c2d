"""The sets of tables of a model: what each one learns, and what it may spend of the noise budget.

A label of 0 or 1 needs one set of tables, which is called a head. A value needs one, or two for
rate and size. Of K classes each has a head of its own, which learns whether a label is that class.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tulle.data.prepared.feature import PreparedFeature
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic.cell_model import CellHead, CellModel
from tulle.train.methods.mosaic.method import CellSettings, MosaicConfig, stages_of
from tulle.train.methods.mosaic.noise_shares import NoiseShares, class_share

WHOLE = 1 - 1e-8
"""Fraction of what is left of a budget that may be planned to be spent. The rest absorbs the
rounding of float shares, so that none is refused for being more than is left."""
_TINY = 1e-12
"""Positive number that stands in for 0 in denominators."""


def model_of(heads: Sequence[CellHead], method: MosaicConfig) -> CellModel:
    """The model of the heads that were learnt."""
    if method.classes is not None:
        # One set of tables says all of two classes: what speaks for one speaks against the other.
        both = (_opposite(heads[0]), heads[0]) if len(heads) == 1 else tuple(heads)
        return CellModel(heads=both, output="classes", classes=method.classes)
    if method.clip is None:
        return CellModel(heads=tuple(heads))
    return CellModel(heads=tuple(heads), output="value", scale=method.clip)


class ModelPart(NamedTuple):
    """What one set of tables learns, and what it may spend."""

    rows: ExampleSet
    shares: NoiseShares
    clip: float | None = None
    kept: float = 0.0
    """Share of the noise budget that is left to later sets of tables."""
    are_sizes: bool = False
    """True if rows with the label 0 do not take part."""


def parts_of_model(
    examples: ExampleSet, method: MosaicConfig, shares: NoiseShares, level_share: float
) -> Iterator[ModelPart]:
    """Sets of tables of a model, in the order in which they are learnt.

    Args:
      examples: All training rows.
      method: Settings of Mosaic.
      shares: The whole noise budget.
      level_share: Share of one release of an overall level.
    """
    labels = examples.labels
    if labels is not None and method.num_heads > 2:
        # Once, and of the labels as they are: in the sets of tables they are all 0 and 1.
        examples.with_classes(method.num_heads).check_labels()
        given = _shares_of_classes(examples.features, method, shares, level_share)
        for number, own in enumerate(given):
            is_class = (labels == number).astype(np.float32)
            rows = dataclasses.replace(examples, labels=is_class, num_classes=2)
            yield ModelPart(rows, own)
    elif method.rate_share is not None:
        # The first head learns which labels are above 0, the second one how large these are.
        are_above = None if labels is None else (labels > 0).astype(np.float32)
        rows = dataclasses.replace(examples, labels=are_above)
        yield ModelPart(rows, shares, kept=1 - method.rate_share)
        yield ModelPart(examples, shares, clip=method.clip, are_sizes=True)
    else:
        yield ModelPart(examples, shares, clip=method.clip)


def _shares_of_classes(
    features: Sequence[PreparedFeature],
    method: MosaicConfig,
    shares: NoiseShares,
    level_share: float,
) -> Sequence[NoiseShares]:
    """Divides what counts of sensitive values leave among classes, and between labels and rows.

    Args:
      features: Features of the rows.
      method: Settings of Mosaic.
      shares: The whole noise budget.
      level_share: Share of one release of an overall level.
    """
    num_sensitive = sum(feature.role == "sensitive" for feature in features)
    counts = num_sensitive * count_share(method.cells, num_sensitive)
    each = class_share(shares.left - counts) * WHOLE
    stages = {name: getattr(method.cells.stages, name) for name in stages_of(features)}
    hide_rows = [name for name in stages if num_sensitive and not name.startswith("public")]
    part = sum(stages[name] for name in hide_rows) / max(sum(stages.values()), _TINY)
    # The first level is one of labels, and the last one of rows if there are sensitive columns.
    level = level_share if num_sensitive else 0.0
    rows = WHOLE * (part * (each - 2 * level_share) + level)
    return shares.of_classes(method.num_heads, label_share=each - rows, row_share=rows)


def count_share(settings: CellSettings, num_sensitive: int) -> float:
    """Share of the counts of the values of one sensitive column."""
    return min(settings.most_count_share, settings.count_share / max(num_sensitive, 1))


def _opposite(head: CellHead) -> CellHead:
    """The head of all other classes: its probabilities are 1 less those of this one."""
    tables = (dataclasses.replace(table, weights=-table.weights) for table in head.tables)
    return CellHead(bias=-head.bias, tables=tuple(tables))
