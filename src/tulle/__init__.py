"""Advertising under differential privacy, on one privacy core."""

import importlib
from types import ModuleType

__version__ = "0.1.0"

_PACKAGES = (
    "accounting",
    "audit",
    "cli",
    "data",
    "errors",
    "labels",
    "measure",
    "mechanisms",
    "privacy",
    "quality",
    "report",
    "runs",
    "select",
    "studio",
    "train",
)
"""What is reachable as an attribute after `import tulle`."""


def __getattr__(name: str) -> ModuleType:
    """Imports a package on first use: `import tulle` itself must not load torch or polars."""
    if name in _PACKAGES:
        return importlib.import_module(f"tulle.{name}")
    raise AttributeError(f"module 'tulle' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the packages too, imported or not."""
    return sorted({*globals(), *_PACKAGES})
