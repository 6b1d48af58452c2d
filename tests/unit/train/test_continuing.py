"""Training that continues from a released model: what it takes over, what it refuses, who pays."""

import math
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tulle
from tulle.errors import ConfigError, DataError, RunInterruptedError, RunStateError, TulleError
from tulle.runs.card import Card
from tulle.train.methods.mosaic import cell_training
from tulle.train.methods.mosaic.trained_cells import TrainedCells

SCHEMA: dict[str, Any] = {
    "label": "click",
    "public": ["site"],
    "sensitive": ["age"],
    "unit": "user",
    "time": "time",
    "kinds": {"time": "timestamp"},
}
NORMAL = statistics.NormalDist()
ROW = {"unit": "example", "test": 0}


def log_of_day(day: int, *, num_rows: int = 1_500, num_sites: int = 5) -> pl.DataFrame:
    """Clicks of one day in March 2026, by 800 users; site 5 and more come with a later day."""
    rng = np.random.default_rng(day)
    site, age = rng.integers(0, num_sites, num_rows), rng.integers(0, 4, num_rows)
    seconds = 1_772_409_600 + 86_400 * day + np.sort(rng.integers(0, 86_400, num_rows))
    return pl.DataFrame(
        {
            "click": (rng.random(num_rows) < 0.05 + 0.1 * site + 0.1 * age).astype(np.int64),
            "site": [f"s{value}" for value in site],
            "age": [f"{value}0s" for value in age],
            "user": [f"u{value}" for value in rng.integers(0, 800, num_rows)],
            "time": pl.Series(1000 * seconds).cast(pl.Datetime("ms")),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The days as files, and a model of the first one: private, and one whose noise is known."""
    folder = tmp_path_factory.mktemp("days")
    for day in range(3):
        log_of_day(day, num_sites=5 + day).write_csv(folder / f"{day}.csv")
    data = folder / "0.csv"
    tulle.train.fit(data, SCHEMA, epsilon=4, **ROW, output=folder / "private")
    tulle.train.fit(data, SCHEMA, epsilon=4, **ROW, seed=1, output=folder / "seeded")
    return folder


@pytest.fixture(scope="module")
def second(folder: Path) -> Any:
    """The model of the second day, with nothing said but the first model and epsilon."""
    return tulle.train.fit(folder / "1.csv", from_model=folder / "private", epsilon=1, **ROW)


def test_schema_and_encoder_are_those_of_the_model(folder: Path, second: Any) -> None:
    first = tulle.train.load_model(folder / "private" / "model")
    assert second.model.features == first.features
    made = tulle.train.plan(folder / "1.csv", from_model=folder / "private", epsilon=1, **ROW)
    assert made.privacy.columns.sensitive == ("age",)
    assert made == second.plan


def test_a_plan_says_where_it_starts_and_keeps_it_in_json(folder: Path, second: Any) -> None:
    settings = second.plan.privacy.settings
    assert len(settings["starts_from"]) == 64
    assert (settings["starts_from_epsilon"], settings["starts_from_delta"]) == (4.0, 1e-7)
    assert settings["starts_from_unit"] == "example"
    assert settings["keep_evidence"] == 0.7
    assert "charged in both" in second.plan.privacy.mechanism
    again = type(second.plan).from_json(second.plan.to_json())
    assert again.privacy.fingerprint() == second.plan.privacy.fingerprint()
    other = tulle.train.plan(
        folder / "1.csv", from_model=folder / "private", keep_evidence=1, epsilon=1, **ROW
    )
    assert other.privacy.fingerprint() != again.privacy.fingerprint()


def test_the_digest_is_of_the_model_and_not_of_where_it_lies(folder: Path, tmp_path: Path) -> None:
    estimator = tulle.load(folder / "private")
    estimator.save(tmp_path / "copy")
    given = {"epsilon": 1, **ROW}
    digests = {
        tulle.train.plan(folder / "1.csv", from_model=model, **given).privacy.settings[
            "starts_from"
        ]
        for model in (folder / "private", tmp_path / "copy")
    }
    other = tulle.train.plan(folder / "1.csv", from_model=folder / "seeded", **given)
    assert len(digests) == 1
    assert other.privacy.settings["starts_from"] not in digests


def test_a_card_adds_up_the_trainings_of_a_week_and_of_a_month(second: Any) -> None:
    repeated = second.card.accounting.repeated
    assert [number for number, _ in repeated] == [1, 7, 30]
    noise = second.noise_multiplier
    for number, epsilon in repeated:
        # Gaussians compose to one: the delta of that one at this epsilon, in closed form.
        mu = math.sqrt(number) / noise
        gone = NORMAL.cdf(mu / 2 - epsilon / mu)
        delta = gone - math.exp(epsilon) * NORMAL.cdf(-mu / 2 - epsilon / mu)
        assert delta == pytest.approx(1e-7, rel=0.01)
    assert repeated[2][1] < 0.3 * 30 * repeated[0][1]
    assert Card.from_dict(second.card.to_dict()) == second.card
    told = second.card.to_dict()["accounting"]["repeated"]
    assert told == {str(number): epsilon for number, epsilon in repeated}
    assert second.card.verdict.startswith("Private release")


def test_a_run_from_nothing_says_nothing_of_it(folder: Path) -> None:
    card = tulle.load(folder / "private").card_
    assert "repeated" not in card.to_dict()["accounting"]
    assert not [name for name in card.plan.settings if name.startswith("starts")]


def test_a_start_that_is_no_private_release_makes_none(folder: Path) -> None:
    result = tulle.train.fit(folder / "1.csv", from_model=folder / "seeded", epsilon=1, **ROW)
    assert result.card.verdict.startswith("NOT A PRIVATE RELEASE")
    assert any("started from" in reason for reason in result.card.reasons)
    assert result.is_secure


def visit(site: int) -> dict[str, object]:
    """A row without a time, which noise may make a model look at."""
    return {"site": f"s{site}", "age": "20s", "time": None}


def test_new_public_values_get_cells_of_their_own(folder: Path) -> None:
    """Sites 5 and 6, which the first day did not have, are told apart on the third."""
    # A table: hashes of a file have a salt of their own, by which two sites may share a bin.
    start = tulle.train.fit(log_of_day(0), SCHEMA, epsilon=50, **ROW, seed=1)
    result = tulle.train.fit(folder / "2.csv", from_model=start, epsilon=50, seed=2, **ROW)
    model = result.model
    assert isinstance(model, TrainedCells)
    sites = [("public", 0)]
    table = next(
        table
        for table in model.model.tables
        if [(part.role, part.column) for part in table.parts] == sites
    )
    assert table.parts[0].size == 1 + 7
    ones = tulle.Classifier.of_fitted(tulle.train.fitted_model.FittedModel.of(result))
    shown = [ones.predict_one(visit(site)) for site in (0, 4, 5, 6)]
    assert shown[0] < shown[1] < shown[3]


def test_a_value_that_is_not_there_today_keeps_its_weight(folder: Path) -> None:
    start = tulle.train.fit(log_of_day(2, num_sites=7), SCHEMA, epsilon=50, **ROW, seed=1)
    result = tulle.train.fit(folder / "0.csv", from_model=start, epsilon=50, seed=2, **ROW)
    ones = tulle.Classifier.of_fitted(tulle.train.fitted_model.FittedModel.of(result))
    shown = [ones.predict_one(visit(site)) for site in (0, 6)]
    assert shown[1] > shown[0] + 0.3


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"schema": SCHEMA | {"public": [], "sensitive": ["age", "site"]}}, "differs from that"),
    ({"schema": SCHEMA | {"kinds": {"time": "timestamp", "age": "integer"}}}, "in kinds"),
    ({"method": "rr", "delta": 0}, "method rr cannot continue"),
    ({"clip": 5.0}, "predicts probabilities"),
    ({"keep_evidence": 0.0}, "keep_evidence=0.0 must be from"),
    ({"keep_evidence": 1.5}, "keep_evidence=1.5 must be from"),
    ({"from_model": None, "keep_evidence": 0.5, "schema": SCHEMA}, "and none is given"),
    ({"from_model": 7}, "from_model of type int"),
]


@pytest.mark.parametrize(("changed", "words"), REFUSED)
def test_what_does_not_fit_the_model_is_refused_before_anything_is_charged(
    changed: dict[str, Any], words: str, folder: Path, tmp_path: Path
) -> None:
    ledger = ledger_of(tmp_path, "example", epsilon=5.0)
    given = {"from_model": folder / "private", "epsilon": 1, **ROW} | changed
    with pytest.raises(ConfigError, match=words):
        tulle.train.fit(folder / "1.csv", **given, ledger=ledger, output=tmp_path / "run")
    assert ledger.states()[0].num_spends == 0
    assert not (tmp_path / "run").exists()


def test_other_columns_are_refused(folder: Path, tmp_path: Path) -> None:
    pl.read_csv(folder / "1.csv").drop("age").write_csv(tmp_path / "narrow.csv")
    with pytest.raises(DataError, match="'age'"):
        tulle.train.fit(tmp_path / "narrow.csv", from_model=folder / "private", epsilon=1, **ROW)


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "encoder.json"])
def test_a_folder_with_a_changed_file_is_refused(name: str, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "private", tmp_path / "changed")
    path = tmp_path / "changed" / "model" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"changed|damaged|fit"):
        tulle.train.fit(folder / "1.csv", from_model=tmp_path / "changed", epsilon=1, **ROW)


def test_a_plan_is_carried_out_with_its_model_alone(folder: Path, tmp_path: Path) -> None:
    given = {"test": 0, "plan": tmp_path / "plan.json"}
    tulle.train.plan(
        folder / "1.csv",
        from_model=folder / "private",
        epsilon=1,
        **ROW,
        output=tmp_path / "plan.json",
    )
    result = tulle.train.fit(folder / "1.csv", from_model=folder / "private", **given)
    assert result.plan.method.start is not None
    with pytest.raises(ConfigError, match="another one is given"):
        tulle.train.fit(folder / "1.csv", from_model=folder / "seeded", **given)
    with pytest.raises(ConfigError, match="hand it in"):
        tulle.train.fit(folder / "1.csv", SCHEMA, **given)
    with pytest.raises(ConfigError, match="keep_evidence"):
        tulle.train.fit(folder / "1.csv", from_model=folder / "private", keep_evidence=0.5, **given)


def test_a_run_that_goes_on_needs_the_same_model_and_pays_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_of(tmp_path, "example", epsilon=1.0)
    given = {"epsilon": 1, **ROW, "ledger": ledger, "output": tmp_path / "run"}

    def stopped(*_arguments: object) -> None:
        raise RunInterruptedError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(cell_training, "train_on_cells", stopped)
        with pytest.raises(RunInterruptedError):
            tulle.train.fit(folder / "1.csv", from_model=folder / "private", **given)
    with pytest.raises(RunStateError):
        tulle.train.fit(folder / "1.csv", from_model=folder / "seeded", **given, resume=True)
    with pytest.raises(TulleError):
        tulle.train.fit(folder / "1.csv", SCHEMA, **given, resume=True)
    tulle.train.fit(folder / "1.csv", from_model=folder / "private", **given, resume=True)
    assert ledger.states()[0].num_spends == 1


def test_estimators_continue_from_one_another(folder: Path) -> None:
    first = tulle.Classifier(SCHEMA, epsilon=4, unit="example").fit(log_of_day(0))
    again = tulle.Classifier(epsilon=1, unit="example", from_model=first).fit(log_of_day(1))
    assert again.plan_.privacy.settings["starts_from"]
    assert again.encoder_.fingerprint() == first.encoder_.fingerprint()
    by_folder = tulle.Classifier(epsilon=1, unit="example", from_model=folder / "private")
    by_folder.fit(log_of_day(1))
    assert by_folder.get_params()["from_model"] == folder / "private"
    with pytest.raises(ConfigError, match="predicts probabilities"):
        tulle.Regressor(epsilon=1, unit="example", clip=2, from_model=first).fit(log_of_day(1))


def test_regressors_continue_from_one_another() -> None:
    days = [log_of_day(day).with_columns(pl.col("click") * 3.0) for day in range(2)]
    settings = {"epsilon": 4, "unit": "example", "clip": 4.0}
    first = tulle.Regressor(SCHEMA, **settings).fit(days[0])
    again = tulle.Regressor(**settings, from_model=first).fit(days[1])
    assert again.plan_.privacy.settings["starts_from"]
    with pytest.raises(ConfigError, match="give clip=4"):
        tulle.Regressor(**settings | {"clip": 3.0}, from_model=first).fit(days[1])


def ledger_of(folder: Path, unit: str, *, epsilon: float, delta: float = 1e-6) -> tulle.Ledger:
    ledger = tulle.Ledger.create(folder / "ledger.db")
    budget = tulle.Budget(
        name="nightly", unit=unit, adjacency="replace", epsilon=epsilon, delta=delta
    )
    ledger.create_budget(budget)
    return ledger


def test_each_day_has_its_own_window(folder: Path, tmp_path: Path) -> None:
    """A budget of a user per day: the second day starts anew, and a second training is refused."""
    ledger = ledger_of(tmp_path, "user per 1 days", epsilon=1.0, delta=1e-7)
    given = {"epsilon": 1, "unit": "user per 1 days", "test": 0, "ledger": ledger}
    model = tulle.train.fit(folder / "0.csv", SCHEMA, **given, at="2026-03-02")
    for day, at in ((1, "2026-03-03"), (2, "2026-03-04")):
        data = folder / f"{day}.csv"
        model = tulle.train.fit(data, from_model=model, **given, at=at)
        with pytest.raises(tulle.TulleError, match="1 left"):
            tulle.train.fit(data, from_model=model, **given, at=at)
        with pytest.raises(ConfigError, match="time"):
            tulle.train.fit(data, from_model=model, **given, at="2026-03-05")
    assert [state.num_spends for state in ledger.states("2026-03-03")] == [1]


def test_thirty_nights_of_a_user_fit_one_budget_by_tight_composition(
    folder: Path, tmp_path: Path
) -> None:
    """A budget of a user that renews each 30 days, charged with whole users of one day's rows."""
    nightly, monthly = 0.6, 4.2
    ledger = ledger_of(tmp_path, "user per 30 days", epsilon=monthly)
    given = {"epsilon": nightly, "delta": 1e-7, "unit": "user", "test": 0, "ledger": ledger}
    first = tulle.train.fit(folder / "0.csv", SCHEMA, **given, at="2026-03-02")
    second = tulle.train.fit(folder / "1.csv", from_model=first, **given, at="2026-03-03")
    event = second.plan.charged_event
    # The other nights of the window, without training anew: the same event at the same price.
    for _ in range(28):
        with ledger.spend(event, purpose="training", unit="user", at="2026-03-03"):
            pass
    [state] = ledger.states("2026-03-03")
    assert state.num_spends == 30
    assert state.spent_epsilon < monthly < 30 * nightly
    told = dict(second.card.accounting.repeated)[30]
    assert state.spent_epsilon < told  # at ten times the delta
