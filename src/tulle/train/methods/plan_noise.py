"""Planning of a training run: how much noise its target needs, and what that noise buys."""

import math

from tulle.accounting.accountant import pld_epsilon, privacy_curve
from tulle.accounting.calibration import calibrate_noise
from tulle.accounting.rdp import calibrate_noise_rdp
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.privacy.events import Event, Gaussian
from tulle.privacy.units import Adjacency
from tulle.train.methods.method import Accounting, Method, Target
from tulle.train.methods.train_plan import PlannedRun, TrainPlan, compose_parts
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.settings.units import DataShape, UserLevel

_NUM_MILESTONES = 8
_FEW_MILESTONES = 4
"""Number of marks where a unit has several rows, which take longer to account."""
_HUGE_EPSILON = 1e6
"""An epsilon that promises nothing: the delta that is left there no epsilon can buy."""


def make_train_plan(method: Method, shape: DataShape) -> TrainPlan:
    """Finds the noise that meets the method's target, and the epsilons that follow from it.

    Raises:
      ConfigError: The method has no target, or one that it cannot meet on such data; or the data
        have a unit column and the method does not say what is protected together.
    """
    if not method.is_private:
        return TrainPlan(method=method, shape=shape)
    target = method.target
    if target is None:
        raise ConfigError(
            f"{type(method).__name__} has no target; call calibrate(epsilon=…, delta=…) first, "
            "or use NonPrivateConfig to train without privacy."
        )
    method = method.fitted_to(shape)
    method.check_shape(shape)
    noise = _noise_multiplier(method, shape, target)
    run = PlannedRun(method=method, shape=shape, noise_multiplier=noise)
    epsilon = target.epsilon
    if method.fixed_noise is not None and noise is not None:
        epsilon = pld_epsilon(run.event, run.delta, run.adjacency)
    if not math.isfinite(epsilon):
        raise ConfigError(
            f"noise_multiplier={noise} and delta={target.delta:g} leave no finite epsilon: "
            "vocabularies may have used up delta. Raise the noise or delta."
        )
    return TrainPlan(
        method=method,
        shape=shape,
        noise_multiplier=noise,
        epsilon=epsilon,
        variant_epsilons=tuple(
            pld_epsilon(event, run.delta, adjacency) for adjacency, _, event in run.variants
        ),
        epsilon_milestones=_milestones(run, epsilon),
    )


def _milestones(run: PlannedRun, epsilon: float) -> tuple[tuple[int, float], ...]:
    """Epsilon after some of the private steps, for whoever watches the run."""
    if run.sampler is None:
        return ()
    total = run.sampler.steps
    num_marks = _NUM_MILESTONES if _rows_per_unit(run.sampler) == 1 else _FEW_MILESTONES
    marks = sorted({total * n // num_marks for n in range(1, num_marks)} - {0})
    found = [(mark, pld_epsilon(run.event_until(mark), run.delta, run.adjacency)) for mark in marks]
    return (*found, (total, epsilon))


def _noise_multiplier(method: Method, shape: DataShape, target: Target) -> float | None:
    """The noise that the settings fix, or the least that meets the target; None if none is."""
    if not method.has_noise(shape):
        return None
    if target.delta == 0:
        raise ConfigError("delta=0.0 is out of reach for private steps; choose e.g. 1e-7.")
    if method.fixed_noise is not None:
        return float(method.fixed_noise)
    _check_room(method, shape, target)
    if method.accounting is Accounting.PAPER_RDP:
        return _paper_noise(method, shape, target)
    return calibrate_noise(
        lambda noise: PlannedRun(method=method, shape=shape, noise_multiplier=noise).event,
        epsilon=target.epsilon,
        delta=target.delta,
        adjacency=Adjacency.REPLACE,
        # With much less noise than one row's share each, many rows spread losses out of reach.
        start=float(_rows_per_unit(method.sampler(shape))),
    )


def _paper_noise(method: Method, shape: DataShape, target: Target) -> float:
    """The papers' noise: for what labels leave of epsilon, by Renyi DP of one row's steps."""
    unit, delta = method.unit, target.delta
    num_labels = unit.max_labels_per_user if isinstance(unit, UserLevel) else 1
    epsilon = target.epsilon - (method.label_epsilon or 0.0) * num_labels
    if isinstance(unit, UserLevel):
        # Proposition 6 of Chua et al. 2024 (PPAI), solved for the guarantee of one row.
        whole, epsilon = epsilon, epsilon / unit.max_rows_per_user
        delta *= math.expm1(epsilon) / math.expm1(whole)
    sampler = method.sampler(shape)

    def make_event(noise: float) -> Event:
        if sampler is None:
            raise ConfigError("there are no private steps to find noise for.")
        return sampler.event(Gaussian(noise_multiplier=noise))

    return calibrate_noise_rdp(make_event, epsilon=epsilon, delta=delta)


def _rows_per_unit(sampler: StepSampler | None) -> int:
    """Most rows of a unit that a batch is accounted to hold."""
    return sampler.max_rows_per_unit if isinstance(sampler, TruncatedPoisson) else 1


def _check_room(method: Method, shape: DataShape, target: Target) -> None:
    """Refuses a target that labels and vocabularies use up before the first step."""
    sampler = method.sampler(shape)
    vocabulary = shape.vocabulary_event if method.reads_sensitive(shape) else None
    is_paper = sampler is not None and method.accounting is Accounting.PAPER_RDP
    curve = privacy_curve(
        compose_parts(vocabulary, method.labels_event()),
        Adjacency.ADD_OR_REMOVE if is_paper else Adjacency.REPLACE,
    )
    spent = curve.epsilon(target.delta)
    what = "private steps" if sampler is not None else "sums of cells"
    if math.isinf(spent):
        raise ConfigError(
            f"delta={target.delta:g} leaves nothing for {what}: the vocabularies "
            f"alone need delta > {curve.delta(_HUGE_EPSILON):.2g}; raise delta, or prepare them "
            "with a smaller vocabulary delta."
        )
    if spent >= target.epsilon:
        raise ConfigError(
            f"epsilon={target.epsilon:g} leaves nothing for {what}: labels and "
            f"vocabularies spend {spent:.4g} of it. Raise it, or give the labels less."
        )
