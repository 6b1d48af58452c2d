"""Cards on disk: card.json and card.md, each there as a whole or not at all."""

import json
import os
from pathlib import Path

from tulle.durable_files import stage_text, sync_folder
from tulle.privacy.fields import parse_json
from tulle.report.card import Card
from tulle.report.card_markdown import render_card
from tulle.runs.whole_files import read_whole


def write_card(folder: Path, card: Card, *, name: str = "card") -> None:
    """Writes card.json and card.md into a folder, replacing those that are there.

    A reader never sees half a file, nor an old card.md beside a new card.json.

    Args:
      folder: Where to.
      card: What.
      name: Of both files, without its ending.
    """
    data = card.to_dict()
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    staged: list[tuple[Path, Path]] = []
    try:
        markdown = folder / f"{name}.md"
        for path, content in ((folder / f"{name}.json", text), (markdown, render_card(data))):
            staged.append((stage_text(path, content), path))
        markdown.unlink(missing_ok=True)
        for temporary, final in staged:
            os.replace(temporary, final)
    finally:
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)
    sync_folder(folder)


def read_card(path: Path) -> Card:
    """Reads a card.json, strictly.

    Raises:
      DataError: The file is not a card, or its entries contradict each other.
    """
    return read_whole(
        path,
        lambda text: Card.from_dict(parse_json("card", text)),
        what="a card",
        way_out="write it with write_card()",
    )
