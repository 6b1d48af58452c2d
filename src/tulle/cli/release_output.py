"""What commands that release a file have in common: a card beside it, and facts about it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tulle.report.card import Card


def write_card_beside(released: Path, card: "Card") -> Path:
    """Writes the card as `name.card.json` and `.md`, and gives the path of the first."""
    from tulle.report.card_file import write_card
    from tulle.runs.whole_files import reporting_disk_errors

    name = f"{released.stem}.card"
    path = released.with_name(f"{name}.json")
    with reporting_disk_errors(path):
        write_card(released.parent, card, name=name)
    return path


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
