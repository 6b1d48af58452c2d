"""The verb of the lab's attacks: attack synthetic users, with and without privacy, and draw it.

Users are synthetic and noise has a seed, so nothing that comes out is a private release. Each chart
shows an attack beside what privacy allows any attacker.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tulle.atomic_files import reporting_disk_errors, write_text
from tulle.errors import ConfigError, RunStateError
from tulle.lab.attacks.bounds import guess_ceiling, true_positive_ceilings
from tulle.lab.attacks.differencing import (
    DifferencingConfig,
    DifferencingResult,
    attack_by_differencing,
)
from tulle.lab.attacks.linkage import LinkageConfig, LinkageResult, attack_by_linkage
from tulle.lab.attacks.membership import (
    FALSE_POSITIVE_RATES,
    AttackedModel,
    MembershipConfig,
    MembershipResult,
    attack_by_membership,
)
from tulle.lab.attacks.reconstruction import (
    ReconstructionConfig,
    ReconstructionResult,
    attack_by_reconstruction,
)
from tulle.privacy.fields import did_you_mean
from tulle.report.html.chart_svg import write_charts
from tulle.report.html.charts import Axis, Bar, BarChart, Chart, Curve, CurveChart

AttackResult = ReconstructionResult | DifferencingResult | LinkageResult | MembershipResult

ALL = "all"


BOUND = "most that any attacker can"
CHANCE = "by chance"
_NUM_BOUND_POINTS = 101
"""Points of a bound that is drawn as a curve, and not as corners at the epsilons tried."""


def reconstruction_charts(result: ReconstructionResult) -> list[Chart]:
    """Bits found, against more noise on each answer and with more answers."""
    # Exact answers have no place on a logarithmic axis.
    noisy = [row for row in result.by_noise if row.noise_scale > 0]
    scales = [row.noise_scale for row in noisy]
    epsilon = f"{result.config.epsilon:g}"
    counts = [row.num_queries for row in result.epsilon_each]
    each = [row.share_right for row in result.epsilon_each]
    total = [row.share_right for row in result.epsilon_in_total]
    ceilings = [row.ceiling for row in result.epsilon_in_total]
    return [
        _guesses(
            "Bits of all users through noise",
            Axis(name=f"noise scale of each of {result.config.num_queries:,} answers", is_log=True),
            _curve("attack", scales, [row.share_right for row in noisy]),
            _curve(BOUND, scales, [row.ceiling for row in noisy]),
        ),
        _guesses(
            "Bits of all users from many answers",
            Axis(name="answers", is_log=True),
            _curve(f"attack, epsilon {epsilon} for each answer", counts, each),
            _curve(f"attack, epsilon {epsilon} for all answers", counts, total),
            _curve(f"{BOUND}, epsilon {epsilon} for all", counts, ceilings),
        ),
    ]


def differencing_charts(result: DifferencingResult) -> list[Chart]:
    """Users given away in spite of a threshold; guesses through noise."""
    thresholds = [row.threshold for row in result.by_threshold]
    exposed = [row.share_exposed for row in result.by_threshold]
    epsilons = [row.epsilon for row in result.by_epsilon]
    dense = [place * max(epsilons) / (_NUM_BOUND_POINTS - 1) for place in range(_NUM_BOUND_POINTS)]
    found = [row.share_right for row in result.by_epsilon]
    return [
        CurveChart(
            name="Users whose bit is certain from two large slices",
            x_axis=Axis(name="k: smaller slices are not published", is_log=True),
            y_axis=Axis(name="users whose bit is certain", is_percent=True, low=0.0),
            curves=(_curve("exact counts", thresholds, exposed),),
        ),
        _guesses(
            "Their bits through noise",
            Axis(name="epsilon of both counts", low=0.0),
            _curve("exact counts", [0.0, max(epsilons)], [1.0, 1.0]),
            _curve("attack on noisy counts", epsilons, found),
            _curve(BOUND, dense, [guess_ceiling(epsilon) for epsilon in dense]),
        ),
    ]


def linkage_charts(result: LinkageResult) -> list[Chart]:
    """Rows that get their name back by number of columns, beside noisy counts."""
    names = [_last_column(row.columns) for row in result.rows]
    numbers = [len(row.columns) for row in result.rows]
    guessed = [row.noisy_share_right for row in result.rows]
    bars = []
    for name, row in zip(names, result.rows, strict=True):
        wrong = row.share_named - row.share_named_right
        bars.append(Bar(label=f"{name}: right name", value=row.share_named_right))
        bars.append(Bar(label=f"{name}: wrong name", value=wrong, is_muted=True))
    return [
        BarChart(
            name="Rows of a log without names that get a name",
            value_name="rows of the log",
            bars=tuple(bars),
            is_percent=True,
        ),
        _guesses(
            "Bits from noisy counts by the same columns",
            Axis(name="columns of the join"),
            _curve(f"attack, epsilon {result.config.epsilon:g}", numbers, guessed),
            _curve(BOUND, numbers, [result.ceiling] * len(numbers)),
        ),
    ]


def membership_charts(result: MembershipResult) -> list[Chart]:
    """True positives against false positives, both logarithmic, a curve and a bound a model."""
    rates = list(FALSE_POSITIVE_RATES)
    curves = []
    for model in result.models:
        curves.append(_curve(f"attack, {_name(model)}", rates, model.true_positive_rates))
        if math.isfinite(model.epsilon):
            ceilings = true_positive_ceilings(rates, model.epsilon, model.delta).tolist()
            curves.append(_curve(f"{BOUND}, {_name(model)}", rates, ceilings))
    curves.append(_curve(CHANCE, rates, rates, is_reference=True))
    return [
        CurveChart(
            name="Who was in the training data",
            x_axis=Axis(
                name="false positives: taken for members, and were not",
                is_log=True,
                is_percent=True,
            ),
            # What is below random guessing at the left end says nothing about leaks.
            y_axis=Axis(
                name="true positives: members found",
                is_log=True,
                is_percent=True,
                low=rates[0],
                high=1.0,
            ),
            curves=tuple(curves),
        )
    ]


def _guesses(name: str, x_axis: Axis, *curves: Curve) -> CurveChart:
    """Shares of bits that were guessed right; half of them are right for guesses at random."""
    ends = [min(curve.xs[0] for curve in curves), max(curve.xs[-1] for curve in curves)]
    return CurveChart(
        name=name,
        x_axis=x_axis,
        y_axis=Axis(name="bits guessed right", is_percent=True, low=0.4, high=1.0),
        curves=(*curves, _curve(CHANCE, ends, [0.5, 0.5], is_reference=True)),
    )


def _curve(
    label: str, xs: Sequence[float], ys: Sequence[float], *, is_reference: bool = False
) -> Curve:
    return Curve(label=label, xs=tuple(xs), ys=tuple(ys), is_reference=is_reference)


def _last_column(columns: Sequence[str]) -> str:
    return columns[0] if len(columns) == 1 else f"+ {columns[-1]}"


def _name(model: AttackedModel) -> str:
    return f"epsilon {model.epsilon:g}" if math.isfinite(model.epsilon) else "no noise"


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
