import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pytest

from tulle.errors import ConfigError, DataError, RunStateError
from tulle.serve import predict, predictions
from tulle.train.classifier import Classifier
from unit.serve.served_logs import COLUMNS, loaded, make_log, new_rows
from unit.train.small_data import nonprivate

ROWS = new_rows()


def expected_of(classifier: Classifier) -> np.ndarray:
    found: np.ndarray = classifier.predict_proba(ROWS)[:, 1]
    assert np.std(found) > 0.1
    return found


def as_csv_gz(rows: pl.DataFrame, path: Path) -> None:
    import gzip

    path.write_bytes(gzip.compress(rows.write_csv().encode()))


WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    "new.parquet": lambda rows, path: rows.write_parquet(path),
    "new.csv": lambda rows, path: rows.write_csv(path),
    "new.csv.gz": as_csv_gz,
    "new.jsonl": lambda rows, path: rows.write_ndjson(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_predicted_as_a_table_is(
    tmp_path: Path, classifier: Classifier, model_folder: Path, name: str
) -> None:
    WRITERS[name](ROWS, tmp_path / name)
    output = tmp_path / "scores.parquet"
    written = predict(model_folder, tmp_path / name, output=output)
    assert (written.num_rows, written.columns) == (len(ROWS), ("row", "probability"))
    found = pl.read_parquet(output)
    assert found.schema == {"row": pl.Int64, "probability": pl.Float64}
    assert found["row"].to_list() == list(range(len(ROWS)))
    np.testing.assert_allclose(found["probability"], expected_of(classifier), rtol=1e-12)


ODD_ROWS = pl.DataFrame(
    {
        "campaign": ["café 1", "", "a,b", "05", "5.0", " 5", "é" * 70, "y" * 5000, "null"],
        "shop": ["shop-0001", "shop-0001 ", "12345678", "x" * 128, "x" * 129, "", "1", "-", "NaN"],
        "clicks": ["05", "5.0", "", "+7", "-3", "123456789012345", "1234567890123456", "0", "1"],
        "price": ["", "0.50", ".5", "1e3", "-0.0", "5", "inf", "nan", "1"],
        "is_app": ["true", "T", "0", "1", "no", "", "yes", "False", "1.0"],
        "second": [
            "1600000000",
            "",
            "2020-09-13",
            "2020-09-13T12:26:40Z",
            "-5",
            "1.5",
            "0",
            "7",
            "08",
        ],
        "age": ["10s", "", "new", "10s", "20s", "30s", "0s", "00s", "40s"],
    }
)
"""Texts that a reader could take for others: each column by itself, since its values are."""


@pytest.mark.parametrize("quote_style", ["necessary", "always"])
@pytest.mark.parametrize("name", ["new.csv", "new.tsv"])
def test_odd_texts_are_predicted_as_those_of_a_table_to_the_last_bit(
    tmp_path: Path, model_folder: Path, name: str, quote_style: Literal["necessary", "always"]
) -> None:
    is_tabbed = name.endswith(".tsv")
    for rows in (ODD_ROWS, *(ODD_ROWS[place : place + 1] for place in range(len(ODD_ROWS)))):
        for line_end in ("\n", "\r\n"):
            rows.write_csv(
                tmp_path / name,
                separator="\t" if is_tabbed else ",",
                quote_style="never" if is_tabbed else quote_style,
                line_terminator=line_end,
            )
            found = []
            for place, data in enumerate((tmp_path / name, rows)):
                output = tmp_path / f"{place}.parquet"
                predict(model_folder, data, output=output, keep=["campaign", "clicks"])
                found.append(pl.read_parquet(output))
                output.unlink()
            assert found[0].equals(found[1])


def test_several_files_in_small_blocks_keep_their_order(
    tmp_path: Path, classifier: Classifier, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictions, "_ROWS_PER_BLOCK", 64)
    paths = [tmp_path / f"{number}.csv" for number in range(3)]
    for path, start in zip(paths, (0, 250, 500), strict=True):
        ROWS.slice(start, min(250, len(ROWS) - start)).write_csv(path)
    seen: list[tuple[int, int, int]] = []
    predict(
        model_folder,
        paths,
        output=tmp_path / "scores.csv",
        keep=["impression", "campaign"],
        watch=lambda *told: seen.append(told),
    )
    found = pl.read_csv(tmp_path / "scores.csv")
    assert found.columns == ["row", "impression", "campaign", "probability"]
    assert found["impression"].to_list() == ROWS["impression"].to_list()
    assert found["campaign"].to_list() == ROWS["campaign"].to_list()
    np.testing.assert_allclose(found["probability"], expected_of(classifier), rtol=1e-12)
    assert [rows for rows, _, _ in seen] == sorted({rows for rows, _, _ in seen})
    assert seen[-1][0] == len(ROWS)
    assert seen[-1][1] == seen[-1][2] == sum(path.stat().st_size for path in paths)


@pytest.mark.parametrize("of", ["folder", "loaded", "fitted", "trained", "result"])
def test_a_model_may_be_named_in_every_way(
    tmp_path: Path, classifier: Classifier, model_folder: Path, of: str
) -> None:
    model = {
        "folder": str(model_folder),
        "loaded": loaded(model_folder),
        "fitted": classifier,
        "trained": classifier.model_,
        "result": classifier.result_,
    }[of]
    predict(model, ROWS.select(COLUMNS), output=tmp_path / "scores.parquet")
    found = pl.read_parquet(tmp_path / "scores.parquet")["probability"]
    np.testing.assert_allclose(found, expected_of(classifier), rtol=1e-12)


def test_one_row_is_predicted_as_in_a_table(classifier: Classifier, model_folder: Path) -> None:
    expected, model = expected_of(classifier), loaded(model_folder)
    found = [model.predict_one(row) for row in ROWS.to_dicts()]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    texts = ROWS.select(COLUMNS).head(20).with_columns(pl.all().cast(pl.String)).to_dicts()
    np.testing.assert_allclose([model.predict_one(row) for row in texts], expected[:20], rtol=1e-12)


def test_a_row_without_a_column_is_refused(classifier: Classifier) -> None:
    row = ROWS.to_dicts()[0]
    row["campain"] = row.pop("campaign")
    with pytest.raises(DataError, match=r"no column 'campaign' \(did you mean 'campain'\?\)"):
        classifier.predict_one(row)
    row["campaign"] = None
    row["clicks"] = "many"
    with pytest.raises(DataError, match=r"column 'clicks' holds no whole number .*the row"):
        classifier.predict_one(row)


def test_towers_predict_files_and_rows_too(tmp_path: Path) -> None:
    log = make_log(300, seed=3).select("sale", "campaign", "age")
    schema = {"label": "sale", "public": ["campaign"], "sensitive": ["age"]}
    towers = Classifier(schema, method=nonprivate(), seed=1).fit(log)
    expected = towers.predict_proba(ROWS)[:, 1]
    predict(towers, ROWS, output=tmp_path / "scores.parquet")
    found = pl.read_parquet(tmp_path / "scores.parquet")["probability"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    row = ROWS.to_dicts()[0]
    np.testing.assert_allclose(towers.predict_one(row), expected[0], rtol=1e-6)


def test_no_rows_have_no_predictions(tmp_path: Path, model_folder: Path) -> None:
    written = predict(model_folder, ROWS.clear(), output=tmp_path / "a.parquet", keep=["shop"])
    assert written.num_rows == 0
    assert pl.read_parquet(tmp_path / "a.parquet").columns == ["row", "shop", "probability"]


def check_nothing_is_left(folder: Path) -> None:
    assert [path.name for path in folder.iterdir() if "scores" in path.name] == []


def test_a_missing_column_is_named_with_what_is_meant(tmp_path: Path, model_folder: Path) -> None:
    ROWS.rename({"campaign": "campain"}).write_csv(tmp_path / "new.csv")
    with pytest.raises(DataError, match=r"no column 'campaign' \(did you mean 'campain'\?\)"):
        predict(model_folder, tmp_path / "new.csv", output=tmp_path / "scores.parquet")
    ROWS.write_csv(tmp_path / "right.csv")
    with pytest.raises(DataError, match=r"right.csv has no column 'impresion' \(did you mean"):
        predict(
            model_folder,
            tmp_path / "right.csv",
            output=tmp_path / "scores.parquet",
            keep=["impresion"],
        )
    check_nothing_is_left(tmp_path)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_wrong_value_leaves_no_half_file(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(predictions, "_ROWS_PER_BLOCK", 64)
    wrong = ROWS.with_columns(pl.col("clicks").cast(pl.String))
    clicks = wrong["clicks"].to_list()
    clicks[400] = "many"
    wrong.with_columns(pl.Series("clicks", clicks)).write_csv(tmp_path / "new.csv")
    with pytest.raises(DataError, match=r"'clicks' holds no whole number .*new.csv, row 401"):
        predict(model_folder, tmp_path / "new.csv", output=tmp_path / f"scores{suffix}")
    check_nothing_is_left(tmp_path)


def test_an_output_that_cannot_be_is_refused_before_a_row_is_read(
    tmp_path: Path, model_folder: Path
) -> None:
    missing = tmp_path / "no such.parquet"
    with pytest.raises(ConfigError, match=r"must end in \.parquet or \.csv"):
        predict(model_folder, missing, output=tmp_path / "scores.txt")
    with pytest.raises(ConfigError, match="in no folder that exists"):
        predict(model_folder, missing, output=tmp_path / "there" / "scores.csv")
    (tmp_path / "old.csv").write_text("precious")
    with pytest.raises(RunStateError, match=r"old\.csv exists already"):
        predict(model_folder, missing, output=tmp_path / "old.csv")
    assert (tmp_path / "old.csv").read_text() == "precious"
    with pytest.raises(ConfigError, match="keep='probability' is the name of a column"):
        predict(model_folder, missing, output=tmp_path / "scores.csv", keep=["probability"])
    with pytest.raises(DataError, match=r"no such\.parquet"):
        predict(model_folder, missing, output=tmp_path / "scores.csv")
    with pytest.raises(ConfigError, match="type int must be the folder of a model"):
        predict(7, missing, output=tmp_path / "scores.csv")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="is no exported model"):
        predict(tmp_path, missing, output=tmp_path / "scores.csv")


def test_a_model_with_one_changed_file_predicts_nothing(tmp_path: Path, model_folder: Path) -> None:
    names = ("model.json", "encoder.json", "card.json", "card.md", "load_model.py")
    for name in (*names, "model.safetensors", "vocabularies.npz"):
        folder = tmp_path / name
        shutil.copytree(model_folder, folder)
        content = (folder / name).read_bytes()
        changed = content.replace(b"1", b"2") if name in names else content[:-1] + b"?"
        assert changed != content
        (folder / name).write_bytes(changed)
        with pytest.raises(DataError, match=f"{name} was cut or changed"):
            predict(folder, ROWS, output=tmp_path / "scores.parquet")
    check_nothing_is_left(tmp_path)
