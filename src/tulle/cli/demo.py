"""`tulle demo`: all four jobs on made-up data, one table and one page."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.data_log import FeatureOptions
from tulle.cli.data_progress import showing_progress
from tulle.cli.demo_output import DemoRow, demo_row, print_demo
from tulle.cli.demo_releases import release_all, write_demo_page
from tulle.cli.demo_settings import (
    BASELINE,
    LOG_SEED,
    SALT,
    DemoSettings,
    demo_settings,
)
from tulle.cli.measure_progress import showing_steps
from tulle.cli.train_data import ChosenData, chosen_data
from tulle.cli.train_planning import plan_line, plan_run
from tulle.cli.train_progress import showing_training
from tulle.cli.train_settings import DataChoice, TrainSettings, require_torch
from tulle.errors import RunInterruptedError, RunStateError

if TYPE_CHECKING:
    from tulle.train.examples import ExampleSet
    from tulle.train.methods.method import Method

_LEAST_ROWS = 1_000


def demo(
    output: Annotated[
        Path, typer.Option(help="Folder for log, runs and cards; numbered if it is there already.")
    ] = Path("demo-run"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer rows; done in less than a minute.")
    ] = False,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Rows of the made-up log [default: 600000, with --quick 100000].", min=_LEAST_ROWS
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Makes all noise repeatable. Then the releases are not private.", min=0),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False,
) -> None:
    """All four jobs on made-up data at epsilon 3: one table, a card each, and one page.

    Trains without privacy, on randomized labels, with DP-SGD and with Mosaic; releases labels,
    measures a campaign, decides auctions. All is kept in the output folder, as the commands
    would leave it; report.html shows what is private of it.
    """
    require_torch()
    settings = demo_settings(rows, quick=quick)
    folder = _fresh_folder(output)
    log, prepared = folder / "search.parquet", folder / "data"
    try:
        _prepare_log(settings, log, prepared, quiet=quiet)
        choice = DataChoice(source=str(prepared))
        with chosen_data(choice, cache=None, quiet=quiet) as data:
            train_rows, test_rows = data.examples()
            runs = _DemoRuns(
                folder=folder,
                data=data,
                train_rows=train_rows,
                test_rows=test_rows,
                seed=seed,
                quiet=quiet,
            )
            table = [runs.train(name, config) for name, config in settings.configs().items()]
        others = _release_others(folder, log, table, seed=seed, quiet=quiet)
    except RunInterruptedError:
        raise RunInterruptedError(
            f"stopped as asked; what was finished is in {folder}. Run `tulle demo` again to "
            "start anew."
        ) from None
    facts: dict[str, Any] = {
        "log": str(log),
        "data": str(prepared),
        "train_rows": train_rows.num_rows,
        "test_rows": 0 if test_rows is None else test_rows.num_rows,
        "seed": seed,
    }
    print_demo(table, folder, facts | others, as_json=as_json)


def _release_others(
    folder: Path, log: Path, table: list[DemoRow], *, seed: int | None, quiet: bool
) -> dict[str, str]:
    """Where labels, a campaign, an auction and one page about everything private are."""
    from tulle.mechanisms.entropy import SeededNoise, release_rng

    with showing_steps(quiet=quiet) as say:
        say("releasing labels, measuring a campaign, deciding auctions")
        rng = release_rng() if seed is None else SeededNoise(seed)
        releases = release_all(folder, log, rng=rng)
        say("writing the report")
        runs = [Path(row.run) for row in reversed(table) if row.epsilon is not None]
        page = write_demo_page(folder, runs, releases)
    return {
        "labels": str(releases.labels),
        "campaign": str(releases.campaign),
        "choices": str(releases.choices),
        "report": str(page),
    }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _DemoRuns:
    """The same rows for every method, and one folder for all runs."""

    folder: Path
    data: ChosenData
    train_rows: "ExampleSet"
    test_rows: "ExampleSet | None"
    seed: int | None
    quiet: bool

    def train(self, method: str, config: "Method") -> DemoRow:
        """One run from plan to card, in a folder of its own."""
        from tulle.report.card_file import write_card
        from tulle.report.training_card import relative_auc_loss, training_card
        from tulle.runs.folder import RunFolder
        from tulle.train.fitting import fit
        from tulle.train.run_options import RunOptions

        made = plan_run(_as_train_settings(config, self.data), self.data)
        if not self.quiet:
            typer.echo(f"{method} {plan_line(made)}", err=True)
        path = self.folder / method
        with showing_training(quiet=self.quiet) as watch:
            options = RunOptions(
                folder=path, seed=self.seed, watch=watch, test_name=self.data.test_name
            )
            result = fit(self.train_rows, made, test=self.test_rows, options=options)
        run, baseline = RunFolder.open(path), RunFolder.open(self.folder / BASELINE)
        card = training_card(run)
        write_card(path, card)
        return demo_row(result, card, path, relative_auc_loss(run, baseline))


def _as_train_settings(config: "Method", data: ChosenData) -> TrainSettings:
    """The settings of `tulle train`, with batches that shrink to fit few rows."""
    return TrainSettings(
        data=DataChoice(source=str(data.dataset.folder)),
        method=_with_fitting_batches(config, data),
        is_batch_size_given=False,
        is_label_batch_size_given=False,
    )


def _with_fitting_batches(config: "Method", data: ChosenData) -> "Method":
    from tulle.train.methods.private_steps import StepsMethod
    from tulle.train.step_sampling import fitting_batch_size
    from tulle.train.training_rows import planned_shape

    if not isinstance(config, StepsMethod) or config.private_phase.batch_size is None:
        return config
    num_rows = planned_shape(data.planned(), config).num_private_rows
    return config.with_batch_size(fitting_batch_size(config.private_phase.batch_size, num_rows))


def _prepare_log(settings: DemoSettings, log: Path, prepared: Path, *, quiet: bool) -> None:
    from tulle.data.formats.search import SEARCH
    from tulle.data.logs import LogFiles
    from tulle.data.prepare import prepare
    from tulle.data.synth import shapes
    from tulle.data.synth.write_logs import write_log

    num_rows = settings.num_rows
    if not quiet:
        typer.echo(f"log: {num_rows:,} made-up clicks, {log}", err=True)
    with showing_progress("making up", quiet=quiet) as report:
        write_log(
            shapes.SEARCH,
            log,
            num_rows=num_rows,
            seed=LOG_SEED,
            progress=lambda done: report(done, done, num_rows),
        )
    features = FeatureOptions(
        hash_bins_public=settings.public_bins,
        hash_bins_sensitive=settings.sensitive_bins,
        log=("nb_clicks_1week",),
        hour=True,
        day_of_week=True,
        salt=SALT,
    ).plan(SEARCH.schema)
    with showing_progress("preparing", quiet=quiet) as report:
        prepare(LogFiles(paths=(log,), layout=SEARCH), features, prepared, progress=report)


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
