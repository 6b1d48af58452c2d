"""The card that lies beside a release, or a new one where there is none."""

from collections.abc import Callable
from pathlib import Path

from tulle.errors import DataError
from tulle.privacy.plan import Plan
from tulle.report.card import Card
from tulle.report.card_file import read_card, write_card
from tulle.runs.whole_files import reporting_disk_errors


def stored_card(folder: Path, plan: Plan, make: Callable[[], Card], *, name: str = "card") -> Card:
    """The card of a release; made and written if it is not there.

    Args:
      folder: Where it lies.
      plan: Of the release.
      make: Makes it anew.
      name: Of its files, without an ending.

    Raises:
      DataError: It is the card of another release, or cannot be read.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        card = make()
        with reporting_disk_errors(path):
            write_card(folder, card, name=name)
        return card
    card = read_card(path)
    if card.plan.fingerprint() != plan.fingerprint():
        raise DataError(
            f"{path.name} is the card of another release; delete it, and it is made anew."
        )
    return card
