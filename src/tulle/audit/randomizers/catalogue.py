"""All randomizers that are audited."""

from tulle.audit.randomizers.additive import ADDITIVE
from tulle.audit.randomizers.choices import CHOICES
from tulle.audit.randomizers.labels import LABELS
from tulle.audit.randomizers.responses import RESPONSES
from tulle.audit.randomizers.totals import TOTALS
from tulle.audit.randomizers.trial import Randomizer
from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean

RANDOMIZERS: tuple[Randomizer, ...] = (*ADDITIVE, *RESPONSES, *LABELS, *TOTALS, *CHOICES)


def find_randomizer(name: str) -> Randomizer:
    """The randomizer of a name.

    Raises:
      ConfigError: There is none.
    """
    for randomizer in RANDOMIZERS:
        if randomizer.name == name:
            return randomizer
    names = [randomizer.name for randomizer in RANDOMIZERS]
    raise ConfigError(
        f"randomizer {name!r} is unknown{did_you_mean(name, names)}; use one of {', '.join(names)}."
    )
