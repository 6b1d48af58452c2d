import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "docs_site"))

from docstring_sections import parse_docstring

TEXT = """Adds noise.

It is exact.

Args:
  raw_counts: Exact counts,
    one a slice.
  low, high: The range.

Privacy:
  Unit: user, replace.
  Event: one Gaussian.

Raises:
  DataError: A count is missing.
"""


def test_prose_ends_where_sections_begin() -> None:
    parsed = parse_docstring(TEXT)
    assert parsed.prose == "Adds noise.\n\nIt is exact."
    assert [section.title for section in parsed.sections] == ["Args", "Privacy", "Raises"]


def test_arguments_and_errors_are_listed_by_name() -> None:
    arguments, _, errors = parse_docstring(TEXT).sections
    assert arguments.items == (
        ("raw_counts", "Exact counts, one a slice."),
        ("low, high", "The range."),
    )
    assert errors.items == (("DataError", "A count is missing."),)


def test_a_colon_in_a_privacy_note_does_not_make_a_list() -> None:
    privacy = parse_docstring(TEXT).section("Privacy")
    assert privacy is not None
    assert privacy.items == ()
    assert privacy.text == "Unit: user, replace.\nEvent: one Gaussian."


def test_no_docstring_says_nothing() -> None:
    assert parse_docstring(None).prose == ""
    assert parse_docstring(None).section("Privacy") is None
