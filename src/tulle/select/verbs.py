"""The verbs of `tulle.select`: plan a selection of ads, decide, bill, and evaluate another."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.accounting.ledger import Ledger
from tulle.accounting.spans import Moment
from tulle.atomic_files import reporting_disk_errors, write_text
from tulle.data.tables.memory import as_file
from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import noise_source
from tulle.privacy.codec import settings_from
from tulle.privacy.fields import check_choice, did_you_mean
from tulle.privacy.plan import Plan
from tulle.privacy.units import Unit
from tulle.runs.charging import charge_to
from tulle.runs.record import Result
from tulle.runs.release_files import releasing_to
from tulle.runs.release_once import ReleaseOptions
from tulle.select.decisions.bills import FileBill, bill_file
from tulle.select.decisions.chosen_ads import SelectionRecord
from tulle.select.decisions.draws import decide as decide_file
from tulle.select.evaluation.device_terms import Estimator
from tulle.select.evaluation.evaluate_files import EvaluationFiles, evaluate_files
from tulle.select.evaluation.evaluation_plan import (
    EvaluationConfig,
    EvaluationRecord,
    estimate_frame,
)
from tulle.select.files.auction_files import auctions_file
from tulle.select.files.auctions_from_log import (
    AuctionLogConfig,
    AuctionLogFacts,
    write_auctions_from_log,
)
from tulle.select.files.choice_files import choices_file, clicks_file
from tulle.select.files.log_rows import AuctionLogColumns, LogSources, log_columns
from tulle.select.planner.outlook import Objective
from tulle.select.recommending import (
    Columns,
    FilePath,
    PlanSettings,
    Selection,
    SelectionPlan,
    auction_columns,
    recommend_selection,
    selection_of,
)
from tulle.select.selection_config import Consent, Pricing, SelectionConfig, SelectionPrivacy
from tulle.select.settings import settings_of

if TYPE_CHECKING:
    import polars as pl


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EstimateResult(Result[EvaluationRecord, Plan]):
    """A noisy estimate of what another selection would bring, with its record and card."""

    numbers: Mapping[str, Any]
    """The released numbers by name; the record says what each means."""

    def to_polars(self, name: str | None = None) -> "pl.DataFrame":
        """The released numbers as a polars frame of one row, the interval as low and high.

        Args:
          name: Name of a table; it must be left out, since there is one table.
        """
        if name is not None:
            raise ConfigError(f"name={name!r} is for releases of several tables; leave it out.")
        return estimate_frame(self.numbers)


def plan(
    auctions: object,
    *,
    epsilon: float | Sequence[float],
    private_stddev: float | None = None,
    from_devices: bool = False,
    objective: Objective | str = Objective.WELFARE,
    baselines: bool = False,
    pricing: str = "second-price",
    reserve: float = 0.0,
    unit: Unit | str = "impression",
    max_decisions_per_user: int | None = None,
    least_finalists: int = 2,
    delta: float = 0.0,
    min_cell_size: int | None = None,
    consent: Consent | str = Consent.COLUMN,
    sample: int = 20_000,
    columns: Columns = None,
    output: FilePath | None = None,
) -> SelectionPlan:
    """Compares mechanisms by exact expectations and recommends a selection. Nothing is spent.

    Args:
      auctions: A file of auctions like those to come, or a table with one row a candidate.
      epsilon: What one decision may cost; several are compared and the largest is planned for.
      private_stddev: How much more devices know: standard deviation of the private part of the
        logit of a click. Then predictions of devices are not read.
      from_devices: Evaluate on predictions of devices, of a panel. The outlook is not private.
      objective: What the plan maximises: "welfare", "click_rate", "revenue" or "surplus".
      baselines: Compare noisy maxima and others too.
      pricing: "second-price", "second-price-per-click", "first-price",
        "first-price-per-click" or "posted".
      reserve: Least server score that takes part.
      unit: "impression" for one decision, or "user".
      max_decisions_per_user: Most personalised decisions of a user, for unit "user".
      least_finalists: Least number of finalists; with fewer the server's winner is shown.
      delta: The delta of the guarantee; 0 for a pure epsilon.
      min_cell_size: Least number of decisions that share finalists, for shuffling.
      consent: "column", or "everyone" if all in the data agreed.
      sample: Number of first auctions that are planned on.
      columns: Names of the columns, where they are not the usual ones.
      output: New settings file (.toml) of the recommended selection.

    Privacy:
      Public columns alone are read, unless `from_devices` is set: then the outlook is as
      sensitive as the predictions.
    """
    epsilons = tuple(epsilon) if isinstance(epsilon, Sequence) else (epsilon,)
    target = None if output is None else Path(output)
    _check_settings_file(target, epsilons)
    settings = PlanSettings(
        epsilons=epsilons,
        private_stddev=private_stddev,
        from_devices=from_devices,
        objective=check_choice("objective", objective, Objective),
        baselines=baselines,
        privacy=SelectionPrivacy(
            unit=Unit.parse(unit) if isinstance(unit, str) else unit,
            max_decisions_per_user=max_decisions_per_user,
            least_finalists=least_finalists,
            delta=delta,
            min_cell_size=min_cell_size,
            consent=check_choice("consent", consent, Consent),
        ),
        pricing=settings_from(Pricing, {"rule": pricing, "reserve": reserve}, what="pricing"),
        sample=sample,
    )
    names = auction_columns(columns)
    with auctions_file(auctions, names, with_device=from_devices) as path:
        name = path.stem if target is None else target.stem
        made = recommend_selection(path, settings, columns=names, name=name)
    if target is not None:
        with reporting_disk_errors(target):
            write_text(target, made.settings)
    return made


def decide(
    selection: Selection,
    auctions: object,
    *,
    columns: Columns = None,
    output: FilePath | None = None,
    ledger: Ledger | os.PathLike[str] | str | None = None,
    purpose: str | None = None,
    at: Moment | None = None,
    until: Moment | None = None,
    again: bool = False,
    seed: int | None = None,
    watch: Callable[[int], None] | None = None,
) -> Result[SelectionRecord, Plan]:
    """Draws the ad of every auction, privately, once for one payment.

    All scores are checked first; then the ledger is charged; then each auction is drawn. The same
    call with the same ledger gives back the stored choices and spends nothing.

    Args:
      selection: What `plan` gave, a config, a settings file, or its tables.
      auctions: A file of auctions, or a table with one row a candidate.
      columns: Names of the columns; None: those of the plan, or the usual ones.
      output: New file of choices (.parquet, .jsonl or .csv); None: they stay in memory.
      ledger: A ledger or its path. It is charged before the first draw, and needs an output.
      purpose: What the ledger calls the decisions; None: "select".
      at: When the data are from, where a budget renews: a day or a time, also as text.
      until: Last day or time of the data.
      again: Pay for a second draw of the same auctions.
      seed: Makes the draws repeatable. Then they are not private.
      watch: Function that is told the number of auctions done.

    Privacy:
      Unit: that of the selection, replace, device predictions only. Event: that of the plan,
      charged before the first draw. Relies on: all other columns follow from public data.

    Raises:
      DataError: A score is missing or out of range, or a column is. Nothing was spent.
      SpendRefusedError: A budget does not cover it. Nothing was spent.
      RunStateError: The file exists, or an earlier draw of the same is gone.
    """
    config, names = selection_of(selection), auction_columns(columns, selection)
    charge = charge_to(ledger, job="select", purpose=purpose, at=at, until=until, again=again)
    options = ReleaseOptions(charge=charge, again=again, watch=watch)
    with (
        auctions_file(auctions, names, with_device=True) as path,
        releasing_to(output, name="choices.parquet", charge=charge) as place,
    ):
        drawn = decide_file(
            config,
            path,
            place.path,
            columns=names,
            rng=noise_source(seed),
            options=options,
        )
        return place.finished(drawn)


def bill(
    selection: Selection,
    auctions: object,
    choices: object,
    *,
    clicks: object = None,
    columns: Columns = None,
    output: FilePath | None = None,
) -> FileBill:
    """Counts impressions and adds up what each ad pays, exactly.

    Args:
      selection: The selection that the choices were drawn by.
      auctions: Their auctions. Private predictions are not read.
      choices: What `decide` gave, or its file.
      clicks: A file or a table with the auction of each click, for prices of clicks alone.
      columns: Names of the columns; None: those of the plan, or the usual ones.
      output: New CSV file with one line an ad.

    Privacy:
      Post-processing of released choices with public prices: no event. Clicks are not
      protected: their exact counts are in the bill.
    """
    target = None if output is None else Path(output)
    if target is not None and target.suffix != ".csv":
        raise ConfigError(f"output={str(target)!r} must end in .csv, which it will be.")
    if target is not None and target.exists():
        raise RunStateError(f"{target.name} exists already; name another file.")
    config, names = selection_of(selection), auction_columns(columns, selection)
    with contextlib.ExitStack() as stack:
        made = bill_file(
            config,
            stack.enter_context(auctions_file(auctions, names, with_device=False)),
            stack.enter_context(choices_file(choices)),
            columns=names,
            clicks=None if clicks is None else stack.enter_context(clicks_file(clicks)),
        )
    if target is not None:
        with reporting_disk_errors(target):
            write_text(target, made.to_csv())
    return made


def evaluate(
    selection: Selection,
    auctions: object,
    choices: object,
    *,
    clicks: object,
    target: Selection,
    epsilon: float,
    estimator: Estimator | str = Estimator.DOUBLY_ROBUST,
    max_weight: float | None = None,
    confidence: float = 0.95,
    columns: Columns = None,
    output: FilePath | None = None,
    ledger: Ledger | os.PathLike[str] | str | None = None,
    purpose: str | None = None,
    at: Moment | None = None,
    until: Moment | None = None,
    again: bool = False,
    seed: int | None = None,
) -> "EstimateResult":
    """Estimates the clicks of another selection from decisions of this one, with noise.

    Args:
      selection: The selection that the choices were drawn by.
      auctions: Their auctions, with predictions of devices.
      choices: What `decide` gave, or its file.
      clicks: A file or a table with the auction of each click on a shown ad.
      target: The selection to evaluate.
      epsilon: What the estimate may cost one unit.
      estimator: "doubly-robust" or "inverse-propensity".
      max_weight: Cut larger weights, which biases; None: the floors' own limit.
      confidence: Probability that the interval holds the estimated value.
      columns: Names of the columns; None: those of the plan, or the usual ones.
      output: New JSON file; None: the numbers stay in memory.
      ledger: A ledger or its path. It is charged before the first draw, and needs an output.
      purpose: What the ledger calls the estimate; None: "select".
      at: When the data are from, where a budget renews.
      until: Last day or time of the data.
      again: Pay for a second estimate from the same data.
      seed: Makes the noise repeatable. Then the estimate is not private.

    Privacy:
      Unit: that of the logging selection, replace: predictions and clicks change, requests and
      choices stay. Event: two discrete Laplace sums, charged before the first draw.
    """
    config = EvaluationConfig(
        logging=selection_of(selection),
        target=selection_of(target),
        epsilon=epsilon,
        estimator=_estimator(estimator),
        max_weight=max_weight,
        confidence=confidence,
    )
    charge = charge_to(ledger, job="select", purpose=purpose, at=at, until=until, again=again)
    names = auction_columns(columns, selection)
    with contextlib.ExitStack() as stack:
        files = EvaluationFiles(
            auctions=stack.enter_context(auctions_file(auctions, names, with_device=True)),
            choices=stack.enter_context(choices_file(choices)),
            clicks=stack.enter_context(clicks_file(clicks)),
            columns=names,
        )
        place = stack.enter_context(releasing_to(output, name="evaluation.json", charge=charge))
        released, numbers = evaluate_files(
            config,
            files,
            place.path,
            rng=noise_source(seed),
            options=ReleaseOptions(charge=charge, again=again),
        )
        finished = place.finished(released)
        return EstimateResult(
            plan=finished.plan,
            record=finished.record,
            path=finished.path,
            is_stored=finished.is_stored,
            numbers=numbers,
        )


def auctions_from_log(
    log: object,
    output: FilePath,
    *,
    layout: str | None = None,
    columns: AuctionLogColumns | Mapping[str, Any] | None = None,
    ad_table: object = None,
    server_predictions: object = None,
    device_predictions: object = None,
    bid_factor: float = 1.0,
    min_candidates: int = 2,
    watch: Callable[[int], None] | None = None,
) -> AuctionLogFacts:
    """Makes auctions of a log: ads shown to one user at one time compete for one slot.

    Bids are prices times a factor. No log says who else would have bid: such auctions are for
    experiments. The models behind the predictions should not have been trained on these rows.

    Args:
      log: A log of shown ads, one row an ad: a file, or a table.
      output: New file of auctions (.parquet, .csv or .jsonl).
      layout: "taobao" for the columns of raw_sample.csv and ad_feature.csv.
      columns: Names of the columns of the log, where they are not the usual ones.
      ad_table: A file or a table with one row an ad and its price; None: prices are in the log.
      server_predictions: Probabilities of a click by public data, for rows of this log: a Parquet
        file or a table with `row`, from 0, and `probability`. None: a column of the log has them.
      device_predictions: The same by private data too. They stay raw.
      bid_factor: Bid for a click divided by the price of what is advertised.
      min_candidates: Auctions with fewer candidates are left out.
      watch: Function that is told how many rows of the log are read.

    Privacy:
      The file holds raw data of users: predictions from private data, and clicks if they are
      named. Keep it, and the exact figures that come back, where the log is.
    """
    config = AuctionLogConfig(
        columns=log_columns(layout, columns), bid_factor=bid_factor, min_candidates=min_candidates
    )
    with contextlib.ExitStack() as stack:
        server, device = (
            None
            if given is None
            else stack.enter_context(as_file(given, columns=("row", "probability")))
            for given in (server_predictions, device_predictions)
        )
        sources = LogSources(
            log=_row_source(log),
            ad_table=None if ad_table is None else _row_source(ad_table),
            server_predictions=server,
            device_predictions=device,
        )
        return write_auctions_from_log(sources, Path(output), config, progress=watch)


def selection(
    *,
    epsilon: float | None = None,
    mechanism: str = "randomized-response",
    num_finalists: int | None = None,
    gamma: float | None = None,
    private_stddev: float | None = None,
    num_slots: int | None = None,
    pricing: str = "second-price",
    reserve: float = 0.0,
    unit: Unit | str = "impression",
    max_decisions_per_user: int | None = None,
    least_finalists: int = 2,
    delta: float = 0.0,
    min_cell_size: int | None = None,
    consent: Consent | str = Consent.COLUMN,
    name: str = "selection",
) -> SelectionConfig:
    """A selection from keywords, in the words of a settings file.

    Args:
      epsilon: What one decision may cost; left out for "non-personalised".
      mechanism: "randomized-response", "noisy-max" or "non-personalised".
      num_finalists: Number of ads with the best server scores that can be drawn.
      gamma: Or: draw among ads within this share of the best server score.
      private_stddev: Or: choose the number of finalists in each auction, for devices that know so
        much more.
      num_slots: Number of ads on a page.
      pricing: "second-price", "second-price-per-click", "first-price",
        "first-price-per-click" or "posted".
      reserve: Least server score that takes part.
      unit: "impression" for one decision, or "user".
      max_decisions_per_user: Most personalised decisions of a user, for unit "user".
      least_finalists: Least number of finalists; with fewer the server's winner is shown.
      delta: The delta of the guarantee; 0 for a pure epsilon.
      min_cell_size: Least number of decisions that share finalists, for shuffling.
      consent: "column", or "everyone" if all in the data agreed.
      name: Name of the selection on cards.
    """
    drawn = {
        "kind": mechanism,
        "epsilon": epsilon,
        "num_finalists": num_finalists,
        "gamma": gamma,
        "private_stddev": private_stddev,
        "num_slots": num_slots,
    }
    privacy = {
        "unit": str(unit),
        "max_decisions_per_user": max_decisions_per_user,
        "least_finalists": least_finalists,
        "delta": delta,
        "min_cell_size": min_cell_size,
        "consent": consent.value if isinstance(consent, Consent) else consent,
    }
    tables = {
        "mechanism": {key: value for key, value in drawn.items() if value is not None},
        "privacy": {key: value for key, value in privacy.items() if value is not None},
        "pricing": {"rule": pricing, "reserve": reserve},
    }
    return settings_of(tables, name=name)


def _check_settings_file(output: Path | None, epsilons: tuple[float, ...]) -> None:
    if output is None:
        return
    if len(set(epsilons)) > 1:
        raise ConfigError(
            f"output={str(output)!r} holds one selection; give one epsilon, or leave output out."
        )
    if output.suffix != ".toml":
        raise ConfigError(f"output={str(output)!r} must end in .toml, which it will be.")
    if output.exists():
        raise RunStateError(f"{output.name} exists already; name another file.")


def _estimator(given: Estimator | str) -> Estimator:
    known = {estimator.value.replace(" ", "-"): estimator for estimator in Estimator}
    if isinstance(given, Estimator):
        return given
    if given not in known:
        raise ConfigError(
            f"estimator={given!r} is unknown{did_you_mean(given, known)}; use one of "
            f"{', '.join(known)}."
        )
    return known[given]


def _row_source(given: object) -> object:
    return Path(given) if isinstance(given, str | os.PathLike) else given
