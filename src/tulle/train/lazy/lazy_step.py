"""A private step that touches the table rows of its batch alone.

The clipped gradient of a table goes into its `LazyRows`, which add the noise of every step
to every row, but only when somebody looks. All other parameters get their noise at once.
"""

from collections.abc import Mapping

from tulle.train.gradient_noise import IndependentGradientNoise
from tulle.train.gradients import Gradient, RowGradient
from tulle.train.lazy.lazy_rows import LazyRows
from tulle.train.models.tower_model import TowerModel
from tulle.train.noise import TrainingNoise
from tulle.train.private_step import PrivateStep, StepSettings
from tulle.train.table_reads import BatchReads


class LazyStep(PrivateStep):
    """As `PrivateStep`, with tables whose noise waits.

    Privacy:
      As `PrivateStep`, for weights that were flushed. Until then the memory of the tables
      holds raw gradients.
    """

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        noise: TrainingNoise,
        tables: Mapping[str, LazyRows],
    ) -> None:
        """Takes the trained tables by the name of their parameter."""
        super().__init__(model, settings, IndependentGradientNoise(noise))
        self._tables = dict(tables)
        for name in self._tables:
            del self._sums[name]

    def _prepare(self, reads: BatchReads) -> None:
        for read in reads.tables:
            if read.table in self._tables:
                self._tables[read.table].catch_up(read.in_order.rows)

    def _accumulate(self, gradient: Gradient) -> None:
        table = self._tables.get(gradient.name)
        if table is None or not isinstance(gradient, RowGradient):
            super()._accumulate(gradient)
            return
        scale = 1 / self._settings.expected_size
        table.add_gradient(gradient.rows, gradient.values, scale)
