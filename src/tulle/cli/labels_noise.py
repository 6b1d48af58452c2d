"""From options to a table with labels and the noise on them."""

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tulle.cli.data_log import open_log
from tulle.cli.labels_options import LabelOptions
from tulle.errors import ConfigError, DataError

if TYPE_CHECKING:
    from tulle.labels.label_grid import FloatArray, LabelGrid
    from tulle.labels.label_prior import LabelPriorConfig
    from tulle.labels.release.label_noise import LabelNoise
    from tulle.labels.release.label_table import LabelTable
    from tulle.labels.row_mechanism import RowMechanism
    from tulle.labels.units.unit_response import JointResponse, PerRowResponse

_CLIPPED = "-clipped"
_ADDITIVE = ("laplace", "discrete-laplace", "staircase")
_WITH_PRIOR = ("prior-rr", "rr-on-bins", "unbiased")
_BY_UNITS = ("unit-rr", "joint-rr", "joint-subset")
MECHANISMS = (
    *("rr", "class-rr", *_WITH_PRIOR, *_ADDITIVE),
    *(name + _CLIPPED for name in _ADDITIVE),
    *_BY_UNITS,
)
NUMERIC = ("rr-on-bins", "unbiased", *_ADDITIVE, *(name + _CLIPPED for name in _ADDITIVE))
"""Mechanisms for labels that are numbers in a range."""
_MOST_CELLS = 40
_FOR = {
    "max_rows_per_unit": _BY_UNITS,
    "row_choice": _BY_UNITS,
    "row_share": ("unit-rr",),
    "max_conversions_per_unit": ("joint-rr",),
    "base_rate": _BY_UNITS,
    "num_classes": ("class-rr", "prior-rr"),
    "label_low": NUMERIC,
    "label_high": NUMERIC,
    "label_step": NUMERIC,
    "prior": _WITH_PRIOR,
    "prior_epsilon": _WITH_PRIOR,
    "prior_cells": ("rr-on-bins", "unbiased"),
    "atoms": ("unbiased",),
}
"""Options that not every mechanism has, and those that have them."""


def open_table(options: LabelOptions) -> "LabelTable":
    """The table that the options name. Reads nothing but the first bytes of files."""
    from tulle.data.formats.known_roles import check_known_roles
    from tulle.data.logs import LogFiles
    from tulle.labels.release.label_table import LabelTable
    from tulle.privacy.units import Unit

    log = open_log(
        options.tables, layout=options.layout, schema=options.schema, skip_bad_lines=False
    )
    if not isinstance(log, LogFiles):
        raise ConfigError("--layout taobao-tables joins files while reading; join them first.")
    check_known_roles(
        log.layout.schema, allowed_public=options.allow_public or (), format_name=options.layout
    )
    return LabelTable(
        paths=log.paths,
        layout=log.layout,
        unit=Unit.parse(options.unit),
        partner=options.partner,
    )


def noise_of(options: LabelOptions, mechanism: str) -> "LabelNoise":
    """The noise that the options describe."""
    from tulle.labels.release.label_noise import LearntPriorNoise, RowNoise, UnitNoise
    from tulle.privacy.fields import did_you_mean

    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"--mechanism {mechanism} is unknown{did_you_mean(mechanism, MECHANISMS)}; use one of "
            f"{', '.join(MECHANISMS)}."
        )
    check_epsilon(options.epsilon)
    _check_options(options, mechanism)
    if mechanism in _BY_UNITS:
        unit_mechanism = _unit_mechanism(options, mechanism)
        return UnitNoise(mechanism=unit_mechanism, base_rate=base_rate(options))
    if mechanism not in _WITH_PRIOR:
        return RowNoise(mechanism=_row_mechanism(options, mechanism))
    if options.prior_epsilon is None:
        prior = given_prior(options, mechanism)
        built = _builder(options, mechanism, options.epsilon)(prior)
        return RowNoise(mechanism=built)
    label_epsilon = options.epsilon - options.prior_epsilon
    # The two parts must not add up to more than the whole, also after rounding.
    while label_epsilon > 0 and label_epsilon + options.prior_epsilon > options.epsilon:
        label_epsilon = math.nextafter(label_epsilon, 0.0)
    build = _builder(options, mechanism, label_epsilon)
    return LearntPriorNoise(
        prior=_learnt_prior(options, mechanism),
        build=build,
        fallback=_without_prior(options, mechanism, label_epsilon, build),
        name=mechanism,
    )


def base_rate(options: LabelOptions) -> float:
    """The public guess of the share of ones."""
    rate = 0.05 if options.base_rate is None else options.base_rate
    if not 0 < rate < 1:
        raise ConfigError(f"--base-rate {rate} must be between 0 and 1, e.g. 0.05.")
    return rate


def num_atoms(options: LabelOptions, grid: "LabelGrid") -> int:
    """Values that the unbiased mechanism rounds to."""
    return min(options.atoms or 40, grid.num_values)


def label_grid(options: LabelOptions) -> "LabelGrid":
    """The declared values of a label that is a number."""
    from tulle.labels.label_grid import LabelGrid

    if options.label_low is None or options.label_high is None:
        raise ConfigError(
            "labels that are numbers need --label-low and --label-high: a public range, not read "
            "off the labels."
        )
    step = 1.0 if options.label_step is None else options.label_step
    try:
        return LabelGrid(low=options.label_low, high=options.label_high, step=step)
    except ConfigError as error:
        raise ConfigError(f"--label-low, --label-high and --label-step: {error}") from None


def given_prior(options: LabelOptions, mechanism: str) -> "FloatArray":
    """The prior of a file, or the uniform one."""
    import numpy as np

    from tulle.labels.label_grid import check_prior

    num_values = _num_values(options, mechanism)
    if options.prior is None:
        if mechanism == "prior-rr":
            raise ConfigError(
                "prior-rr needs --prior FILE or --prior-epsilon: without a prior it is class-rr."
            )
        return np.full(num_values, 1 / num_values)
    try:
        weights = json.loads(options.prior.read_text(encoding="utf-8"))
        numbers = np.array([_weight(weight) for weight in weights])
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        raise DataError(
            f"--prior {options.prior} must be a JSON file with a list of numbers >= 0, one for "
            f"each of the {num_values} values."
        ) from None
    if not numbers.sum() > 0:
        raise DataError(f"--prior {options.prior} must have a weight above 0.")
    return check_prior(numbers / numbers.sum(), num_values)


def _weight(weight: object) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight >= 0:
        raise ValueError("not a weight")
    return float(weight)


def _row_mechanism(options: LabelOptions, mechanism: str) -> "RowMechanism":
    from tulle.labels.additive_noise import DiscreteLaplaceLabels, LaplaceLabels
    from tulle.labels.binary_response import BinaryResponse
    from tulle.labels.class_response import ClassResponse
    from tulle.labels.staircase import StaircaseLabels

    if mechanism == "rr":
        return BinaryResponse(epsilon=options.epsilon)
    if mechanism == "class-rr":
        return ClassResponse(epsilon=options.epsilon, num_classes=_num_classes(options))
    name, clip = mechanism.removesuffix(_CLIPPED), mechanism.endswith(_CLIPPED)
    grid = label_grid(options)
    if name == "laplace":
        return LaplaceLabels(epsilon=options.epsilon, grid=grid, clip=clip)
    if name == "discrete-laplace":
        return DiscreteLaplaceLabels(epsilon=options.epsilon, grid=grid, clip=clip)
    return StaircaseLabels(epsilon=options.epsilon, grid=grid, clip=clip)


def _builder(
    options: LabelOptions, mechanism: str, epsilon: float
) -> "Callable[[FloatArray], RowMechanism]":
    from tulle.labels.bins.bin_response import BinResponse
    from tulle.labels.prior_response import PriorResponse
    from tulle.labels.unbiased.unbiased_response import UnbiasedResponse

    def build(prior: "FloatArray") -> "RowMechanism":
        if mechanism == "prior-rr":
            return PriorResponse(epsilon=epsilon, prior=prior)
        grid = label_grid(options)
        if mechanism == "rr-on-bins":
            return BinResponse(epsilon=epsilon, grid=grid, prior=prior)
        return UnbiasedResponse(
            epsilon=epsilon, grid=grid, prior=prior, atoms=num_atoms(options, grid)
        )

    return build


def _without_prior(
    options: LabelOptions,
    mechanism: str,
    epsilon: float,
    build: "Callable[[FloatArray], RowMechanism]",
) -> "RowMechanism":
    """The mechanism for a prior that says nothing; made first, so that no setting fails later."""
    import numpy as np

    from tulle.labels.class_response import ClassResponse

    num_values = _num_values(options, mechanism)
    if mechanism == "prior-rr":
        return ClassResponse(epsilon=epsilon, num_classes=num_values)
    return build(np.full(num_values, 1 / num_values))


def _unit_mechanism(options: LabelOptions, mechanism: str) -> "PerRowResponse | JointResponse":
    from tulle.labels.units.row_caps import RowChoice
    from tulle.labels.units.unit_response import JointResponse, PerRowResponse, RowShare
    from tulle.privacy.fields import check_choice

    choice = check_choice("--row-choice", options.row_choice or "first", RowChoice)
    if mechanism == "unit-rr":
        return PerRowResponse(
            epsilon=options.epsilon,
            max_rows_per_unit=options.max_rows_per_unit,
            share=check_choice("--row-share", options.row_share or "own", RowShare),
            choice=choice,
        )
    return JointResponse(
        epsilon=options.epsilon,
        max_conversions_per_unit=options.max_conversions_per_unit or 1,
        max_rows_per_unit=options.max_rows_per_unit,
        subset=mechanism == "joint-subset",
        row_choice=choice,
        assumed_base_rate=base_rate(options),
    )


def _learnt_prior(options: LabelOptions, mechanism: str) -> "LabelPriorConfig":
    from tulle.labels.label_prior import LabelPriorConfig

    epsilon = options.prior_epsilon or 0.0
    num_values = _num_values(options, mechanism)
    num_cells = min(options.prior_cells or _MOST_CELLS, num_values)
    if mechanism == "prior-rr":
        return LabelPriorConfig(epsilon=epsilon, labels=num_values)
    return LabelPriorConfig(epsilon=epsilon, labels=label_grid(options), num_cells=num_cells)


def _num_values(options: LabelOptions, mechanism: str) -> int:
    return _num_classes(options) if mechanism == "prior-rr" else label_grid(options).num_values


def _num_classes(options: LabelOptions) -> int:
    if options.num_classes is None:
        raise ConfigError("labels that are classes need --num-classes, a public number.")
    return options.num_classes


def check_epsilon(epsilon: float) -> None:
    """Refuses an epsilon that no release can have."""
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"--epsilon {epsilon} must be a finite number > 0, e.g. 1.")


def _check_options(options: LabelOptions, mechanism: str) -> None:
    for name, mechanisms in _FOR.items():
        if getattr(options, name) is not None and mechanism not in mechanisms:
            raise ConfigError(
                f"--{name.replace('_', '-')} is for {', '.join(mechanisms)}, not for {mechanism}; "
                "leave it out."
            )
    if mechanism == "unit-rr" and options.row_share == "equal" and not options.max_rows_per_unit:
        raise ConfigError("--row-share equal needs --max-rows-per-unit, the cap.")
    if options.prior is not None and options.prior_epsilon is not None:
        raise ConfigError("--prior and --prior-epsilon exclude each other; give one.")
    if options.prior_epsilon is not None and not 0 < options.prior_epsilon < options.epsilon:
        raise ConfigError(
            f"--prior-epsilon {options.prior_epsilon} must be > 0 and below --epsilon "
            f"{options.epsilon}: the rest is for the labels."
        )
