"""What a measurement is doing, on stderr: a moving line on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import typer


@contextlib.contextmanager
def showing_steps(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that takes the name of each step as it begins."""
    start = time.monotonic()
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield lambda what: status.update(f"{what} ({time.monotonic() - start:.0f} s)")
    else:
        yield lambda what: typer.echo(f"{what} ({time.monotonic() - start:.0f} s)", err=True)
