"""One step of LabelDP-Pro for a binary label (Ghazi et al., ICLR 2024, with one logit).

A private batch gives a noisy sum of what its labels switch on. A public batch, drawn apart,
gives all vectors that labels can make: sums of a_i J_i with every a_i from 0 to 1. The noisy
sum is replaced by the nearest of these. Most of the noise is no such vector and goes away.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from tulle.data.samplers.batch import Batch, sampling_generator
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError, DataError
from tulle.train.examples import ExampleSet
from tulle.train.methods.label_projection.gram import gram_matrix, inner_products
from tulle.train.methods.label_projection.label_sums import (
    LOGIT_BOUND,
    LabelSums,
    LogitPass,
    NoisySums,
    fitting_settings,
    logit_pass,
)
from tulle.train.methods.label_projection.method import (
    LabelProjectionConfig,
    Projection,
    SmoothingPrior,
)
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.models.batches import ExampleBatch, batch_source
from tulle.train.models.contributions import Gradient
from tulle.train.models.tower_model import TowerModel
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.run_context import NoisePlacement
from tulle.train.settings.optimizers import Optimizer
from tulle.train.steps.private_step import trained_parameters
from tulle.train.steps.step_context import StepContext
from tulle.train.steps.step_settings import Monitored, StepSettings
from tulle.train.steps.training_noise import TrainingNoise

# Power iteration comes near the largest eigenvalue from below, and descent diverges if its steps
# are longer than one over the eigenvalue. The margin is for what so few rounds leave; if it is too
# large, the projection is slower and as right.
_POWER_STEPS = 20
_LENGTH_MARGIN = 1.1
# The gap costs a product with the Gram matrix, as an iteration does: a tenth of the time.
_CHECKED_EVERY = 10


def project_on_box(
    gram: Tensor, products: Tensor, start: Tensor, *, max_iterations: int, tolerance: float = 1e-4
) -> Tensor:
    """Coefficients in [0, 1] of the nearest point. The point is unique, they need not be.

    Args:
      gram: [n, n]: inner products of the n vectors.
      products: [n]: their inner products with what is projected.
      start: [n]: coefficients to start from, in [0, 1].
      max_iterations: Steps at most.
      tolerance: It ends when at most this share of what the start leaves to gain is left.

    Privacy:
      Post-processing: what comes in must be public or noisy.
    """
    curvature = _largest_eigenvalue(gram)
    enough = tolerance * optimality_gap(gram, products, start)
    here, ahead, momentum = start.clone(), start.clone(), 1.0
    # No gradient has a length, so that every point is as near. Written so that NaN ends here, too.
    if not curvature > 0:
        return here
    for step in range(max_iterations):
        there = (ahead - (gram @ ahead - products) / curvature).clamp_(0, 1)
        moved = there - here
        # Momentum that leads uphill is dropped (O'Donoghue and Candes 2015).
        if float((ahead - there) @ moved) > 0:
            momentum = 1.0
        # The accelerated steps of Beck and Teboulle (2009), whose clamp is the projection on the
        # box.
        longer = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = there + moved * ((momentum - 1) / longer)
        here, momentum = there, longer
        is_checked = step % _CHECKED_EVERY == _CHECKED_EVERY - 1
        if is_checked and optimality_gap(gram, products, here) <= enough:
            break
    return here


def optimality_gap(gram: Tensor, products: Tensor, coefficients: Tensor) -> float:
    """Upper bound on how far half the squared distance is above its minimum (Frank and Wolfe).

    Args:
      gram: [n, n]: inner products of the vectors.
      products: [n]: inner products of the vectors with the target.
      coefficients: [n]: present coefficients, each from 0 to 1.
    """
    slopes = gram @ coefficients - products
    gains = torch.where(slopes > 0, coefficients * slopes, (coefficients - 1) * slopes)
    return float(gains.sum())


def _largest_eigenvalue(gram: Tensor) -> float:
    """A little above the largest eigenvalue, and never above the largest row sum."""
    vector = gram.diagonal().clamp(min=0).sqrt()
    length = vector.new_zeros(())
    for _ in range(_POWER_STEPS):
        vector = vector / vector.norm().clamp(min=torch.finfo(vector.dtype).tiny)
        vector = gram @ vector
        length = vector.norm()
    # No eigenvalue is beyond the largest row sum (Gershgorin), so a longer margin is of no use.
    row_sums = gram.abs().sum(1)
    return min(float(length) * _LENGTH_MARGIN, float(row_sums.max()))


class ProjectedStep:
    """Steps of one model, with any optimizer.

    Privacy:
      The same as for `LabelSums.release`, once a step; all else is public or follows from what it
      released.
      Relies on: both batches of a step are drawn apart. With the private batch in the place of
      the public one its rows would be told, and the sampling would protect nobody.
    """

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        projection: Projection,
        optimizer: Optimizer,
        noise: TrainingNoise,
    ) -> None:
        """Takes a model that is trained in place."""
        trained = trained_parameters(model, settings.towers)
        self._model, self._settings, self._projection = model, settings, projection
        self._sums = LabelSums(model, noise)
        self.optimizer = ParameterUpdates(trained, optimizer)
        self.settled = list(trained.values())

    def take(
        self, private: ExampleBatch, weights: Tensor, public: ExampleBatch, rate: float
    ) -> Monitored | None:
        """One step: switch, clip, sum, noise, project, update.

        Args:
          private: Rows of the private batch and of its padding, with labels.
          weights: [rows]: 1 for a row of the private batch, 0 for padding.
          public: Rows that were drawn apart. Their labels are not looked at.
          rate: The learning rate.
        """
        here = logit_pass(self._model, public, self._settings.towers)
        settings = fitting_settings(self._settings, here)
        noisy = self._sums.release(private, weights, here, settings)
        gradients = projected_gradients(here, noisy, settings, self._projection)
        self.optimizer.update(gradients, rate=rate)
        return _monitored(here, noisy, settings)


def projected_gradients(
    public: LogitPass, noisy: NoisySums, settings: StepSettings, projection: Projection
) -> list[Gradient]:
    """The mean gradient of the public batch, with label probabilities that fit the noisy sums.

    Args:
      public: Logits and gradients of the public batch.
      noisy: Noisy sums that the step has released.
      settings: What the step does; the limit of gradients is needed.
      projection: Settings of the projection.

    Privacy:
      Post-processing of the noisy sums.
    """
    chances = label_chances(public, noisy, settings, projection)
    factors = public.factors(settings.gradient_limit(0))
    # Divided by the size of the public batch: the size of the private one is a secret.
    errors = (torch.sigmoid(public.logits) - chances) * factors / len(factors)
    return [
        gradient
        for contribution in public.contributions
        for gradient in contribution.weighted_sum(errors)
    ]


def label_chances(
    public: LogitPass, noisy: NoisySums, settings: StepSettings, projection: Projection
) -> Tensor:
    """Probabilities of label 1, one for each public row, that come nearest to the noisy sums.

    With n' public rows and n expected private ones, the mean of a_i w_i J_i over the public
    rows is to be near the noisy sum over n.

    Args:
      public: Logits and gradients of the public batch.
      noisy: Noisy sums that the step has released.
      settings: What the step does; the limit of gradients and the expected size are needed.
      projection: Settings of the projection.

    Privacy:
      Post-processing of the noisy sums.
    """
    factors = public.factors(settings.gradient_limit(0))
    predicted = torch.sigmoid(public.logits)
    gram = gram_matrix(public.contributions) * factors * factors.unsqueeze(1)
    products = inner_products(public.contributions, noisy.values, noisy.rows) * factors
    chances = project_on_box(
        gram,
        products * (len(factors) / settings.expected_size),
        predicted,
        max_iterations=projection.max_iterations,
    )
    is_half = projection.prior is SmoothingPrior.HALF
    prior = torch.full_like(chances, 0.5) if is_half else predicted
    return torch.lerp(chances, prior, projection.smoothing)


def _monitored(public: LogitPass, noisy: NoisySums, settings: StepSettings) -> Monitored | None:
    """The loss is softplus(t) - y t, of which labels decide the second part alone."""
    if noisy.logit_mean is None:
        return None
    bounded = public.logits.clamp(-LOGIT_BOUND, LOGIT_BOUND)
    is_clipped = public.norms > settings.gradient_limit(0)
    scale = settings.monitor_share * settings.clip_norm * settings.expected_size
    return Monitored(
        loss=float(torch.nn.functional.softplus(bounded).mean()) - noisy.logit_mean,
        clipped_share=float(is_clipped.double().mean()),
        loss_noise=LOGIT_BOUND * settings.noise_stddev / scale,
    )


class ProjectionEngine:
    """Takes one projected step at a time.

    Privacy:
      The same as for `ProjectedStep.take`, on batches of the sampler, each used once. Public
      batches have a stream of their own and look at features alone.
    """

    steps_at_a_time = 1

    def __init__(
        self,
        model: TowerModel,
        examples: ExampleSet,
        plan: TrainPlan,
        settings: StepSettings,
        context: StepContext,
    ) -> None:
        """Takes the rows that the plan's sampler draws from.

        Raises:
          ConfigError: The plan has other steps, or noise is asked for elsewhere.
          DataError: A label is not 0 or 1.
        """
        method, sampler = plan.method, plan.sampler
        if not isinstance(method, LabelProjectionConfig):
            raise ConfigError(f"plan {plan.privacy.name!r} has no projected steps.")
        if not isinstance(sampler, TruncatedPoisson):
            raise ConfigError(f"plan {plan.privacy.name!r} needs truncated Poisson batches.")
        _check_placement(context.noise_placement)
        noise = TrainingNoise(context.rng)
        self.noise_description = noise.description
        optimizer = method.private_phase.optimizer
        self._step = ProjectedStep(model, settings, method.projection, optimizer, noise)
        self._sampler, self._rng, self._device = sampler, context.rng, context.device
        self._source = batch_source(_labels_and_public(examples), context.device)
        self._public = sampling_generator(context.rng)
        self._public_size = method.projection.public_batch_size
        self._batches: Iterator[Batch] = iter(())

    @property
    def settled(self) -> list[Tensor]:
        """All trained parameters: a step leaves no noise for later."""
        return self._step.settled

    def begin(self, first_step: int) -> None:
        """Batches are drawn from this step of the plan on."""
        self._batches = self._sampler.batches(self._rng, first_step=first_step)

    def take(self, rates: Sequence[float]) -> list[Monitored | None]:
        """The next steps, one for each learning rate."""
        return [self._take(next(self._batches), rate) for rate in rates]

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state."""
        return self._step.optimizer.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state."""
        self._step.optimizer.load_state(state)

    def _take(self, batch: Batch, rate: float) -> Monitored | None:
        weights = torch.from_numpy(batch.weights).to(self._device)
        public = self._public_batch()
        return self._step.take(self._source.batch(batch.indices), weights, public, rate)

    def _public_batch(self) -> ExampleBatch:
        """Uniform rows, with replacement, whoever is in the private batch."""
        rows = self._public.integers(self._sampler.num_rows, size=self._public_size)
        return self._source.batch(rows.astype(np.int64))


def _labels_and_public(examples: ExampleSet) -> ExampleSet:
    """The rows without their sensitive columns. A label above 1 would exceed the clip norm."""
    if examples.labels is None or not np.isin(examples.labels, (0, 1)).all():
        raise DataError(
            "label projection needs labels 0 and 1, which switch a gradient off or on; mend the "
            "label column, or prepare the data again."
        )
    return examples.without_sensitive(examples.labels)


def _check_placement(placement: NoisePlacement) -> None:
    if placement is not NoisePlacement.AUTO:
        raise ConfigError(
            f"noise_placement={placement} is for DP-SGD; projected steps draw noise where public "
            "rows are. Leave it to tulle."
        )
