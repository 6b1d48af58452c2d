"""Membership: a model that learned its examples by heart says who was among them.

A coin decides for every candidate whether a model is trained on it. The attacker sees the model
and one candidate; a margin that is larger than under models of other people (a smaller loss) is a
sign that it was there. Being in or out is add-or-remove, so a private model keeps all attackers
under true positives <= e^epsilon false positives + delta.

The models are logistic regressions in a few lines. Both kinds start at zero and take full gradient
steps; the private one clips what each example adds, sums, adds noise, and divides by a number that
is public. Models of real data are trained by `tulle train`.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tulle.accounting.accountant import calibrate_noise
from tulle.errors import ConfigError
from tulle.lab.attacks.bounds import (
    NOT_PRIVATE,
    area_under_curve,
    true_positive_ceilings,
    true_positive_rates,
)
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.privacy.events import Event, Gaussian, Repeated
from tulle.privacy.fields import check_count, check_prob, null_if_infinite
from tulle.privacy.units import Adjacency

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Trainer = Callable[[FloatArray, FloatArray, int], FloatArray]
"""Features, labels and a seed to weights."""

FALSE_POSITIVE_RATES = tuple(float(rate) for rate in np.geomspace(3e-3, 1.0, 31))
"""False-positive rates at which curves are kept."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyGradientSteps:
    """Gradient steps with noise. Every field is public information."""

    noise_multiplier: float
    """Noise standard deviation over the clip norm, in each step."""
    expected_examples: int
    """What sums are divided by: public, never the number of examples that there are."""
    num_steps: int = 30
    learning_rate: float = 1.0
    clip_norm: float = 1.0
    """Largest L2 norm of what one example adds to the sum of gradients."""

    def __post_init__(self) -> None:
        check_count("num_steps", self.num_steps)
        check_count("expected_examples", self.expected_examples)
        for name in ("noise_multiplier", "learning_rate", "clip_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(
                    f"{name}={getattr(self, name)} must be > 0 and finite; a model without noise "
                    "is one of train_plainly()."
                )

    @classmethod
    def for_epsilon(
        cls, epsilon: float, delta: float, *, expected_examples: int, num_steps: int = 30
    ) -> "NoisyGradientSteps":
        """The least noise with which all steps together are (epsilon, delta)-private.

        Args:
          epsilon: Target of all steps together.
          delta: Target of all steps together.
          expected_examples: What sums are divided by.
          num_steps: Number of steps.
        """
        noise = calibrate_noise(
            lambda noise: Repeated(event=Gaussian(noise_multiplier=noise), count=num_steps),
            epsilon=epsilon,
            delta=delta,
            adjacency=Adjacency.ADD_OR_REMOVE,
        )
        return cls(noise_multiplier=noise, expected_examples=expected_examples, num_steps=num_steps)

    def event(self) -> Event:
        """What one model costs."""
        return Repeated(
            event=Gaussian(noise_multiplier=self.noise_multiplier), count=self.num_steps
        )


_PECULIAR_NORM = 4.0
"""Norm of what is peculiar to one person, where what can be learned has size 1."""
_WRONG_LABEL_PROB = 0.1
"""Labels that follow from nothing, which only a model that learns by heart gets right."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MembershipConfig:
    """Settings of the attack. Every field is public information."""

    num_candidates: int = 200
    num_features: int = 1000
    """Number of features, more than candidates: enough to learn all of them by heart."""
    epsilons: tuple[float, ...] = (1.0, 4.0)
    """Epsilons of the private models."""
    delta: float = 1e-5
    low_false_positive_rate: float = 0.01
    """Rate at which true positives are named: of an attacker who is rarely wrong."""
    num_models: int = 40
    """Models of each kind, each on other candidates; the others are the attacker's comparison."""
    seed: int = 1

    def __post_init__(self) -> None:
        check_count("num_candidates", self.num_candidates, least=10)
        check_count("num_features", self.num_features)
        check_count("num_models", self.num_models, least=2)
        if not all(0 < epsilon < math.inf for epsilon in self.epsilons):
            raise ConfigError(f"epsilons={self.epsilons} must be > 0 and finite, e.g. (1.0,).")
        check_prob("delta", self.delta, example=1e-5)
        check_prob("low_false_positive_rate", self.low_false_positive_rate, example=0.01)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackedModel:
    """What the attacker found out about one kind of model."""

    epsilon: float
    """Epsilon of the model; math.inf for the model without noise."""
    delta: float
    true_positive_rates: tuple[float, ...]
    """Share of members found at each of FALSE_POSITIVE_RATES."""
    area_under_curve: float
    """Area under the attack's curve: 0.5 for guesses at random, 1 if members are always told from
    others."""
    true_positive_rate: float
    """Share of members found at the low false-positive rate."""
    ceiling: float
    """Largest share that any attacker can find there."""
    member_accuracy: float
    """Accuracy of the model on examples that it was trained on."""
    fresh_accuracy: float
    """Accuracy of the model on examples that it was not trained on."""

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite epsilon is null."""
        return dataclasses.asdict(self) | {"epsilon": null_if_infinite(self.epsilon)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MembershipResult:
    """A model without noise, and private ones."""

    config: MembershipConfig
    models: tuple[AttackedModel, ...]
    """The one without noise first."""

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "attack": "membership",
            "privacy": NOT_PRIVATE,
            "config": dataclasses.asdict(self.config),
            "false_positive_rates": list(FALSE_POSITIVE_RATES),
            "models": [model.to_dict() for model in self.models],
        }

    def lines(self) -> list[str]:
        """What was found, in lines to print."""
        rate = self.config.low_false_positive_rate
        lines = [f"membership: members found where {rate:g} of the others are taken for members"]
        for index, model in enumerate(self.models):
            name = f"epsilon {model.epsilon:g}" if index else "no noise"
            limit = f"any attacker at most {model.ceiling:.1%}" if index else "nothing limits it"
            lines.append(
                f"  {name:<12}{model.true_positive_rate:6.1%}; {limit}; "
                f"right on fresh examples {model.fresh_accuracy:.1%}"
            )
        return lines


def attack_by_membership(config: MembershipConfig | None = None) -> MembershipResult:
    """Trains models on synthetic examples and asks them who was there.

    Privacy:
      For synthetic examples, with seeded noise: the result is exact and not private.
    """
    config = config or MembershipConfig()
    models = [_attack(config, lambda x, y, _: train_plainly(x, y), math.inf)]
    for epsilon in config.epsilons:
        settings = NoisyGradientSteps.for_epsilon(
            epsilon, config.delta, expected_examples=config.num_candidates // 2
        )
        models.append(_attack(config, _private_trainer(settings), epsilon))
    return MembershipResult(config=config, models=tuple(models))


def _private_trainer(settings: NoisyGradientSteps) -> Trainer:
    return lambda features, labels, seed: train_privately(
        features, labels, settings, rng=SeededNoise(seed)
    )


def _attack(config: MembershipConfig, train: Trainer, epsilon: float) -> AttackedModel:
    drawn = [_draw_candidates(config, number) for number in range(config.num_models)]
    weights = np.stack([train(*one.members(), one.seed) for one in drawn])
    is_member = np.concatenate([one.is_member for one in drawn])
    margins = np.concatenate([one.margins(own) for one, own in zip(drawn, weights, strict=True)])
    scores = np.concatenate(
        [one.margins(own) for one, own in zip(drawn, _peculiar(weights), strict=True)]
    )
    of_members, of_others = scores[is_member], scores[~is_member]
    low_rate = np.array([config.low_false_positive_rate])
    delta = 1.0 if math.isinf(epsilon) else config.delta
    curve = true_positive_rates(of_members, of_others, np.array(FALSE_POSITIVE_RATES))
    return AttackedModel(
        epsilon=epsilon,
        delta=delta,
        true_positive_rates=tuple(float(rate) for rate in curve),
        area_under_curve=area_under_curve(of_members, of_others),
        true_positive_rate=float(true_positive_rates(of_members, of_others, low_rate)[0]),
        ceiling=float(true_positive_ceilings(low_rate, epsilon, delta)[0]),
        member_accuracy=float(np.mean(margins[is_member] > 0)),
        fresh_accuracy=float(np.mean(margins[~is_member] > 0)),
    )


def _peculiar(weights: FloatArray) -> FloatArray:
    """What each model has that the mean of the others has not: they saw other people."""
    num_others = len(weights) - 1
    of_others = (weights.sum(axis=0) - weights) / num_others
    return np.asarray(weights - of_others, dtype=np.float64)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Candidates:
    features: FloatArray
    labels: FloatArray
    is_member: BoolArray
    seed: int

    def members(self) -> tuple[FloatArray, FloatArray]:
        return self.features[self.is_member], self.labels[self.is_member]

    def margins(self, weights: FloatArray) -> FloatArray:
        """How sure a model is of each candidate's label."""
        return np.asarray(self.labels * (self.features @ weights), dtype=np.float64)


def _draw_candidates(config: MembershipConfig, number: int) -> _Candidates:
    rng = np.random.default_rng([config.seed, number])
    size = config.num_candidates
    features = rng.standard_normal((size, config.num_features))
    features *= _PECULIAR_NORM / math.sqrt(config.num_features)
    # One direction that can be learned, and labels that are sometimes against it.
    features[:, 0] = rng.standard_normal(size)
    labels = np.where(features[:, 0] > 0, 1.0, -1.0)
    return _Candidates(
        features=features,
        labels=np.where(rng.random(size) < _WRONG_LABEL_PROB, -labels, labels),
        is_member=rng.random(size) < 0.5,
        seed=int(rng.integers(2**62)),
    )


def train_plainly(
    features: FloatArray,
    raw_labels: FloatArray,
    *,
    num_steps: int = 300,
    learning_rate: float = 1.0,
) -> FloatArray:
    """Weights of a model that nothing protects, and that may learn its examples by heart.

    Args:
      features: [examples, features].
      raw_labels: -1 or 1 for each example.
      num_steps: Number of gradient steps.
      learning_rate: Size of the steps.

    Privacy:
      None. The weights are raw data.
    """
    weights = np.zeros(features.shape[1])
    for _ in range(num_steps):
        gradient = example_gradients(weights, features, raw_labels).mean(axis=0)
        weights = weights - learning_rate * gradient
    return weights


def train_privately(
    features: FloatArray, raw_labels: FloatArray, settings: NoisyGradientSteps, *, rng: NoiseSource
) -> FloatArray:
    """Weights of a model that is private at the cost of `settings.event()`.

    Args:
      features: [examples, features].
      raw_labels: -1 or 1 for each example.
      settings: Noise, clip norm and steps.
      rng: Source of the noise. Sensitive: never log or save its state.

    Privacy:
      Unit: example with its features and its label, add-or-remove. L2 sensitivity of each step:
      clip_norm. Event: one Gaussian a step. Relies on: nothing; every example is clipped here.
    """
    weights = np.zeros(features.shape[1])
    noise = GaussianConfig(
        noise_multiplier=settings.noise_multiplier,
        max_contribution=settings.clip_norm,
        max_values_per_unit=features.shape[1],
    )
    for _ in range(settings.num_steps):
        raw_sum = clipped_sum(example_gradients(weights, features, raw_labels), settings.clip_norm)
        noisy_sum = release_gaussian(raw_sum, noise, rng=rng)
        weights = weights - settings.learning_rate * noisy_sum / settings.expected_examples
    return weights


def example_gradients(
    weights: FloatArray, features: FloatArray, raw_labels: FloatArray
) -> FloatArray:
    """[examples, features]: how each example's loss log(1 + e^-margin) changes.

    Args:
      weights: One for each feature.
      features: [examples, features].
      raw_labels: -1 or 1, one an example.

    Privacy:
      None: exact, to be clipped and noised.
    """
    margins = raw_labels * (features @ weights)
    # 1 / (1 + e^margin) without overflow.
    slopes = -raw_labels * 0.5 * (1 - np.tanh(margins / 2))
    return np.asarray(slopes[:, None] * features, dtype=np.float64)


def clipped_sum(gradients: FloatArray, clip_norm: float) -> FloatArray:
    """The sum of gradients, each scaled down to the clip norm first.

    Privacy:
      None: exact, to be noised. L2 sensitivity under add-or-remove: clip_norm.
    """
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    # A hair below the norm, so that rounding does not exceed it.
    scales = np.minimum(1.0, clip_norm * (1 - 1e-12) / np.maximum(norms, 1e-300))
    return np.asarray((gradients * scales).sum(axis=0), dtype=np.float64)
