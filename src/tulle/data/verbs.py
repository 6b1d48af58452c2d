"""The verbs of `tulle.data`: describe a log, and prepare it for training."""

import dataclasses
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from tulle.accounting.ledger import Ledger
from tulle.data.description import Description, describe_log, describe_prepared
from tulle.data.features.column_features import (
    PUBLIC_BINS,
    SENSITIVE_BINS,
    DayOfWeekFeature,
    FeatureSettings,
    HourFeature,
    LogFeature,
    PrivateQuantileFeature,
    Role,
    VocabularyFeature,
)
from tulle.data.features.default_features import features_of_kind
from tulle.data.features.encoder import Encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.private_vocabulary import PrivateVocabularyConfig
from tulle.data.named_logs import FilePath, SchemaLike, log_as_said, log_of
from tulle.data.number_columns import check_undeclared_numbers
from tulle.data.preparation import (
    PrepareConfig,
    PrepareResult,
    Progress,
    VocabularyPayment,
    begun_plan,
    prepare_log,
)
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError, DataError
from tulle.privacy.units import Unit


def describe(
    data: object,
    schema: SchemaLike | None = None,
    *,
    layout: str | None = None,
    skip_bad_lines: bool = False,
    watch: Callable[[int], None] | None = None,
) -> Description:
    """Counts rows, label rate, cardinalities and rows per unit, exactly.

    Args:
      data: Files of a log, a table of polars, pandas, Arrow or DuckDB, or a prepared dataset or
        its folder.
      schema: Roles of the columns: a Schema, plain data, or a TOML or JSON file. A prepared
        dataset has its own.
      layout: Name of a public log, in place of a schema or with one.
      skip_bad_lines: Count and leave out lines that cannot be read; else they are refused.
      watch: Function that is told the number of rows done.

    Privacy:
      Reads raw data and adds no noise: what it returns is for those who may see the data, and
      each figure says whether it may be released.

    Raises:
      ConfigError: Roles are missing, or are given for a prepared dataset.
      DataError: A file cannot be read or is there twice, or has no row.
    """
    if isinstance(data, list | tuple) and len(data) == 1:
        data = data[0]
    if isinstance(data, str | os.PathLike) and Path(data).is_dir():
        _check_own_schema(f"{Path(data).name} is a folder and", schema, layout)
        return describe_prepared(PreparedDataset.open(Path(data)))
    if isinstance(data, PreparedDataset):
        _check_own_schema("a prepared dataset", schema, layout)
        return describe_prepared(data)
    log = log_as_said(data, schema, layout=layout, skip_bad_lines=skip_bad_lines)
    return describe_log(log, progress=watch)


def _check_own_schema(what: str, schema: object, layout: str | None) -> None:
    if schema is not None or layout is not None:
        raise ConfigError(f"{what} has its own schema; leave out schema and layout.")


def prepare(
    data: object,
    schema: SchemaLike | None = None,
    *,
    output: FilePath,
    layout: str | None = None,
    allow_public: Sequence[str] = (),
    features: FeaturePlan | None = None,
    hash_bins_public: int | None = None,
    hash_bins_sensitive: int | None = None,
    min_count_public: int | None = None,
    min_count_sensitive: int | None = None,
    vocabulary_epsilon: float | None = None,
    vocabulary_delta: float | None = None,
    ledger: Ledger | FilePath | None = None,
    log: Sequence[str] = (),
    private_quantiles: Sequence[str] = (),
    hour: bool = False,
    day_of_week: bool = False,
    like: FilePath | None = None,
    salt: bytes | str | None = None,
    num_classes: int = 2,
    values: bool = False,
    drop_rows_without_unit: bool = False,
    skip_bad_lines: bool = False,
    resume: bool = True,
    watch: Progress | None = None,
) -> PrepareResult:
    """Writes files of a log as memory-mapped arrays, in one streaming pass.

    Interrupted at any moment, it continues when it is called again in the same way.

    Args:
      data: A path, or several paths of one log in order.
      schema: Roles of the columns: a Schema, plain data, or a TOML or JSON file.
      output: New folder of the dataset.
      layout: Name of a public log, in place of a schema or with one.
      allow_public: Columns that may be public though a known log protects them.
      features: What becomes of each column, in place of the settings of features below.
      hash_bins_public: Number of ids that public values are hashed into; None: 100,000.
      hash_bins_sensitive: Number of ids that sensitive values are hashed into; None: 50,000.
      min_count_public: In place of hashing, one id for each public value that has this many rows.
      min_count_sensitive: The same for sensitive values, by noisy numbers of rows.
      vocabulary_epsilon: What the noisy numbers of one row cost together under add-or-remove;
        twice that under replace, which is the adjacency of training.
      vocabulary_delta: Probability that a value of one row alone is kept; None for private
        quantiles alone, which need none.
      ledger: A ledger or its path, which is charged for them with the purpose "vocabulary".
      log: Columns of numbers that become buckets of their logarithm, in place of the bins that
        their kind and role would give them.
      private_quantiles: Sensitive columns of numbers whose bins are noisy quantiles, which are
        charged with the noisy numbers of rows.
      hour: Whether the hour of the time is a feature.
      day_of_week: Whether the day of the week of the time is a feature.
      like: Folder of a prepared dataset whose ids are used, e.g. for a test set.
      salt: Salt of the hashes, in bytes or in hexadecimal; None: a new one.
      num_classes: Number of classes n; labels are whole numbers from 0 to n - 1.
      values: Whether labels are amounts or counts, numbers from 0 on, and no classes.
      drop_rows_without_unit: Leave out rows that name no unit; else they are refused.
      skip_bad_lines: Count and leave out lines that cannot be read; else they are refused.
      resume: Continue what was begun in this folder; False: throw it away, vocabularies included.
      watch: Function that is told rows done, bytes done and bytes in all.

    Privacy:
      The dataset is raw data: it stays where the log is. Vocabularies and quantiles of sensitive
      columns are a release. Unit: one row, replace. Event: that of
      `result.dataset.vocabulary_event`, charged before noise is drawn, once also if the work is
      interrupted.

    Raises:
      ConfigError: Roles are missing, settings contradict each other, or data are in memory.
      DataError: The log breaks its layout or schema, or has one file twice.
      BudgetExceededError: A budget does not cover the vocabularies. Nothing was spent.
      RunStateError: The folder exists, or was begun with other inputs or settings.
    """
    if not isinstance(data, str | os.PathLike | list | tuple):
        raise ConfigError(
            "data must be files of a log; a table in memory needs no preparation, train on it as "
            "it is."
        )
    source = log_of(
        data, schema, layout=layout, allow_public=allow_public, skip_bad_lines=skip_bad_lines
    )
    options = _FeatureOptions(
        hash_bins_public=hash_bins_public,
        hash_bins_sensitive=hash_bins_sensitive,
        min_count_public=min_count_public,
        min_count_sensitive=min_count_sensitive,
        log=tuple(log),
        private_quantiles=tuple(private_quantiles),
        hour=hour,
        day_of_week=day_of_week,
        salt=_salt_of(salt),
    )
    folder = Path(output)
    is_alone = options == _FeatureOptions()
    chosen: FeaturePlan | Encoder
    if like is not None:
        chosen = _encoder_of(Path(like), is_alone=is_alone and features is None)
    elif features is not None:
        if not is_alone:
            raise ConfigError("features says it all; leave out the other feature settings.")
        chosen = features
    else:
        if not folder.exists():  # which is refused below
            check_undeclared_numbers(source)
        # What was begun continues with its own salt; a new one would make other ids.
        begun = begun_plan(folder) if resume and salt is None else None
        options = options if begun is None else dataclasses.replace(options, salt=begun.salt)
        chosen = options.plan(source.layout.schema)
    return prepare_log(
        source,
        chosen,
        folder,
        config=PrepareConfig(
            num_classes=None if values else num_classes,
            drop_rows_without_unit=drop_rows_without_unit,
        ),
        payment=_payment(chosen, vocabulary_epsilon, vocabulary_delta, ledger),
        resume=resume,
        progress=watch,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FeatureOptions:
    """What becomes of the columns. Every field is public information."""

    hash_bins_public: int | None = None
    """Number of ids that public values are hashed into; None: 100,000."""
    hash_bins_sensitive: int | None = None
    """Number of ids that sensitive values are hashed into; None: 50,000."""
    min_count_public: int | None = None
    """Least number of rows of a public value with an id of its own; None: values are hashed."""
    min_count_sensitive: int | None = None
    """Least noisy number of rows of a sensitive value with an id; None: values are hashed."""
    log: tuple[str, ...] = ()
    """Columns of numbers that become buckets of their logarithm."""
    private_quantiles: tuple[str, ...] = ()
    """Sensitive columns of numbers whose bins are noisy quantiles."""
    hour: bool = False
    """Whether the hour of the time is a feature."""
    day_of_week: bool = False
    """Whether the day of the week of the time is a feature."""
    salt: bytes | None = None
    """Salt of the hashes; None: a new one for each plan."""

    def plan(self, schema: Schema) -> FeaturePlan:
        """Makes features of all public and sensitive columns, in one table for each role.

        Raises:
          ConfigError: Two fields contradict each other, or a column is missing.
        """
        times: list[FeatureSettings] = []
        for asked, is_wanted, feature in (
            ("hour=True needs", self.hour, HourFeature),
            ("day_of_week=True needs", self.day_of_week, DayOfWeekFeature),
        ):
            if is_wanted and schema.time is None:
                raise ConfigError(f"{asked} a column of role time; name it in the schema.")
            if is_wanted:
                times.append(feature(column=str(schema.time)))
        for column in self.log:
            if column not in schema.features:
                raise ConfigError(f"log={column!r} must name a public or sensitive column.")
        for column in self.private_quantiles:
            if column in schema.public:
                raise ConfigError(
                    f"private_quantiles={column!r} is a public column, whose quantiles need no "
                    "noise and cost nothing; leave it out."
                )
            if column not in schema.sensitive or column in self.log:
                raise ConfigError(
                    f"private_quantiles={column!r} must be a sensitive column of numbers whose "
                    "bins nothing else says, as log=… does; name another one."
                )
        return FeaturePlan(
            schema=schema,
            features=(
                *self._columns(schema, "public", PUBLIC_BINS),
                *times,
                *self._columns(schema, "sensitive", SENSITIVE_BINS),
            ),
            salt=self.salt or secrets.token_bytes(16),
            shared_tables=True,
        )

    def _columns(self, schema: Schema, role: Role, default_bins: int) -> list[FeatureSettings]:
        """Features of the columns of a role: kinds decide, but for what these options name."""
        num_bins = getattr(self, f"hash_bins_{role}")
        min_count = getattr(self, f"min_count_{role}")
        if num_bins is not None and min_count is not None:
            raise ConfigError(
                f"hash_bins_{role}={num_bins} and min_count_{role}={min_count} exclude each "
                "other: values are hashed or have a vocabulary. Give one."
            )
        bins = default_bins if num_bins is None else num_bins
        made: list[FeatureSettings] = []
        for column in getattr(schema, role):
            if column in self.log:
                made.append(LogFeature(column=column))
            elif column in self.private_quantiles:
                low, high = schema.bounds.get(column, (None, None))
                made.append(PrivateQuantileFeature(column=column, low=low, high=high))
            elif column in schema.known_values:
                made += features_of_kind(schema, column, {role: bins})
            elif min_count is not None and schema.kind(column) is Kind.CATEGORICAL:
                made.append(VocabularyFeature(column=column, min_count=min_count))
            else:
                made += features_of_kind(schema, column, {role: bins})
        return made


def _salt_of(given: bytes | str | None) -> bytes | None:
    if not isinstance(given, str):
        return given
    try:
        return bytes.fromhex(given)
    except ValueError:
        raise ConfigError(f"salt={given!r} must be hexadecimal, 32 to 128 digits.") from None


def _encoder_of(folder: Path, *, is_alone: bool) -> Encoder:
    if not is_alone:
        raise ConfigError(
            f"like={folder.name!r} takes all features from there; leave out the other feature "
            "settings."
        )
    expected = PreparedDataset.open(folder).head.contents.encoder_fingerprint
    encoder = Encoder.from_files(folder)
    if encoder.fingerprint() != expected:
        raise DataError(
            f"the encoder in {folder.name} is not the one its arrays were made with; "
            "prepare that dataset again."
        )
    return encoder


def _payment(
    features: FeaturePlan | Encoder,
    epsilon: float | None,
    delta: float | None,
    ledger: Ledger | FilePath | None,
) -> VocabularyPayment | None:
    if epsilon is None and delta is None and ledger is None:
        return None
    # Buckets of numbers are known to everybody, so that none of them can betray its only row.
    is_known = isinstance(features, FeaturePlan) and not features.vocabularies("sensitive")
    if epsilon is None or ledger is None or (delta is None and not is_known):
        raise ConfigError(
            "vocabulary_epsilon, vocabulary_delta and ledger belong together; give all three. "
            "Private quantiles alone need no vocabulary_delta."
        )
    private = PrivateVocabularyConfig(
        unit=Unit.example(),
        epsilon=epsilon,
        delta=delta or 0.0,
        known_values=None if delta else {},
    )
    opened = ledger if isinstance(ledger, Ledger) else Ledger.open(Path(ledger))
    return VocabularyPayment(private=private, ledger=opened)
