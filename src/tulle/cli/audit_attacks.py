"""`tulle audit attacks`: attacks on made-up data, beside what privacy allows any attacker."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.measure_progress import showing_steps
from tulle.cli.option_class import command_taking
from tulle.errors import ConfigError, RunStateError

if TYPE_CHECKING:
    from tulle.audit.attacks.differencing import DifferencingResult
    from tulle.audit.attacks.linkage import LinkageResult
    from tulle.audit.attacks.membership import MembershipResult
    from tulle.audit.attacks.reconstruction import ReconstructionResult

ATTACKS_EPILOG = (
    "Example: tulle audit attacks --out attacks"
    "\n\nExample: tulle audit attacks membership --seed 7 --json"
)
_ALL = "all"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackOptions:
    """Options of attacks."""

    attack: Annotated[
        str,
        typer.Argument(
            metavar="ATTACK",
            help="reconstruction, differencing, linkage, membership or all of them.",
        ),
    ] = _ALL
    out: Annotated[
        Path | None, typer.Option(help="New folder for a plot (SVG) and a JSON file of each.")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Of the made-up data and the noise.")] = 1
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False


def attacks(options: AttackOptions) -> None:
    """Attack made-up users, with and without privacy.

    Reconstruction from many counts, differencing under k-anonymity, linkage with a table of
    names, and membership in the training data of a model. Each is shown beside what the
    guarantee allows any attacker. No data of yours is read.
    """
    from tulle.privacy.fields import did_you_mean

    known = [*_ATTACKS, _ALL]
    if options.attack not in known:
        raise ConfigError(
            f"attack {options.attack} is unknown{did_you_mean(options.attack, known)}; use one "
            f"of {', '.join(known)}."
        )
    if options.out is not None and options.out.exists():
        raise RunStateError(f"{options.out.name} exists already; name a new folder.")
    names = list(_ATTACKS) if options.attack == _ALL else [options.attack]
    with showing_steps(quiet=options.quiet) as say:
        found = []
        for name in names:
            say(name)
            found.append(_ATTACKS[name](options.seed))
    if options.out is not None:
        _write(options.out, dict(zip(names, found, strict=True)))
    if options.as_json:
        facts = {name: one.facts for name, one in zip(names, found, strict=True)}
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for one in found:
        typer.echo("\n".join(one.lines))
    typer.echo("Users were made up for the attack, and noise had a seed: not a private release.")
    if options.out is not None:
        typer.echo(f"results and plots   {options.out}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Found:
    facts: dict[str, Any]
    lines: list[str]
    plot: Callable[[], str]
    """Draws it, as SVG."""


def _reconstruction(seed: int) -> _Found:
    from tulle.audit.attacks.reconstruction import ReconstructionConfig, attack_by_reconstruction
    from tulle.report.attack_plots import plot_reconstruction

    result = attack_by_reconstruction(ReconstructionConfig(seed=seed))
    return _Found(
        facts=result.to_dict(),
        lines=_reconstruction_lines(result),
        plot=lambda: plot_reconstruction(result, title="Bits of all users from many counts"),
    )


def _differencing(seed: int) -> _Found:
    from tulle.audit.attacks.differencing import DifferencingConfig, attack_by_differencing
    from tulle.report.attack_plots import plot_differencing

    result = attack_by_differencing(DifferencingConfig(seed=seed))
    return _Found(
        facts=result.to_dict(),
        lines=_differencing_lines(result),
        plot=lambda: plot_differencing(result, title="One user from two large slices"),
    )


def _linkage(seed: int) -> _Found:
    from tulle.audit.attacks.linkage import LinkageConfig, attack_by_linkage
    from tulle.report.attack_plots import plot_linkage

    result = attack_by_linkage(LinkageConfig(seed=seed))
    return _Found(
        facts=result.to_dict(),
        lines=_linkage_lines(result),
        plot=lambda: plot_linkage(
            result, title="A log without names, joined with a table of names"
        ),
    )


def _membership(seed: int) -> _Found:
    from tulle.audit.attacks.membership import MembershipConfig, attack_by_membership
    from tulle.report.attack_plots import plot_membership

    result = attack_by_membership(MembershipConfig(seed=seed))
    return _Found(
        facts=result.to_dict(),
        lines=_membership_lines(result),
        plot=lambda: plot_membership(result, title="Who was in the training data"),
    )


_ATTACKS: dict[str, Callable[[int], _Found]] = {
    "reconstruction": _reconstruction,
    "differencing": _differencing,
    "linkage": _linkage,
    "membership": _membership,
}


def _reconstruction_lines(result: "ReconstructionResult") -> list[str]:
    config = result.config
    lines = [f"reconstruction: bits of {config.num_users:,} users from counts of random groups"]
    for what, rows in (("each", result.epsilon_each), ("all", result.epsilon_in_total)):
        row = rows[-1]
        lines.append(
            f"  {row.num_queries:,} answers, epsilon {config.epsilon:g} for {what:<4}  "
            f"{row.share_right:6.1%} right; any attacker at most {row.ceiling:.1%}; "
            f"epsilon {row.epsilon:g} together"
        )
    return lines


def _differencing_lines(result: "DifferencingResult") -> list[str]:
    lines = ["differencing: two slices that differ in one user"]
    lines += [
        f"  k = {row.threshold:<6,}  {row.share_exposed:6.1%} of users are given away for certain"
        for row in result.by_threshold
    ]
    lines += [
        f"  epsilon {row.epsilon:<4g}  {row.share_right:6.1%} right; any attacker at most "
        f"{row.ceiling:.1%}"
        for row in result.by_epsilon
    ]
    return lines


def _linkage_lines(result: "LinkageResult") -> list[str]:
    lines = ["linkage: rows of a log without names that get their name back"]
    lines += [
        f"  by {', '.join(row.columns):<32}{row.share_named_right:6.1%}; bits from noisy counts "
        f"{row.noisy_share_right:.1%} right"
        for row in result.rows
    ]
    return [
        *lines,
        f"  any attacker on noisy counts of epsilon {result.config.epsilon:g} at most "
        f"{result.ceiling:.1%}",
    ]


def _membership_lines(result: "MembershipResult") -> list[str]:
    rate = result.config.low_false_positive_rate
    lines = [f"membership: members found where {rate:g} of the others are taken for members"]
    for index, model in enumerate(result.models):
        name = f"epsilon {model.epsilon:g}" if index else "no noise"
        limit = f"any attacker at most {model.ceiling:.1%}" if index else "nothing limits it"
        lines.append(
            f"  {name:<12}{model.true_positive_rate:6.1%}; {limit}; "
            f"right on fresh examples {model.fresh_accuracy:.1%}"
        )
    return lines


def _write(out: Path, found: dict[str, _Found]) -> None:
    from tulle.report.svg_figures import write_plot
    from tulle.runs.whole_files import reporting_disk_errors, write_text

    plots = {name: one.plot() for name, one in found.items()}
    with reporting_disk_errors(out):
        out.mkdir(parents=True)
        for name, one in found.items():
            write_plot(out / f"{name}.svg", plots[name])
            text = json.dumps(one.facts, indent=2, allow_nan=False) + "\n"
            write_text(out / f"{name}.json", text)


attacks_command = command_taking(AttackOptions, attacks)
