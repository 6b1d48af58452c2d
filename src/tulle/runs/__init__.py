"""Run folders, checkpoints, cards, and the release protocol that all four jobs share."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.runs.card import Card, build_card, read_card, write_card
    from tulle.runs.card_entries import (
        AuditResult,
        UtilityFigure,
        collect_provenance,
        keyed_fingerprint,
    )
    from tulle.runs.folder import RunFolder
    from tulle.runs.record import Record, Result, TrainingRecord, card_of, read_training

__all__ = [
    "AuditResult",
    "Card",
    "Record",
    "Result",
    "RunFolder",
    "TrainingRecord",
    "UtilityFigure",
    "build_card",
    "card_of",
    "collect_provenance",
    "keyed_fingerprint",
    "read_card",
    "read_training",
    "write_card",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
