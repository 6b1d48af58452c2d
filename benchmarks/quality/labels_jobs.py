"""One run of the label benchmark: noise on the labels, training, figures on the test rows.

A job names a model, a unit, the noise on its labels and how training makes up for it.
Post-hoc calibration changes predictions alone, so one run gives naive and calibrated figures.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from labels_data import Source, open_source
from labels_settings import DELTA, LEAST_ROWS, label_phase, model_settings, plain_phase

from tulle.lab.linear_labels.feature_rows import OneHotFields, OneHotRows
from tulle.lab.linear_labels.label_sums import LabelBlock, best_noise, release_label_sums
from tulle.lab.linear_labels.linear_model import fit_linear_model
from tulle.labels.mechanisms.unit_response import (
    JointResponse,
    PerRowResponse,
    RowShare,
    UnitResponse,
)
from tulle.labels.unit_rows import UnitRows
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.units import Owner
from tulle.quality.metrics import QualityMetrics, evaluate_predictions
from tulle.train import (
    ExampleSet,
    LabelCorrection,
    NonPrivateConfig,
    RunOptions,
    fit,
    fit_on_reports,
)
from tulle.train.methods.train_plan import TrainPlan

Row = dict[str, object]

CAP = "rr, first "
NO_NOISE, SUMS, PROJECTION = "none", "label sums", "projected gradients"
ROW, OWN_SHARE, JOINT = "rr", "rr, epsilon / own rows", "joint rr, 1 conversion"
NAIVE, CALIBRATED, DEBIASED, FORWARD = (
    correction.value
    for correction in (
        LabelCorrection.NAIVE,
        LabelCorrection.CALIBRATED,
        LabelCorrection.DEBIASED,
        LabelCorrection.FORWARD,
    )
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What is run. Fields as in the rows of the results."""

    folder: Path
    model: str
    unit: str = Owner.EXAMPLE.value
    noise: str = NO_NOISE
    correction: str = ""
    epsilon: float | None = None
    seed: int = 0
    device: str = "cpu"

    @property
    def row_epsilon(self) -> float:
        """What one report costs, where a unit's rows share epsilon evenly."""
        most = self.noise.removeprefix(CAP)
        return float(self.epsilon or 0) / (int(most) if most.isdigit() else 1)


def cap(max_rows: int) -> str:
    """The name of randomized response with epsilon / max_rows on so many first rows of a unit."""
    return f"{CAP}{max_rows}"


def run_job(job: Job) -> list[Row]:
    """The rows of a job; two for a calibrated one."""
    torch.set_num_threads(1)
    source = open_source(job.folder)
    start = time.monotonic()
    rows = []
    for correction, metrics, num_rows in _results(job, source):
        rows.append(
            {
                "source": source.name,
                "model": job.model,
                "unit": job.unit,
                "noise": job.noise,
                "correction": correction,
                "epsilon": job.epsilon,
                "seed": job.seed,
                "auc_loss": metrics.auc_loss,
                "auc_loss_standard_error": metrics.auc_loss_standard_error,
                "log_loss": metrics.log_loss,
                "relative_log_likelihood": metrics.relative_log_likelihood,
                "calibration": metrics.calibration,
                "bidding_over_constant": metrics.bidding_over_constant,
                "train_rows": num_rows,
                "device": torch.cuda.get_device_name() if "cuda" in job.device else "cpu",
                "seconds": round(time.monotonic() - start, 1),
            }
        )
    return rows


def noisy_examples(job: Job) -> ExampleSet:
    """The training rows that are kept, with reports for labels and their chances."""
    source = open_source(job.folder)
    unit_rows, rng = _unit_rows(job.folder, job.unit), SeededNoise(_noise_seed(job))
    noisy = _mechanism(job).release(source.train.labels, unit_rows, rng=rng)
    channel = noisy.channel
    return dataclasses.replace(
        source.train.select(noisy.rows),
        labels=noisy.labels.astype(np.float32),
        report_probs=np.stack([channel.prob_if_negative, channel.prob_if_positive], axis=1),
    )


def _results(job: Job, source: Source) -> Iterator[tuple[str, QualityMetrics, int]]:
    """Correction, figures and rows that were trained on."""
    if job.noise == NO_NOISE:
        settings = model_settings(job.model, source.name)
        config = NonPrivateConfig(
            model=settings, phase=plain_phase(job.model, source.name), initial_seed=job.seed
        )
        options = RunOptions(seed=job.seed, device=job.device)
        result = fit(source.train, config, test=source.test, options=options)
        yield job.correction, result.metrics, source.train.num_rows
    elif job.noise == PROJECTION:
        yield job.correction, _projected(job, source), source.train.num_rows
    elif job.noise == SUMS:
        yield job.correction, _from_sums(job, source), source.train.num_rows
    else:
        yield from _trained_on_reports(job, source)


def _trained_on_reports(job: Job, source: Source) -> Iterator[tuple[str, QualityMetrics, int]]:
    examples = noisy_examples(job)
    correction = LabelCorrection(job.correction)
    model = fit_on_reports(
        examples,
        model_settings(job.model, source.name),
        label_phase(job.model, source.name, correction, job.row_epsilon),
        seed=job.seed,
        device=job.device,
    )
    yield job.correction, model.evaluate(source.test), examples.num_rows
    if correction is LabelCorrection.CALIBRATED:
        naive = dataclasses.replace(model, report_channel=None)
        yield NAIVE, naive.evaluate(source.test), examples.num_rows


def _mechanism(job: Job) -> UnitResponse:
    epsilon = float(job.epsilon or 0)
    if job.noise == JOINT:
        return JointResponse(epsilon=epsilon)
    if job.noise == OWN_SHARE:
        return PerRowResponse(epsilon=epsilon, max_rows_per_unit=None, row_share=RowShare.OWN)
    if job.noise == ROW:
        return PerRowResponse(epsilon=epsilon, max_rows_per_unit=1)
    most = int(job.noise.removeprefix(CAP))
    return PerRowResponse(epsilon=epsilon, max_rows_per_unit=most, row_share=RowShare.EQUAL)


def _projected(job: Job, source: Source) -> QualityMetrics:
    # Another start of the weights for each seed, with the same plan otherwise.
    data = source.plans[f"{job.model} {job.epsilon:g}"]
    text = json.dumps(data | {"method": data["method"] | {"initial_seed": job.seed}})
    options = RunOptions(seed=job.seed, device=job.device)
    result = fit(source.train, TrainPlan.from_json(text), test=source.test, options=options)
    return result.metrics


def _from_sums(job: Job, source: Source) -> QualityMetrics:
    """Logistic regression fitted to one release of noisy label sums, all else by default."""
    train, test = source.train, source.test
    by_user = job.unit == Owner.USER.value
    rows = _frequent_rows(job.folder, source.train)
    config = best_noise(
        rows.layout,
        epsilon=float(job.epsilon or 0),
        delta=DELTA,
        max_conversions_per_unit=1 if by_user else None,
    )
    units = source.owners if by_user else None
    block = LabelBlock(rows=rows, raw_labels=train.labels, units=units)
    sums = release_label_sums([block], config, rng=SeededNoise(_noise_seed(job)))
    model = fit_linear_model(sums, _distinct_rows(job.folder))
    return evaluate_predictions(test.labels, model.predict_probs(_frequent_ids(job.folder, test)))


@functools.cache
def _distinct_rows(folder: Path) -> OneHotRows:
    return _frequent_rows(folder, open_source(folder).train).distinct()


def _frequent_rows(folder: Path, examples: ExampleSet) -> OneHotRows:
    places = _frequent_places(folder)
    fields = OneHotFields(num_ids=tuple(int(place.max()) + 1 for place in places))
    return fields.rows(_frequent_ids(folder, examples))


def _frequent_ids(folder: Path, examples: ExampleSet) -> np.ndarray:
    ids = _public_ids(examples)
    places = _frequent_places(folder)
    return np.stack([place[column] for place, column in zip(places, ids.T, strict=True)], axis=1)


@functools.cache
def _frequent_places(folder: Path) -> list[np.ndarray]:
    """The id of each value of a field; all that few training rows have share the first.

    Noise would drown the sum of a rare value, and counts of public columns are public.
    """
    train = open_source(folder).train
    places = []
    for feature, column in zip(train.features, _public_ids(train).T, strict=True):
        is_frequent = np.bincount(column, minlength=feature.num_ids) >= LEAST_ROWS
        places.append(np.where(is_frequent, np.cumsum(is_frequent), 0).astype(np.int32))
    return places


def _public_ids(examples: ExampleSet) -> np.ndarray:
    ids = examples.public_features
    return np.ascontiguousarray(ids if examples.rows is None else ids[examples.rows])


@functools.cache
def _unit_rows(folder: Path, unit: str) -> UnitRows:
    return open_source(folder).unit_rows(Owner(unit))


def _noise_seed(job: Job) -> int:
    """Equal for all corrections of one release, so that they see the same reports."""
    return 1_000_003 * job.seed + round(1000 * float(job.epsilon or 0))
