"""Labels out of event-level reports: counts, silence, and targets without bias.

A source that is noised with the probability p shows a random state, which biases whatever is
read off it; source_noise.py has the noise and how its bias is taken out. Nothing here reads raw
data: it costs no privacy.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.lab.browser_reports.source_noise import SourceNoise, debias
from tulle.labels.label_mechanism import NoisyLabels
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.privacy.fields import check_count

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def closed_sources(
    source_times: ArrayLike, *, last_window_seconds: int, now: int, max_delay_seconds: int = 0
) -> BoolArray:
    """Which sources can send no further report, so that silence means a label of 0.

    Args:
      source_times: When each source was registered, in seconds.
      last_window_seconds: End of the last window after registration.
      now: The time up to which reports have been collected.
      max_delay_seconds: How late after its window a report may arrive.
    """
    check_count("last_window_seconds", last_window_seconds)
    check_count("max_delay_seconds", max_delay_seconds, least=0)
    times = np.asarray(source_times, np.int64)
    return times + last_window_seconds + max_delay_seconds <= now


def count_reports(source_ids: ArrayLike, report_source_ids: ArrayLike) -> IntArray:
    """Reports of each source. A source without any has 0: silence is an answer.

    Raises:
      DataError: A source twice, or a report of a source that is not listed.
    """
    sources, reports = np.asarray(source_ids), np.asarray(report_source_ids)
    if sources.ndim != 1 or reports.ndim != 1:
        raise DataError("source ids must be in one dimension: one a source, one a report.")
    names, places = np.unique(sources, return_inverse=True)
    if len(names) < len(sources):
        raise DataError("a source is listed twice; keep one row for each source.")
    if reports.size == 0:
        return np.zeros(len(sources), np.int64)
    found = np.minimum(np.searchsorted(names, reports), max(len(names) - 1, 0))
    if not len(names) or np.any(names[found] != reports):
        raise DataError("a report names a source that is not listed; list all sources.")
    return np.bincount(found, minlength=len(names))[places].astype(np.int64)


def label_sources(
    report_counts: ArrayLike,
    noise: SourceNoise,
    *,
    base_rate: float,
    randomized_trigger_rates: ArrayLike | None = None,
) -> NoisyLabels:
    """Labels each source by "at least one conversion", with targets without bias.

    Args:
      report_counts: Reports of each source, of closed sources only.
      noise: Spec and epsilon that the sources were registered with.
      base_rate: Public guess of the share of sources with a conversion, for the variance.
      randomized_trigger_rates: Probability of noise of each source, where they differ. For
        sources without a report it must come from their registration.
    """
    counts = np.asarray(report_counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or np.any(counts < 0):
        raise DataError("report_counts must be whole numbers >= 0, one a source.")
    if np.any(counts > noise.spec.max_reports):
        raise DataError(
            f"a source has more than max_reports={noise.spec.max_reports} reports; drop repeated "
            "deliveries, or give the spec of the registration."
        )
    channel = noise.any_conversion_channel()
    if randomized_trigger_rates is not None:
        channel = channel_of_rates(randomized_trigger_rates, noise.spec.num_states)
        if channel.gain.shape != counts.shape:
            raise DataError("randomized_trigger_rates must have one number for each source.")
    labels = (counts > 0).astype(np.int64)
    return NoisyLabels(
        labels=labels,
        targets=channel.debiased_targets(labels),
        noise_variance=channel.mean_variance(base_rate),
        channel=channel,
    )


def channel_of_rates(randomized_trigger_rates: ArrayLike, num_states: int) -> BinaryChannel:
    """The channel of "at least one report" from each source's own probability of noise."""
    check_count("num_states", num_states, least=2)
    rates = np.asarray(randomized_trigger_rates, np.float64)
    if not np.all((rates >= 0) & (rates < 1)):
        raise ConfigError("randomized_trigger_rates must be probabilities in [0, 1).")
    silent = rates / num_states
    return BinaryChannel(prob_if_negative=rates - silent, prob_if_positive=1 - silent)


def debias_counts(report_counts: ArrayLike, noise: SourceNoise) -> FloatArray:
    """Numbers whose mean over the noise is the true number of reports."""
    counts = np.asarray(report_counts, np.float64)
    return np.asarray(debias(counts, float(noise.spec.mean_reports), noise.flip_prob))


def debias_values(
    noisy_states: ArrayLike, cell_values: ArrayLike, noise: SourceNoise
) -> FloatArray:
    """Numbers whose mean over the noise is the true sum of values, each cell with its own.

    Args:
      noisy_states: Reports in each cell of each source: [sources, cells].
      cell_values: What one report in a cell is worth.
      noise: Spec and epsilon that the sources were registered with.
    """
    states = np.asarray(noisy_states, np.float64)
    values = np.asarray(cell_values, np.float64)
    if values.shape != (noise.spec.num_cells,) or states.shape[1:] != values.shape:
        raise DataError(
            f"cell_values and each state must have {noise.spec.num_cells} numbers, one for each "
            "value of trigger data and window."
        )
    cell_means = np.array([float(mean) for mean in noise.spec.mean_reports_per_cell])
    return np.asarray(debias(states @ values, float(cell_means @ values), noise.flip_prob))
