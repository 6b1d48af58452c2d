"""Logs on their way to training: schemas, bounds, samplers, splits."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.data.schema import Schema
    from tulle.data.synth.writing import write_synthetic

__all__ = ["Schema", "write_synthetic"]

__getattr__, __dir__ = lazy_names(__name__, __file__)
