"""The rows of a training run: a prepared dataset, or a made-up log that is prepared here."""

import contextlib
import dataclasses
import fcntl
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.cli.data_log import FeatureOptions
from tulle.cli.data_progress import showing_progress
from tulle.cli.train_settings import DataChoice
from tulle.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tulle.data.features.feature_plan import FeaturePlan
    from tulle.data.formats.layout import Layout
    from tulle.data.prepared.dataset import PreparedDataset
    from tulle.train.examples import ExampleSet

_SYNTH, _LOCK = "synth:", ".lock"
_SYNTH_LOGS = ("search", "display", "attribution", "taobao")
_SYNTH_ROWS, _TEST_FRACTION = 200_000, 0.2
# Nothing rests on these being secret: the logs are made up, and test rows are not protected.
_SYNTH_SALT = b"tulle made-up log"
_TEST_KEY = b"tulle test rows, public"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ChosenData:
    """Which rows of which dataset. Labels and features are not looked at yet."""

    dataset: "PreparedDataset"
    train_rows: "NDArray[np.int64] | None"
    """None for all."""
    test_dataset: "PreparedDataset | None"
    test_rows: "NDArray[np.int64] | None"
    """Of the test dataset; None for all."""
    name: str
    """Of the source, for the name of a run."""
    test_name: str
    """For the card."""

    def planned(self) -> "ExampleSet":
        """The training rows for planning: without labels and sensitive columns."""
        from tulle.train.examples import ExampleSet

        dataset, rows = self.dataset, self.train_rows
        examples = ExampleSet(
            features=dataset.features,
            columns=dataset.schema.roles,
            public_features=dataset.public_features,
            sensitive_features=None,
            labels=None,
            units=dataset.units,
            vocabulary_event=dataset.vocabulary_event,
        )
        return examples if rows is None else examples.select(rows)

    def examples(self) -> "tuple[ExampleSet, ExampleSet | None]":
        """Training and test rows, with every label and id looked at once."""
        from tulle.train.examples import ExampleSet

        all_rows = ExampleSet.of(self.dataset)
        train = all_rows if self.train_rows is None else all_rows.select(self.train_rows)
        if self.test_dataset is None:
            return train, None
        if self.test_dataset is not self.dataset:
            return train, ExampleSet.of(self.test_dataset, self.test_rows)
        return train, all_rows if self.test_rows is None else all_rows.select(self.test_rows)


@contextlib.contextmanager
def chosen_data(choice: DataChoice, *, cache: Path | None, quiet: bool) -> Iterator[ChosenData]:
    """Opens or makes the data that were chosen.

    Args:
      choice: What was asked for.
      cache: Where prepared made-up logs are kept; None: nowhere.
      quiet: No progress.

    Raises:
      ConfigError: A column of a known log is public that must not be.
      DataError: There is no such dataset, or the test rows have other ids.
    """
    with contextlib.ExitStack() as closing:
        if choice.source.startswith(_SYNTH):
            if cache is None:
                import tempfile

                cache = Path(closing.enter_context(tempfile.TemporaryDirectory()))
            yield _chosen(choice, _made_up(choice, cache, quiet=quiet))
        else:
            yield _chosen(choice, _prepared(choice))


def _chosen(choice: DataChoice, dataset: "PreparedDataset") -> ChosenData:
    from tulle.data.formats.known_roles import check_known_roles
    from tulle.data.prepared.dataset import PreparedDataset

    check_known_roles(dataset.schema, allowed_public=choice.allow_public)
    name = choice.source.removeprefix(_SYNTH)
    chosen = ChosenData(
        dataset=dataset,
        train_rows=None,
        test_dataset=None,
        test_rows=None,
        name=name if choice.source.startswith(_SYNTH) else dataset.folder.resolve().name,
        test_name="no rows",
    )
    if choice.test is not None:
        test = PreparedDataset.open(choice.test)
        _check_same_ids(dataset, test)
        _check_other_files(dataset, test)
        test_name = f"all rows of {choice.test.resolve().name}"
        return dataclasses.replace(chosen, test_dataset=test, test_name=test_name)
    fraction = _TEST_FRACTION if choice.test_fraction is None else choice.test_fraction
    if fraction == 0:
        return chosen
    train_rows, test_rows = _split(dataset, fraction)
    if not len(train_rows) or not len(test_rows):
        raise DataError(
            f"--test-fraction {fraction:g} of these rows leaves none to train or to test on; "
            "use more rows, or --test-fraction 0."
        )
    whom = "rows" if dataset.units is None else "users"
    return dataclasses.replace(
        chosen,
        train_rows=train_rows,
        test_dataset=dataset,
        test_rows=test_rows,
        test_name=f"{fraction:g} of the {whom}, held out by a public key",
    )


def _split(dataset: "PreparedDataset", fraction: float) -> "list[NDArray[np.int64]]":
    from tulle.data.splits import split_at_random, split_by_unit

    parts = (1 - fraction, fraction)
    if dataset.units is None:
        return split_at_random(dataset.num_rows, fractions=parts, key=_TEST_KEY)
    # A user who is tested on must not be trained on: what is measured is not protected.
    return split_by_unit(dataset.units, fractions=parts, key=_TEST_KEY)


def _check_same_ids(dataset: "PreparedDataset", test: "PreparedDataset") -> None:
    contents, others = dataset.head.contents, test.head.contents
    same = ("features", "encoder_fingerprint")
    if any(getattr(contents, name) != getattr(others, name) for name in same):
        raise DataError(
            f"--test {test.folder.name} was prepared with other ids than the training rows; "
            f"prepare it with `tulle data prepare --like {dataset.folder.name}`."
        )


def _check_other_files(dataset: "PreparedDataset", test: "PreparedDataset") -> None:
    """Refuses a log that is trained and tested on: figures of test rows are exact."""
    trained_on = _known_sources(dataset)
    for known, name in _known_sources(test).items():
        if known in trained_on:
            raise DataError(
                f"--test {test.folder.name} was prepared from {name}, which is a file of the "
                "training rows too, and figures of test rows are exact; prepare a test set from "
                "files of its own, or leave out --test: --test-fraction holds rows out."
            )


def _known_sources(dataset: "PreparedDataset") -> dict[tuple[object, object], str]:
    """The files that a dataset was made of: size and digest of both ends, with their names."""
    sources = dataset.head.provenance.get("sources")
    known = sources if isinstance(sources, list) else []
    return {
        (source["num_bytes"], source["edges_sha256"]): str(source.get("name"))
        for source in known
        if isinstance(source, dict) and {"num_bytes", "edges_sha256"} <= source.keys()
    }


def _prepared(choice: DataChoice) -> "PreparedDataset":
    from tulle.data.prepared.dataset import PreparedDataset

    for key in ("rows", "synth_seed"):
        if getattr(choice, key) is not None:
            raise ConfigError(
                f"--{key.replace('_', '-')} is for made-up logs such as synth:search; leave it out."
            )
    folder = Path(choice.source)
    if not folder.is_dir():
        if folder.with_name(f"{folder.name}.partial").is_dir():
            raise DataError(
                f"--data {choice.source} is not whole yet; give its `tulle data prepare` again, "
                "which goes on where it was stopped."
            )
        raise _no_dataset(choice.source)
    return PreparedDataset.open(folder)


def _no_dataset(source: str) -> DataError:
    if Path(source).exists():
        return DataError(
            f"--data {source} is a file. Prepare it first: `tulle data prepare {source} --schema "
            "schema.toml --output prepared`, where the schema names the role of each column (for a "
            "public log `--layout NAME` does); then give --data prepared."
        )
    return DataError(
        f"--data {source} does not exist; name the folder of a log that `tulle data prepare` "
        f"wrote, or use one of {', '.join(_SYNTH + name for name in _SYNTH_LOGS)}."
    )


def _made_up(choice: DataChoice, cache: Path, *, quiet: bool) -> "PreparedDataset":
    """The prepared log, from the cache if it is there. The same choice gives the same bytes."""
    from tulle.data.formats.public import LAYOUTS
    from tulle.data.logs import LogFiles
    from tulle.data.prepare import prepare
    from tulle.data.prepared.dataset import PreparedDataset
    from tulle.runs.whole_files import reporting_disk_errors

    name = choice.source.removeprefix(_SYNTH)
    if name not in _SYNTH_LOGS:
        from tulle.privacy.fields import did_you_mean

        raise ConfigError(
            f"--data {choice.source} is unknown{did_you_mean(name, _SYNTH_LOGS)}; use one of "
            f"{', '.join(_SYNTH + known for known in _SYNTH_LOGS)}."
        )
    num_rows = _SYNTH_ROWS if choice.rows is None else choice.rows
    layout, seed = LAYOUTS[name], choice.synth_seed or 0
    features = _features(layout, num_rows)
    folder = cache / f"{name}-{num_rows}-{seed}-{_digest(features)}"
    with reporting_disk_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
    log = cache / f"{folder.name}.parquet"
    with _alone_in(cache), showing_progress(f"making up {name}", quiet=quiet) as report:
        if folder.exists():
            return PreparedDataset.open(folder)
        try:
            _write_log(name, log, num_rows, seed, report)
            source = LogFiles(paths=(log,), layout=layout)
            return prepare(source, features, folder, resume=False).dataset
        finally:
            log.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone_in(cache: Path) -> Iterator[None]:
    """Waits for other commands that make up the same log, so that it is made once."""
    from tulle.runs.whole_files import reporting_disk_errors

    with contextlib.ExitStack() as closing:
        with reporting_disk_errors(cache / _LOCK):
            lock = closing.enter_context((cache / _LOCK).open("ab"))
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        yield


def _write_log(name: str, path: Path, num_rows: int, seed: int, report: Any) -> None:
    from tulle.data.synth import shapes
    from tulle.data.synth.write_logs import write_log

    known = (shapes.SEARCH, shapes.DISPLAY, shapes.ATTRIBUTION, shapes.TAOBAO)
    shape = next(shape for shape in known if shape.name == name)
    write_log(
        shape,
        path,
        num_rows=num_rows,
        seed=seed,
        progress=lambda done: report(done, done, num_rows),
    )


def _features(layout: "Layout", num_rows: int) -> "FeaturePlan":
    """Hashed as `tulle data prepare` does, into fewer bins if there are few rows."""
    from tulle.data.schema import Kind

    schema = layout.schema
    numbers = (Kind.INTEGER, Kind.REAL)
    has_time = schema.time is not None
    return FeatureOptions(
        hash_bins_public=min(100_000, max(500, num_rows // 2)),
        hash_bins_sensitive=min(50_000, max(250, num_rows // 4)),
        log=tuple(column for column in schema.features if schema.kind(column) in numbers),
        hour=has_time,
        day_of_week=has_time,
        salt=_SYNTH_SALT,
    ).plan(schema)


def _digest(features: "FeaturePlan") -> str:
    import tulle

    text = f"{tulle.__version__} {features.to_json()}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]
