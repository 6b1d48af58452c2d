"""Noisy labels in stages, where a model of the earlier reports is the prior of the next.

The rows fall into disjoint parts. The first part is noised by plain randomized
response. A model that the caller trains on its reports says how likely each class is
for the rows of the next part, and so on (LP-MST of Ghazi et al. 2021). Each label is
noised once, with a prior that does not depend on it, so all parts together cost one
epsilon. The caller may train with any framework; here come in only probabilities:

    release = StagedRelease(plan, num_rows, key=key)
    first = release.release_part(0, raw_labels[release.rows_of(0)], rng=rng)
    model = fit(features[release.rows_of(0)], first.labels)
    class_probs = model.predict(features[release.rows_of(1)])
    second = release.release_part(
        1, raw_labels[release.rows_of(1)], class_probs=class_probs, rng=rng
    )
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.data.splits import split_at_random
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.labels.label_mechanism import NoisyLabels
from tulle.labels.mechanisms.class_response import ClassResponse
from tulle.labels.mechanisms.prior_response import PriorResponse
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.fields import check_count, check_finite

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePlan:
    """Settings of a release in stages. Every field is public."""

    epsilon: float
    """What the labels of all stages together cost a unit with one label."""
    num_classes: int
    """Number of classes, which are counted from 0."""
    shares: tuple[float, ...] = (0.6, 0.4)
    """Share of the rows in each stage, in order; they add up to 1."""
    temperature: float = 0.5
    """Temperature that the model's logits are divided by before their softmax serves as a prior:
    below 1 probabilities are sharpened, above 1 flattened."""

    def __post_init__(self) -> None:
        check_count("num_classes", self.num_classes, least=2)
        if self.num_classes == 2:
            raise ConfigError(
                "num_classes=2 gains nothing from a prior: plain randomized response says more "
                "about one bit than any other mechanism of the same epsilon; use rr on all rows."
            )
        if check_finite("temperature", self.temperature) <= 0:
            raise ConfigError(f"temperature={self.temperature} must be > 0, e.g. 0.5.")
        object.__setattr__(self, "shares", tuple(self.shares))
        ClassResponse(epsilon=self.epsilon, num_classes=self.num_classes)
        split_at_random(0, fractions=self.shares, key=bytes(16))

    @property
    def num_stages(self) -> int:
        """How many parts the rows are released in."""
        return len(self.shares)

    def event(self) -> EpsilonDelta:
        """What all stages together cost: each label is in one part, and public keys say which."""
        return EpsilonDelta(epsilon=self.epsilon)

    def priors(self, class_probs: ArrayLike) -> FloatArray:
        """The model's probabilities at the plan's temperature, one row for each row."""
        probs = np.asarray(class_probs, np.float64)
        if probs.ndim != 2 or probs.shape[1] != self.num_classes:
            raise DataError(
                f"class_probs has the shape {probs.shape}; give one row of "
                f"num_classes={self.num_classes} probabilities for each row of the part."
            )
        is_law = np.all(probs >= 0, axis=1) & (np.abs(probs.sum(axis=1) - 1) <= 1e-3)
        if not is_law.all():
            raise DataError("class_probs must be >= 0 and add up to 1 in each row; give no logits.")
        with np.errstate(divide="ignore"):
            logits = np.log(probs) / self.temperature
        logits -= logits.max(axis=1, keepdims=True)
        weights = np.exp(logits)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


class StagedRelease:
    """The parts of one table and which of them were drawn. A part is drawn once, in order."""

    def __init__(self, plan: StagePlan, num_rows: int, *, key: bytes) -> None:
        """Splits the rows.

        Args:
          plan: Settings of the release.
          num_rows: Rows of the table.
          key: Key of the hash, at least 16 bytes. The same key gives the same parts.
        """
        self.plan = plan
        self._parts = split_at_random(num_rows, fractions=plan.shares, key=key)
        self._num_drawn = 0

    @property
    def num_drawn(self) -> int:
        """How many stages are released."""
        return self._num_drawn

    def rows_of(self, stage: int) -> IntArray:
        """The rows of a stage, in ascending order. Public."""
        if stage not in range(self.plan.num_stages):
            raise ConfigError(f"stage={stage!r} must be from 0 to {self.plan.num_stages - 1}.")
        return self._parts[stage]

    def release_part(
        self,
        stage: int,
        raw_labels: NDArray[Any],
        *,
        class_probs: ArrayLike | None = None,
        rng: NoiseSource,
    ) -> NoisyLabels:
        """Draws the noisy labels of one stage, once.

        Args:
          stage: Number of the stage, from 0 on, one after the other.
          raw_labels: The labels of `rows_of(stage)`, in that order.
          class_probs: None for stage 0. Then what a model trained on earlier reports alone
            says of these rows: one row of probabilities each.
          rng: Source of the noise. Sensitive: never log or save its state.

        Privacy:
          Unit: one label, replace. Event: the plan's, for all stages together. Relies on:
          one label a unit, drawn once, and probabilities from a model that saw no labels but
          the reports of earlier stages.
        """
        self._check_is_next(stage)
        mechanism = self._mechanism(stage, class_probs)
        if np.shape(raw_labels) != self.rows_of(stage).shape:
            raise DataError(
                f"raw_labels has the shape {np.shape(raw_labels)}; stage {stage} has "
                f"{self.rows_of(stage).size} rows, those of rows_of({stage})."
            )
        mechanism.check_labels(raw_labels)
        # Before the noise is drawn: a part whose draw failed midway must not be drawn again.
        self._num_drawn += 1
        return mechanism.release(raw_labels, rng=rng)

    def still_likely(
        self, stage: int, noisy_labels: NDArray[Any], class_probs: ArrayLike
    ) -> BoolArray:
        """Which reports of an earlier stage a later model would still let through.

        Training may leave out the others. A function of reports and a model of reports, so
        it costs nothing.

        Args:
          stage: The stage of the reports.
          noisy_labels: The reports of `rows_of(stage)`.
          class_probs: What the later model says of these rows.
        """
        if stage >= self._num_drawn:
            raise RunStateError(f"stage={stage} is not drawn yet; release it first.")
        self.rows_of(stage)
        return self._prior_response(class_probs).could_report(noisy_labels)

    def _check_is_next(self, stage: int) -> None:
        self.rows_of(stage)
        if stage != self._num_drawn:
            state = "was drawn already" if stage < self._num_drawn else "comes later"
            raise RunStateError(
                f"stage={stage} {state}; {self._num_drawn} of {self.plan.num_stages} stages are "
                "drawn. Keep the reports of a stage: a second draw of the same labels would cost "
                "a second epsilon."
            )

    def _mechanism(
        self, stage: int, class_probs: ArrayLike | None
    ) -> ClassResponse | PriorResponse:
        if stage == 0:
            if class_probs is not None:
                raise ConfigError(
                    "class_probs must be None for stage=0: there are no reports yet that a model "
                    "could have learned from."
                )
            return ClassResponse(epsilon=self.plan.epsilon, num_classes=self.plan.num_classes)
        if class_probs is None:
            raise ConfigError(
                f"class_probs=None must be given for stage={stage}: what a model of the earlier "
                "reports says of its rows."
            )
        return self._prior_response(class_probs)

    def _prior_response(self, class_probs: ArrayLike) -> PriorResponse:
        return PriorResponse(epsilon=self.plan.epsilon, prior=self.plan.priors(class_probs))
