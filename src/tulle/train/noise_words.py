"""What a training plan says of the noise of its steps: sentence, settings, bounds, assumptions."""

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.privacy.conditions import Assumption, Bound, Status
from tulle.privacy.settings import Scalar
from tulle.train.banded.band_matrix import BandMatrix
from tulle.train.phases import PrivatePhase
from tulle.train.step_noise import BandedNoise, LatticeNoise, SelectedRows
from tulle.train.step_sampling import StepSampler

FLOATING_POINT = "floating point, not on a lattice"
"""Noise whose proof is for real numbers."""


def noise_sentence(phase: PrivatePhase) -> str:
    """What is special about the noise, for a reader who knows no papers; empty if nothing."""
    noise = phase.noise
    if isinstance(noise, LatticeNoise):
        return " Sums and noise are whole multiples of a grid."
    if isinstance(noise, BandedNoise) and noise.num_bands > 1:
        return (
            " The noise of a step takes back part of the noise of the "
            f"{noise.num_bands - 1} steps before it."
        )
    if isinstance(noise, SelectedRows):
        return (
            " Each step chooses table rows by noisy counts; other rows get neither gradient "
            "nor noise."
        )
    return ""


def noise_settings(phase: PrivatePhase, sampler: StepSampler) -> dict[str, Scalar]:
    """The noise and all that decides it, besides its multiplier."""
    noise = phase.noise
    settings: dict[str, Scalar] = {"noise": noise.kind, "noise_arithmetic": FLOATING_POINT}
    if isinstance(noise, LatticeNoise):
        grid = noise.grid(phase.clip_norm)
        return settings | {
            "noise_arithmetic": "whole multiples of a grid",
            "lattice_bits": noise.bits,
            "lattice_grid": grid,
        }
    if isinstance(noise, BandedNoise):
        matrix = BandMatrix(num_bands=noise.num_bands, num_steps=sampler.steps)
        return settings | {"num_bands": noise.num_bands, "band_exponent": matrix.exponent}
    if isinstance(noise, SelectedRows):
        return settings | {
            "selection_share": noise.selection_share,
            "selection_threshold": noise.threshold,
        }
    return settings


def noise_bounds(phase: PrivatePhase, sampler: StepSampler) -> tuple[Bound, ...]:
    """What else of a unit is bounded, besides its clipped gradient."""
    if isinstance(sampler, CyclicPoisson):
        return (
            Bound(
                what="steps that one row can take part in",
                limit=sampler.max_participations,
                where=f"{sampler.num_groups} groups of rows take turns",
            ),
        )
    if isinstance(phase.noise, SelectedRows):
        return (
            Bound(
                what="L2 norm of the part of one unit in the counts of table rows",
                limit=1,
                where="clipped over the rows of all tables together",
            ),
        )
    return ()


def noise_assumptions(phase: PrivatePhase) -> tuple[Assumption, ...]:
    """On what the noise rests, each with what makes it true."""
    noise = phase.noise
    if isinstance(noise, BandedNoise):
        return (
            _enforced(
                f"The steps of one row are {noise.num_bands} steps apart, or a multiple of that.",
                "rows are in public groups that never change, and step t draws from group t modulo "
                "their number, also after an interruption",
            ),
            _enforced(
                "All steps together have noise C^-1 z with independent z.",
                "C has as many bands as there are groups, and columns of norm 1 at most; it starts "
                "again where a run goes on, which only shortens columns",
            ),
        )
    if isinstance(noise, LatticeNoise):
        return (
            _enforced(
                "What one unit adds to the rounded sums is within the clip norm.",
                "gradients are clipped to the clip norm less what rounding can add to all entries",
            ),
        )
    if isinstance(noise, SelectedRows):
        return (
            _enforced(
                "Which table rows change in a step is covered by its event.",
                "rows are chosen by noisy counts, and counts and gradients share the event",
            ),
        )
    return ()


def _enforced(statement: str, evidence: str) -> Assumption:
    return Assumption(statement=statement, status=Status.ENFORCED, evidence=evidence)
