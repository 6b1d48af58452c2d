"""Where and when a card was made, and with which versions."""

import contextlib
import dataclasses
import hmac
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata

import tulle
from tulle.errors import ConfigError
from tulle.privacy.fields import check_fields, check_text
from tulle.privacy.settings import Scalar, Settings

_LIBRARIES = ("dp-accounting", "numpy", "scipy")
_KEYED = "hmac-sha256:"
_LEAST_KEY_BYTES = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Provenance:
    """What it takes to repeat a run, short of its data and its noise."""

    tulle_version: str
    python_version: str
    platform: str
    """Operating system and processor; no name of a machine."""
    created_at: datetime
    libraries: Mapping[str, Scalar]
    """Versions of what the accounting, and perhaps the training, was done with."""
    data_fingerprint: str | None = None
    """Made by `keyed_fingerprint`: a plain hash of raw data would confirm a guess of them."""
    settings: Mapping[str, Scalar] = dataclasses.field(default_factory=Settings)
    """Public settings of the run that are not part of its plan."""

    def __post_init__(self) -> None:
        for name in ("tulle_version", "python_version", "platform"):
            check_text(name, getattr(self, name))
        if not isinstance(self.created_at, datetime) or self.created_at.tzinfo is None:
            raise ConfigError(
                f"created_at={self.created_at} must have a time zone, e.g. datetime.now(UTC)."
            )
        created = self.created_at.astimezone(UTC).replace(microsecond=0)
        object.__setattr__(self, "created_at", created)
        object.__setattr__(self, "libraries", Settings(self.libraries))
        object.__setattr__(self, "settings", Settings(self.settings))
        if self.data_fingerprint is not None:
            _check_keyed(self.data_fingerprint)

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return data | {
            "created_at": self.created_at.isoformat(),
            "libraries": dict(self.libraries),
            "settings": dict(self.settings),
        }

    @classmethod
    def from_dict(cls, data: object) -> "Provenance":
        """Reads what `to_dict` wrote."""
        fields = check_fields("provenance", data, [field.name for field in dataclasses.fields(cls)])
        text = check_text("created_at", fields["created_at"])
        try:
            created_at = datetime.fromisoformat(text)
        except ValueError:
            raise ConfigError(f"created_at={text!r} is not an ISO 8601 date and time.") from None
        return cls(**fields | {"created_at": created_at})


def collect_provenance(
    *,
    data_fingerprint: str | None = None,
    settings: Mapping[str, Scalar] | None = None,
    more_libraries: Sequence[str] = (),
) -> Provenance:
    """The versions and the time of here and now.

    Args:
      data_fingerprint: Made by `keyed_fingerprint`.
      settings: Public settings of the run that are not part of its plan.
      more_libraries: What else was used, by its name in the package index; named on the
        card where it is installed.
    """
    return Provenance(
        tulle_version=tulle.__version__,
        python_version=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        created_at=datetime.now(UTC),
        libraries={name: metadata.version(name) for name in _LIBRARIES} | _found(more_libraries),
        data_fingerprint=data_fingerprint,
        settings=Settings(settings),
    )


def keyed_fingerprint(data_digest: bytes, *, key: bytes) -> str:
    """A fingerprint of data that only holders of the key can compare with a guess.

    Args:
      data_digest: A hash of the data. Sensitive.
      key: Random bytes that stay with the data and are never published.
    """
    if len(key) < _LEAST_KEY_BYTES:
        raise ConfigError(
            f"key has {len(key)} bytes, at least {_LEAST_KEY_BYTES} are needed; "
            "use secrets.token_bytes(32)."
        )
    return _KEYED + hmac.digest(key, data_digest, "sha256").hex()


def _found(libraries: Sequence[str]) -> dict[str, Scalar]:
    versions: dict[str, Scalar] = {}
    for name in libraries:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _check_keyed(fingerprint: object) -> None:
    if not isinstance(fingerprint, str) or not re.fullmatch(
        rf"{_KEYED}[0-9a-f]{{64}}", fingerprint
    ):
        raise ConfigError(
            "data_fingerprint must be made by keyed_fingerprint(): a plain hash of raw data "
            "on a card would confirm a guess of them."
        )
