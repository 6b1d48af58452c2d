"""Training on randomized labels, run again: debiased losses, and units that own several rows.

All features are public, so a release of noisy labels is the only step that costs privacy; what
is trained on them is post-processing. Relative losses are against a model with true labels.
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tulle.lab.reproduction.log_rows import LogRows, log_rows, public_attribution_log
from tulle.lab.reproduction.private_training import at_chance, relative_loss, tested
from tulle.lab.reproduction.published import Findings, OwnFigure, clear_least, tied_text
from tulle.lab.reproduction.reproducing import ReproductionSettings
from tulle.labels.mechanisms.unit_response import PerRowResponse, RowShare
from tulle.labels.unit_rows import UnitRows, group_rows, single_rows
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.units import Owner, Unit

if TYPE_CHECKING:
    from tulle.quality.metrics import QualityMetrics
    from tulle.train.examples import ExampleSet
    from tulle.train.settings.models import AnyModel
    from tulle.train.settings.phases import LabelPhase

_CAPS = (1, 2, 5, 10)
"""Caps on the rows of a user that are compared: a lower one drops rows, a higher one makes each
label noisier."""
_EPOCHS = 1.0
"""One pass over noisy and true labels alike: further ones would fit the noise."""
# Epsilons of a reduced run, which spans the range, and all those of the published figures.
_DEBIAS_EPSILONS, _PAPER_DEBIAS_EPSILONS = (1.0, 3.0, 5.0), (1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
_UNIT_EPSILONS, _PAPER_UNIT_EPSILONS = (1.0, 4.0, 10.0), (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
_ORDER_EPSILON = 3.0
"""One epsilon in the middle of the range, since the claim is about the order of units alone."""
_ADVERTISER, _PUBLISHER = "campaign", "cat8"
"""The log has no publisher: a category with 11 values stands for it."""
_MAX_LOGIT = 8.0
"""Bounds the debiased loss from below; a probability of 1 in 3,000 is within it."""
_LINEAR_RATE, _LOW_NAIVE_RATE, _NAIVE_RATE, _DEEP_RATE = 3e-2, 1e-3, 1e-2, 1e-3
"""Learning rates, chosen on noisy labels of other synthetic rows that were held back."""

_OWNER_WORDS = {
    Owner.EXAMPLE: "impression",
    Owner.USER_ADVERTISER: "user and advertiser",
    Owner.USER_PUBLISHER: "user and publisher",
    Owner.USER: "user",
}


def run_debiasing(settings: ReproductionSettings) -> Findings:
    """Logistic regression on noisy labels, as they are and with a debiased loss.

    Privacy:
      Not a private release: labels are noised from a fixed seed.
    """
    from tulle.train import LogisticRegression
    from tulle.train.settings.models import TableSharing

    model = LogisticRegression(tables=TableSharing.PER_FEATURE)
    figures: dict[str, OwnFigure] = {}
    with log_rows(public_attribution_log(), settings) as rows:
        training = _LabelTraining(rows=rows, settings=settings, model=model)
        figures |= _quality("true labels", training.baseline(_LINEAR_RATE))
        for epsilon in _PAPER_DEBIAS_EPSILONS if settings.is_paper else _DEBIAS_EPSILONS:
            settings.say(f"train on reports, epsilon {epsilon:g}")
            for name, response, unit_rows, is_debiased in _debias_jobs(rows, epsilon):
                rate = _linear_rate(response.epsilon / (response.max_rows_per_unit or 1))
                metrics = training.on_reports(
                    response, unit_rows, is_debiased, _LINEAR_RATE if is_debiased else rate
                )
                figures |= _quality(f"{name}, epsilon {epsilon:g}", metrics)
        return Findings(figures=figures, setting=rows.described())


def run_units(settings: ReproductionSettings) -> Findings:
    """A perceptron on noisy labels, by what is protected and how many rows of it are kept.

    Privacy:
      Not a private release: labels are noised from a fixed seed.
    """
    from tulle.train import MLP

    figures: dict[str, OwnFigure] = {}
    missing: dict[str, str] = {}
    with log_rows(public_attribution_log(), settings) as rows:
        training = _LabelTraining(rows=rows, settings=settings, model=MLP.hybrid_attribution())
        baseline = training.baseline(_DEEP_RATE)
        for epsilon in _PAPER_UNIT_EPSILONS if settings.is_paper else _UNIT_EPSILONS:
            settings.say(f"train by unit, epsilon {epsilon:g}")
            runs = {
                f"user, cap {cap}, epsilon {epsilon:g}": training.on_plain_reports(
                    _capped(epsilon, cap), rows_of(rows, Owner.USER)
                )
                for cap in _CAPS
            }
            runs[f"impression, epsilon {epsilon:g}"] = training.on_plain_reports(
                _capped(epsilon, 1), rows_of(rows, Owner.EXAMPLE)
            )
            losses = {name: relative_loss(metrics, baseline) for name, metrics in runs.items()}
            by_cap = {float(cap): losses[f"user, cap {cap}, epsilon {epsilon:g}"] for cap in _CAPS}
            figures |= losses
            missing |= at_chance(runs)
            figures[f"user, best cap, epsilon {epsilon:g}"] = min(
                by_cap.values(), key=lambda loss: loss.value
            )
            best, name = clear_least(by_cap), f"best cap of a user, epsilon {epsilon:g}"
            if best is None:
                missing[name] = tied_text(name, by_cap)
            else:
                figures[name] = OwnFigure(value=best)
        settings.say("train by unit of a user and a partner")
        for owner in (Owner.EXAMPLE, Owner.USER_ADVERTISER, Owner.USER_PUBLISHER, Owner.USER):
            metrics = training.on_plain_reports(_capped(_ORDER_EPSILON, 1), rows_of(rows, owner))
            name = f"units, {_OWNER_WORDS[owner]}, epsilon {_ORDER_EPSILON:g}"
            figures[name] = relative_loss(metrics, baseline)
            missing |= at_chance({name: metrics})
        return Findings(figures=figures, missing=missing, setting=rows.described())


def rows_of(rows: LogRows, owner: Owner) -> UnitRows:
    """The training rows of each unit, in the order of the log."""
    if owner is Owner.EXAMPLE:
        return single_rows(Unit.example(), rows.train.num_rows)
    partner = {Owner.USER_ADVERTISER: _ADVERTISER, Owner.USER_PUBLISHER: _PUBLISHER}.get(owner)
    partner_ids = None if partner is None else rows.public_ids(partner)
    return group_rows(Unit(owner), owner_ids=rows.owners(), partner_ids=partner_ids)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _LabelTraining:
    """One model and one log; every run has the same steps."""

    rows: LogRows
    settings: ReproductionSettings
    model: "AnyModel"

    def baseline(self, learning_rate: float) -> "QualityMetrics":
        """Trains on true labels and tests the model."""
        from tulle.train import Adam, NonPrivateConfig, PlainPhase, RunOptions
        from tulle.train.fitting import fit

        self.settings.say("train on true labels")
        phase = PlainPhase(epochs=_EPOCHS, optimizer=Adam(learning_rate=learning_rate))
        config = NonPrivateConfig(model=self.model, phase=phase, initial_seed=self.settings.seed)
        options = RunOptions(seed=self.settings.seed)
        return tested(fit(self.rows.train, config, test=self.rows.test, options=options))

    def on_reports(
        self,
        response: PerRowResponse,
        unit_rows: UnitRows,
        is_debiased: bool,
        learning_rate: float,
    ) -> "QualityMetrics":
        """Trains on labels that were randomized once and tests the model.

        Args:
          response: Mechanism that randomizes the labels.
          unit_rows: Rows by unit.
          is_debiased: Whether the loss is debiased; otherwise reports are taken as they are.
          learning_rate: Learning rate of Adam.
        """
        from tulle.train import fit_on_reports

        model = fit_on_reports(
            self._noisy(response, unit_rows),
            self.model,
            self._phase(is_debiased, learning_rate),
            seed=self.settings.seed,
        )
        return model.evaluate(self.rows.test)

    def on_plain_reports(self, response: PerRowResponse, unit_rows: UnitRows) -> "QualityMetrics":
        """Trains on reports as they are, at the rate of perceptrons."""
        return self.on_reports(response, unit_rows, False, _DEEP_RATE)

    def _noisy(self, response: PerRowResponse, unit_rows: UnitRows) -> "ExampleSet":
        seed = 1_000_003 * self.settings.seed + round(1000 * response.epsilon)
        noisy = response.release(self.rows.raw_labels(), unit_rows, rng=SeededNoise(seed))
        channel = noisy.channel
        return dataclasses.replace(
            self.rows.train.select(noisy.rows),
            labels=noisy.labels.astype(np.float32),
            report_probs=np.stack([channel.prob_if_negative, channel.prob_if_positive], axis=1),
        )

    def _phase(self, is_debiased: bool, learning_rate: float) -> "LabelPhase":
        from tulle.train import Adam, LabelCorrection, LabelPhase

        return LabelPhase(
            epochs=_EPOCHS,
            optimizer=Adam(learning_rate=learning_rate),
            correction=LabelCorrection.DEBIASED if is_debiased else LabelCorrection.NAIVE,
            max_logit=_MAX_LOGIT if is_debiased else None,
            weight_rows=is_debiased,
        )


def _debias_jobs(
    rows: LogRows, epsilon: float
) -> Iterator[tuple[str, PerRowResponse, UnitRows, bool]]:
    single, users = rows_of(rows, Owner.EXAMPLE), rows_of(rows, Owner.USER)
    for is_debiased in (False, True):
        loss = "debiased" if is_debiased else "naive"
        yield f"impression {loss}", _capped(epsilon, 1), single, is_debiased
        yield f"user cap 1 {loss}", _capped(epsilon, 1), users, is_debiased
    for cap in _CAPS[1:]:
        yield f"user cap {cap} naive", _capped(epsilon, cap), users, False


def _capped(epsilon: float, cap: int) -> PerRowResponse:
    """The first rows of a unit share epsilon evenly."""
    return PerRowResponse(epsilon=epsilon, max_rows_per_unit=cap, row_share=RowShare.EQUAL)


def _linear_rate(row_epsilon: float) -> float:
    return _LOW_NAIVE_RATE if row_epsilon <= 1 else _NAIVE_RATE


def _quality(name: str, metrics: "QualityMetrics") -> dict[str, OwnFigure]:
    return {
        f"AUC, {name}": OwnFigure(
            value=1 - metrics.auc_loss, error=metrics.auc_loss_standard_error
        ),
        f"likelihood, {name}": OwnFigure(
            value=metrics.relative_log_likelihood,
            error=metrics.relative_log_likelihood_standard_error,
        ),
    }
