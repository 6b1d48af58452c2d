"""How a run is carried out: where it is kept, on which device, who is charged and who watches.

None of this changes what is promised. A seed does change whether it is kept: a run with
one can be repeated by anybody who knows it, and its card says so.
"""

import dataclasses
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count
from tulle.train.banded.banded_noise import NoiseMemory
from tulle.train.distributed.processes import LEADER, Processes
from tulle.train.graphed.products import Products
from tulle.train.private_updates import NoisePlacement
from tulle.train.progress import Watch

if TYPE_CHECKING:
    from tulle.accounting.ledger import Ledger


@dataclasses.dataclass(frozen=True, kw_only=True)
class LedgerCharge:
    """Which ledger pays for a run, under which purpose, for data of which time."""

    ledger: "Ledger"
    purpose: str = "training"
    at: datetime | None = None
    """When the data are from; needed where a charged budget renews."""
    until: datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Bookkeeping and speed of a run."""

    folder: Path | None = None
    """Where the run is kept; without one it cannot be resumed."""
    resume: bool = False
    """Go on with the run in `folder`."""
    seed: int | None = None
    """For tests and experiments: makes all noise repeatable, and the release not private."""
    device: str = "cpu"
    charge: LedgerCharge | None = None
    watch: Watch | None = None
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: twenty in a phase."""
    noise_placement: NoisePlacement = NoisePlacement.AUTO
    """When table rows get their noise; models have the same law either way."""
    products: Products = Products.HALF
    """Precision of matrix products where steps stay on a GPU."""
    noise_memory: NoiseMemory = NoiseMemory.AUTO
    """How correlated noise knows its past; the same noise either way."""
    processes: Processes | None = None
    """Those that take private steps together, this one being rank 0; the others call
    `follow_fit`. None: this process alone. Changes neither plan nor cost."""
    test_name: str = "rows that were held out"
    """Which rows are tested on, in words for the card."""

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_count("seed", self.seed, least=0)
        if self.checkpoint_every is not None:
            check_count("checkpoint_every", self.checkpoint_every)
        if self.processes is not None and self.processes.rank != LEADER:
            raise ConfigError(
                f"process {self.processes.rank} of {self.processes.size} does not lead the run; "
                "call follow_fit(data, processes) there."
            )
        if self.resume and self.folder is None:
            raise ConfigError("resume=True needs the folder of the run that goes on.")

    @property
    def shared_processes(self) -> Processes | None:
        """The processes, if there are several; None if this one is alone."""
        return None if self.processes is None or self.processes.size == 1 else self.processes
