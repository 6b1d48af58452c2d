"""What the studio shows and where it listens."""

import dataclasses
from pathlib import Path

from tulle.errors import ConfigError

_MOST_PORT = 65_535


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudioConfig:
    """Settings of the studio. It listens on this computer alone; no setting changes that."""

    ledger: Path | None = None
    runs: Path | None = None
    """Runs are the folders directly below it."""
    port: int = 0
    """0 for one that is free."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _MOST_PORT:
            raise ConfigError(
                f"port={self.port} must be from 1 to {_MOST_PORT}; leave it out for a free one."
            )
        if self.runs is not None and not self.runs.is_dir():
            raise ConfigError(
                f"runs={self.runs} is no folder; name the one that holds the folders of runs."
            )
