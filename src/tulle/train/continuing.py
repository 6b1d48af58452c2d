"""Training that continues from a released model: what is read of it, and what must be the same.

The model brings its encoder along, so that ids mean what they meant, and its card, which says
whether it is itself a private release. Schema, columns, method and what is predicted must be those
of the model. Everything is compared before a row is read or a ledger is charged.
"""

import dataclasses
import hashlib
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Union

from tulle.errors import ConfigError
from tulle.privacy.fields import canonical_json
from tulle.train.methods.mosaic.earlier_model import KEEP_EVIDENCE, EarlierModel, StartModel
from tulle.train.methods.mosaic.trained_cells import TrainedCells

if TYPE_CHECKING:
    from tulle.data.features.encoder import Encoder
    from tulle.train.fitted_model import FittedModel
    from tulle.train.fitting import FitResult

StartLike = Union[os.PathLike[str], str, "FitResult", "FittedModel"]
"""A released model to continue from: the folder of a model or of a finished run, or what a fit gave
back."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Start:
    """A released model that training continues from, with its encoder."""

    earlier: EarlierModel | None = None
    """The model; None: training starts from nothing."""
    encoder: "Encoder | None" = None
    """What makes ids of columns, as for the model; None: an encoder is made of the data."""


def read_start(from_model: StartLike | None, keep_evidence: float | None) -> Start:
    """Reads the model that training continues from, and checks that it can be continued.

    Args:
      from_model: The model; None: training starts from nothing.
      keep_evidence: Fraction of the evidence for its weights that is kept; None: the default.

    Raises:
      ConfigError: The model is not one of Mosaic, or a fraction is given without a model.
      DataError: There is no model in the folder, its run is not finished, or a file was changed.
    """
    if from_model is None:
        if keep_evidence is not None:
            raise ConfigError(
                f"keep_evidence={keep_evidence} is about a model to continue from, and "
                "none is given; leave it out, or give from_model=…."
            )
        return Start()
    fitted = _fitted(from_model)
    model = fitted.model
    if not isinstance(model, TrainedCells):
        raise ConfigError(
            f"the model to continue from is one of {model.kind}; only models of method mosaic can "
            "be continued."
        )
    guarantee, reasons = fitted.card.plan.guarantee, fitted.card.reasons
    start = StartModel(
        digest=_digest(model, fitted.encoder),
        epsilon=guarantee.epsilon if math.isfinite(guarantee.epsilon) else None,
        delta=guarantee.delta,
        unit=str(guarantee.unit),
        is_private=not reasons,
        keep_evidence=KEEP_EVIDENCE if keep_evidence is None else keep_evidence,
    )
    earlier = EarlierModel(model=model.model, features=model.features, start=start)
    return Start(earlier=earlier, encoder=fitted.encoder)


def _fitted(from_model: StartLike) -> "FittedModel":
    # A model reads columns, for which a run without one may do without polars.
    from tulle.train.fitted_model import FittedModel
    from tulle.train.fitting import FitResult

    if isinstance(from_model, FittedModel):
        return from_model
    if isinstance(from_model, FitResult):
        return FittedModel.of(from_model)
    if isinstance(from_model, str | os.PathLike):
        return FittedModel.read(Path(from_model))
    raise ConfigError(
        f"from_model of type {type(from_model).__name__} must be the folder of a model, or what a "
        "fit gave back."
    )


def _digest(model: TrainedCells, encoder: "Encoder") -> str:
    """SHA-256 over weights, features and encoder, wherever the model is kept."""
    cells = model.model
    described = {
        "output": cells.output,
        "scale": float(cells.scale),
        "classes": list(cells.classes),
        "features": [feature.to_dict() for feature in model.features],
        "encoder": encoder.fingerprint(),
        "heads": [
            {
                "bias": float(head.bias),
                "tables": [
                    [[part.role, int(part.column), int(part.size)] for part in table.parts]
                    for table in head.tables
                ],
            }
            for head in cells.heads
        ],
    }
    digest = hashlib.sha256(canonical_json(described).encode())
    for table in cells.tables:
        for part in table.parts:
            digest.update(part.lookup.astype("<i4").tobytes())
        digest.update(table.weights.astype("<f4").tobytes())
        if table.stddevs is not None:
            digest.update(table.stddevs.astype("<f4").tobytes())
    return digest.hexdigest()
