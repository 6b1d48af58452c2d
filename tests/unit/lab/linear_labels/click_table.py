"""A small table of ids with conversions of a known logistic model."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.lab.linear_labels.feature_rows import OneHotFields, OneHotRows
from tulle.lab.linear_labels.label_sums import LabelSumsConfig, NoisyLabelSums, SumsNoise

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ClickTable:
    rows: OneHotRows
    labels: NDArray[np.int64]
    true_weights: Array

    @property
    def dense(self) -> Array:
        """The matrix with a column of ones."""
        parts = [
            np.eye(size)[self.rows.ids[:, field]]
            for field, size in enumerate(self.rows.fields.num_ids)
        ]
        return np.concatenate([np.ones((len(self.labels), 1)), *parts], axis=1)

    def exact_sums(self, noise_stddev: float = 1e-9) -> NoisyLabelSums:
        """Sums without noise, as if they had a little."""
        least, most = self.rows.sum_bounds()
        config = LabelSumsConfig(
            layout=self.rows.fields, noise=SumsNoise.GAUSSIAN, noise_multiplier=1.0
        )
        return NoisyLabelSums(
            noisy_sums=self.rows.exact_sums(self.labels == 1).astype(float),
            least_sums=least,
            most_sums=most,
            num_rows=len(self.labels),
            noise_stddev=noise_stddev,
            event=config.event(),
            layout=self.rows.fields,
        )


def click_table(
    num_rows: int, num_ids: tuple[int, ...] = (3, 4, 6), *, seed: int = 0, bias: float = -1.0
) -> ClickTable:
    rng = np.random.default_rng(seed)
    fields = OneHotFields(num_ids=num_ids)
    # Squares of uniforms: low ids are frequent, high ones rare.
    ids = (rng.random((num_rows, len(num_ids))) ** 2 * num_ids).astype(np.int32)
    weights = rng.normal(0, 0.7, fields.num_columns)
    weights[0] = bias
    rows = fields.rows(ids)
    chances = 1 / (1 + np.exp(-rows.dot(weights)))
    labels = (rng.random(num_rows) < chances).astype(np.int64)
    return ClickTable(rows=rows, labels=labels, true_weights=weights)
