"""Logs as a stream of blocks: text, gzip, zstd or Parquet, in any number of files.

No file is loaded whole. What cannot be read without guessing is an error with
file and line, or is counted and skipped. A truncated archive is always an error.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tulle.data.formats.archives import FileForm, detect_form
from tulle.data.formats.blocks import BadLines, Block, Position, Reading
from tulle.data.formats.delimited import read_text_blocks
from tulle.data.formats.layout import Layout
from tulle.data.formats.parquet import read_parquet_blocks
from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean

__all__ = ["BadLines", "Block", "Position", "read_blocks", "read_files"]


def read_blocks(
    paths: Sequence[Path],
    layout: Layout,
    *,
    rows_per_block: int = 200_000,
    bad_lines: BadLines = BadLines.REFUSE,
    start: Position | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[Block]:
    """Streams the rows of a log, in order, each good row once.

    From text files every column is text; from Parquet it has the type stored
    there. Missing values are null in both.

    Args:
      paths: Files of the log, in order. They may differ in compression.
      layout: How the log is written.
      rows_per_block: Most rows in a block; very long rows make shorter blocks.
      bad_lines: What to do with lines that cannot be read without guessing.
      start: `next` of the last block already seen; None starts at the beginning.
      columns: Columns with a role to read, in this order; None for all of them.

    Privacy:
      Reads sensitive rows and releases nothing. Blocks, and how many bad lines
      they had, are as sensitive as the files.

    Raises:
      DataError: A file cannot be read; raised before its first block, or where it is broken.
    """
    used = layout.schema.used
    chosen = used if columns is None else tuple(columns)
    for column in chosen:
        if column not in used:
            raise ConfigError(
                f"column {column!r} has no role under which layout {layout.name!r} reads it"
                f"{did_you_mean(column, used)}; give it one in the schema."
            )
    reading = Reading(
        form=layout.text_form, columns=chosen, rows_per_block=rows_per_block, bad_lines=bad_lines
    )
    return read_files(paths, reading, start)


def read_files(paths: Sequence[Path], reading: Reading, start: Position | None) -> Iterator[Block]:
    """Streams the rows of files. All of them are looked at before the first is read."""
    if isinstance(paths, (str, Path)) or not paths:
        raise ConfigError(f"paths={paths!r} must be a list of at least one file.")
    start = start or Position(file_index=0, row=0, byte=0, line=0)
    if start.file_index >= len(paths):
        raise ConfigError(
            f"start has file_index={start.file_index}, but there are only {len(paths)} files; "
            "name the same files as before."
        )
    forms = [detect_form(Path(path)) for path in paths]
    return _stream(paths, forms, reading, start)


def _stream(
    paths: Sequence[Path], forms: Sequence[FileForm], reading: Reading, start: Position
) -> Iterator[Block]:
    for index in range(start.file_index, len(paths)):
        path = Path(paths[index])
        position = start if index == start.file_index else Position(index, row=0, byte=0, line=0)
        if forms[index] is FileForm.PARQUET:
            yield from read_parquet_blocks(path, reading, position)
        else:
            yield from read_text_blocks(path, forms[index], reading, position)
