"""The processes of `tulle train`: those that torchrun started, or those that it starts itself."""

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from tulle.cli.train_data import ChosenData, chosen_data
from tulle.cli.train_options import TrainOptions
from tulle.cli.train_settings import DataChoice, data_choice, given_settings, read_settings
from tulle.errors import ConfigError, TulleError

if TYPE_CHECKING:
    from tulle.train.distributed.processes import Processes

CACHE = ".synth"
"""Folder of prepared made-up logs, among the runs."""

_SIZE = "WORLD_SIZE"


@contextlib.contextmanager
def processes_of(options: TrainOptions) -> "Iterator[Processes | None]":
    """The processes of this run; None if it has one."""
    started = _started_by_torchrun()
    if started is not None and options.processes not in (None, started):
        raise ConfigError(
            f"--processes {options.processes} is not the number of processes that torchrun "
            f"started, {started}; leave it out."
        )
    if started is not None and started > 1:
        from tulle.train.distributed.torch_processes import join_processes

        with join_processes(options.device) as joined:
            yield joined
    elif options.processes is not None and options.processes > 1:
        from tulle.train.distributed.local_processes import local_processes

        # What is wrong with the data is told before others are started in vain.
        with _data(options):
            pass
        follow = functools.partial(follow_run, options)
        with local_processes(options.processes, follow, device=options.device) as local:
            yield local
    else:
        yield None


def follow_quietly(options: TrainOptions, processes: "Processes") -> None:
    """Follows the leader. It hears of errors and prints them, so that they come once."""
    try:
        follow_run(options, processes)
    except TulleError:
        raise typer.Exit(1) from None


def follow_run(options: TrainOptions, processes: "Processes") -> None:
    """Takes part in the private steps of the leader's run, on the same data."""
    from tulle.train.distributed.messages import failing_together
    from tulle.train.distributed.serving import follow_fit

    with failing_together(processes), _data(options) as data:
        train_rows, _ = data.examples()
        follow_fit(train_rows, processes, device=options.device)


def data_of_plan(options: TrainOptions) -> DataChoice:
    """The data of a run whose other settings are in a finished plan."""
    if given := given_settings(options):
        raise ConfigError(
            f"--finished-plan has all settings of the run, and {given[0]} is given too; "
            "leave it out."
        )
    return data_choice(options, {})


def _data(options: TrainOptions) -> contextlib.AbstractContextManager[ChosenData]:
    finished = options.finished_plan is not None
    choice = data_of_plan(options) if finished else read_settings(options).data
    return chosen_data(choice, cache=options.runs / CACHE, quiet=True)


def _started_by_torchrun() -> int | None:
    size = os.environ.get(_SIZE)
    if size is None or "RANK" not in os.environ:
        return None
    if not size.isdecimal():
        raise ConfigError(f"{_SIZE}={size!r} in the environment must be a whole number.")
    return int(size)
