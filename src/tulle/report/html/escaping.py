"""Text that people wrote, made harmless for HTML.

Names of slices, columns and runs can hold anything. In a page they are text and
nothing else, whether they stand between tags or in an attribute.
"""

import html


def escape_html(words: str) -> str:
    """Text for an element or a quoted attribute."""
    # Marks without a shape could turn around the order of what is read.
    visible = "".join(
        character if character.isprintable() or character in "\n\t" else "\ufffd"
        for character in words
    )
    return html.escape(visible, quote=True)
