"""The pair of a binary label that switches one bounded vector of a sampled sum on or off.

The batch does not look at labels, so with label 0 the row adds nothing in every batch, and
with label 1 it adds its vector in the batches that it enters: (1-q) N(0) + q N(1) against
N(0). That is the pair of an added or removed row, although the row stays and its label is
replaced. A vector that turns round instead of going out needs the pair of a replaced row.

The two orders of this pair differ. One label meets all steps of a run in one order. Two
labels of a unit may be replaced together, one on and one off, and then the orders mix.
"""

from tulle.accounting.gaussian_pairs import sampled_gaussian_remove_profile
from tulle.accounting.profiles import Profile
from tulle.privacy import events


def sampled_switch_profile(sampling_prob: float, noise_multiplier: float) -> Profile:
    """One row of a Poisson batch, whose label goes on or off."""
    return sampled_gaussian_remove_profile(sampling_prob, noise_multiplier)


def in_both_orders(profile: Profile) -> Profile:
    """A pair that is the worst in either order, for compositions that mix orders.

    Its delta in each order is the larger one of the two. Both pairs are then post-processings
    of it (Zhu, Dong, Wang 2022: what is larger at every epsilon, negative ones included,
    dominates).
    """
    if profile.backward is None:
        return profile
    return Profile(
        profile.worst, largest_loss=profile.largest_loss, infinite_prob=profile.infinite_prob
    )


def num_switched_labels(event: events.Event) -> int:
    """How many labels an event may switch: one for each place where it says so.

    `Repeated` right around such an event is one place; around anything else it is many.
    """
    match event:
        case events.SwitchedGaussian():
            return 1
        case events.Repeated():
            inner = num_switched_labels(event.event)
            is_one_release = not isinstance(event.event, events.Repeated | events.Composed)
            return inner if is_one_release else event.count * inner
        case events.Composed() | events.Parallel():
            return sum(map(num_switched_labels, event.events))
        case events.PoissonSampled() | events.TruncatedPoissonSampled() | events.Grouped():
            return num_switched_labels(event.event)
    return 0
