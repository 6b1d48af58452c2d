"""`tulle demo`: all four jobs on synthetic data, one table and one page.

It calls the verbs of the library one after the other, as a reader of the documentation would.
"""

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.terminal import plan_line, showing_progress, showing_steps, showing_training
from tulle.errors import DataError, RunInterruptedError, RunStateError

if TYPE_CHECKING:
    from tulle.train.fitting import FitResult
    from tulle.train.methods.method import Method
    from tulle.train.methods.train_plan import TrainPlan

EPSILON, DELTA = 3.0, 1e-7
"""The guarantee that all methods of the demo share; delta lies far below one over the number of
rows."""
BASELINE, SHOWN = "nonprivate", "mosaic"
ROWS, QUICK_ROWS = 600_000, 100_000
"""More rows bring the private models nearer to the baseline and take longer to train on; the quick
demo gives up the first for the second."""
LOG_SEED = 0
"""The logs are synthetic and the same for everybody; only the noise on them differs."""
NUM_USERS = NUM_AUCTIONS = 5_000
"""The logs of measurement and of auctions show what is released, not how well, so they stay
small."""
PRIVATE_STDDEV = 0.6
"""How much more the devices of synthetic auctions know than the server, in log odds of a click."""

_LEAST_ROWS = 1_000
"""Fewer rows leave too few positive labels in the test part to tell methods apart."""
_SALT = b"tulle demo, public"
_CAMPAIGN = f"""# What the demo measures. Paths are relative to this file.
name = "campaign of the demo"

[log]
impressions = "impressions.csv"
conversions = "conversions.csv"

[columns]
user = "user"
advertiser = "advertiser"
kind = "interaction"
value = "value"

[attribution]
rule = "last-touch"
lookback = "7 days"

[privacy]
unit = "user"
epsilon = {EPSILON}

[[query]]
name = "conversions by region and age"
measure = "conversions"
slices = ["geo", "age_group"]
levels = [[], ["geo"], ["geo", "age_group"]]
split = [0.1, 0.3, 0.6]
max_per_slice = 1
max_slices_per_unit = 1
[query.keys]
geo = ["region-1", "region-2", "region-3", "region-4"]
age_group = ["age-1", "age-2", "age-3", "age-4", "age-5", "age-6"]
"""
_COLUMNS = ("method", "AUC loss (95%)", "relative loss", "log loss", "epsilon spent", "seconds")
# Layout in characters: each column holds its heading and a gap; text is wrapped to be read easily.
_WIDTHS = (11, 17, 15, 10, 15, 9)
_TEXT_WIDTH = 90


def demo(
    output: Annotated[
        Path, typer.Option(help="Folder for log, runs and cards; numbered if it is there already.")
    ] = Path("demo-run"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Use fewer rows; done in less than a minute.")
    ] = False,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Number of rows of the synthetic log [default: 600000, with --quick 100000].",
            min=_LEAST_ROWS,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Make all noise repeatable. Then the releases are not private.", min=0),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress on stderr.")] = False,
) -> None:
    """Do all four jobs on synthetic data at epsilon 3: one table, a card each, and one page.

    Trains without privacy, on randomized labels, with DP-SGD and with Mosaic; releases labels,
    measures a campaign, decides auctions. All is kept in the output folder, as the commands
    would leave it; report.html shows what is private of it.
    """
    folder = _fresh_folder(output)
    work = _Demo(folder, rows or (QUICK_ROWS if quick else ROWS), is_quick=quick, seed=seed)
    try:
        work.write_log(quiet=quiet)
        table = [work.train(method, quiet=quiet) for method in work.methods()]
        with showing_steps(quiet=quiet) as say:
            say("releasing labels, measuring a campaign, deciding auctions")
            facts = {"log": str(work.log)} | work.release_others()
            say("writing the report")
            facts["report"] = str(
                work.write_page([row for row in table if row["epsilon"] is not None])
            )
    except RunInterruptedError:
        raise RunInterruptedError(
            f"stopped as asked; what was finished is in {folder}. Run `tulle demo` again to "
            "start anew."
        ) from None
    _print_demo(table, folder, facts | {"seed": seed} | work.num_rows, as_json=as_json)


class _Demo:
    """The folder of one demo, and what is done in it."""

    def __init__(self, folder: Path, num_rows: int, *, is_quick: bool, seed: int | None) -> None:
        self._folder, self._all_rows, self._is_quick = folder, num_rows, is_quick
        self._seed = seed
        self.log = folder / "search.parquet"
        self.num_rows: dict[str, int] = {}
        """How many rows were trained and tested on."""

    def write_log(self, *, quiet: bool) -> None:
        """Makes the synthetic log."""
        import tulle

        if not quiet:
            typer.echo(f"log: {self._all_rows:,} synthetic clicks, {self.log}", err=True)
        with showing_progress("writing", quiet=quiet) as report:
            tulle.data.write_synthetic(
                "search",
                self.log,
                rows=self._all_rows,
                seed=LOG_SEED,
                watch=lambda done: report(done, done, self._all_rows),
            )

    def methods(self) -> "list[Method]":
        """The methods in their order, the baseline first: others are compared with it.

        Settings were fixed before anything was measured. Tables and layers are smaller than by
        default, so that a step takes tens of milliseconds on two cores; batches are smaller, since
        with so few rows DP-SGD needs the steps more than less noise.
        """
        from tulle.train import (
            MLP,
            DpSgdConfig,
            LabelPhase,
            MosaicConfig,
            NonPrivateConfig,
            PlainPhase,
            PrivatePhase,
            RandomizedLabelsConfig,
        )

        model = MLP(embedding_dim=16, public_hidden=(64,), common_hidden=(64, 64))
        plain = 256 if self._is_quick else 1024
        private = min(1024 if self._is_quick else 4096, self._all_rows // 5)
        steps = PrivatePhase(batch_size=private)
        return [
            NonPrivateConfig(model=model, phase=PlainPhase(batch_size=plain)),
            RandomizedLabelsConfig(model=model, label_phase=LabelPhase(batch_size=plain)).calibrate(
                epsilon=EPSILON
            ),
            DpSgdConfig(model=model, private_phase=steps).calibrate(epsilon=EPSILON, delta=DELTA),
            MosaicConfig().calibrate(epsilon=EPSILON, delta=DELTA),
        ]

    def train(self, method: "Method", *, quiet: bool) -> dict[str, Any]:
        """Carries out one run from plan to card, in a folder of its own."""
        import tulle
        from tulle.data.features.default_features import default_features
        from tulle.data.formats.public import SEARCH

        def show(made: "TrainPlan") -> None:
            if not quiet:
                typer.echo(f"{method.kind} {plan_line(made)}", err=True)

        path = self._folder / method.kind
        with (
            showing_progress("preparing", quiet=quiet) as report,
            showing_training(quiet=quiet) as watch,
        ):
            result = tulle.train.fit(
                self.log,
                layout="search",
                method=method,
                features=default_features(
                    SEARCH.schema, num_rows=20_000 if self._is_quick else 40_000, salt=_SALT
                ),
                output=path,
                baseline=self._folder / BASELINE if method.is_private else None,
                seed=self._seed,
                cache=self._folder / "data",
                watch=watch,
                watch_data=report,
                watch_plan=show,
            )
        return self._row(result, path)

    def release_others(self) -> dict[str, str]:
        """Releases labels, measures a campaign and decides auctions; returns where each is."""
        import tulle

        labels = self._folder / "noisy-labels.parquet"
        tulle.labels.release(
            self.log,
            layout="search",
            epsilon=EPSILON,
            mechanism="rr",
            output=labels,
            seed=self._seed,
        )
        campaign_log = tulle.data.write_synthetic(
            "impressions", self._folder / "campaign-log", rows=NUM_USERS, seed=LOG_SEED
        )
        settings = campaign_log / "campaign.toml"
        settings.write_text(_CAMPAIGN, encoding="utf-8")
        campaign = self._folder / "campaign"
        tulle.measure.release(settings, output=campaign, seed=self._seed)
        auction = self._folder / "auction"
        auction.mkdir()
        auctions = tulle.data.write_synthetic(
            "auctions", auction / "auctions.parquet", rows=NUM_AUCTIONS, seed=LOG_SEED
        )
        plan = tulle.select.plan(
            auctions,
            epsilon=(1.0, 2.0, EPSILON),
            private_stddev=PRIVATE_STDDEV,
            consent="everyone",
        )
        (auction / "selection.toml").write_text(plan.settings, encoding="utf-8")
        outlook = json.dumps(plan.to_dict(), allow_nan=False)
        (auction / "plan.json").write_text(f"{outlook}\n", encoding="utf-8")
        choices = auction / "choices.parquet"
        tulle.select.decide(plan, auctions, output=choices, seed=self._seed)
        return {"labels": str(labels), "campaign": str(campaign), "choices": str(choices)}

    def write_page(self, rows: list[dict[str, Any]]) -> Path:
        """Writes one page about everything private in the demo, and returns its path."""
        from tulle.report.html.page import joined_page
        from tulle.report.verbs import page_of, write_report

        first, *others = (Path(row["run"]) for row in reversed(rows))
        names = ("noisy-labels.parquet", "campaign", "auction/plan.json", "auction/choices.parquet")
        pages = [
            page_of(first, compared=others),
            *(page_of(self._folder / name) for name in names),
        ]
        page, _ = write_report(joined_page("tulle demo", pages), self._folder / "report.html")
        return page

    def _row(self, result: "FitResult", path: Path) -> dict[str, Any]:
        from tulle.privacy.fields import null_if_infinite
        from tulle.runs.card_text import claim_sentence

        metrics, guarantee, card = result.metrics, result.plan.privacy.guarantee, result.card
        if metrics is None:
            raise DataError(f"run {path.name} was tested on no rows; train it with test rows.")
        self.num_rows["train_rows"] = result.plan.shape.num_label_rows
        self.num_rows["test_rows"] = metrics.num_rows
        return {
            "method": result.plan.method.kind,
            "auc_loss": metrics.auc_loss,
            "auc_loss_interval": metrics.auc_loss_interval,
            # Percentage by which the AUC loss is above that of the baseline.
            "relative_auc_loss": result.relative_auc_loss or 0.0,
            "log_loss": metrics.log_loss,
            "epsilon": null_if_infinite(guarantee.epsilon),
            "delta": guarantee.delta,
            "seconds": result.seconds,
            "verdict": card.verdict,
            "reasons": card.reasons,
            "claim": claim_sentence(card.plan.guarantee, card.reasons),
            "run": str(path),
            "card": str(path / "card.json"),
        }


def _print_demo(
    rows: list[dict[str, Any]], folder: Path, facts: dict[str, Any], *, as_json: bool
) -> None:
    """One JSON object; or the table, what the card of the Mosaic run says, and where all is."""
    if as_json:
        found = {"rows": rows, "folder": str(folder)}
        typer.echo(json.dumps(found | facts, allow_nan=False))
        return
    typer.echo(f"Four methods on {facts['test_rows']:,} held-out rows of the synthetic log:\n")
    typer.echo(_line(_COLUMNS))
    for row in rows:
        typer.echo(_line(_cells(row)))
    typer.echo(
        "\nAUC loss is 1 - AUC. Each epsilon is of one run: whoever released all three private"
        "\nmodels of the same rows would spend the sum.\n"
    )
    shown = next(row for row in rows if row["method"] == SHOWN)
    typer.echo(f"The card of {shown['method']} says:\n")
    for text in (shown["verdict"], *shown["reasons"], shown["claim"]):
        typer.echo(textwrap.fill(text, _TEXT_WIDTH, initial_indent="  ", subsequent_indent="  "))
    typer.echo(f"\nlog        {facts['log']}")
    for row in rows:
        typer.echo(f"{row['method']:<11}{row['run']}, card {Path(row['card']).with_suffix('.md')}")
    for name in ("labels", "campaign", "choices", "report"):
        typer.echo(f"{name:<11}{facts[name]}")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from tulle.privacy.guarantee import BINARY_NOISE, round_up

    low, high = row["auc_loss_interval"]
    return (
        row["method"],
        f"{row['auc_loss']:.4f} ± {(high - low) / 2:.4f}",
        f"{row['relative_auc_loss']:+.1f}%",
        f"{row['log_loss']:.4f}",
        "no privacy"
        if row["epsilon"] is None
        else f"{round_up(row['epsilon'], 4, slack=BINARY_NOISE):g}",
        f"{row['seconds']:.1f}",
    )


def _line(cells: tuple[str, ...]) -> str:
    name, *others = cells
    name_width, *widths = _WIDTHS
    padded = (f"{cell:>{width}}" for cell, width in zip(others, widths, strict=True))
    return f"{name:<{name_width}}{''.join(padded)}"


def _fresh_folder(output: Path) -> Path:
    """A folder that was not there before: a run is never started anew in place."""
    folder, number = output, 1
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            folder = output.with_name(f"{output.name}-{number}")
        except OSError as error:
            raise RunStateError(
                f"--output {output} cannot be made: {error.strerror}; choose another."
            ) from None
        else:
            return folder
