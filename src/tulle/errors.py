"""What can go wrong, by kind. Every message names the setting, its value and the way out.

Messages end up in logs: they never contain raw counts, rows or identifiers.
"""


def reason_of(error: OSError | ValueError) -> str:
    """Reason why a file cannot be read or written, without paths and numbers of the system."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {error.start}"
    return str(error)


class TulleError(Exception):
    """Any error that tulle raises on purpose."""


class ConfigError(TulleError):
    """A setting has a value that cannot be used."""


class DataError(TulleError):
    """Data or a file breaks the contract that was stated for it."""


class BudgetExceededError(TulleError):
    """A spend does not fit into a budget. Nothing was spent."""


class UnsupportedEventError(TulleError):
    """No sound accounting is known for this event under this adjacency."""


class RunStateError(TulleError):
    """A file that holds state (a ledger, a run) cannot be used as it is."""


class RunInterruptedError(TulleError):
    """Somebody asked a run to stop. What it had done is kept, and it can go on."""
