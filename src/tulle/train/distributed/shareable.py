"""Which runs several processes can share."""

from tulle.errors import ConfigError
from tulle.train.step_noise import SelectedRows
from tulle.train.train_plan import TrainPlan


def check_shareable(plan: TrainPlan) -> None:
    """Refuses what several processes have nothing to share of, before it costs anything.

    Raises:
      ConfigError: The plan has no private steps, or chooses or projects in each step.
    """
    phase = plan.private_phase
    if phase is None:
        raise ConfigError(
            "only private steps are shared by several processes, and this run has none; start it "
            "with one process."
        )
    if not plan.method.is_shareable:
        raise ConfigError(
            f"method {plan.method.kind} needs all rows of a step in one process; start one "
            "process, or use DpSgdConfig with several."
        )
    if isinstance(phase.noise, SelectedRows):
        raise ConfigError(
            f"{phase.noise} chooses rows from counts that one process must have; start one "
            "process, or choose another noise."
        )
