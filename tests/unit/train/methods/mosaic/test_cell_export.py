import dataclasses
import hashlib
import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.train.methods.mosaic import cell_model
from tulle.train.methods.mosaic.cell_model import CellHead, CellModel, CellPart, CellTable
from tulle.train.methods.mosaic.trained_cells import TrainedCells
from tulle.train.training_run import load_model
from unit.train.exported_folders import (
    PUBLIC_ONLY,
    SEPARATE,
    cell_logits_alone,
    feature,
    header_and_data,
    rewritten,
)
from unit.train.exported_folders import (
    ids_of as torch_ids_of,
)

FACTS = {"plan_fingerprint": "sha256:00", "epsilon": 3.0}
Arrays = dict[str, NDArray[Any]]


def export_cells(
    folder: Path,
    model: CellModel,
    features: tuple[PreparedFeature, ...],
    *,
    facts: dict[str, Any],
) -> None:
    TrainedCells.of(model, features).write(folder, facts)


def load_cells(folder: Path) -> TrainedCells:
    loaded = load_model(folder)
    assert isinstance(loaded, TrainedCells)
    return loaded


def ids_of(role: str, features: tuple[PreparedFeature, ...]) -> NDArray[Any]:
    return torch_ids_of(role, features).numpy()


def part_of(
    role: str, column: int, size: int, features: tuple[PreparedFeature, ...] = SEPARATE
) -> CellPart:
    """The same part for the same arguments, with a random lookup."""
    num_ids = [f.num_ids for f in features if f.role == role][column]
    lookup = np.random.default_rng([column, size]).integers(0, size, num_ids, dtype=np.int32)
    return CellPart(role=role, column=column, lookup=lookup, size=size)


def table_of(*parts: CellPart, seed: int = 0) -> CellTable:
    num_cells = int(np.prod([part.size for part in parts]))
    weights, stddevs = np.random.default_rng(seed).normal(size=(2, num_cells)).astype(np.float32)
    share = 0.01 * (1 + seed)
    return CellTable(
        parts=parts, weights=weights, stddevs=np.abs(stddevs), share=share, importance=seed / 7
    )


A, B, C = (part_of("public", column, size) for column, size in ((0, 5), (1, 2), (2, 7)))
D, E = part_of("sensitive", 0, 3), part_of("sensitive", 1, 6)
PUBLIC_TABLES = (table_of(A), table_of(B, C, seed=1), table_of(C, A, B, seed=2))
TABLES = (*PUBLIC_TABLES, table_of(D, seed=3), table_of(A, E, D, seed=4))


def of_one_head(bias: float, tables: tuple[CellTable, ...]) -> CellModel:
    return CellModel(heads=(CellHead(bias=bias, tables=tables),))


MIXED = of_one_head(-1.25, TABLES)
TRUNCATED = of_one_head(0.1, PUBLIC_TABLES)
RATE_TIMES_VALUE = CellModel(
    heads=(CellHead(bias=-1.0, tables=TABLES[:2]), CellHead(bias=0.5, tables=TABLES[2:])),
    output="value",
    scale=40.0,
)
OF_CLASSES = CellModel(
    heads=tuple(CellHead(bias=k / 2, tables=TABLES[k : k + 2]) for k in range(3)),
    output="classes",
    classes=("none", "cart", "sale"),
)


def brute_force(
    model: CellModel, public: NDArray[Any], sensitive: NDArray[Any] | None
) -> NDArray[np.float64]:
    """Looks each row's cell up in an array with one axis for each part."""
    logits = []
    for row in range(len(public)):
        (head,) = model.heads
        logit = np.float64(head.bias)
        for table in head.tables:
            weights = table.weights.reshape([part.size for part in table.parts])
            cell = []
            for part in table.parts:
                ids = public if part.role == "public" else sensitive
                assert ids is not None
                cell.append(part.lookup[int(ids[row, part.column])])
            logit += np.float64(weights[tuple(cell)])
        logits.append(logit)
    return np.array(logits, dtype=np.float64)


def both_ids(
    model: CellModel, features: tuple[PreparedFeature, ...] = SEPARATE
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    sensitive = ids_of("sensitive", features) if model.reads_sensitive else None
    return ids_of("public", features), sensitive


def test_the_folder_alone_gives_the_logits_of_the_model(tmp_path: Path) -> None:
    asked, expected = [], []
    models = {
        "mixed": (MIXED, SEPARATE),
        "truncated": (TRUNCATED, SEPARATE),
        "public": (TRUNCATED, PUBLIC_ONLY),
    }
    for name, (model, features) in models.items():
        export_cells(tmp_path / name, model, features, facts=FACTS)
        public, sensitive = both_ids(model, features)
        rows = [public.tolist(), None if sensitive is None else sensitive.tolist()]
        asked.append([str(tmp_path / name), *rows])
        expected.append(brute_force(model, public, sensitive))
    for found, logits in zip(cell_logits_alone(asked, tmp_path), expected, strict=True):
        assert np.std(logits) > 0.1
        np.testing.assert_allclose(found, logits, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "model", [MIXED, TRUNCATED, of_one_head(0.5, ()), RATE_TIMES_VALUE, OF_CLASSES]
)
def test_a_model_comes_back_into_tulle(tmp_path: Path, model: CellModel) -> None:
    export_cells(tmp_path / "model", model, SEPARATE, facts=FACTS)
    loaded = load_cells(tmp_path / "model")
    assert loaded.features == SEPARATE
    assert loaded.is_truncated is not model.reads_sensitive
    assert loaded.facts == FACTS
    assert [head.bias for head in loaded.model.heads] == [head.bias for head in model.heads]
    for name in ("output", "scale", "classes"):
        assert getattr(loaded.model, name) == getattr(model, name)
    for head, same in zip(loaded.model.heads, model.heads, strict=True):
        assert len(head.tables) == len(same.tables)
    for found, table in zip(loaded.model.tables, model.tables, strict=True):
        assert found.weights.dtype == np.float32
        np.testing.assert_array_equal(found.weights, table.weights)
        assert found.stddevs is not None
        assert found.stddevs.dtype == np.float32
        np.testing.assert_array_equal(found.stddevs, table.stddevs)
        assert (found.share, found.importance) == (table.share, table.importance)
        for mine, part in zip(found.parts, table.parts, strict=True):
            assert (mine.role, mine.column, mine.size) == (part.role, part.column, part.size)
            assert mine.lookup.dtype == np.int32
            np.testing.assert_array_equal(mine.lookup, part.lookup)
    public, sensitive = both_ids(model)
    each = [of_one_head(head.bias, head.tables) for head in model.heads]
    logits = np.stack([brute_force(one, public, sensitive) for one in each], axis=1)
    found = loaded.model.log_odds(public, sensitive)
    np.testing.assert_array_equal(found, logits[:, 0] if len(each) == 1 else logits)
    rates, alone = 1 / (1 + np.exp(-logits)), cell_model.load_model(tmp_path / "model")
    expected = {
        "probability": rates[:, 0],
        "value": model.scale * rates.prod(axis=1),
        "classes": rates / rates.sum(axis=1, keepdims=True),
    }[model.output]
    ids = (public, sensitive)
    for found in (loaded.model.predicted(*ids), alone.predict(*ids)):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    if model.output == "value":
        with pytest.raises(ValueError, match="predicts values and no probabilities"):
            alone.predict_proba(*ids)
    else:
        np.testing.assert_array_equal(alone.predict_proba(*ids), alone.predict(*ids))


@st.composite
def small_models(draw: st.DrawFn) -> tuple[CellModel, tuple[PreparedFeature, ...]]:
    num_public = draw(st.integers(0, 3))
    num_sensitive = draw(st.integers(0 if num_public else 1, 2))
    roles = ["public"] * num_public + ["sensitive"] * num_sensitive
    features = tuple(
        feature(f"f{index}", role, draw(st.integers(1, 5))) for index, role in enumerate(roles)
    )
    columns = [("public", c) for c in range(num_public)]
    columns += [("sensitive", c) for c in range(num_sensitive)]
    tables = []
    for seed in range(draw(st.integers(0, 4))):
        places = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
        parts = [part_of(*place, draw(st.integers(1, 4)), features) for place in places]
        tables.append(table_of(*parts, seed=seed))
    bias = draw(st.floats(-20, 20))
    return of_one_head(bias, tuple(tables)), features


@given(made=small_models())
@settings(max_examples=40)
def test_every_way_to_predict_gives_the_same_logits(
    made: tuple[CellModel, tuple[PreparedFeature, ...]],
) -> None:
    model, features = made
    public, sensitive = both_ids(model, features)
    expected = brute_force(model, public, sensitive)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        export_cells(folder, model, features, facts={})
        alone = cell_model.load_model(folder)
        again = load_cells(folder).model
    found = [
        model.log_odds(public, sensitive),
        again.log_odds(public, sensitive),
        alone.log_odds(public, sensitive),
    ]
    for logits in found:
        assert logits.dtype == np.float64
        np.testing.assert_allclose(logits, expected, rtol=1e-12, atol=1e-12)


def test_each_distinct_lookup_is_stored_once(tmp_path: Path) -> None:
    export_cells(tmp_path / "model", MIXED, SEPARATE, facts={})
    tensors = cell_model.read_arrays(tmp_path / "model" / "model.safetensors")
    lookups = {name: values for name, values in tensors.items() if name.startswith("lookup.")}
    assert len(lookups) == 5
    assert all(values.dtype == np.int32 for values in lookups.values())
    for one, other in itertools.combinations(lookups.values(), 2):
        assert not np.array_equal(one, other)


def test_a_model_without_sensitive_parts_takes_public_ids_alone(tmp_path: Path) -> None:
    export_cells(tmp_path / "model", TRUNCATED, SEPARATE, facts={})
    model = cell_model.load_model(tmp_path / "model")
    public, sensitive = ids_of("public", SEPARATE), ids_of("sensitive", SEPARATE)
    assert model.truncated is True
    assert len(model.predict_proba(public)) == len(public)
    with pytest.raises(ValueError, match="the model is truncated"):
        model.predict_proba(public, sensitive)


def test_ids_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    export_cells(tmp_path / "model", MIXED, SEPARATE, facts={})
    model = cell_model.load_model(tmp_path / "model")
    public, sensitive = ids_of("public", SEPARATE), ids_of("sensitive", SEPARATE)
    shorter = model.log_odds(public.astype(np.int32), sensitive.astype(np.int32))
    np.testing.assert_array_equal(shorter, model.log_odds(public, sensitive))
    for wrong in (-1, 30):
        changed = public.copy()
        changed[7, 0] = wrong
        with pytest.raises(ValueError, match="public ids must be from 0 to num_ids - 1"):
            model.predict_proba(changed, sensitive)
    with pytest.raises(ValueError, match=r"sensitive ids have the shape \[50, 1\]"):
        model.predict_proba(public, sensitive[:, :1])
    with pytest.raises(ValueError, match="needs the ids of its sensitive features"):
        model.predict_proba(public)


def plant(
    folder: Path,
    *,
    tensors: Callable[[Arrays], None] = lambda _tensors: None,
    description: Callable[[dict[str, Any]], None] = lambda _description: None,
) -> None:
    """Changes an exported model, with a checksum that fits again."""
    path = folder / "model.safetensors"
    held = load_file(path)
    tensors(held)
    save_file(held, path)
    data = json.loads((folder / "model.json").read_text())
    data["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    description(data)
    data["fingerprint"] = cell_model.description_fingerprint(data)
    (folder / "model.json").write_text(json.dumps(data))


def put_tensor(
    name: str, change: Callable[[NDArray[Any]], NDArray[Any]]
) -> Callable[[Arrays], None]:
    return lambda held: held.update({name: change(held[name])})


def as_type(dtype: Any) -> Callable[[NDArray[Any]], NDArray[Any]]:
    return lambda values: values.astype(dtype)


def put_word(**changes: object) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["settings"].update(changes)


def put_part(**changes: object) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["lookups"][1][0].update(changes)


TENSOR_DAMAGES: dict[str, tuple[Callable[[Arrays], None], str]] = {
    "a lookup beyond size": (
        put_tensor(
            "lookup.0",
            lambda lookup: np.where(np.arange(len(lookup)) == 3, 5, lookup).astype(np.int32),
        ),
        r"'lookup\.0' goes beyond the 5 values",
    ),
    "a negative lookup": (
        put_tensor(
            "lookup.0",
            lambda lookup: np.where(np.arange(len(lookup)) == 3, -1, lookup).astype(np.int32),
        ),
        r"'lookup\.0' goes beyond the 5 values",
    ),
    "a lookup too short": (
        put_tensor("lookup.0", lambda lookup: lookup[:-1].copy()),
        r"'lookup\.0' must have one number for each id",
    ),
    "a lookup of fractions": (put_tensor("lookup.0", as_type(np.float32)), "header|must be int32"),
    "a lookup of long numbers": (put_tensor("lookup.0", as_type(np.int64)), "header|must be int32"),
    "weights too short": (
        put_tensor("table.1", lambda weights: weights[:-1].copy()),
        r"'table\.1' must be float32 of 14 cells",
    ),
    "weights too long": (
        put_tensor("table.1", lambda weights: np.concatenate([weights, weights])),
        r"'table\.1' must be float32 of 14 cells",
    ),
    "weights of two axes": (
        put_tensor("table.1", lambda weights: weights.reshape(2, 7)),
        r"'table\.1' must be float32 of 14 cells",
    ),
    "weights in double": (
        put_tensor("table.1", as_type(np.float64)),
        r"'table\.1' must be float32 of 14 cells",
    ),
    "weights of whole numbers": (put_tensor("table.1", as_type(np.int32)), "header|float32 of 14"),
    "weights of NaN": (
        put_tensor("table.1", lambda weights: weights * float("nan")),
        r"'table\.1' of model\.safetensors has NaN",
    ),
    "a bias of whole numbers": (put_tensor("common.bias", as_type(np.int32)), "header|one float64"),
    "no number as bias": (
        put_tensor("common.bias", lambda bias: bias[:0].copy()),
        r"'common\.bias' must be one float64",
    ),
    "deviations too short": (
        put_tensor("stddevs.1", lambda stddevs: stddevs[:-1].copy()),
        r"'stddevs\.1' must be float32 of 14 cells",
    ),
    "an unknown tensor": (
        lambda held: held.update({"table.9": np.zeros(2, np.float32)}),
        r"unknown tensor 'table\.9'",
    ),
    "an unknown lookup": (
        lambda held: held.update({"lookup.9": np.zeros(2, np.int32)}),
        r"unknown tensor 'lookup\.9'",
    ),
    "a missing table": (lambda held: held.__delitem__("table.1"), r"table\.1"),
    "a missing lookup": (lambda held: held.__delitem__("lookup.1"), r"lookup\.1"),
}


def check_refused(folder: Path, reason: str) -> None:
    """Both readers of a folder name what is wrong."""
    with pytest.raises(ValueError, match=reason):
        cell_model.load_model(folder)
    with pytest.raises(DataError, match=f"({reason}).*; copy the whole folder again"):
        load_model(folder)


@pytest.mark.parametrize("damage", TENSOR_DAMAGES)
def test_damaged_tensors_are_refused(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    export_cells(folder, MIXED, SEPARATE, facts={})
    plant(folder)
    load_model(folder)
    change, reason = TENSOR_DAMAGES[damage]
    plant(folder, tensors=change)
    check_refused(folder, reason)


DESCRIPTION_DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "the version of towers": (lambda data: data.update(version=1), "version=1, this file reads 2"),
    "a later version": (lambda data: data.update(version=4), "version=4, this file reads 2 and 3"),
    "another kind": (lambda data: data["settings"].update(kind="mlp"), "version=3"),
    "an unknown output": (put_word(output="rank"), "output='rank' must be one of probability"),
    "one head for classes": (put_word(output="classes"), "a model of classes cannot have 1 heads"),
    "classes of a bit": (put_word(classes=["a"]), "cannot have 1 heads and 1 classes"),
    "a scale of zero": (put_word(scale=0.0), "scale=0.0 must be a finite number above 0"),
    "a scale of text": (put_word(scale="1"), "fit each other"),
    "a share above one": (put_word(shares=[0.1, 1.5, 0, 0, 0]), "share=1.5 must be 0..1"),
    "an importance below zero": (put_word(importances=[0, 0, 0, 0, -1]), "importance=-1.0 >= 0"),
    "an importance too few": (put_word(importances=[0.1]), "fit each other"),
    "a share too few": (put_word(shares=[0.1]), "fit each other"),
    "a head too many": (put_word(num_tables=[4, 1]), "one float64 for each head"),
    "a table in no head": (put_word(num_tables=[4]), "not those of 5 tables"),
    "no head": (put_word(num_tables=[]), "one float64 for each head"),
    "a negative number of tables": (put_word(num_tables=[-5]), "not those of 5 tables"),
    "truncated": (lambda data: data.update(truncated=True), "truncated=True must be False"),
    "truncated by a number": (lambda data: data.update(truncated=0), "truncated=0 must be False"),
    "a table too few": (lambda data: data["lookups"].__delitem__(-1), "unknown tensor"),
    "a table too many": (lambda data: data["lookups"].append(data["lookups"][0]), "fit each other"),
    "a table without a column": (lambda data: data["lookups"].__setitem__(0, []), "a column"),
    "no list of tables": (lambda data: data.update(lookups=None), "fit each other"),
    "an unknown role": (put_part(role="secret"), "fit each other"),
    "a column too far": (put_part(column=3), "column=3 must be one of 3 public"),
    "a negative column": (put_part(column=-1), "column=-1 must be one of 3 public"),
    "a true column": (put_part(column=True), "column=True must be one of 3 public"),
    "another column": (put_part(column=0), "one number for each id"),
    "a size too small": (put_part(size=1), "goes beyond the 1 values"),
    "a size too large": (put_part(size=3), r"'table\.1' must be float32 of 21 cells"),
    "a size of zero": (put_part(size=0), "size=0 must be a whole number >= 1"),
    "a fraction as size": (put_part(size=2.0), r"size=2\.0 must be a whole number >= 1"),
    "an unknown lookup": (put_part(lookup=9), r"lookup\.9"),
    "a feature with more ids": (
        lambda data: data["features"][0].update(num_ids=31),
        "one number for each id",
    ),
}


@pytest.mark.parametrize("damage", DESCRIPTION_DAMAGES)
def test_a_damaged_description_is_refused(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    export_cells(folder, MIXED, SEPARATE, facts={})
    change, reason = DESCRIPTION_DAMAGES[damage]
    plant(folder, description=change)
    check_refused(folder, reason)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    export_cells(folder, MIXED, SEPARATE, facts={})
    path = folder / "model.safetensors"
    content = path.read_bytes()
    for length in range(0, len(content), 41):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            cell_model.load_model(folder)
        with pytest.raises(DataError, match=r"model\.safetensors was cut or changed"):
            load_model(folder)


def test_a_truncated_tensor_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    export_cells(folder, MIXED, SEPARATE, facts={})
    path = folder / "model.safetensors"
    header, data = header_and_data(path)
    header["lookup.0"]["shape"] = [29]
    path.write_bytes(rewritten(header, data))
    with pytest.raises(ValueError, match=r"'lookup\.0' of model\.safetensors is not where"):
        cell_model.load_model(folder)


def test_arrays_that_share_memory_or_are_read_only_are_exported(tmp_path: Path) -> None:
    table = table_of(A)
    table.weights.flags.writeable = False
    model = of_one_head(0.0, (table, table))
    export_cells(tmp_path / "model", model, SEPARATE, facts={})
    public = ids_of("public", SEPARATE)
    logits = cell_model.load_model(tmp_path / "model").log_odds(public)
    np.testing.assert_array_equal(logits, brute_force(model, public, None))


def test_models_that_do_not_fit_are_not_exported(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    double = TABLES[0].weights.astype(np.float64)
    deviations = dataclasses.replace(TABLES[0], stddevs=double)
    with pytest.raises(ConfigError, match="stddevs of a table are float64, must be float32"):
        export_cells(folder, of_one_head(0.0, (deviations,)), SEPARATE, facts={})
    wide = CellTable(parts=(A,), weights=TABLES[0].weights.astype(np.float64))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="float64, must be float32"):
        export_cells(folder, of_one_head(0.0, (wide,)), SEPARATE, facts={})
    for features in (SEPARATE[1:], SEPARATE[:4]):
        with pytest.raises(ConfigError, match="pass the features that the model was trained on"):
            export_cells(folder, MIXED, features, facts={})
    with pytest.raises(ConfigError, match="facts must be plain data"):
        export_cells(folder, MIXED, SEPARATE, facts={"x": {1, 2}})
    with pytest.raises(DataError, match=r"parameter 'common\.bias' has NaN"):
        export_cells(folder, of_one_head(float("nan"), ()), SEPARATE, facts={})
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "precious").write_text("x")
    with pytest.raises(RunStateError, match="model exists already"):
        export_cells(folder, MIXED, SEPARATE, facts={})
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "precious"]


def test_a_folder_of_version_2_still_loads(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    export_cells(folder, MIXED, SEPARATE, facts=FACTS)

    def forget(tensors: Arrays) -> None:
        for index in range(len(TABLES)):
            del tensors[f"stddevs.{index}"]

    plant(folder, tensors=forget)
    data = json.loads((folder / "model.json").read_text())
    del data["files"], data["fingerprint"]
    (folder / "model.json").write_text(
        json.dumps({**data, "version": 2, "settings": {"kind": "cells"}})
    )
    public, sensitive = both_ids(MIXED)
    expected = brute_force(MIXED, public, sensitive)
    loaded = load_cells(folder)
    for model in (cell_model.load_model(folder), loaded.model):
        np.testing.assert_array_equal(model.log_odds(public, sensitive), expected)
    assert loaded.model.output == "probability"
    assert {(table.stddevs, table.share) for table in loaded.model.tables} == {(None, 0.0)}
    loaded.write(tmp_path / "again", FACTS)
    np.testing.assert_array_equal(
        load_cells(tmp_path / "again").model.log_odds(public, sensitive), expected
    )


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "load_model.py"])
def test_one_changed_byte_of_any_file_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    export_cells(folder, MIXED, SEPARATE, facts=FACTS)
    path = folder / name
    content = path.read_bytes()
    changed = (
        content.replace(b"sensitive", b"public___", 1) if name == "model.json" else content[:-1]
    )
    path.write_bytes(changed)
    with pytest.raises(DataError, match=f"{name} was cut or changed"):
        load_model(folder)
    path.unlink()
    with pytest.raises(DataError, match=f"{name}: No such file"):
        load_model(folder)
