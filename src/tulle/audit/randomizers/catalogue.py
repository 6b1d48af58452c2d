"""All randomizers of the product that are audited; those of the lab are listed there."""

from collections.abc import Sequence

from tulle.audit.randomizers.additive import ADDITIVE
from tulle.audit.randomizers.choices import CHOICES
from tulle.audit.randomizers.labels import LABELS
from tulle.audit.randomizers.responses import RESPONSES
from tulle.audit.randomizers.totals import TOTALS
from tulle.audit.randomizers.trial import Randomizer
from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean

RANDOMIZERS: tuple[Randomizer, ...] = (*ADDITIVE, *RESPONSES, *LABELS, *TOTALS, *CHOICES)


def find_randomizer(name: str, among: Sequence[Randomizer] = RANDOMIZERS) -> Randomizer:
    """The randomizer of a name.

    Args:
      name: What it is called.
      among: Where to look for it.

    Raises:
      ConfigError: There is none.
    """
    for randomizer in among:
        if randomizer.name == name:
            return randomizer
    names = [randomizer.name for randomizer in among]
    raise ConfigError(
        f"randomizer {name!r} is unknown{did_you_mean(name, names)}; use one of {', '.join(names)}."
    )
