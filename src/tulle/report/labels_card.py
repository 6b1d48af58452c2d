"""The card of a released table of labels, from the record that lies beside it."""

from tulle.labels.release.release_record import ReleaseRecord
from tulle.report.card import Card, Randomness, build_card
from tulle.report.provenance import collect_provenance

_LIBRARIES = ("polars",)


def labels_card(record: ReleaseRecord) -> Card:
    """The card of a release.

    Privacy:
      Epsilon is computed again from the plan. The record holds public information alone.
    """
    return build_card(
        record.plan,
        randomness=Randomness(description=record.randomness, is_secure=record.is_secure),
        provenance=collect_provenance(more_libraries=_LIBRARIES),
    )
