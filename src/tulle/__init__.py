"""Advertising under differential privacy, on one privacy core."""

import importlib
from types import ModuleType

__version__ = "0.1.0"

_PACKAGES = ("accounting", "data", "mechanisms", "privacy", "report", "runs", "train")


def __getattr__(name: str) -> ModuleType:
    """A package on first use: `tulle.train` needs torch, which `import tulle` must not load."""
    if name in _PACKAGES:
        return importlib.import_module(f"tulle.{name}")
    raise AttributeError(f"module 'tulle' has no attribute {name!r}")
