"""`tulle reproduce`: published experiments run again, ours beside the published figures."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.options import taking_options
from tulle.cli.terminal import showing_steps, stopping_cleanly
from tulle.errors import ConfigError, RunInterruptedError, RunStateError

if TYPE_CHECKING:
    from tulle.lab.reproduction.reproducing import Reproduction, ReproductionScale

REPRODUCE_EPILOG = (
    "Example: tulle reproduce apple-fig3"
    "\n\nExample: tulle reproduce ppai24-table2 --data criteo_attribution.tsv.gz --output table2"
)

_STOPPED = (
    "stopped as asked; a reproduction keeps nothing on the way, so run the same command anew."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Options of a reproduction."""

    target: Annotated[
        str | None,
        typer.Argument(metavar="[TARGET]", help="What to run; without it, all are listed."),
    ] = None
    data: Annotated[
        Path | None, typer.Option(help="Your copy of the data [default: a synthetic set].")
    ] = None
    scale: Annotated[
        str, typer.Option(help="reduced (minutes on two cores), or paper (hours, or a GPU).")
    ] = "reduced"
    seed: Annotated[int, typer.Option(min=0, help="Of synthetic data, noise and weights.")] = 1
    output: Annotated[
        Path | None, typer.Option(help="New folder for reproduction.json and reproduction.md.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False


@taking_options
def reproduce(options: ReproduceOptions) -> None:
    """Run a published experiment and judge each of its claims.

    Prints our figures beside the published ones, and for each claim whether it holds, does
    not hold, or cannot be compared. Nothing is protected: use synthetic data, public logs, or
    people who agreed.
    """
    if options.target is None:
        _list_targets(as_json=options.as_json)
        return
    found = _run(options, options.target)
    if options.output is not None:
        _write(options.output, found)
    if options.as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
        return
    from tulle.lab.reproduction.reproducing import reproduction_text

    typer.echo(reproduction_text(found))
    if options.output is not None:
        typer.echo(f"results   {options.output}")


def _run(options: ReproduceOptions, name: str) -> "Reproduction":

    from tulle.lab.reproduction.experiments import EXPERIMENTS, TRAINED
    from tulle.lab.reproduction.published import published_target
    from tulle.lab.reproduction.reproducing import ReproductionSettings
    from tulle.lab.reproduction.reproducing import reproduce as run
    from tulle.train.run_context import require_torch

    published_target(name)
    scale = _scale(options.scale)
    if options.output is not None and options.output.exists():
        raise RunStateError(f"{options.output.name} exists already; name a new folder.")
    if name in TRAINED:
        require_torch("this reproduction")
    with stopping_cleanly(_STOPPED), showing_steps(quiet=options.quiet) as say:
        settings = ReproductionSettings(data=options.data, scale=scale, seed=options.seed, say=say)
        try:
            return run(name, settings, experiments=EXPERIMENTS)
        except RunInterruptedError:
            raise RunInterruptedError(_STOPPED) from None


def _scale(text: str) -> "ReproductionScale":
    from tulle.lab.reproduction.reproducing import ReproductionScale
    from tulle.privacy.fields import did_you_mean

    names = [scale.value for scale in ReproductionScale]
    if text not in names:
        raise ConfigError(
            f"--scale {text} is unknown{did_you_mean(text, names)}; use one of {', '.join(names)}."
        )
    return ReproductionScale(text)


def _list_targets(*, as_json: bool) -> None:
    from tulle.lab.reproduction.published import published_targets

    targets = published_targets()
    if as_json:
        rows = [
            {
                "target": target.name,
                "title": target.title,
                "document": target.document,
                "claims": [claim.text for claim in target.claims],
            }
            for target in targets
        ]
        typer.echo(json.dumps(rows, allow_nan=False))
        return
    width = max(len(target.name) for target in targets)
    document = ""
    for target in targets:
        if target.document != document:
            document = target.document
            typer.echo(document)
        typer.echo(f"  {target.name:<{width}}  {target.title}, {len(target.claims)} claims")
    typer.echo(f"run one: tulle reproduce {targets[0].name}")


def _write(out: Path, found: "Reproduction") -> None:
    from tulle.atomic_files import reporting_disk_errors, write_text
    from tulle.lab.reproduction.reproducing import reproduction_markdown

    with reporting_disk_errors(out):
        out.mkdir(parents=True)
        facts = json.dumps(found.to_dict(), indent=2, allow_nan=False)
        write_text(out / "reproduction.json", facts + "\n")
        write_text(out / "reproduction.md", reproduction_markdown(found))
