"""Where two sets of settings differ first."""

import dataclasses
from collections.abc import Mapping

_MAX_SHOWN = 60


class _NotSet:
    def __repr__(self) -> str:
        return "(not set)"


_NOT_SET = _NotSet()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One entry with both its values."""

    name: str
    """Where it is found: `model.layers[2]`."""
    then: object
    now: object

    def __str__(self) -> str:
        return f"{self.name}={_shown(self.then)}, not {_shown(self.now)}"


def first_difference(then: object, now: object, name: str = "") -> Difference | None:
    """The first entry that differs; None if all are equal.

    A whole number equals the same number with a point. True and False equal no number.

    Args:
      then: Plain data: tables, lists and single values.
      now: What it is compared with.
      name: Where both are found.
    """
    pairs: list[tuple[str, object, object]]
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        keys = {**then, **now}
        pairs = [(f".{key}", then.get(key, _NOT_SET), now.get(key, _NOT_SET)) for key in keys]
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = [(f"[{i}]", *both) for i, both in enumerate(zip(then, now, strict=True))]
    elif isinstance(then, bool) is isinstance(now, bool) and then == now:
        return None
    else:
        return Difference(name=name, then=then, now=now)
    for part, old, new in pairs:
        if found := first_difference(old, new, f"{name}{part}".removeprefix(".")):
            return found
    return None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
