"""The card of a measurement, from the record of its numbers."""

from tulle.measure.queries.measure_record import MeasureRecord
from tulle.report.card import Card, Randomness, build_card
from tulle.report.provenance import collect_provenance

_LIBRARIES = ("polars", "duckdb", "sqlglot")


def measure_card(record: MeasureRecord) -> Card:
    """The card of a measurement.

    Privacy:
      Epsilon is computed again from the plan. The record holds public information alone.
    """
    return build_card(
        record.plan,
        randomness=Randomness(description=record.randomness, is_secure=record.is_secure),
        provenance=collect_provenance(more_libraries=_LIBRARIES),
    )
