"""What a release of labels promises, made before a label is read."""

import dataclasses

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


def make_release_plan(
    table: LabelTable, noise: LabelNoise, *, unit_rows: UnitRows | None = None
) -> Plan:
    """The plan of one release. Reads nothing.

    Args:
      table: Whose columns and unit it is for.
      noise: How the labels will be noised.
      unit_rows: The rows of each unit, from public columns; for noise by units.

    Raises:
      ConfigError: Unit and mechanism do not go together.
    """
    _check_goes_together(table, noise, unit_rows)
    if isinstance(noise, UnitNoise):
        event = noise.mechanism.event(sorted(_lengths(unit_rows)))
    else:
        event = noise.event()
    plan = Plan(
        name=f"labels of {table.label}",
        mechanism=_sentence(table, noise),
        settings=_settings(noise),
        event=event,
        guarantee=Guarantee(
            epsilon=noise.epsilon,
            delta=0.0,
            unit=table.unit,
            adjacency=Adjacency.REPLACE,
            scope=Scope.LABELS,
        ),
        trust=TrustModel.CENTRAL,
        columns=dataclasses.replace(table.schema.roles, ignored=()),
        bounds=_bounds(noise),
        assumptions=_assumptions(noise),
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


def _settings(noise: LabelNoise) -> dict[str, Scalar]:
    settings: dict[str, Scalar] = {"mechanism": noise.name, "epsilon": noise.epsilon}
    if isinstance(noise, LearntPriorNoise):
        return settings | {
            "prior_epsilon": noise.prior.epsilon,
            "label_epsilon": noise.label_epsilon,
        }
    described = noise.mechanism.describe()
    return settings | {
        name: value
        for name, value in described.items()
        if isinstance(value, str | int | float | bool) and name not in settings
    }


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


def _assumptions(noise: LabelNoise) -> tuple[Assumption, ...]:
    made = [
        Assumption(
            statement="Every label lies in the declared range.",
            status=Status.CHECKED,
            evidence="All labels are looked at before anything is spent.",
        ),
        Assumption(
            statement="Each label is noised once, with chances that are integers over 2^64.",
            status=Status.ENFORCED,
            evidence="The same command returns the stored table in place of new noise, and an "
            "exact sampler draws.",
        ),
    ]
    if isinstance(noise, RowNoise) and noise.public_prior:
        made.append(
            Assumption(
                statement="The given prior was not made with the labels that are released.",
                status=Status.ASSUMED,
            )
        )
    return tuple(made)
