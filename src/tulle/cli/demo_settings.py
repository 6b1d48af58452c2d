"""What the demo trains: four methods on one made-up log, with settings fixed beforehand."""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tulle.train.methods.method import Method

EPSILON, DELTA = 3.0, 1e-7
BASELINE, SHOWN = "nonprivate", "mosaic"
ROWS, QUICK_ROWS = 600_000, 100_000

LOG_SEED = 0
"""The log is made up and the same for everybody; only the noise on it differs."""
SALT = b"tulle demo, public"
"""Nothing rests on its being secret: the log is made up."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Size of the demo. What is not named here is as `tulle train` has it by default."""

    num_rows: int
    public_bins: int = 20_000
    """Fewer than by default: every row of a table takes noise, and time."""
    sensitive_bins: int = 10_000
    embedding_dim: int = 16
    """Half of the default, and small layers: a step takes tens of milliseconds on two cores."""
    hidden: int = 64
    epochs: float = 4.0
    """The default."""
    batch_size: int = 4096
    """A quarter of the default: with so few rows DP-SGD needs the steps more than less noise."""
    plain_batch_size: int = 1024
    """Of steps without noise; the default."""

    def configs(self) -> "dict[str, Method]":
        """The methods by name, the baseline first: cards of the others compare with it."""
        from tulle.train import (
            MLP,
            DpSgdConfig,
            LabelPhase,
            MosaicConfig,
            NonPrivateConfig,
            PlainPhase,
            PrivatePhase,
            RandomizedLabelsConfig,
        )

        model = MLP(
            embedding_dim=self.embedding_dim,
            public_hidden=(self.hidden,),
            common_hidden=(self.hidden, self.hidden),
        )
        steps = PrivatePhase(epochs=self.epochs, batch_size=self.batch_size)
        labels = LabelPhase(batch_size=self.plain_batch_size)
        baseline = NonPrivateConfig(model=model, phase=PlainPhase(batch_size=self.plain_batch_size))
        configs: tuple[Method, ...] = (
            baseline,
            RandomizedLabelsConfig(model=model, label_phase=labels).calibrate(epsilon=EPSILON),
            DpSgdConfig(model=model, private_phase=steps).calibrate(epsilon=EPSILON, delta=DELTA),
            MosaicConfig().calibrate(epsilon=EPSILON, delta=DELTA),
        )
        return {config.kind: config for config in configs}


def demo_settings(rows: int | None, *, quick: bool) -> DemoSettings:
    """The settings for what was asked: a number of rows wins over `quick`."""
    if not quick:
        return DemoSettings(num_rows=rows or ROWS)
    # Fewer rows need smaller batches to take as many steps.
    return DemoSettings(
        num_rows=rows or QUICK_ROWS,
        public_bins=10_000,
        sensitive_bins=5_000,
        batch_size=1024,
        plain_batch_size=256,
    )
