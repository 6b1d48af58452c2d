"""The noise of private steps, from the options that name it."""

from typing import Any

from tulle.cli.train_options import SettingOptions
from tulle.errors import ConfigError

_KEYS = {
    "bands": ("banded", "num_bands"),
    "lattice_bits": ("lattice", "bits"),
    "selection_share": ("selected rows", "selection_share"),
    "selection_threshold": ("selected rows", "threshold"),
}
"""Which noise an option is for, and its key there."""


def set_noise(data: dict[str, Any], options: SettingOptions) -> None:
    """Another noise, or other settings of the one that the file names."""
    given = {name: value for name in _KEYS if (value := getattr(options, name)) is not None}
    if options.noise is None and not given:
        return
    table = data.setdefault("private_phase", {})
    current = table.get("noise", {"kind": "independent"})
    if not isinstance(current, dict):
        raise ConfigError(f"private_phase.noise={current!r} must be a table.")
    kind = current.get("kind") if options.noise is None else options.noise.replace("-", " ")
    if kind != current.get("kind"):
        current = {"kind": kind}
    for name in given:
        owner, _ = _KEYS[name]
        if owner != kind:
            option, noise = name.replace("_", "-"), owner.replace(" ", "-")
            raise ConfigError(f"--{option} is for --noise {noise}, not for {kind}; leave one out.")
    table["noise"] = current | {_KEYS[name][1]: value for name, value in given.items()}
