"""The card of a selection, from the record that lies beside its choices."""

from tulle.report.card import Card, Randomness, build_card
from tulle.report.provenance import collect_provenance
from tulle.select.deciding.selection_record import SelectionRecord

_LIBRARIES = ("polars",)


def select_card(record: SelectionRecord) -> Card:
    """The card of a selection.

    Privacy:
      Epsilon is computed again from the plan. The record holds public information alone.
    """
    return build_card(
        record.plan,
        randomness=Randomness(description=record.randomness, is_secure=record.is_secure),
        provenance=collect_provenance(more_libraries=_LIBRARIES),
    )
