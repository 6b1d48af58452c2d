"""The jobs that release something, each as a small command that can be repeated."""

import abc
from pathlib import Path
from typing import Any

import polars as pl

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.measure.engines.engine import open_engine
from tulle.measure.queries.measuring import MeasureOptions, measure
from tulle.mechanisms.entropy import release_rng
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.charging import ReleaseCharge
from tulle.runs.folder import RunFolder
from tulle.runs.record import Result
from tulle.runs.release_once import ReleaseOptions
from tulle.select.decisions.draws import decide
from tulle.select.evaluation.evaluate_files import EvaluationFiles, evaluate_files
from tulle.select.evaluation.evaluation_plan import EvaluationConfig
from tulle.train.fitting import fit
from tulle.train.run_context import RunOptions
from unit.labels import label_files
from unit.measure.queries import small_measurements
from unit.select.decisions import auction_tables
from unit.train.small_data import label_phase, make_examples, make_shape, randomized_labels


class Job(abc.ABC):
    """One kind of release. Its ledger pays for two."""

    name: str
    sources: tuple[str, ...]
    """Files of the package that release by this job."""
    unit = Unit.example()
    adjacency = Adjacency.REPLACE
    epsilon: float
    """Epsilon of one release."""
    purpose = "release"

    def prepare(self, folder: Path, *, num_releases: int = 2) -> Ledger:
        """Data that can be used, and a ledger."""
        folder.mkdir(parents=True, exist_ok=True)
        self.write_data(folder)
        ledger = Ledger.create(folder / "ledger.db")
        ledger.create_budget(
            Budget(
                name="all",
                unit=self.unit,
                adjacency=self.adjacency,
                epsilon=max(1.01 * num_releases, 0.5) * self.epsilon,
                delta=1e-3,
            )
        )
        return ledger

    def charge(self, folder: Path) -> ReleaseCharge:
        return ReleaseCharge(ledger=Ledger.open(folder / "ledger.db"), purpose=self.purpose)

    def statuses(self, folder: Path) -> list[SpendStatus]:
        return [spend.status for spend in Ledger.open(folder / "ledger.db").spends("all")]

    @abc.abstractmethod
    def write_data(self, folder: Path) -> None:
        """Writes raw data."""

    @abc.abstractmethod
    def spoil_data(self, folder: Path) -> None:
        """Makes the data such that the job must refuse them."""

    @abc.abstractmethod
    def run(self, folder: Path, out: str = "first", *, again: bool = False) -> Result[Any, Any]:
        """The command: the same arguments are the same command."""

    @abc.abstractmethod
    def output(self, folder: Path, out: str = "first") -> Path:
        """What the command is told to write."""

    def shown(self, folder: Path, out: str = "first") -> bytes | None:
        """What was drawn and has its name, so that it may be seen; None if nothing has."""
        path = self.output(folder, out)
        return path.read_bytes() if path.exists() else None


class Labels(Job):
    name = "labels"
    sources = ("labels/label_release.py",)
    epsilon = 1.0

    def write_data(self, folder: Path) -> None:
        label_files.write_clicks(folder / "clicks.parquet", num_rows=300)

    def spoil_data(self, folder: Path) -> None:
        table = pl.read_parquet(folder / "clicks.parquet")
        table.with_columns(sale=pl.lit(2)).write_parquet(folder / "clicks.parquet")

    def output(self, folder: Path, out: str = "first") -> Path:
        return folder / f"{out}.parquet"

    def run(self, folder: Path, out: str = "first", *, again: bool = False) -> Result[Any, Any]:
        charge = self.charge(folder)
        path = self.output(folder, out)
        return label_files.release(folder / "clicks.parquet", path, charge.ledger, again=again)


class Select(Job):
    name = "select"
    sources = ("select/decisions/draws.py",)
    unit = Unit.impression()
    epsilon = 1.0

    def write_data(self, folder: Path) -> None:
        table = auction_tables.auction_table(40, seed=1)
        auction_tables.write_table(table, folder / "auctions.parquet")

    def spoil_data(self, folder: Path) -> None:
        table = pl.read_parquet(folder / "auctions.parquet")
        table.with_columns(p_device=pl.lit(1.5)).write_parquet(folder / "auctions.parquet")

    def output(self, folder: Path, out: str = "first") -> Path:
        return folder / f"{out}.parquet"

    def run(self, folder: Path, out: str = "first", *, again: bool = False) -> Result[Any, Any]:
        return decide(
            auction_tables.selection(),
            folder / "auctions.parquet",
            self.output(folder, out),
            columns=auction_tables.COLUMNS,
            rng=release_rng(),
            options=ReleaseOptions(charge=self.charge(folder), again=again),
        )


class Evaluation(Select):
    name = "evaluation of a selection"
    sources = ("select/evaluation/evaluate_files.py",)

    def write_data(self, folder: Path) -> None:
        super().write_data(folder)
        choices, clicks = folder / "choices.parquet", folder / "clicks.csv"
        auctions = folder / "auctions.parquet"
        auction_tables.decide_seeded(auction_tables.selection(), auctions, choices)
        pl.read_parquet(choices)[::5].select("auction_id").write_csv(clicks)

    def output(self, folder: Path, out: str = "first") -> Path:
        return folder / f"{out}.json"

    def run(self, folder: Path, out: str = "first", *, again: bool = False) -> Result[Any, Any]:
        selection = auction_tables.selection()
        released, _ = evaluate_files(
            EvaluationConfig(logging=selection, target=selection, epsilon=1.0),
            EvaluationFiles(
                auctions=folder / "auctions.parquet",
                choices=folder / "choices.parquet",
                clicks=folder / "clicks.csv",
                columns=auction_tables.COLUMNS,
            ),
            self.output(folder, out),
            rng=release_rng(),
            options=ReleaseOptions(charge=self.charge(folder), again=again),
        )
        return released


class Measure(Job):
    name = "measure"
    sources = ("measure/queries/measuring.py",)
    unit = Unit.user()
    adjacency = Adjacency.ADD_OR_REMOVE
    epsilon = 1.0

    def write_data(self, folder: Path) -> None:
        small_measurements.write_log(folder)

    def spoil_data(self, folder: Path) -> None:
        impressions, conversions = small_measurements.small_log()
        conversions = conversions.with_columns(user=pl.lit(None, pl.Int64))
        small_measurements.write_log(folder, (impressions, conversions))

    def output(self, folder: Path, out: str = "first") -> Path:
        return folder / out / "measurement.json"

    def run(self, folder: Path, out: str = "first", *, again: bool = False) -> Result[Any, Any]:
        config = small_measurements.config_of(folder, small_measurements.settings("conversions"))
        path = self.output(folder, out)
        path.parent.mkdir(exist_ok=True)
        options = MeasureOptions(charge=self.charge(folder), again=again)
        with open_engine(num_threads=1) as engine:
            return measure(config, path.parent, engine, rng=release_rng(), options=options)


class Train(Job):
    """A command that is repeated goes on; one that pays again has another name."""

    name = "train"
    sources = ("train/fitting.py", "train/training_run.py")
    purpose = "training"
    config = randomized_labels(label_phase=label_phase(epochs=2.0))
    epsilon = config.make(make_shape(100)).epsilon

    def write_data(self, folder: Path) -> None:
        (folder / "data").write_text("good")

    def spoil_data(self, folder: Path) -> None:
        (folder / "data").write_text("bad")

    def output(self, folder: Path, out: str = "first") -> Path:
        return folder / out

    def run(self, folder: Path, out: str = "first", *, again: bool = False) -> Result[Any, Any]:
        del again  # A run of another name pays again.
        examples = make_examples(100)
        if (folder / "data").read_text() == "bad":
            examples.labels[0] = 2.0
        path = self.output(folder, out)
        options = RunOptions(
            folder=path,
            resume=(path / "run.json").exists(),
            charge=self.charge(folder),
        )
        return fit(examples, self.config, options=options)

    def shown(self, folder: Path, out: str = "first") -> bytes | None:
        path = self.output(folder, out)
        if not (path / "run.json").exists():
            return None
        run = RunFolder.open(path)
        drawn = [file for file in (path / "model").rglob("*") if file.is_file()]
        if not drawn and not run.has_array("randomized_labels"):
            return None
        labels = run.read_array("randomized_labels").tobytes()
        weights = path / "model" / "model.safetensors"
        return labels + (weights.read_bytes() if weights.exists() else b"")


JOBS: tuple[Job, ...] = (Labels(), Select(), Evaluation(), Measure(), Train())
