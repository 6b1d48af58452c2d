"""Options of `tulle data` that say what a log is and what its columns become."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.data.features.feature_plan import FeaturePlan, FeatureSettings
    from tulle.data.schema import Schema
    from tulle.data.tables.sources import Log

LayoutName = Annotated[
    str | None,
    typer.Option(
        help="A public log: display, attribution, search, search-by-user, taobao, "
        "taobao-tables, browser-impressions or browser-conversions."
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(help="TOML or JSON file with the role of each column, for any CSV or Parquet."),
]
SkipBadLines = Annotated[
    bool, typer.Option("--skip-bad-lines", help="Count and leave out lines that cannot be read.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]

_TAOBAO_TABLES = "taobao-tables"
_PUBLIC_BINS, _SENSITIVE_BINS = 100_000, 50_000


def open_log(
    inputs: list[Path], *, layout: str | None, schema: Path | None, skip_bad_lines: bool
) -> "Log":
    """The log that --layout or --schema describe, or both: then the schema gives the roles.

    Args:
      inputs: Files of the log, in order.
      layout: Name of the layout of a public log; None if --schema is given alone.
      schema: File with the role of each column; None for the roles of the layout.
      skip_bad_lines: Whether lines that cannot be read are counted and left out.
    """
    from tulle.data.formats.public import LAYOUTS
    from tulle.data.formats.taobao_tables import TaobaoTables
    from tulle.data.schema_file import read_schema
    from tulle.data.tables import sources
    from tulle.data.tables.blocks import BadLines
    from tulle.privacy.fields import did_you_mean

    bad_lines = BadLines.SKIP if skip_bad_lines else BadLines.REFUSE
    if layout == _TAOBAO_TABLES:
        if len(inputs) != 3 or schema is not None:
            raise ConfigError(
                f"--layout {_TAOBAO_TABLES} needs three inputs and no --schema: the files "
                "raw_sample, ad_feature and user_profile, in this order."
            )
        return TaobaoTables(
            raw_sample=inputs[0],
            ad_feature=inputs[1],
            user_profile=inputs[2],
            bad_lines=bad_lines,
        )
    if layout is None and schema is None:
        raise ConfigError("give --layout NAME for a public log, or --schema FILE for any other.")
    if layout is not None and layout not in LAYOUTS:
        known = [*LAYOUTS, _TAOBAO_TABLES]
        raise ConfigError(
            f"--layout {layout} is unknown{did_you_mean(layout, known)}; "
            f"use one of {', '.join(known)}, or --schema FILE."
        )
    return sources.open_log(
        inputs,
        None if schema is None else read_schema(schema),
        layout=None if layout is None else LAYOUTS[layout],
        skip=skip_bad_lines,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureOptions:
    """What the columns become, as the command line says it."""

    hash_bins_public: int | None = None
    hash_bins_sensitive: int | None = None
    min_count_public: int | None = None
    min_count_sensitive: int | None = None
    log: tuple[str, ...] = ()
    hour: bool = False
    day_of_week: bool = False
    salt: bytes | None = None

    @property
    def is_given(self) -> bool:
        """Whether any option but the salt says something."""
        return self != FeatureOptions(salt=self.salt)

    def plan(self, schema: "Schema") -> "FeaturePlan":
        """Features of all public and sensitive columns, in one table for each role."""
        import secrets

        from tulle.data.features.feature_plan import DayOfWeekFeature, FeaturePlan, HourFeature

        times: list[FeatureSettings] = []
        for option, is_wanted, kind in (
            ("--hour", self.hour, HourFeature),
            ("--day-of-week", self.day_of_week, DayOfWeekFeature),
        ):
            if is_wanted and schema.time is None:
                raise ConfigError(f"{option} needs a column of role time; name it in the schema.")
            if is_wanted:
                times.append(kind(column=str(schema.time)))
        for column in self.log:
            if column not in schema.features:
                raise ConfigError(f"--log {column} must name a public or sensitive column.")
        public = self._columns(schema.public, "public", _PUBLIC_BINS)
        sensitive = self._columns(schema.sensitive, "sensitive", _SENSITIVE_BINS)
        return FeaturePlan(
            schema=schema,
            features=(*public, *times, *sensitive),
            salt=self.salt or secrets.token_bytes(16),
            shared_tables=True,
        )

    def _columns(
        self, columns: tuple[str, ...], role: str, default_bins: int
    ) -> "list[FeatureSettings]":
        from tulle.data.features.feature_plan import HashedFeature, LogFeature, VocabularyFeature

        num_bins = getattr(self, f"hash_bins_{role}")
        min_count = getattr(self, f"min_count_{role}")
        if num_bins is not None and min_count is not None:
            raise ConfigError(
                f"--hash-bins-{role} {num_bins} and --min-count-{role} {min_count} exclude each "
                "other: values are hashed or have a vocabulary. Give one."
            )
        made: list[FeatureSettings] = []
        for column in columns:
            if column in self.log:
                made.append(LogFeature(column=column))
            elif min_count is not None:
                made.append(VocabularyFeature(column=column, min_count=min_count))
            else:
                made.append(HashedFeature(column=column, num_bins=num_bins or default_bins))
        return made
