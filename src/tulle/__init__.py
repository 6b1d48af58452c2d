"""Advertising under differential privacy: train, release labels, measure and select.

    import tulle

    tulle.measure.count("impressions.csv", epsilon=1, unit="impression")

The four jobs are `tulle.train`, `tulle.labels`, `tulle.measure` and `tulle.select`. Each plans
first and releases second, in the words of the command line. Nothing is loaded before it is used.
"""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle import (
        accounting,
        audit,
        data,
        errors,
        labels,
        measure,
        mechanisms,
        privacy,
        quality,
        report,
        select,
        serve,
        train,
    )
    from tulle.accounting.budget import Budget
    from tulle.accounting.ledger import Ledger
    from tulle.data.schema import Schema
    from tulle.errors import TulleError
    from tulle.loading import load
    from tulle.privacy.guarantee import Guarantee, Release
    from tulle.privacy.plan import Plan
    from tulle.privacy.units import Adjacency, Unit
    from tulle.runs.card import Card
    from tulle.train.classifier import Classifier
    from tulle.train.regressor import Regressor

__version__ = "0.1.0"

__all__ = [
    "Adjacency",
    "Budget",
    "Card",
    "Classifier",
    "Guarantee",
    "Ledger",
    "Plan",
    "Regressor",
    "Release",
    "Schema",
    "TulleError",
    "Unit",
    "accounting",
    "audit",
    "data",
    "errors",
    "labels",
    "load",
    "measure",
    "mechanisms",
    "privacy",
    "quality",
    "report",
    "select",
    "serve",
    "train",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
