"""A public table of the values of a sensitive column, and of facts about them.

Which values a column can have is often public though who has which is not: a catalogue lists the
audiences, and says of each whose it is. Somebody declares such a table beside the roles of columns.
Then no budget is spent on which values there are, no two of them are mixed up, and values of which
the same is known can be learnt together.

The table must come from elsewhere than the log: a set of values that was read off the rows would
tell who is in them. Nobody can check that, but what looks like a log is refused.
"""

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.errors import ConfigError, DataError, reason_of
from tulle.privacy.fields import canonical_json, check_fields, check_text

if TYPE_CHECKING:
    import polars as pl

_MISSING = "missing"
"""Group of the values of which a fact is not known."""
_MOST_VALUES = 1 << 18
"""Largest number of values: a table of Mosaic has so many cells, so that more could not be told
apart, and plans and models hold a number for each of them."""
_MOST_FACTS = 32
"""Largest number of facts: each has a table of its own that takes its part of the noise budget."""
_PARQUET, _ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
_TEXTS = {".csv": ",", ".tsv": "\t"}
"""Separators of files of text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueFact:
    """One fact about the values of a column: values of which the same is known are a group."""

    name: str
    """Name of the fact, e.g. "advertiser"."""
    groups: tuple[str, ...] = dataclasses.field(repr=False)
    """Names of the groups, sorted."""
    places: tuple[int, ...] = dataclasses.field(repr=False)
    """Place of the group of each value among the groups."""

    def __post_init__(self) -> None:
        check_text("name of a fact", self.name)
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "places", tuple(self.places))
        if set(self.places) != set(range(len(self.groups))):
            raise ConfigError(
                f"the places of fact {self.name!r} must be those of its {len(self.groups)} groups; "
                "read the table of values again."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownValues:
    """All values that a sensitive column is known to have, and facts about them. All is public."""

    values: tuple[str, ...] = dataclasses.field(repr=False)
    """The values as text, sorted: the order of a table tells nothing."""
    facts: tuple[ValueFact, ...] = ()
    """Facts about the values, sorted by name."""

    def __post_init__(self) -> None:
        values, facts = tuple(self.values), tuple(self.facts)
        if not all(isinstance(value, str) and value for value in values):
            raise ConfigError("a known value is missing or no text; give each value a text.")
        if list(values) != sorted(set(values)):
            raise ConfigError("known values must be sorted, and each must be there once.")
        if not 1 <= len(values) <= _MOST_VALUES:
            raise ConfigError(
                f"there are {len(values)} known values and must be 1 to {_MOST_VALUES}; leave out "
                "values that hardly occur, which then count as other values."
            )
        names = [fact.name for fact in facts]
        if names != sorted(set(names)) or len(names) > _MOST_FACTS:
            raise ConfigError(
                f"facts {names} must be sorted, each must be there once, and there may be "
                f"{_MOST_FACTS} of them; keep those that say what a value stands for."
            )
        for fact in facts:
            if len(fact.places) != len(values):
                raise ConfigError(
                    f"fact {fact.name!r} is about {len(fact.places)} values, and "
                    f"{len(values)} are known; read the table of values again."
                )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "facts", facts)

    @property
    def digest(self) -> str:
        """SHA-256 of values and facts: it changes with the table, but not with its order."""
        return hashlib.sha256(canonical_json(self.to_dict()).encode()).hexdigest()

    def to_dict(self) -> dict[str, object]:
        """Plain data: all of the table."""
        facts = [
            {"name": fact.name, "groups": list(fact.groups), "places": list(fact.places)}
            for fact in self.facts
        ]
        return {"values": list(self.values), "facts": facts}

    @classmethod
    def from_dict(cls, data: object) -> "KnownValues":
        """Reads what `to_dict` gave."""
        fields = check_fields("known values", data, ("values", "facts"))
        keys = ("name", "groups", "places")
        facts = tuple(ValueFact(**check_fields("fact", fact, keys)) for fact in fields.pop("facts"))
        return cls(**fields, facts=facts)


def known_values_of(given: object, column: str, refused: Sequence[str]) -> KnownValues:
    """The known values of a column, whichever way they were given.

    Args:
      given: A path of a Parquet, Arrow, CSV or TSV file, a table of polars, pandas or Arrow, a list
        of the values alone, or what `KnownValues.to_dict` gave. A table has the values in a column
        of the same name, and a fact in each of its other columns.
      column: Name of the sensitive column.
      refused: Columns that no such table has: label and unit.

    Privacy:
      Everything in the table becomes public with whatever is released. It must not be made from the
      log; one with the label or the unit, or with a value twice, is refused because it looks so.

    Raises:
      DataError: The table cannot be read, lacks the column, or looks like a log.
      ConfigError: What was given is no table.
    """
    if isinstance(given, KnownValues):
        return given
    if isinstance(given, Mapping) and set(given) == {"values", "facts"}:
        return KnownValues.from_dict(dict(given))
    if isinstance(given, list | tuple):
        given = {column: list(given)}
    name = Path(given).name if isinstance(given, str | os.PathLike) else f"known_values[{column!r}]"
    table = _table_of(given, name)
    if column not in table.columns:
        raise DataError(f"{name} has no column {column!r} with the known values; add it.")
    if found := [one for one in refused if one in table.columns]:
        raise DataError(
            f"{name} has column {found[0]!r}, as a log has. Known values must be a public table "
            f"that was made without the log, such as a catalogue; leave out {found[0]!r} if it is."
        )
    values = _texts(table[column], name)
    if values.null_count() or (values == "").any():
        raise DataError(
            f"{name} has a row without a value of {column!r}; drop it: a missing value has a place "
            "of its own anyway."
        )
    if values.n_unique() < len(values):
        raise DataError(
            f"{name} has a value of {column!r} twice, as a log has. Known values must be a public "
            "table that was made without the log, with one row for each value."
        )
    order = values.arg_sort()
    facts = [
        _fact(_texts(table[other], name).gather(order))
        for other in sorted(set(table.columns) - {column})
    ]
    return KnownValues(values=tuple(sorted(values.to_list())), facts=tuple(facts))


def _fact(values: "pl.Series") -> ValueFact:
    texts = [_MISSING if text in (None, "") else text for text in values.to_list()]
    groups = sorted(set(texts))
    place_of = {group: place for place, group in enumerate(groups)}
    return ValueFact(
        name=values.name, groups=tuple(groups), places=tuple(place_of[text] for text in texts)
    )


def _texts(values: "pl.Series", name: str) -> "pl.Series":
    """Values as text. Fractions are refused: as categories they would group nothing."""
    import polars as pl

    kind = values.dtype
    if kind in (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Null) or kind.is_integer():
        return values.cast(pl.String)
    raise DataError(
        f"column {values.name!r} of {name} is {kind}, and must hold texts, whole numbers or truth "
        "values: put numbers into classes, such as small and large, or leave the column out."
    )


def _table_of(given: Any, name: str) -> "pl.DataFrame":
    import polars as pl

    if isinstance(given, str | os.PathLike):
        return _read(Path(given), name)
    if isinstance(given, pl.DataFrame):
        return given
    if hasattr(given, "notna") and hasattr(given, "items"):  # pandas, where NaN is no number
        columns = {
            str(key): column.astype(object).where(column.notna(), None).tolist()
            for key, column in given.items()
        }
        return pl.DataFrame(columns, strict=False)
    if isinstance(given, Mapping) or hasattr(given, "__arrow_c_stream__"):
        try:
            return pl.DataFrame(given)
        except (pl.exceptions.PolarsError, TypeError, ValueError):
            pass
    raise ConfigError(
        f"{name} of type {type(given).__name__} must be a file (Parquet, Arrow, CSV), a table of "
        "polars, pandas or Arrow, or a list of values."
    )


def _read(path: Path, name: str) -> "pl.DataFrame":
    import polars as pl

    suffix = path.suffix.lower()
    if suffix not in (*_PARQUET, *_ARROW, *_TEXTS):
        raise ConfigError(f"{name} must end in .parquet, .arrow, .csv or .tsv; rename it.")
    try:
        if suffix in _TEXTS:
            # As text: 007 is no number.
            return pl.read_csv(path, separator=_TEXTS[suffix], infer_schema=False)
        return pl.read_parquet(path) if suffix in _PARQUET else pl.read_ipc(path)
    except FileNotFoundError:
        raise DataError(f"{name} does not exist; check the path of the known values.") from None
    except OSError as error:
        raise DataError(f"{name} cannot be read: {reason_of(error)}.") from None
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"{name} cannot be read as a table of known values ({type(error).__name__}); check "
            "that it is whole, and has a header."
        ) from None
