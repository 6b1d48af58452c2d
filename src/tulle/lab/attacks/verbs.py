"""The verb of the lab's attacks: attack synthetic users, with and without privacy.

Users are synthetic and noise has a seed, so nothing that comes out is a private release.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tulle.atomic_files import reporting_disk_errors, write_text
from tulle.errors import ConfigError, RunStateError
from tulle.lab.attacks.charts import (
    differencing_charts,
    linkage_charts,
    membership_charts,
    reconstruction_charts,
)
from tulle.lab.attacks.differencing import (
    DifferencingConfig,
    DifferencingResult,
    attack_by_differencing,
)
from tulle.lab.attacks.linkage import LinkageConfig, LinkageResult, attack_by_linkage
from tulle.lab.attacks.membership import MembershipConfig, MembershipResult, attack_by_membership
from tulle.lab.attacks.reconstruction import (
    ReconstructionConfig,
    ReconstructionResult,
    attack_by_reconstruction,
)
from tulle.privacy.fields import did_you_mean
from tulle.report.html.chart_svg import write_charts
from tulle.report.html.charts import Chart

AttackResult = ReconstructionResult | DifferencingResult | LinkageResult | MembershipResult
ALL = "all"

_ATTACKS: dict[str, tuple[Callable[[int], AttackResult], Callable[[Any], list[Chart]]]] = {
    "reconstruction": (
        lambda seed: attack_by_reconstruction(ReconstructionConfig(seed=seed)),
        reconstruction_charts,
    ),
    "differencing": (
        lambda seed: attack_by_differencing(DifferencingConfig(seed=seed)),
        differencing_charts,
    ),
    "linkage": (lambda seed: attack_by_linkage(LinkageConfig(seed=seed)), linkage_charts),
    "membership": (
        lambda seed: attack_by_membership(MembershipConfig(seed=seed)),
        membership_charts,
    ),
}
"""Each attack by its name, with its charts."""


def run_attacks(
    attack: str = ALL,
    *,
    seed: int = 1,
    output: str | Path | None = None,
    watch: Callable[[str], None] | None = None,
) -> dict[str, AttackResult]:
    """Attacks synthetic users, with and without privacy, and returns what was found by attack.

    Args:
      attack: "reconstruction", "differencing", "linkage", "membership" or "all".
      seed: Seed of the synthetic users and of the noise.
      output: New folder for a chart (SVG) and a JSON file of each attack.
      watch: Function that is told the name of the attack that begins.

    Raises:
      ConfigError: There is no such attack.
      RunStateError: The folder exists already.
    """
    known = [*_ATTACKS, ALL]
    if attack not in known:
        raise ConfigError(
            f"attack {attack} is unknown{did_you_mean(attack, known)}; use one of "
            f"{', '.join(known)}."
        )
    folder = None if output is None else Path(output)
    if folder is not None and folder.exists():
        raise RunStateError(f"{folder.name} exists already; name a new folder.")
    found = {}
    for name in _ATTACKS if attack == ALL else [attack]:
        if watch is not None:
            watch(name)
        found[name] = _ATTACKS[name][0](seed)
    if folder is not None:
        _write(folder, found)
    return found


def _write(folder: Path, found: Mapping[str, AttackResult]) -> None:
    with reporting_disk_errors(folder):
        folder.mkdir(parents=True)
        for name, result in found.items():
            write_charts(folder / f"{name}.svg", _ATTACKS[name][1](result))
            text = json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n"
            write_text(folder / f"{name}.json", text)
