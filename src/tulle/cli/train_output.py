"""What `tulle train` prints about a finished run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tulle.errors import TulleError

if TYPE_CHECKING:
    from tulle.report.card import Card
    from tulle.train.fitting import FitResult


def print_result(
    result: "FitResult",
    card: "Card",
    run: Path,
    relative: float | None,
    *,
    as_json: bool,
) -> None:
    """One JSON object, or a short table.

    Args:
      result: Of the run.
      card: Of the run.
      run: Where it is.
      relative: By how many percent its AUC loss is above that of a baseline.
      as_json: Which of the two.
    """
    facts = _facts(result, card, run, relative)
    if as_json:
        lines = [json.dumps(facts, allow_nan=False)]
    else:
        lines = [
            f"{name.replace('_', ' '):<26}{_shown(name, value, result)}"
            for name, value in facts.items()
            if (value is not None or name == "epsilon")
            and not (name in ("steps", "steps_lost") and value == 0)
        ]
    try:
        typer.echo("\n".join(lines))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TulleError(
            f"the result cannot be printed: {error.strerror}; the run is whole, see {run}."
        ) from None


def _facts(
    result: "FitResult", card: "Card", run: Path, relative: float | None
) -> dict[str, object]:
    from tulle.privacy.fields import null_if_infinite

    plan, metrics = result.plan, result.metrics
    return {
        "method": plan.privacy.settings["method"],
        "model": _model_kind(result),
        "auc_loss": None if metrics is None else metrics.auc_loss,
        "auc_loss_interval": None if metrics is None else list(metrics.auc_loss_interval),
        "relative_auc_loss": relative,
        "log_loss": None if metrics is None else metrics.log_loss,
        "calibration": None if metrics is None else metrics.calibration,
        "normalised_cross_entropy": None if metrics is None else metrics.normalised_cross_entropy,
        "relative_log_likelihood": None if metrics is None else metrics.relative_log_likelihood,
        "bidding_over_constant": None if metrics is None else metrics.bidding_over_constant,
        "epsilon": null_if_infinite(plan.privacy.guarantee.epsilon),
        "delta": plan.privacy.guarantee.delta,
        "label_epsilon": plan.label_epsilon,
        "noise_multiplier": plan.noise_multiplier,
        "steps": plan.num_private_steps,
        "steps_lost": result.num_steps_lost,
        "seconds": result.seconds,
        "run": str(run),
        "card": str(run / "card.json"),
        "verdict": card.verdict,
    }


def _model_kind(result: "FitResult") -> object:
    from tulle.privacy.codec import plain_data

    settings = result.model.settings
    return "cells" if settings is None else plain_data(settings)["kind"]


def _shown(name: str, value: object, result: "FitResult") -> str:
    from tulle.privacy.rounding import BINARY_NOISE, round_up

    if value is None:
        return "none: no privacy"
    if name in ("epsilon", "delta", "label_epsilon") and isinstance(value, float):
        return f"{round_up(value, 4, slack=BINARY_NOISE):.4g}"
    if name == "relative_auc_loss":
        return f"{value:+.2f}%"
    if name == "auc_loss_interval" and result.metrics is not None:
        low, high = result.metrics.auc_loss_interval
        return f"{low:.4f} to {high:.4f} (95%)"
    if name == "seconds":
        return f"{value:.1f}"
    return f"{value:.4f}" if isinstance(value, float) else f"{value}"
