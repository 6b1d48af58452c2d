"""Which tests guard which source files, and mutants that must always be caught.

The tests of an area take about a minute on one core, because they run once for each mutant that
their mirrored tests let pass. So long tests and those of whole programs are left out, except
where only they could notice.
"""

import dataclasses
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tulle"
TESTS = ROOT / "tests"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Area:
    """A part of the package and the tests that would notice a fault in it."""

    sources: tuple[str, ...]
    """Patterns of files below `src/tulle`."""
    but: tuple[str, ...] = ()
    """Patterns of files that belong to another area."""
    tests: tuple[str, ...]
    """Patterns of files or folders below `tests`. Mirrored tests of a file need not be named."""
    options: tuple[str, ...] = ("-m", "not long")

    def source_files(self) -> list[Path]:
        """Files that mutants are made of."""
        found = {path for pattern in self.sources for path in SOURCE.glob(pattern)}
        found -= {path for pattern in self.but for path in SOURCE.glob(pattern)}
        return sorted(path for path in found if path.name != "__init__.py")

    def test_files(self) -> list[Path]:
        """Files of tests, those in folders included."""
        found: list[Path] = []
        for pattern in self.tests:
            for place in sorted(TESTS.glob(pattern)):
                found += sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
        return list(dict.fromkeys(found))


AREAS = {
    "accounting": Area(
        sources=("accounting/*.py",),
        but=("accounting/ledger*.py", "accounting/budget.py", "accounting/refusal.py"),
        tests=(
            "unit/accounting/test_accountant_calibration.py",
            "unit/accounting/test_event_rules.py",
            "unit/accounting/test_profiles.py",
            "unit/accounting/test_sampling.py",
            "unit/accounting/test_training_events.py",
            "golden/test_accounting_tables.py",
            "golden/test_dp_accounting_traps.py",
            "golden/test_shuffle_table.py",
            "contract/test_accountant_handlers.py",
        ),
    ),
    "ledger": Area(
        sources=("accounting/ledger*.py", "accounting/budget.py", "accounting/refusal.py"),
        tests=(
            "unit/accounting/test_budget.py",
            "unit/accounting/test_ledger*.py",
            "unit/accounting/test_refusal.py",
            "end_to_end/test_ledger_disk.py",
            "end_to_end/test_ledger_crash.py",
            "end_to_end/test_ledger_concurrency.py",
            "unit/cli/test_budget.py",
        ),
    ),
    "mechanisms": Area(
        sources=("mechanisms/*.py",),
        tests=("unit/mechanisms", "statistical/test_noise.py", "statistical/test_randomizers.py"),
    ),
    "mosaic": Area(
        sources=("train/methods/mosaic/*.py",),
        tests=("unit/train/methods/mosaic",),
    ),
    "lazy steps": Area(
        sources=("train/steps/lazy_rows.py", "train/steps/age_table.py", "train/steps/host.py"),
        tests=(
            "unit/train/steps/test_lazy*.py",
            "unit/train/steps/test_age_table.py",
            "unit/train/steps/test_host.py",
            "statistical/test_lazy_noise.py",
            "statistical/test_lazy_training.py",
        ),
    ),
    "labels": Area(
        sources=("labels/**/*.py",),
        tests=(
            "unit/labels/test_*.py",
            "unit/labels/mechanisms",
            "unit/lab/linear_labels",  # Was a part of labels, and mutants of it are found again.
            "statistical/test_label_noise.py",
        ),
    ),
    "measure queries": Area(
        sources=("measure/queries/*.py", "measure/expected_error.py"),
        tests=(
            "unit/measure/queries",
            "unit/measure/test_expected_error.py",
        ),
    ),
    "floors": Area(
        sources=(
            "select/mechanisms/floors.py",
            "select/mechanisms/shortlists.py",
        ),
        tests=(
            "unit/select/mechanisms",
            "unit/select/test_decision_accounting.py",
            "unit/select/planner",
        ),
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """A mutant that once survived."""

    area: str
    statement: str
    """A part of the statement's text."""
    before: str
    after: str


KNOWN = (
    Known(area="ledger", statement="first_micros <= :last", before="<=", after="<"),
    Known(area="ledger", statement="last_micros >= :first", before=">=", after=">"),
    Known(
        area="accounting",
        statement="return (cut_prob, gaussian_profile(2 * max_rows / noise_multiplier))",
        before="/",
        after="*",
    ),
)
