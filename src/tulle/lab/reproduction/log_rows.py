"""Rows of a public ad log for an experiment: the user's copy, or a synthetic one of its kind.

The log is prepared in a folder that goes away with the experiment. Rows are split at random into
those to train on and those to test with, the same for every method. The logs of the papers come
with their layouts, their synthetic twins, and how many rows are run.
"""

import contextlib
import dataclasses
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tulle.errors import DataError
from tulle.lab.reproduction.reproducing import ReproductionSettings

if TYPE_CHECKING:
    from tulle.accounting.ledger import Ledger
    from tulle.data.features.encoder import Encoder
    from tulle.data.features.feature_plan import FeaturePlan
    from tulle.data.features.private_vocabulary import PrivateVocabularyConfig
    from tulle.data.synth.shapes import SynthShape
    from tulle.data.tables.layout import Layout
    from tulle.data.tables.sources import LogFiles
    from tulle.train.examples import ExampleSet

IntArray = NDArray[np.int64]

# Nothing rests on these being secret: figures of an experiment are no release.
_SALT = b"reproduction, public"
_SPLIT_KEY = hashlib.sha256(b"split of a reproduction").digest()
_PAPER_FRACTIONS = (0.8, 0.2)
"""Shares of training and test rows in a run at paper scale."""
_FRACTIONS = (0.5, 0.5)
"""Shares in a reduced run: test rows cost next to nothing, and few of them leave claims open."""
_LEAST_ROWS = 1_000
"""Fewer rows could decide no claim, and would fill no batch."""
_NUM_ROWS = {
    "display": (120_000, 40_000_000),
    "search": (120_000, 16_000_000),
    "attribution": (160_000, 16_000_000),
}
"""Rows of a reduced run and of the published one, by the name of the log."""
_COUNT_NOISE_MULTIPLIER = 4.0
"""Noise of the counts over their sensitivity; it fits the budget below."""

_COUNT_EPSILON, _COUNT_DELTA = 3.0, 1e-9
"""Guarantee of counts of sensitive values; the values are protected too, so it raises thresholds
below about 115 rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinCounts:
    """Least rows of a value that has an id of its own, instead of hashing."""

    public: int
    sensitive: int | None
    """Least noisy count of a kept sensitive value; its cost is part of what models are calibrated
    to. None: sensitive values are hashed all the same."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogKind:
    """A public log: how it is written, what its synthetic twin is like, and how much is run."""

    shape: "SynthShape"
    layout: "Layout"
    reduced_rows: int
    paper_rows: int
    """Number of rows of the published experiment."""
    public_bins: int = 100_000
    sensitive_bins: int = 50_000
    min_counts: MinCounts | None = None
    """None: every value is hashed into the bins."""

    def feature_plan(self) -> "FeaturePlan":
        """Every feature hashed, or by its frequent values; one table a role."""
        from tulle.data.features.feature_plan import hash_all, vocabulary_all

        schema, counts = self.layout.schema, self.min_counts
        hashed = hash_all(schema, self.public_bins, self.sensitive_bins, salt=_SALT)
        if counts is None:
            return hashed
        if counts.sensitive is not None:
            return vocabulary_all(schema, counts.public, counts.sensitive, salt=_SALT)
        public = vocabulary_all(schema, counts.public, salt=_SALT).of_role("public")
        return dataclasses.replace(hashed, features=(*public, *hashed.of_role("sensitive")))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LogRows:
    """Training and test rows of one log. The content is raw data."""

    train: "ExampleSet"
    test: "ExampleSet"
    name: str

    def raw_labels(self) -> NDArray[np.float32]:
        """[training rows], as they are."""
        if self.train.labels is None:
            raise DataError("the log has no labels; give one with a column for them.")
        return self.train.labels

    def owners(self) -> IntArray:
        """[training rows], who they belong to."""
        if self.train.units is None:
            raise DataError("the log names no users; give one with a column for them.")
        return np.asarray(self.train.units, dtype=np.int64)

    def public_ids(self, column: str) -> IntArray:
        """[training rows], the id of a public column's value."""
        names = [feature.name for feature in self.train.features]
        ids = self.train.public_features[:, names.index(column)]
        return np.asarray(ids if self.train.rows is None else ids[self.train.rows], dtype=np.int64)

    def num_ids(self, role: str) -> int:
        """Number of ids of the table that the features of a role share."""
        return max(each.num_ids for each in self.train.features if each.role == role)

    def described(self) -> str:
        """Name and sizes in one line; sizes are public."""
        return f"{self.name}, {self.train.num_rows:,} training rows, {self.test.num_rows:,} to test"


@contextlib.contextmanager
def log_rows(
    kind: LogKind, settings: ReproductionSettings, *, by_user: bool = False
) -> Iterator[LogRows]:
    """Prepares a log for the time of an experiment.

    Args:
      kind: Which log.
      settings: Copy of the data to use, and how much of it.
      by_user: Whether a user's rows are all to train on or all to test with.

    Privacy:
      Not a release: training and test rows are raw data.
    """
    from tulle.data.preparation import prepare_log
    from tulle.data.splits import split_at_random, split_by_unit
    from tulle.data.synth.write_logs import write_log
    from tulle.data.tables.sources import LogFiles
    from tulle.train.examples import ExampleSet

    most = kind.paper_rows if settings.is_paper else kind.reduced_rows
    with tempfile.TemporaryDirectory(prefix="tulle-") as work:
        log = settings.data
        if log is None:
            log = Path(work) / "log.parquet"
            settings.say(f"make up {most:,} rows like the {kind.layout.name} log")
            write_log(kind.shape, log, num_rows=most, seed=settings.seed)
        settings.say("prepare the log")
        files = LogFiles(paths=(log,), layout=kind.layout)
        encoder = _encoder(kind.feature_plan(), files, Path(work), settings.seed)
        dataset = prepare_log(files, encoder, Path(work) / "prepared").dataset
        # The published runs take whole logs, and a smaller one takes the first rows.
        num_rows = dataset.num_rows if settings.is_paper else min(dataset.num_rows, most)
        if num_rows < _LEAST_ROWS:
            raise DataError(f"the log has fewer than {_LEAST_ROWS:,} rows; give more of it.")
        fractions = _PAPER_FRACTIONS if settings.is_paper else _FRACTIONS
        if by_user and dataset.units is not None:
            units = dataset.units[:num_rows]
            train, test = split_by_unit(units, fractions=fractions, key=_SPLIT_KEY)
        else:
            train, test = split_at_random(num_rows, fractions=fractions, key=_SPLIT_KEY)
        yield LogRows(
            train=ExampleSet.of(dataset, train),
            test=ExampleSet.of(dataset, test),
            name=f"synthetic {kind.layout.name} log" if settings.data is None else log.name,
        )


def _encoder(plan: "FeaturePlan", files: "LogFiles", work: Path, seed: int) -> "Encoder":
    """Counts the values of a plan that keeps frequent ones, with noise that can be repeated."""
    from tulle.data.features.encoder import build_encoder
    from tulle.data.features.vocabulary import fit_vocabularies
    from tulle.mechanisms.entropy import SeededNoise

    private, ledger = _payment(work) if plan.vocabularies("sensitive") else (None, None)
    vocabularies = fit_vocabularies(
        lambda: (block.table for block in files.blocks()),
        plan,
        private=private,
        ledger=ledger,
        rng=SeededNoise(seed),
    )
    return build_encoder(plan, vocabularies)


def _payment(work: Path) -> tuple["PrivateVocabularyConfig", "Ledger"]:
    """Noise of counts, and a ledger for the time of the experiment."""
    from tulle.accounting.budget import Budget
    from tulle.accounting.ledger import Ledger
    from tulle.data.features.private_vocabulary import PrivateVocabularyConfig
    from tulle.privacy.units import Adjacency, Unit

    private = PrivateVocabularyConfig(
        unit=Unit.example(), noise_multiplier=_COUNT_NOISE_MULTIPLIER, delta=_COUNT_DELTA
    )
    ledger = Ledger.create(work / "ledger.db")
    ledger.create_budget(
        Budget(
            name="counts",
            unit=private.unit,
            adjacency=Adjacency.REPLACE,
            epsilon=_COUNT_EPSILON,
            delta=10 * _COUNT_DELTA,
        )
    )
    return private, ledger


def paper_log(name: str, *, is_paper: bool) -> LogKind:
    """A log of Criteo: clicks of "display", sales of "search", conversions of "attribution"."""
    from tulle.data.formats.public import LAYOUTS
    from tulle.data.synth import shapes

    shape = {
        "display": shapes.DISPLAY,
        "search": shapes.SEARCH,
        "attribution": shapes.ATTRIBUTION,
    }[name]
    reduced_rows, paper_rows = _NUM_ROWS[name]
    kind = LogKind(
        shape=shape, layout=LAYOUTS[name], reduced_rows=reduced_rows, paper_rows=paper_rows
    )
    if is_paper:
        return kind
    # A reduced run has small tables: every row of a table takes noise, and time.
    return dataclasses.replace(kind, public_bins=10_000, sensitive_bins=5_000)


def public_attribution_log() -> LogKind:
    """The attribution log with every feature public, as label DP has it."""
    from tulle.data.formats.public import ATTRIBUTION
    from tulle.data.synth import shapes

    schema = ATTRIBUTION.schema
    public = dataclasses.replace(schema, public=(*schema.public, *schema.sensitive), sensitive=())
    return LogKind(
        shape=shapes.ATTRIBUTION,
        layout=dataclasses.replace(ATTRIBUTION, schema=public),
        reduced_rows=600_000,
        paper_rows=5_947_563,
    )
