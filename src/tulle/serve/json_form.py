"""A model of tables as one JSON file that says how to score a row, hashes included."""

import json
from typing import Any

import numpy as np

from tulle.data.features.id_rules import CycleRule, HashRule, IdRule, IntervalRule
from tulle.serve.scoring_tables import ScoringTables

FORMAT, VERSION = "tulle scoring tables", 1
"""What the file calls itself. The version rises where older readers would score wrongly."""
_GUIDE = (
    "log odds of a head = bias + effects of all features + weights of crossed tables. A feature "
    "makes an id of a value by its rule. An effect or step of an id is in 'ids' under the id as "
    "text, or else is 'rest'. The cell of a crossed table is the sum of the steps of its features. "
    "docs/serving.md says how each rule works."
)


def json_form(tables: ScoringTables) -> str:
    """The text of the file.

    Privacy:
      Holds the model, which was released, and no value of a column.
    """
    model = tables.cells.model
    features = []
    for one in tables.features:
        feature = one.feature
        features.append(
            {
                "name": feature.name,
                "column": feature.column,
                "role": feature.role,
                "kind": feature.kind.value,
                "rule": _rule(feature.rule),
                "effects": {str(head): _sparse(values) for head, values in one.effects.items()},
                "steps": {str(number): _sparse(steps) for number, steps in one.steps.items()},
            }
        )
    data: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "guide": _GUIDE,
        "output": model.output,
        "scale": model.scale,
        "classes": list(model.classes),
        "biases": tables.biases,
        "features": features,
        "crossed": [
            {"head": head, "weights": weights.tolist()} for head, weights in tables.crossed
        ],
    }
    return json.dumps(data, allow_nan=False) + "\n"


def _rule(rule: IdRule) -> dict[str, Any]:
    if isinstance(rule, IntervalRule):
        words = {"edges": list(rule.edges), "ids": list(rule.ids)}
        return {"type": "interval", **words, "missing_id": rule.missing_id}
    if isinstance(rule, CycleRule):
        words = {"step": rule.step, "offset": rule.offset, "length": rule.length}
        return {
            "type": "cycle",
            **words,
            "first_id": rule.first_id,
            "missing_id": rule.missing_id,
        }
    # In hexadecimal: JSON readers round whole numbers beyond 2^53.
    key = f"{rule.hasher.key:016x}"
    if isinstance(rule, HashRule):
        return {"type": "hash", "key": key, "num_bins": rule.num_bins}
    return {
        "type": "vocabulary",
        "key": key,
        "ids": {f"{one:016x}": number for one, number in rule.ids.items()},
        "unknown_id": rule.unknown_id,
        "missing_id": rule.missing_id,
    }


def _sparse(values: np.ndarray) -> dict[str, Any]:
    """Numbers by id, without the one that most ids have."""
    found, counts = np.unique(values, return_counts=True)
    rest = found[counts.argmax()]
    others = np.flatnonzero(values != rest).tolist()
    return {"rest": rest.item(), "ids": {str(one): values[one].item() for one in others}}
