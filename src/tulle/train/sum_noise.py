"""The noise that is added to sums of clipped gradients, as the plan says."""

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.banded.band_matrix import BandMatrix
from tulle.train.banded.banded_noise import BandedGradientNoise, NoiseMemory, fitting_memory
from tulle.train.gradient_noise import GradientNoise, IndependentGradientNoise
from tulle.train.lattice.lattice_noise import LatticeGradientNoise
from tulle.train.models.tower_model import TowerModel
from tulle.train.noise import TrainingNoise
from tulle.train.private_step import StepSettings, trained_parameters
from tulle.train.step_noise import IndependentNoise, LatticeNoise, SelectedRows


def sum_noise(
    model: TowerModel,
    settings: StepSettings,
    noise: TrainingNoise,
    rng: NoiseSource,
    memory: NoiseMemory = NoiseMemory.AUTO,
) -> GradientNoise:
    """Noise of dense sums. With several processes the leader adds it, once, to the whole sums.

    Args:
      model: Its size decides what of correlated noise is kept.
      settings: Name the noise.
      noise: Of independent noise.
      rng: Source of all other noise. Sensitive: never log or save its state.
      memory: Of correlated noise.

    Privacy:
      The noise is that of `settings`, on sums that clipping bounded. Relies on: added once a step.

    Raises:
      ConfigError: Noise that is not added to sums.
    """
    mechanism = settings.mechanism
    if isinstance(mechanism, IndependentNoise):
        return IndependentGradientNoise(noise)
    if isinstance(mechanism, LatticeNoise):
        return LatticeGradientNoise(rng, grid=mechanism.grid(settings.clip_norm))
    if isinstance(mechanism, SelectedRows):
        raise ConfigError(f"{mechanism} is not added to sums; choose another noise.")
    matrix = BandMatrix(num_bands=mechanism.num_bands, num_steps=settings.num_steps)
    trained = trained_parameters(model, settings.towers).values()
    num_bytes = sum(values.nbytes for values in trained)
    fitting = fitting_memory(memory, mechanism.num_bands, num_bytes)
    return BandedGradientNoise(matrix, rng, fitting)
