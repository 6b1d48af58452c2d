"""`tulle demo`: one week of made-up conversions, released with a price and a card."""

import json
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tulle.accounting.ledger import Ledger
    from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
    from tulle.privacy.plan import Plan
    from tulle.privacy.release import Release

_CAMPAIGNS = ("spring sale", "new app", "running shoes", "city trips")
_PURPOSE = "measurement"
_WEEK = "2026-01-14"
_EPSILON, _BUDGET = 0.6, 1.0


def demo(
    output: Annotated[
        pathlib.Path,
        typer.Option(help="Folder for ledger and card; numbered if it is there already."),
    ] = pathlib.Path("demo-run"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False,
) -> None:
    """Release conversion counts of made-up data: price, ledger, noise, refusal, card."""
    from tulle.accounting.refusal import SpendRefusedError

    def progress(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    folder = _fresh_folder(output)
    plan, config = _plan()
    progress(f"1/4  planned, no data read yet: {plan.guarantee}")
    ledger = _ledger(folder)
    progress(f"2/4  budget: epsilon={_BUDGET:g} for each user and week, in {folder}/ledger.db")
    releases = _release(ledger, config)
    progress(f"3/4  released {len(releases)} noisy counts; the spend was on disk before the noise")
    try:
        _release(ledger, config)
        refusal = ""
    except SpendRefusedError as error:
        refusal = str(error)
    progress("4/4  the same release once more was refused")
    verdict = _write_card(folder, plan)

    if as_json:
        counts = {name: release.value for name, release in releases.items()}
        facts = {"noisy_counts": counts, "refusal": refusal, "verdict": verdict}
        typer.echo(json.dumps(facts | {"card": str(folder / "card.json")}))
        return
    typer.echo("Conversions per campaign (noisy, with 95% intervals):")
    for name, release in releases.items():
        low, high = release.interval.low, release.interval.high
        typer.echo(f"  {name:<14}{release.value:>6.0f}   {low:.0f} to {high:.0f}")
    typer.echo(f"Once more: {refusal}")
    typer.echo(f"Card: {verdict}")
    typer.echo(f"      {folder / 'card.md'}")


def _fresh_folder(output: pathlib.Path) -> pathlib.Path:
    """A folder that was not there before: a ledger is never started anew in place."""
    folder, number = output, 1
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            folder = output.with_name(f"{output.name}-{number}")
        else:
            return folder


def _plan() -> "tuple[Plan, DiscreteLaplaceConfig]":
    from tulle.accounting.accountant import guarantee
    from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
    from tulle.privacy.columns import ColumnRoles
    from tulle.privacy.plan import Assumption, Bound, Plan, Status
    from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit

    config = DiscreteLaplaceConfig.for_epsilon(_EPSILON, adjacency=Adjacency.REPLACE)
    promise = guarantee(
        config.event(),
        delta=0.0,
        unit=Unit.user(days=7),
        adjacency=Adjacency.REPLACE,
        scope=Scope.LABELS,
    )
    plan = Plan(
        name="weekly conversions",
        mechanism="Counts of converting users per campaign, with discrete Laplace noise.",
        settings={"noise_scale": config.scale, "campaigns": len(_CAMPAIGNS)},
        event=config.event(),
        guarantee=promise,
        trust=TrustModel.CENTRAL,
        columns=ColumnRoles(label="converted", public=("campaign",), unit="user_id", time="day"),
        bounds=(Bound(what="conversions per user", limit=1, where="first row that converted"),),
        assumptions=(
            Assumption(
                statement="A user adds at most 1 to one of the counts.",
                status=Status.ENFORCED,
                evidence="all but the first conversion of a user are dropped before counting",
            ),
        ),
    )
    return plan, config


def _ledger(folder: pathlib.Path) -> "Ledger":
    from tulle.accounting.budget import Budget
    from tulle.accounting.ledger import Ledger
    from tulle.privacy.units import Adjacency, Unit

    ledger = Ledger.create(folder / "ledger.db")
    ledger.create_budget(
        Budget(
            name="weekly",
            unit=Unit.user(days=7),
            adjacency=Adjacency.REPLACE,
            epsilon=_BUDGET,
            delta=0.0,
            purpose=_PURPOSE,
        )
    )
    return ledger


def _release(ledger: "Ledger", config: "DiscreteLaplaceConfig") -> "dict[str, Release]":
    from datetime import UTC, datetime

    from tulle.mechanisms.discrete_laplace import release_discrete_laplace
    from tulle.mechanisms.entropy import release_rng

    week = datetime.fromisoformat(_WEEK).replace(tzinfo=UTC)
    with ledger.spend(config.event(), purpose=_PURPOSE, note="tulle demo", at=week):
        noisy_counts = release_discrete_laplace(_raw_counts(), config, rng=release_rng())
    return {
        name: config.as_release(int(count))
        for name, count in zip(_CAMPAIGNS, noisy_counts, strict=True)
    }


def _raw_counts() -> "NDArray[np.int64]":
    """Converting users per campaign in made-up rows; each user counts once."""
    import numpy as np

    made_up = np.random.default_rng(20260114)
    num_rows = 20_000
    users = made_up.integers(0, 8_000, num_rows)
    campaigns = made_up.choice(len(_CAMPAIGNS), num_rows, p=(0.5, 0.3, 0.15, 0.05))
    converted = made_up.random(num_rows) < np.array((0.03, 0.02, 0.05, 0.01))[campaigns]
    _, first_rows = np.unique(users[converted], return_index=True)
    return np.bincount(campaigns[converted][first_rows], minlength=len(_CAMPAIGNS))


def _write_card(folder: pathlib.Path, plan: "Plan") -> str:
    from tulle.mechanisms.entropy import release_rng
    from tulle.report.card import build_card
    from tulle.report.card_file import write_card
    from tulle.report.provenance import collect_provenance

    card = build_card(plan, randomness=release_rng(), provenance=collect_provenance())
    write_card(folder, card)
    return card.verdict
