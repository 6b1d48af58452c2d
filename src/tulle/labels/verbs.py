"""The verbs of `tulle.labels`: plan a release of labels, make it, and judge predictions by it."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tulle.accounting.ledger import Ledger
from tulle.accounting.spans import Moment
from tulle.data.named_logs import FilePath, SchemaLike
from tulle.data.prediction_file import read_predictions
from tulle.data.source_files import content_sha256
from tulle.data.tables.rows import RowSource
from tulle.errors import DataError
from tulle.labels.label_noise import LabelNoise, LabelSettings
from tulle.labels.label_plan import BestMechanism, LabelPlan, plan_labels
from tulle.labels.label_release import ReleaseRecord, release_labels
from tulle.labels.label_table import LabelSource
from tulle.labels.noisy_table import (
    NOISY_LABEL,
    PROB_IF_NEGATIVE,
    PROB_IF_POSITIVE,
    read_noisy_columns,
)
from tulle.mechanisms.entropy import noise_source
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.privacy.plan import Plan
from tulle.privacy.units import Unit
from tulle.quality.metrics import QualityMetrics, evaluate_predictions
from tulle.quality.noisy_labels import NoisyLabelMetrics, evaluate_on_reports
from tulle.runs.charging import charge_to
from tulle.runs.record import Result
from tulle.runs.release_files import read_record, released_file, releasing_to
from tulle.runs.release_once import ReleaseOptions

Mechanism = str | Mapping[str, object] | LabelSettings | BestMechanism | LabelNoise
"""A word such as "joint-rr", its settings, the same as plain data, or what `plan` recommends."""


def plan(
    data: object,
    schema: SchemaLike | None = None,
    *,
    epsilon: float | None = None,
    mechanism: Mechanism | None = None,
    unit: Unit | str = "example",
    partner: str | None = None,
    layout: str | None = None,
    allow_public: Sequence[str] = (),
) -> LabelPlan:
    """Says what a release of labels would promise, and compares mechanisms if none is named.

    Args:
      data: A file or several, or a table of polars, pandas or Arrow.
      schema: Roles of the columns: a Schema, plain data, or a TOML or JSON file.
      epsilon: What the release may cost one unit in all.
      mechanism: A word such as "rr", settings such as JointRr(), the same as plain data such as
        {"kind": "joint-rr"}, or BestMechanism() with what the labels are. None: the best for
        labels of 0 and 1.
      unit: Who is protected: "example" or "row" for one row, or e.g. "user per week".
      partner: Public column with the advertiser or publisher, for units of pairs.
      layout: Name of a public log, in place of a schema or with one.
      allow_public: Columns that may be public though a known log protects them.

    Privacy:
      No label is read. Columns that say whose a row is are read where a unit may own several.
    """
    source = LabelSource(
        data=data,
        schema=schema,
        layout=layout,
        unit=unit,
        partner=partner,
        allow_public=allow_public,
    )
    with source.opened() as table:
        return plan_labels(table, BestMechanism() if mechanism is None else mechanism, epsilon)


def release(
    data: object,
    schema: SchemaLike | None = None,
    *,
    epsilon: float | None = None,
    mechanism: Mechanism | None = None,
    unit: Unit | str = "example",
    partner: str | None = None,
    layout: str | None = None,
    allow_public: Sequence[str] = (),
    output: FilePath | None = None,
    ledger: Ledger | os.PathLike[str] | str | None = None,
    purpose: str | None = None,
    at: Moment | None = None,
    until: Moment | None = None,
    again: bool = False,
    seed: int | None = None,
    watch: Callable[[int], None] | None = None,
) -> Result[ReleaseRecord, Plan]:
    """Releases public columns with noisy labels, targets and weights, once for one payment.

    All labels are checked first; then the ledger is charged; then noise is drawn. The same call
    with the same ledger gives back the stored table and spends nothing.

    Args:
      data: A file or several, or a table of polars, pandas or Arrow.
      schema: Roles of the columns: a Schema, plain data, or a TOML or JSON file.
      epsilon: What the release may cost one unit in all.
      mechanism: Mechanism as for `plan`; None: the one that `plan` recommends.
      unit: Who is protected: "example" or "row" for one row, or e.g. "user per week".
      partner: Public column with the advertiser or publisher, for units of pairs.
      layout: Name of a public log, in place of a schema or with one.
      allow_public: Columns that may be public though a known log protects them.
      output: New Parquet file, with a record and a card beside it; None: the release stays in
        memory.
      ledger: A ledger or its path. It is charged before the first draw, and needs an output.
      purpose: What the ledger calls the release; None: "labels".
      at: When the data are from, where a budget renews: a day or a time, also as text.
      until: Last day or time of the data.
      again: Pay for a second release of the same data.
      seed: Makes the noise repeatable. Then the release is not private.
      watch: Function that is told the number of rows done.

    Privacy:
      Unit: the one that is named, replace, labels only. Event: that of the plan, charged before
      the first draw. Relies on: public columns, unit ids and times do not follow from the labels.

    Raises:
      DataError: A label or id is missing or out of range. Nothing was spent.
      SpendRefusedError: A budget does not cover it. Nothing was spent.
      RunStateError: The file exists, or an earlier release of the same is gone.
    """
    charge = charge_to(
        ledger, job="labels", purpose=purpose, at=at, until=until, again=again, unit=unit
    )
    source = LabelSource(
        data=data,
        schema=schema,
        layout=layout,
        unit=unit,
        partner=partner,
        allow_public=allow_public,
    )
    options = ReleaseOptions(charge=charge, again=again, watch=watch)
    with (
        source.opened() as table,
        releasing_to(output, name="noisy.parquet", charge=charge) as place,
    ):
        chosen = plan_labels(table, BestMechanism() if mechanism is None else mechanism, epsilon)
        released = release_labels(
            table, chosen.noise, place.path, rng=noise_source(seed), options=options
        )
        return place.finished(released)


def read_release(path: FilePath) -> Result[ReleaseRecord, Plan]:
    """Reads a release that was stored: the table with its record beside it.

    Args:
      path: The Parquet file that `release` wrote.

    Privacy:
      What was released is public: no cost.

    Raises:
      DataError: There is no record, or the table is not the one that it speaks of.
    """
    record = _stored_record(Path(path))
    return Result(plan=record.plan, record=record, path=Path(path), is_stored=True)


def evaluate(
    predictions: object, released: Result[ReleaseRecord, Plan] | FilePath
) -> NoisyLabelMetrics:
    """Estimates how good predictions are from noisy labels, with standard errors.

    Args:
      predictions: A file, or a table of polars, pandas or Arrow, with `row`, a place in the
        released table from 0, and `probability`.
      released: What `release` gave for labels of 0 and 1, or its file with the record beside it.

    Privacy:
      Post-processing of the release: no cost.
    """
    if not isinstance(released, Result):
        return _on_release(_row_source(predictions), Path(released))
    with released_file(released) as path:
        return _on_release(_row_source(predictions), path)


def evaluate_raw(
    predictions: object,
    data: object,
    schema: SchemaLike | None = None,
    *,
    layout: str | None = None,
) -> QualityMetrics:
    """Computes how good predictions are from raw labels, exactly.

    Args:
      predictions: A file, or a table of polars, pandas or Arrow, with `row`, a place in the data
        from 0, and `probability`.
      data: A file or several, or a table of polars, pandas or Arrow.
      schema: Roles of the columns: a Schema, plain data, or a TOML or JSON file.
      layout: Name of a public log, in place of a schema or with one.

    Privacy:
      Nothing is noised: the numbers are exact functions of raw labels, and publishing them
      releases something about these rows.
    """
    with LabelSource(data=data, schema=schema, layout=layout).opened() as table:
        labels = np.concatenate(list(table.label_blocks()))
        rows, probabilities = read_predictions(_row_source(predictions), len(labels))
        return evaluate_predictions(labels[rows], probabilities)


def _row_source(given: object) -> RowSource:
    return Path(given) if isinstance(given, str | os.PathLike) else given


def _stored_record(release: Path) -> ReleaseRecord:
    """The record of a released table, which must be the table that it speaks of."""
    record = read_record(release, ReleaseRecord.from_json)
    if content_sha256(release) != record.table_sha256:
        raise DataError(
            f"{release.name} is not the table of its record; keep both as the release wrote them."
        )
    return record


def _on_release(predictions: RowSource, release: Path) -> NoisyLabelMetrics:
    """The estimated quality of predictions for rows of a released table of binary labels."""
    record = _stored_record(release)
    if PROB_IF_POSITIVE not in record.columns:
        raise DataError(
            f"{release.name} has no binary labels; compare numbers with its targets instead."
        )
    table = read_noisy_columns(release, (NOISY_LABEL, PROB_IF_NEGATIVE, PROB_IF_POSITIVE))
    rows, probabilities = read_predictions(predictions, table.height)
    chosen = table[rows]
    channel = BinaryChannel(
        prob_if_negative=chosen[PROB_IF_NEGATIVE].to_numpy(),
        prob_if_positive=chosen[PROB_IF_POSITIVE].to_numpy(),
    )
    return evaluate_on_reports(chosen[NOISY_LABEL].to_numpy(), channel, probabilities)
