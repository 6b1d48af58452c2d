"""Public settings of a mechanism, frozen, with the same JSON for equal settings."""

from collections.abc import Iterator, Mapping

from tulle.errors import ConfigError
from tulle.privacy.fields import canonical_json, check_finite, check_text

Scalar = str | int | float | bool | None


class Settings(Mapping[str, Scalar]):
    """Names and single values, sorted by name. It cannot change once it is made."""

    __slots__ = ("_pairs",)

    def __init__(self, values: Mapping[str, Scalar] | None = None) -> None:
        if not isinstance(values, Mapping | None):
            raise ConfigError(
                f"settings={values!r} must be names with values, e.g. {{'steps': 9}}."
            )
        pairs = dict(values or {})
        for name, value in pairs.items():
            _check_setting(name, value)
        self._pairs = tuple(sorted(pairs.items()))

    def __getitem__(self, name: str) -> Scalar:
        return dict(self._pairs)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are equal numbers and different settings.
        return isinstance(other, Settings) and self._text() == other._text()

    def __hash__(self) -> int:
        return hash(self._text())

    def __repr__(self) -> str:
        return f"Settings({dict(self._pairs)!r})"

    def _text(self) -> str:
        return canonical_json(dict(self._pairs))


def _check_setting(name: object, value: object) -> None:
    check_text("name of a setting", name)
    if value is None or isinstance(value, (str, bool)):
        if isinstance(value, str) and value:
            check_text(f"settings[{name!r}]", value)
        return
    if not isinstance(value, (int, float)):
        raise ConfigError(
            f"settings[{name!r}]={value!r} must be one number, text, true, false or none; "
            "write a list as text or as several settings."
        )
    check_finite(f"settings[{name!r}]", value)
