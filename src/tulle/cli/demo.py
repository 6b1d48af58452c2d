"""`tulle demo`."""

import typer


def demo() -> None:
    """x"""
    typer.echo("x")
