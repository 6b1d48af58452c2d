"""Errors of estimators: those of tulle, which are those of scikit-learn too.

Whoever drives estimators in general catches ValueError for data and settings, and scikit-learn's
own NotFittedError. Both stay errors of tulle for everybody else.
"""

import contextlib
import functools
import sys
from collections.abc import Iterator

from tulle.errors import ConfigError, DataError, RunStateError


class NotFittedError(RunStateError, AttributeError):
    """Something was asked that only `fit` can answer; no such attribute for `hasattr`."""


class InputError(DataError, ValueError):
    """Rows or labels that an estimator cannot take."""


class ArgumentError(ConfigError, ValueError):
    """An argument of an estimator that cannot be used."""


def not_fitted(message: str) -> NotFittedError:
    """The error that there is no fit, which is scikit-learn's own too where that is loaded.

    Args:
      message: Text of the error.
    """
    exceptions = sys.modules.get("sklearn.exceptions")
    if exceptions is None:
        return NotFittedError(message)
    return _joined_with(exceptions.NotFittedError)(message)


@contextlib.contextmanager
def raising_value_errors() -> Iterator[None]:
    """Makes ValueErrors of refused data and settings, which stay what they are besides."""
    try:
        yield
    except (ConfigError, DataError) as error:
        if type(error) is ConfigError:
            raise ArgumentError(str(error)).with_traceback(error.__traceback__) from None
        if type(error) is DataError:
            raise InputError(str(error)).with_traceback(error.__traceback__) from None
        raise


@functools.cache
def _joined_with(other: type[Exception]) -> type[NotFittedError]:
    return type("NotFittedError", (NotFittedError, other), {"__module__": __name__})
