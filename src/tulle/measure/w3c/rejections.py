"""How the API refuses a call: by the kinds of error that the specification names."""

from tulle.errors import ConfigError


class RejectedCallError(ConfigError):
    """A call that a browser would reject. Nothing was stored and nothing was spent."""

    def __init__(self, error: str, name: str, message: str) -> None:
        super().__init__(message)
        self.error = error
        """RangeError, ReferenceError or DOMException."""
        self.name = name
        """The same, or for a DOMException its name."""


def range_error(message: str) -> RejectedCallError:
    """A number, or the length of a list, is outside its limits."""
    return RejectedCallError("RangeError", "RangeError", message)


def reference_error(message: str) -> RejectedCallError:
    """The aggregation service is unknown."""
    return RejectedCallError("ReferenceError", "ReferenceError", message)


def syntax_error(message: str) -> RejectedCallError:
    """A site is none."""
    return RejectedCallError("DOMException", "SyntaxError", message)
