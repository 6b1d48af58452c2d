"""How a run is carried out: where it is kept, on which device, who is charged and who watches.

None of this changes what is promised. A seed does change whether it is kept: a run with one can be
repeated by anybody who knows it, and its card says so. Nothing here needs PyTorch; what steps need
beyond this is in `steps.step_context`.
"""

import dataclasses
import enum
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tulle.errors import ConfigError, RunInterruptedError, TulleError
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.fields import check_count
from tulle.runs.records import StopRequest

if TYPE_CHECKING:
    from tulle.data.features.encoder import Encoder
    from tulle.runs.charging import ReleaseCharge
    from tulle.train.methods.mosaic.earlier_model import EarlierModel
    from tulle.train.steps.processes.processes import Processes


def require_torch(what: str) -> None:
    """Refuses work that needs PyTorch where it is not installed, and says how to install it.

    Args:
      what: The work, as the subject of the message.
    """
    if importlib.util.find_spec("torch") is None:
        raise TulleError(
            f"{what} needs PyTorch, which is not installed: pip install 'tulle[train]'."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """One moment of a run. It may be shown and logged."""

    phase: str
    step: int
    """Steps done."""
    num_steps: int
    examples_per_second: float
    loss: float | None
    """Noisy, or on released labels; None before the first one."""
    epsilon: float | None
    """Spent at most by now; None for a run without privacy."""
    about: str = ""
    """What is being learnt, in words; empty where the phase says it all."""


Watch = Callable[[Progress], None]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunContext:
    """What every run has at hand: randomness, who may ask to stop, and who watches."""

    rng: NoiseSource
    """Sensitive: never log or save its state."""
    stop: StopRequest
    watch: Watch | None = None

    def report(self, progress: Progress) -> None:
        """Tells who watches how far the run has come."""
        if self.watch is not None:
            self.watch(progress)

    def interrupt(self, phase: str, step: int) -> None:
        """Ends the run after its state was kept."""
        raise RunInterruptedError(
            f"stopped at step {step} of phase {phase!r} as asked; "
            "run the same command with --resume to go on."
        )


class NoisePlacement(enum.Enum):
    """When the rows of embedding tables get their noise. Changes speed alone."""

    AUTO = "auto"
    """Lazy where that is exact: independent noise under SGD."""
    LAZY = "lazy"
    DENSE = "dense"


class NoiseMemory(enum.Enum):
    """How correlated noise knows its past. The same noise; changes speed and memory alone."""

    AUTO = "auto"
    """Stored up to 8 GiB."""
    STORED = "stored"
    """The noise of the last `num_bands` - 1 steps is kept: that many times the trained model."""
    REGENERATED = "regenerated"
    """No past noise is kept. Each step draws the normals of hundreds of earlier steps again."""


class Products(enum.Enum):
    """Precision of matrix products on a GPU. Norms and noise are of single precision in any case.

    Changes speed and rounding alone: what is clipped is what is really added, and clipping
    leaves room for what rounding adds after it.
    """

    HALF = "bfloat16"
    """Inputs of 8 significant bits; twice as fast."""
    SINGLE = "tf32"
    """Inputs of 11 significant bits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Bookkeeping and speed of a run."""

    folder: Path | None = None
    """Folder that the run is kept in; without one it cannot be resumed."""
    resume: bool = False
    """Go on with the run in `folder`."""
    seed: int | None = None
    """Seed that makes all noise repeatable and the release not private, for tests and experiments;
    None for secret noise."""
    device: str = "cpu"
    charge: "ReleaseCharge | None" = None
    """Ledger that is charged, with the purpose and the time of the data; None for no ledger."""
    watch: Watch | None = None
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: twenty in a phase."""
    noise_placement: NoisePlacement = NoisePlacement.AUTO
    """When table rows get their noise; models have the same distribution either way."""
    products: Products = Products.HALF
    """Precision of matrix products where steps stay on a GPU."""
    noise_memory: NoiseMemory = NoiseMemory.AUTO
    """How correlated noise knows its past; the same noise either way."""
    processes: "Processes | None" = None
    """Processes that take private steps together, this one being rank 0; the others call
    `follow_fit`. None: this process alone. Changes neither plan nor cost."""
    encoder: "Encoder | Path | None" = None
    """What makes ids of columns, or the folder of its files: kept with the model, so that it can
    score new rows. None: the model takes ids alone."""
    earlier: "EarlierModel | None" = None
    """The released model that the plan continues from; None: it starts from nothing."""
    test_name: str = "rows that were held out"
    """Which rows are tested on, in words for the card."""

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_count("seed", self.seed, least=0)
        if self.checkpoint_every is not None:
            check_count("checkpoint_every", self.checkpoint_every)
        # Rank 0 leads: it owns the folder, the ledger and the noise of dense sums.
        if self.processes is not None and self.processes.rank != 0:
            raise ConfigError(
                f"process {self.processes.rank} of {self.processes.size} does not lead the run; "
                "call follow_fit(data, processes) there."
            )
        if self.resume and self.folder is None:
            raise ConfigError("resume=True needs the folder of the run that goes on.")

    @property
    def shared_processes(self) -> "Processes | None":
        """The processes, if there are several; None if this one is alone."""
        return None if self.processes is None or self.processes.size == 1 else self.processes


_WINDOW_SECONDS = 2.0
"""Speed is that of the last seconds, so that it follows a machine that others use too."""


class SpeedMeter:
    """Examples a second over the last moments. It counts expected, not drawn, sizes."""

    def __init__(self) -> None:
        self._start = self._window_start = time.monotonic()
        self._in_window = 0.0
        self._speed = 0.0

    def add(self, num_examples: float) -> float:
        """The speed after so many more."""
        self._in_window += num_examples
        elapsed = time.monotonic() - self._window_start
        if elapsed >= _WINDOW_SECONDS or self._speed == 0:
            self._speed = self._in_window / max(elapsed, 1e-9)
        if elapsed >= _WINDOW_SECONDS:
            self._window_start, self._in_window = time.monotonic(), 0.0
        return self._speed
