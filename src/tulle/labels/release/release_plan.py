"""What a release of labels promises, made before a label is read."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tulle.accounting.plan_check import verify_plan
from tulle.errors import ConfigError
from tulle.labels.release.label_noise import LabelNoise, LearntPriorNoise, RowNoise, UnitNoise
from tulle.labels.release.label_table import LabelTable
from tulle.labels.units.unit_response import JointResponse
from tulle.labels.units.unit_rows import UnitRows
from tulle.privacy.conditions import Assumption, Bound, Status
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.plan import Plan
from tulle.privacy.settings import Scalar
from tulle.privacy.units import Adjacency, Owner, Scope, TrustModel
from tulle.runs.release_books import paid_once


def make_release_plan(
    table: LabelTable,
    noise: LabelNoise,
    *,
    unit_rows: UnitRows | None = None,
    has_ledger: bool = False,
    noise_source: str = "operating-system entropy",
) -> Plan:
    """The plan of one release. Reads nothing.

    Args:
      table: Whose columns and unit it is for.
      noise: How the labels will be noised.
      unit_rows: The rows of each unit, from public columns; for noise by units.
      has_ledger: Whether a ledger will know the release.
      noise_source: Where the noise will come from, in words.

    Raises:
      ConfigError: Unit and mechanism do not go together.
    """
    _check_goes_together(table, noise, unit_rows)
    if isinstance(noise, UnitNoise):
        event = noise.mechanism.event(sorted(_lengths(unit_rows)))
    else:
        event = noise.event()
    settings = _settings(table, noise) | {
        "charged to a ledger": has_ledger,
        "noise from": noise_source,
    }
    plan = Plan(
        name=f"labels of {table.label}",
        mechanism=_sentence(table, noise),
        settings=settings,
        event=event,
        guarantee=Guarantee(
            epsilon=noise.epsilon,
            delta=0.0,
            unit=table.unit,
            adjacency=Adjacency.REPLACE,
            scope=Scope.LABELS,
        ),
        trust=TrustModel.CENTRAL,
        columns=dataclasses.replace(table.schema.roles, sensitive=(), ignored=()),
        bounds=_bounds(noise),
        assumptions=_assumptions(noise, has_ledger),
    )
    verify_plan(plan)
    return plan


def _check_goes_together(table: LabelTable, noise: LabelNoise, unit_rows: UnitRows | None) -> None:
    is_row = table.unit.owner is Owner.EXAMPLE
    if not is_row and not isinstance(noise, UnitNoise):
        raise ConfigError(
            f"mechanism {noise.name!r} noises each label by itself and protects one row, but "
            f"unit='{table.unit}' may own several; use unit-rr or joint-rr, or the unit "
            "'example'."
        )
    if is_row and isinstance(noise, UnitNoise):
        raise ConfigError(
            f"mechanism {noise.name!r} shares one budget among the rows of a unit, and "
            "unit='example' has one row; use rr, or name a unit such as 'user per 7 days'."
        )
    if isinstance(noise, UnitNoise) and unit_rows is None:
        raise ConfigError(f"mechanism {noise.name!r} needs the rows of each unit; group them.")


def _lengths(unit_rows: UnitRows | None) -> dict[int, int]:
    return {} if unit_rows is None else unit_rows.length_counts()


def _sentence(table: LabelTable, noise: LabelNoise) -> str:
    if isinstance(noise, UnitNoise):
        how = f"the labels of each {table.unit} are randomized once under one budget"
    elif isinstance(noise, LearntPriorNoise):
        how = (
            "a noisy histogram of all labels sets the mechanism, and each label is randomized "
            "once by it"
        )
    else:
        how = "each label is randomized once"
    return f"{how} ({noise.name}), and the result is stored; public columns go out as they are."


def _settings(table: LabelTable, noise: LabelNoise) -> dict[str, Scalar]:
    settings: dict[str, Scalar] = {
        "mechanism": noise.name,
        "epsilon": noise.epsilon,
        "row order": "as in the input",
    }
    if table.partner is not None:
        settings["partner"] = table.partner
    if table.unit.window_seconds is not None:
        settings["windows begin"] = "at zero of the time column, 1970 UTC if it counts from there"
    if isinstance(noise, UnitNoise):
        settings["base_rate"] = noise.base_rate
    if isinstance(noise, LearntPriorNoise):
        settings |= {
            "prior_epsilon": noise.prior.epsilon,
            "prior_num_values": noise.prior.num_values,
            "prior_num_cells": noise.prior.num_cells,
            "label_epsilon": noise.label_epsilon,
        }
        described = noise.fallback.describe()
    else:
        described = noise.mechanism.describe()
    return _flat(described) | settings


def _flat(described: Mapping[str, Any]) -> dict[str, Scalar]:
    """Single values by name; those of an object within get its name before theirs."""
    flat: dict[str, Scalar] = {}
    for name, value in described.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}_{inner}": found for inner, found in _flat(value).items()}
        elif isinstance(value, str | int | float | bool):
            flat[name] = value
    return flat


def _bounds(noise: LabelNoise) -> tuple[Bound, ...]:
    if not isinstance(noise, UnitNoise):
        return (Bound(what="labels per row", limit=1, where="one noisy label a row"),)
    bounds = []
    max_rows = noise.mechanism.max_rows_per_unit
    if max_rows is not None:
        where = f"{noise.mechanism.describe()['row_choice']} rows of the unit, before the noise"
        bounds.append(Bound(what="rows per unit", limit=max_rows, where=where))
    if isinstance(noise.mechanism, JointResponse):
        limit = noise.mechanism.max_conversions_per_unit
        where = "a fixed rule on the unit's own labels, before the noise"
        bounds.append(Bound(what="conversions per unit", limit=limit, where=where))
    return tuple(bounds)


def _assumptions(noise: LabelNoise, has_ledger: bool) -> tuple[Assumption, ...]:
    made = [
        Assumption(
            statement="Every label lies in the declared range.",
            status=Status.CHECKED,
            evidence="All labels are looked at before anything is spent.",
        ),
        Assumption(
            statement="Within this release each label is noised once, with exactly the stated law.",
            status=Status.ENFORCED,
            evidence="One pass over distinct files, by a sampler that no rounding changes.",
        ),
    ]
    if has_ledger:
        made.append(paid_once("release of labels"))
    if isinstance(noise, RowNoise) and noise.rests_on_prior:
        made.append(
            Assumption(
                statement="The given prior was not made with the labels that are released.",
                status=Status.ASSUMED,
            )
        )
    return tuple(made)
