"""How commands that release a file show facts about it."""

import json
from collections.abc import Mapping

import typer


def print_facts(facts: Mapping[str, object], *, as_json: bool) -> None:
    """One fact a line, or all as JSON."""
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for name, value in facts.items():
        is_count = isinstance(value, int) and not isinstance(value, bool)
        shown = f"{value:,}" if is_count else value
        if isinstance(value, list):
            shown = ", ".join(map(str, value))
        typer.echo(f"{name.replace('_', ' '):<16}{shown}")
