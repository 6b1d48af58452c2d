"""What makes ids of the columns of rows: an encoder of their own, or that of an earlier model.

Rows that a model is continued on must get the ids that it knows. Whatever else is refused here,
before a row is read.
"""

import dataclasses
from typing import TYPE_CHECKING

from tulle.data.prepared.dataset import PreparedDataset
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.data.features.encoder import Encoder
    from tulle.data.features.feature_plan import FeaturePlan
    from tulle.data.schema import Schema
    from tulle.data.tables.sources import Log


def check_schema(schema: "Schema", encoder: "Encoder", *, name: str) -> None:
    """Refuses a log with another schema than that of the model to continue from.

    Args:
      schema: Schema of the log.
      encoder: The encoder of the model, which knows its schema.
      name: What the log is called.

    Raises:
      ConfigError: The schemas differ.
    """
    known = encoder.plan.schema
    for field in dataclasses.fields(known):
        if getattr(schema, field.name) != getattr(known, field.name):
            raise ConfigError(
                f"the schema of {name} differs from that of the model to continue from in "
                f"{field.name}: {getattr(schema, field.name)!r} is not "
                f"{getattr(known, field.name)!r}. Leave the schema out, or train from scratch."
            )


def check_features(features: "FeaturePlan | None", encoder: "Encoder") -> None:
    """Refuses other features than those of the model to continue from.

    Raises:
      ConfigError: There are such.
    """
    if features is not None and features != encoder.plan:
        raise ConfigError(
            "features is another FeaturePlan than that of the model to continue from; leave it out."
        )


def check_prepared(dataset: PreparedDataset, encoder: "Encoder") -> None:
    """Refuses a prepared dataset with other ids than those of the model to continue from.

    Raises:
      ConfigError: Another encoder made its ids.
    """
    if dataset.head.contents.encoder_fingerprint != encoder.fingerprint():
        raise ConfigError(
            f"{dataset.folder.name} was prepared with another encoder than that of the model to "
            "continue from; give the files themselves, which are then read with the model's."
        )


def check_no_ids(encoder: "Encoder | None") -> None:
    """Refuses rows that are ids already where a model is to be continued.

    Raises:
      ConfigError: There is such a model.
    """
    if encoder is not None:
        raise ConfigError(
            "rows that are ids already do not say which encoder made them, so that no model can be "
            "continued on them; give files, a table or a prepared dataset."
        )


def encoder_of(log: "Log", features: "FeaturePlan") -> "Encoder":
    """An encoder for the rows of a log. Values of public columns are counted where it needs that.

    Privacy:
      Only public columns are looked at.
    """
    from tulle.data.features.encoder import build_encoder
    from tulle.data.features.vocabulary import fit_vocabularies
    from tulle.data.row_arrays import narrow_blocks

    counted = {
        feature.column for feature in (*features.vocabularies("public"), *features.quantiles)
    }
    if not counted:
        return build_encoder(features)
    return build_encoder(
        features,
        fit_vocabularies(
            lambda: (block.table for block, _ in narrow_blocks(log, tuple(sorted(counted)))),
            features,
        ),
    )
