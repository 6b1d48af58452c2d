"""Any CSV, TSV or Parquet file with a schema.

Only what the name of the file says is used: .csv has commas and may have
quotes, .tsv has tabs and no quotes, and both start with a header.
"""

from pathlib import Path

from tulle.data.formats.archives import FileForm, form_by_name
from tulle.data.formats.layout import QUOTE, Layout
from tulle.data.schema import Schema
from tulle.errors import ConfigError

_SEPARATOR_OF_SUFFIX = {".csv": ",", ".tsv": "\t", ".tab": "\t"}


def layout_for(path: Path, schema: Schema) -> Layout:
    """The layout of a file by its name, such as clicks.csv.gz, with the roles of a schema.

    An empty value is a missing one. For other markers, or a file without a
    header, build the `Layout` yourself.
    """
    separator = _separator(path)
    return Layout(
        name=path.name,
        columns=tuple(name for _, name in schema.roles.items()),
        separator=separator,
        has_header=True,
        missing=("",),
        quote=QUOTE if separator == "," else None,
        schema=schema,
    )


def _separator(path: Path) -> str:
    form = form_by_name(path)
    if form is FileForm.PARQUET:
        return ","
    suffix = path.suffix if form is FileForm.PLAIN else path.with_suffix("").suffix
    if suffix.lower() not in _SEPARATOR_OF_SUFFIX:
        raise ConfigError(
            f"the name {path.name} does not say how its columns are separated; end it in .csv, "
            ".tsv (either with .gz or .zst) or .parquet, or build a Layout."
        )
    return _SEPARATOR_OF_SUFFIX[suffix.lower()]
