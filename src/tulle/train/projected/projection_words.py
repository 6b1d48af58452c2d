"""What a training plan says of projected steps: sentence, settings, bound and assumptions."""

from tulle.privacy.conditions import Assumption, Bound, Status
from tulle.privacy.settings import Scalar
from tulle.train.projected.projection import Projection


def projection_sentence() -> str:
    """What will run, for a reader who knows no papers."""
    return (
        "Steps on public columns: the clipped gradients of labels that are 1 are summed with "
        "Gaussian noise and projected on what labels of public rows can give (LabelDP-Pro). "
        "Sensitive columns are not used."
    )


def projection_settings(projection: Projection) -> dict[str, Scalar]:
    """All that decides the projection."""
    return {
        "public_batch_size": projection.public_batch_size,
        "smoothing": projection.smoothing,
        "smoothing_prior": projection.prior.value,
        "projection_iterations": projection.max_iterations,
    }


def projection_bound(clip_norm: float) -> Bound:
    """Most that one label switches on or off."""
    return Bound(
        what="L2 norm of what one label switches in a step",
        limit=clip_norm,
        where="gradient of the logit, clipped over all trained parameters and the monitored loss "
        "together",
    )


def projection_assumptions() -> tuple[Assumption, ...]:
    """On what a switched label rests, each with what makes it true."""
    return (
        _enforced(
            "Steps read no sensitive column.",
            "they are handed the public part of the data, from which the rest cannot be reached",
        ),
        _enforced(
            "Labels decide which gradients are summed, and nothing else about a sum.",
            "gradients, clip norms and batches follow from public columns and noisy weights",
        ),
        _enforced(
            "Public batches tell nothing about private ones.",
            "each is drawn apart, by a generator with a key of its own",
        ),
    )


def _enforced(statement: str, evidence: str) -> Assumption:
    return Assumption(statement=statement, status=Status.ENFORCED, evidence=evidence)
