"""The rows of a training run: what a caller calls the data, as sets of training and test rows.

Data are files of a log, a table in memory, the folder of a prepared dataset, or the name of a
synthetic log such as "synth:search". Files are prepared once, in a cache. Until a plan is made
nothing is looked at but numbers of rows and whose each row is; both are public under replace.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.splits import split_at_random, split_by_unit
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_count, check_finite, did_you_mean
from tulle.train import row_encoders
from tulle.train.examples import ExampleSet, PlannedRows, examples_of, seconds_of_rows
from tulle.train.trained_model import ENCODER_FILES

if TYPE_CHECKING:
    from tulle.data.features.encoder import Encoder
    from tulle.data.features.feature_plan import FeaturePlan
    from tulle.data.named_logs import SchemaLike
    from tulle.data.tables.sources import Log

SYNTHETIC = "synth:"
"""Beginning of the names of synthetic logs."""
SYNTHETIC_LOGS = ("search", "display", "attribution", "taobao")

Watch = Callable[[int, int, int], None]
"""Function that is told rows done, bytes done and bytes in all, while a log is prepared."""
IntArray = NDArray[np.int64]

# What is used if nobody says otherwise: a first run that is soon over, and a fifth of the rows to
# test on, as is customary.
_SYNTHETIC_ROWS = 200_000
_TEST_FRACTION = 0.2
# Nothing rests on these being secret: synthetic logs are nobody's, and test rows not protected.
_SYNTHETIC_SALT = b"tulle made-up log"
_TEST_KEY = b"tulle test rows, public"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataChoice:
    """Which rows are trained and tested on, as a caller says it."""

    source: object
    """Path or paths, a table in memory, a prepared dataset or its folder, an ExampleSet, or
    "synth:search"."""
    schema: "SchemaLike | None" = None
    layout: str | None = None
    allow_public: Sequence[str] = ()
    features: "FeaturePlan | None" = None
    """What becomes of the columns of files and tables; None: `default_features`."""
    encoder: "Encoder | None" = None
    """What makes ids of columns, of a model to continue from; None: one is made of the data."""
    num_classes: int | None = 2
    """Labels must be whole numbers from 0 to num_classes - 1; None: values from 0 on."""
    classes: tuple[str, ...] | None = None
    """Names of the classes that labels of files and tables are; None: labels are numbers."""
    public_only: bool = False
    """Make no features of sensitive columns of files and tables, which are then never read."""
    test: object = None
    """Share of the rows to test on (0: none), or rows that are not trained on: a source like
    the first. None: one in five rows, or of the users if the data name them."""
    rows: int | None = None
    """Number of rows of a synthetic log; None: 200,000."""
    synth_seed: int | None = None
    """Seed that fixes a synthetic log; None: 0."""
    cache: Path | None = None
    """Folder of prepared logs; None: that of the user, see `tulle.data.dataset_cache`."""
    watch: Watch | None = dataclasses.field(default=None, repr=False, compare=False)

    def open_log(self) -> "Log":
        """Files or a table, with the roles that were given, or else those of the encoder."""
        from tulle.data.named_logs import log_of

        schema, allowed = self.schema, tuple(self.allow_public)
        if self.encoder is not None:
            known = self.encoder.plan.schema
            schema = known if schema is None and self.layout is None else schema
            if schema == known:  # what may be public was decided when the encoder was made
                weight = () if known.weight is None else (known.weight,)
                allowed = tuple(dict.fromkeys((*allowed, *known.public, *weight)))
        return log_of(self.source, schema, layout=self.layout, allow_public=allowed)


def source_name(source: object) -> str:
    """What a source is called, for the name of a run: a short word of its file or folder."""
    if isinstance(source, list | tuple) and len(source) == 1:
        source = source[0]
    if isinstance(source, str) and source.startswith(SYNTHETIC):
        return source.removeprefix(SYNTHETIC)
    paths = [source] if isinstance(source, str | os.PathLike) else source
    if isinstance(paths, list | tuple) and paths:
        path = Path(paths[0])
        return path.resolve().name.partition(".")[0] or path.resolve().name
    return "table"


class TrainingData:
    """The data of a run. Labels and features are read when `examples` is called."""

    def __init__(self, choice: DataChoice) -> None:
        """Opens the data, and counts rows and units.

        Raises:
          ConfigError: The source is unknown, roles are missing, or a column of a known log is
            public that must not be.
          DataError: There is no such file or dataset, or test rows are trained on too.
        """
        self._watch = choice.watch
        self._source = _source(choice)
        self._train_rows: IntArray | None = None
        self.test_rows: IntArray | None = None
        """Places of the test rows among all rows; None if they are a set of their own, or none."""
        self._test: _Source | None = None
        self.planned = self._source.planned()
        """What a plan may know of the training rows."""
        if self.planned.num_rows == 0:
            raise DataError("there are no rows to train on; give at least one.")
        self.test_name = "no rows"
        """Which rows are tested on, in words for the card."""
        if isinstance(choice.test, int | float | None) and not isinstance(choice.test, bool):
            self._hold_out(choice.test)
        else:
            self._test = self._source.like(choice.test)
            self.test_name = f"all rows of {self._test.name}"

    @property
    def encoder(self) -> "Encoder | Path | None":
        """What makes ids of columns, or the folder of its files; it goes with the model."""
        return self._source.encoder

    def examples(self) -> tuple[ExampleSet, ExampleSet | None]:
        """Reads training and test rows, and looks at every label and id once.

        Privacy:
          Both are raw data.
        """
        rows = self._source.examples(self._watch)
        if self._test is not None:
            return rows, self._test.examples(self._watch)
        if self._train_rows is None or self.test_rows is None:
            return rows, None
        return rows.select(self._train_rows), rows.select(self.test_rows)

    def _hold_out(self, test: float | None) -> None:
        """Keeps a share of the rows for the test; whole users, if the data name them."""
        rows = self.planned
        fraction = _TEST_FRACTION if test is None else check_finite("test", test)
        if not 0 <= fraction < 1:
            raise ConfigError(f"test={fraction:g} must be in [0, 1), e.g. 0.2; 0 tests on no rows.")
        if fraction == 0:
            return
        parts = (1 - fraction, fraction)
        if rows.units is None:
            train, held_out = split_at_random(rows.num_rows, fractions=parts, key=_TEST_KEY)
        else:
            # A user who is tested on must not be trained on: what is measured is not protected.
            train, held_out = split_by_unit(rows.units, fractions=parts, key=_TEST_KEY)
        if not len(train) or not len(held_out):
            raise DataError(
                f"test={fraction:g} of these rows leaves none to train or to test on; use more "
                "rows, or test=0."
            )
        whom = "rows" if rows.units is None else "users"
        self.test_name = f"{fraction:g} of the {whom}, held out by a public key"
        self._train_rows, self.test_rows = train, held_out
        self.planned = rows.select(train)


def _source(choice: DataChoice) -> "_Source":
    source = choice.source
    if isinstance(source, str) and source.startswith(SYNTHETIC):
        return _synthetic(choice)
    for name in ("rows", "synth_seed"):
        if getattr(choice, name) is not None:
            raise ConfigError(
                f"{name}={getattr(choice, name)} is for synthetic logs such as synth:search; leave "
                "it out."
            )
    if (rows := encoded_rows(choice)) is not None:
        return rows
    check_files(choice)
    return _opened(choice)


def encoded_rows(choice: DataChoice) -> "_Source | None":
    """Rows that are ids already; None if the data are files or a table."""
    source = choice.source
    if isinstance(source, ExampleSet):
        row_encoders.check_no_ids(choice.encoder)
        return _Examples(source, choice.num_classes)
    if isinstance(source, PreparedDataset):
        return _Prepared(source, choice)
    paths = _paths(source)
    if len(paths) == 1 and _is_prepared(paths[0]):
        return _Prepared(PreparedDataset.open(paths[0]), choice)
    return None


def _paths(source: object) -> list[Path]:
    """The files of a source; none of a table."""
    if isinstance(source, str | os.PathLike):
        return [Path(source)]
    return [Path(path) for path in source] if isinstance(source, list | tuple) else []


def _is_prepared(path: Path) -> bool:
    if not path.exists() and path.with_name(f"{path.name}.partial").is_dir():
        raise DataError(
            f"{path} is not whole yet; give its `tulle data prepare` again, which goes on where "
            "it was stopped."
        )
    return path.is_dir()


def check_files(choice: DataChoice) -> None:
    """Refuses files that are not there."""
    for path in _paths(choice.source):
        if not path.exists():
            raise DataError(
                f"{path} does not exist; name files of a log, the folder of a prepared dataset, "
                f"or one of {', '.join(SYNTHETIC + name for name in SYNTHETIC_LOGS)}."
            )


class _Examples:
    """Rows as ids, which somebody else has encoded."""

    name = "examples"
    encoder = None

    def __init__(self, rows: ExampleSet, num_classes: int | None) -> None:
        self._rows = rows.with_classes(num_classes)

    def planned(self) -> PlannedRows:
        rows = self._rows
        return PlannedRows(
            features=rows.features,
            columns=rows.columns,
            num_rows=rows.num_rows,
            units=rows.units,
            vocabulary_event=rows.vocabulary_event,
            seconds=rows.seconds,
        )

    def examples(self, watch: Watch | None) -> ExampleSet:
        del watch
        return self._rows

    def like(self, test: object) -> "_Source":
        if not isinstance(test, ExampleSet):
            raise ConfigError(
                f"test of type {type(test).__name__} must be an ExampleSet, as the training rows "
                "are; or hold out a share of them, e.g. test=0.2."
            )
        return _Examples(test, self._rows.num_classes)


class _Prepared:
    """A prepared dataset."""

    def __init__(self, dataset: PreparedDataset, choice: DataChoice) -> None:
        from tulle.data.formats.known_roles import check_known_roles

        for name in ("schema", "layout", "features"):
            if getattr(choice, name) is not None:
                raise ConfigError(
                    f"{name}=… is given, but {dataset.folder.name} is a prepared dataset and has "
                    "its own; leave it out."
                )
        check_known_roles(dataset.schema, allowed_public=choice.allow_public)
        if choice.encoder is not None:
            row_encoders.check_prepared(dataset, choice.encoder)
        self._dataset, self._choice = dataset, choice
        self.name = dataset.folder.name

    @property
    def encoder(self) -> Path | None:
        folder = self._dataset.folder
        return folder if all((folder / name).exists() for name in ENCODER_FILES) else None

    def planned(self) -> PlannedRows:
        dataset = self._dataset
        return PlannedRows(
            features=dataset.features,
            columns=dataset.schema.roles,
            num_rows=dataset.num_rows,
            units=dataset.units,
            vocabulary_event=dataset.vocabulary_event,
            seconds=seconds_of_rows(dataset.times, dataset.days),
        )

    def examples(self, watch: Watch | None) -> ExampleSet:
        del watch
        return ExampleSet.of(self._dataset, num_classes=self._choice.num_classes)

    def files(self) -> dict[tuple[object, object], str]:
        """Size and digest of both ends of each file that the rows are from, with its name."""
        sources = self._dataset.head.provenance.get("sources")
        return {
            (source["num_bytes"], source["edges_sha256"]): str(source.get("name"))
            for source in (sources if isinstance(sources, list) else [])
            if isinstance(source, dict) and {"num_bytes", "edges_sha256"} <= source.keys()
        }

    def like(self, test: object) -> "_Source":
        if isinstance(test, PreparedDataset):
            return _of_other_files(self, self._with_same_ids(test))
        if isinstance(test, str | os.PathLike) and _is_prepared(Path(test)):
            return _of_other_files(self, self._with_same_ids(PreparedDataset.open(Path(test))))
        from tulle.data.features.encoder import Encoder

        encoder = Encoder.from_files(self._dataset.folder)
        return _of_other_files(self, _encoded(test, encoder, self._choice))

    def _with_same_ids(self, test: PreparedDataset) -> "_Prepared":
        contents, others = self._dataset.head.contents, test.head.contents
        same = ("features", "encoder_fingerprint")
        if any(getattr(contents, name) != getattr(others, name) for name in same):
            raise DataError(
                f"test={test.folder.name!r} was prepared with other ids than the training rows; "
                f"prepare it with `tulle data prepare --like {self._dataset.folder.name}`."
            )
        return _Prepared(test, dataclasses.replace(self._choice, source=test))


class _Log:
    """Files, which are prepared when they are read, or a table in memory."""

    def __init__(self, log: "Log", encoder: "Encoder", choice: DataChoice, *, name: str) -> None:
        self._log, self._encoder, self._choice = log, encoder, choice
        self.name = name

    @property
    def encoder(self) -> "Encoder":
        return self._encoder

    def planned(self) -> PlannedRows:
        from tulle.data.row_arrays import count_rows_and_units

        encoder = self._encoder
        num_rows, units, seconds = count_rows_and_units(
            self._log, encoder.plan.schema, encoder.plan.salt
        )
        return PlannedRows(
            features=encoder.features,
            columns=encoder.plan.schema.roles,
            num_rows=num_rows,
            units=units,
            vocabulary_event=encoder.vocabulary_event,
            seconds=seconds,
        )

    def examples(self, watch: Watch | None) -> ExampleSet:
        from tulle.data.dataset_cache import prepared_log
        from tulle.data.preparation import PrepareConfig
        from tulle.data.table_arrays import encode_table
        from tulle.data.tables.sources import TableLog

        num_classes, classes = self._choice.num_classes, self._choice.classes
        if isinstance(log := self._log, TableLog):
            arrays = encode_table(
                log.table, self._encoder, with_label=True, num_classes=num_classes, classes=classes
            )
            return examples_of(arrays).with_classes(num_classes)
        dataset = prepared_log(
            self._log,
            self._encoder,
            cache=self._choice.cache,
            config=PrepareConfig(num_classes=num_classes, classes=classes),
            progress=watch,
        )
        return ExampleSet.of(dataset, num_classes=num_classes)

    def files(self) -> dict[tuple[object, object], str]:
        from tulle.data.source_files import inspect_sources

        sources = inspect_sources(self._log.paths) if self._log.paths else ()
        return {(source.num_bytes, source.edges_sha256): source.name for source in sources}

    def like(self, test: object) -> "_Source":
        return _of_other_files(self, _encoded(test, self._encoder, self._choice))


_Source = _Examples | _Prepared | _Log
"""Rows that can be counted before they are read."""


def _of_other_files(trained: _Prepared | _Log, test: _Prepared | _Log) -> _Prepared | _Log:
    """Refuses a log that is trained and tested on: figures of test rows are exact."""
    trained_on = trained.files()
    for known, name in test.files().items():
        if known in trained_on:
            raise DataError(
                f"the test rows of {test.name} are from {name}, which is a file of the "
                "training rows too, and figures of test rows are exact; test on files of "
                "their own, or hold out a share of the rows, e.g. test=0.2."
            )
    return test


def _synthetic(choice: DataChoice) -> _Log:
    """A synthetic log, which is made and kept in the cache."""
    from tulle.data.dataset_cache import synthetic_log
    from tulle.data.named_logs import log_of

    name = synthetic_name(str(choice.source))
    if choice.schema is not None or choice.layout is not None:
        raise ConfigError("a synthetic log has its own schema; leave out schema and layout.")
    rows = _SYNTHETIC_ROWS if choice.rows is None else check_count("rows", choice.rows)
    path = synthetic_log(
        name,
        rows=rows,
        seed=check_count("synth_seed", choice.synth_seed or 0, least=0),
        cache=choice.cache,
        watch=None if choice.watch is None else lambda done: choice.watch(done, done, rows),
    )
    log = log_of(path, layout=name, allow_public=choice.allow_public)
    return _log(log, choice, salt=_SYNTHETIC_SALT, name=name)


def synthetic_name(source: str) -> str:
    """The name of a synthetic log, which must be known."""
    name = source.removeprefix(SYNTHETIC)
    if name not in SYNTHETIC_LOGS:
        raise ConfigError(
            f"data={source!r} is unknown{did_you_mean(name, SYNTHETIC_LOGS)}; use one of "
            f"{', '.join(SYNTHETIC + known for known in SYNTHETIC_LOGS)}."
        )
    return name


def _opened(choice: DataChoice) -> _Log:
    from tulle.data.dataset_cache import salt_for
    from tulle.data.tables.refusals import check_names
    from tulle.data.tables.rows import column_names

    log = choice.open_log()
    if log.paths and choice.layout is None:
        # Units are counted alone: beside the label, what is wrong with their name can be said.
        roles = (log.layout.schema.label, log.layout.schema.unit)
        needed = tuple(name for name in roles if name is not None)
        check_names(log.paths[0].name, column_names(log.paths[0]), needed, may_be_row=True)
    if choice.features is not None and choice.features.schema != log.layout.schema:
        raise ConfigError(
            "features is a FeaturePlan of another schema than that of the data; make it from the "
            "same schema."
        )
    salt = salt_for(log, log.layout.schema)
    return _log(log, choice, salt=salt, name=source_name(choice.source))


def _log(log: "Log", choice: DataChoice, *, salt: bytes, name: str) -> _Log:
    """A log with the encoder of a model to continue from, or else with one of its own."""
    if choice.encoder is not None:
        row_encoders.check_schema(log.layout.schema, choice.encoder, name=name)
        row_encoders.check_features(choice.features, choice.encoder)
        return _Log(log, choice.encoder, choice, name=name)
    features = _features(log, choice, salt=salt)
    return _Log(log, row_encoders.encoder_of(log, features), choice, name=name)


def _features(log: "Log", choice: DataChoice, *, salt: bytes) -> "FeaturePlan":
    from tulle.data.features.default_features import ROWS_FOR_ALL_BINS, default_features
    from tulle.data.number_columns import check_undeclared_numbers
    from tulle.data.row_arrays import count_rows

    schema, features = log.layout.schema, choice.features
    if features is None:
        num_rows = count_rows(log, schema, at_most=ROWS_FOR_ALL_BINS)
        check_undeclared_numbers(log)
        features = default_features(schema, num_rows=num_rows, salt=salt)
    if sensitive := features.paid_columns():
        raise ConfigError(
            f"column {sensitive[0]!r} is sensitive and counting its values for a vocabulary or "
            "for quantiles costs privacy; use a feature that costs nothing (HashedFeature, or "
            "LogFeature or BoundedFeature for numbers), or prepare the data with a "
            "VocabularyPayment, which charges a ledger, and train on the prepared dataset."
        )
    if choice.public_only and features.of_role("public"):
        # Such a model never looks at a sensitive column, so predictions need none.
        features = dataclasses.replace(features, features=features.of_role("public"))
    return features


def _encoded(test: object, encoder: "Encoder", choice: DataChoice) -> _Log:
    """Rows to test on: files or a table with the columns of the training rows."""
    from tulle.data.tables.sources import open_log

    log = open_log(test, encoder.plan.schema)
    name = log.paths[0].name if log.paths else "a table in memory"
    return _Log(log, encoder, choice, name=name)
