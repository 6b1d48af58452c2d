import dataclasses
import errno
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.train.methods.mosaic.cell_model import description_fingerprint
from tulle.train.models import exported_model
from tulle.train.models.contributions import RowGradient
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import TrainedTowers, build_model
from tulle.train.settings.models import (
    FOURTH_ROOT,
    MLP,
    TOWERS,
    FactorizationMachine,
    LogisticRegression,
    ModelSettings,
    TableSharing,
)
from tulle.train.training_run import load_model
from unit.train.exported_folders import (
    PUBLIC_ONLY,
    SEPARATE,
    header_and_data,
    ids_of,
    logits_alone,
    rewritten,
)

SHARED = tuple(dataclasses.replace(f, num_ids=9, table=f.role) for f in SEPARATE)
SENSITIVE_ONLY = SEPARATE[3:]

MODELS: dict[str, ModelSettings] = {
    "mlp": MLP(
        embedding_dim=3, public_hidden=(12, 10), sensitive_hidden=(8,), common_hidden=(12, 10)
    ),
    "mlp without towers": MLP(embedding_dim=3, public_hidden=(), common_hidden=()),
    "mlp with many tables": MLP(
        embedding_dim=FOURTH_ROOT,
        tables=TableSharing.PER_FEATURE,
        public_hidden=(),
        common_hidden=(14,),
    ),
    "mlp by table": MLP(embedding_dim=FOURTH_ROOT, public_hidden=(9,), common_hidden=(14,)),
    "fm": FactorizationMachine(factor_dim=4),
    "fm per feature": FactorizationMachine(factor_dim=4, tables=TableSharing.PER_FEATURE),
    "lr": LogisticRegression(),
    "lr per feature": LogisticRegression(tables=TableSharing.PER_FEATURE),
}
FEATURES = {"separate": SEPARATE, "shared": SHARED, "public": PUBLIC_ONLY}
FACTS = {"plan_fingerprint": "sha256:00", "epsilon": 3.0}


def filled(settings: ModelSettings, features: tuple[PreparedFeature, ...]) -> TowerModel:
    """Every parameter is random, biases too, so that no mistake hides behind a zero."""
    model = build_model(settings, features, seed=1)
    generator = torch.Generator().manual_seed(2)
    for values in model.parameters.values():
        values.copy_(torch.randn(values.shape, generator=generator) / 2)
    return model


def export_model(
    folder: Path,
    model: TowerModel,
    settings: ModelSettings,
    features: tuple[PreparedFeature, ...],
    *,
    truncated: bool,
    facts: dict[str, Any],
) -> None:
    trained = TrainedTowers(
        model=model,
        settings=settings,
        features=features,
        is_truncated=truncated,
        device=torch.device("cpu"),
    )
    trained.write(folder, facts)


def load_towers(folder: Path) -> TrainedTowers:
    loaded = load_model(folder)
    assert isinstance(loaded, TrainedTowers)
    return loaded


def export(
    folder: Path,
    settings: ModelSettings,
    features: tuple[PreparedFeature, ...] = SEPARATE,
    *,
    truncated: bool = False,
) -> TowerModel:
    model = filled(settings, features)
    export_model(folder, model, settings, features, truncated=truncated, facts=FACTS)
    return model


def test_the_folder_alone_gives_the_logits_of_the_model(tmp_path: Path) -> None:
    asked, expected = [], []
    for name, settings in MODELS.items():
        for kind, features in FEATURES.items():
            for truncated in (False, True):
                folder = tmp_path / f"{name} {kind} {truncated}"
                model = export(folder, settings, features, truncated=truncated)
                public, sensitive = ids_of("public", features), ids_of("sensitive", features)
                uses_sensitive = not truncated and features is not PUBLIC_ONLY
                logits = model.forward(public, None if truncated else sensitive).logits
                rows = [public.tolist(), sensitive.tolist() if uses_sensitive else None]
                asked.append([str(folder), *rows])
                expected.append(logits.numpy())
    answers = logits_alone(asked, tmp_path)
    assert len(answers) == len(expected) == 48
    for (folder, *_), found, logits in zip(asked, answers, expected, strict=True):
        assert np.std(logits) > 0.01
        np.testing.assert_allclose(found, logits, rtol=1e-6, atol=1e-6, err_msg=folder)


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_in_double_precision_the_logits_agree_to_the_last_digits(
    tmp_path: Path, name: str, truncated: bool
) -> None:
    model = build_model(MODELS[name], SEPARATE, seed=1, dtype=torch.float64)
    for values in model.parameters.values():
        values.copy_(torch.randn(values.shape, generator=torch.Generator().manual_seed(5)))
    folder = tmp_path / "model"
    export_model(folder, model, MODELS[name], SEPARATE, truncated=truncated, facts={})
    public = ids_of("public", SEPARATE)
    sensitive = None if truncated else ids_of("sensitive", SEPARATE)
    logits = model.forward(public, sensitive).logits
    alone = exported_model.load_model(folder)
    torch.testing.assert_close(alone(public, sensitive), logits, rtol=1e-12, atol=1e-12)
    again = load_towers(folder).model
    assert again.forward(public, sensitive).logits.equal(logits)


@pytest.mark.parametrize("name", MODELS)
def test_autograd_of_the_exported_model_gives_the_gradients_of_training(
    tmp_path: Path, name: str
) -> None:
    model = build_model(MODELS[name], SEPARATE, seed=1, dtype=torch.float64)
    for values in model.parameters.values():
        values.copy_(torch.randn(values.shape, generator=torch.Generator().manual_seed(5)))
    export_model(tmp_path / "model", model, MODELS[name], SEPARATE, truncated=False, facts={})
    public, sensitive = ids_of("public", SEPARATE), ids_of("sensitive", SEPARATE)
    forward = model.forward(public, sensitive)
    ones = torch.ones_like(forward.logits)
    wanted = {key: torch.zeros_like(values) for key, values in model.parameters.items()}
    for contribution in forward.backward(ones, towers=TOWERS):
        for gradient in contribution.weighted_sum(ones):
            if isinstance(gradient, RowGradient):
                wanted[gradient.name].index_add_(0, gradient.rows, gradient.values)
            else:
                wanted[gradient.name] += gradient.values
    alone = exported_model.load_model(tmp_path / "model")
    alone(public, sensitive).sum().backward()
    for key, values in alone.named_parameters():
        torch.testing.assert_close(values.grad, wanted[key], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_into_tulle(tmp_path: Path, name: str, truncated: bool) -> None:
    model = export(tmp_path / "model", MODELS[name], truncated=truncated)
    loaded = load_towers(tmp_path / "model")
    assert loaded.settings == MODELS[name]
    assert loaded.features == SEPARATE
    assert loaded.is_truncated is truncated
    assert loaded.facts == FACTS
    public, sensitive = ids_of("public", SEPARATE), ids_of("sensitive", SEPARATE)
    expected = model.forward(public, None if truncated else sensitive).logits
    # A truncated model stays one even if somebody passes sensitive ids.
    torch.testing.assert_close(
        loaded.model.forward(public, sensitive).logits, expected, rtol=1e-6, atol=1e-6
    )


def test_models_without_public_features_work_as_well(tmp_path: Path) -> None:
    for number, settings in enumerate(MODELS.values()):
        folder = tmp_path / str(number)
        model = export(folder, settings, SENSITIVE_ONLY)
        public, sensitive = torch.empty(50, 0).long(), ids_of("sensitive", SENSITIVE_ONLY)
        torch.testing.assert_close(
            exported_model.load_model(folder)(public, sensitive),
            model.forward(public, sensitive).logits,
            rtol=1e-6,
            atol=1e-6,
        )


def test_a_truncated_export_has_nothing_of_the_sensitive_tower(tmp_path: Path) -> None:
    export(tmp_path / "model", MODELS["mlp"], truncated=True)
    tensors = exported_model.read_tensors(tmp_path / "model" / "model.safetensors")
    assert tensors
    assert not [name for name in tensors if name.startswith("sensitive.")]


def test_the_names_of_the_parameters_are_those_of_tulle(tmp_path: Path) -> None:
    for number, settings in enumerate(MODELS.values()):
        model = export(tmp_path / str(number), settings)
        loaded = exported_model.load_model(tmp_path / str(number))
        assert loaded.state_dict().keys() == model.parameters.keys()
        assert len(list(loaded.parameters())) == len(model.parameters)


def test_the_loader_imports_nothing_but_torch_and_the_standard_library() -> None:
    lines = Path(exported_model.__file__).read_text().splitlines()
    imported = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
    assert imported == {"json", "pathlib", "struct", "torch", "typing"}


def test_ids_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    export(tmp_path / "full", MODELS["fm per feature"])
    export(tmp_path / "cut", MODELS["fm per feature"], truncated=True)
    full = exported_model.load_model(tmp_path / "full")
    public, sensitive = ids_of("public", SEPARATE), ids_of("sensitive", SEPARATE)
    assert full(public.int(), sensitive.int()).equal(full(public, sensitive))
    for wrong in (-1, 30):
        # 30 is a row of the next feature in the same tensor.
        with pytest.raises(ValueError, match="public ids must be from 0 to num_ids - 1"):
            full(public.index_fill(1, torch.tensor([0]), wrong), sensitive)
    with pytest.raises(ValueError, match=r"sensitive ids have the shape \[50, 1\]"):
        full(public, sensitive[:, :1])
    with pytest.raises(ValueError, match="needs the ids of its sensitive features"):
        full(public)
    with pytest.raises(ValueError, match="the model is truncated"):
        exported_model.load_model(tmp_path / "cut")(public, sensitive)


def change(**changes: object) -> Callable[[dict[str, object], bytes], bytes]:
    def changed(header: dict[str, object], data: bytes) -> bytes:
        header["common.bias"] |= changes  # type: ignore[operator]
        return rewritten(header, data)

    return changed


DAMAGES: dict[str, Callable[[dict[str, object], bytes], bytes]] = {
    "empty": lambda _header, _data: b"",
    "a few bytes": lambda _header, _data: b"\x10\x00\x00",
    "a header longer than the file": lambda _header, data: struct.pack("<Q", 2**40) + data,
    "a header that is no JSON": lambda _header, data: struct.pack("<Q", 4) + b"\xff{{{" + data,
    "a header that is a list": lambda _header, data: struct.pack("<Q", 2) + b"[]" + data,
    "one byte cut": lambda header, data: rewritten(header, data[:-1]),
    "one byte more": lambda header, data: rewritten(header, data + b"\0"),
    "no data": lambda header, _data: rewritten(header, b""),
    "another type": change(dtype="I32"),
    "half precision": change(dtype="F16"),
    "another shape": change(shape=[3]),
    "a negative shape": change(shape=[-1, -1]),
    "a true shape": change(shape=[True]),
    "a fraction as shape": change(shape=[1.0]),
    "offsets of another tensor": change(data_offsets=[4, 8]),
    "offsets backwards": change(data_offsets=[4, 0]),
    "offsets far out": change(data_offsets=[2**60, 2**60 + 4]),
    "three offsets": change(data_offsets=[0, 4, 8]),
    "a missing key": lambda header, data: rewritten(
        {name: {"dtype": "F32"} for name in header}, data
    ),
    "a tensor too few": lambda header, data: rewritten(
        {name: entry for name, entry in header.items() if name != "common.bias"}, data
    ),
    "a name twice": lambda header, data: rewritten(header, data).replace(
        b'"sensitive.table.0"', b'"public.table.0"'
    ),
    "another name": lambda header, data: rewritten(header, data).replace(
        b'"common.bias"', b'"common.bios"'
    ),
    "NaN": lambda header, data: rewritten(header, b"\xff" * len(data)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_of_tensors_is_refused(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    export(folder, MODELS["lr per feature"])
    path = folder / "model.safetensors"
    header, data = header_and_data(path)
    path.write_bytes(rewritten(header, data))
    exported_model.load_model(folder)
    path.write_bytes(DAMAGES[damage](header, data))
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        exported_model.load_model(folder)
    with pytest.raises(DataError, match="copy the whole folder again"):
        load_model(folder)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    export(folder, MODELS["lr"])
    path = folder / "model.safetensors"
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            exported_model.load_model(folder)


def test_one_flipped_bit_is_noticed_in_tulle(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    export(folder, MODELS["mlp"])
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"model\.safetensors was cut or changed"):
        load_model(folder)


def drop(*keys: str) -> Callable[[dict[str, object]], object]:
    return lambda data: {key: value for key, value in data.items() if key not in keys}


def put(**changes: object) -> Callable[[dict[str, object]], object]:
    return lambda data: data | changes


@pytest.mark.parametrize(
    "damage",
    [
        lambda _data: [],
        drop("format"),
        put(version=2),
        drop("settings"),
        drop("features"),
        drop("lookups"),
        put(lookups={"public": [], "sensitive": []}),
        put(features=[]),
        put(settings={"kind": "mlp"}),
        put(settings={"kind": "tree"}),
        put(truncated=True),
    ],
)
def test_a_damaged_description_is_refused(
    tmp_path: Path, damage: Callable[[dict[str, object]], object]
) -> None:
    folder = tmp_path / "model"
    export(folder, MODELS["fm"])
    path = folder / "model.json"
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match="model"):
        exported_model.load_model(folder)
    path.write_text(path.read_text()[:-20])
    for load in (exported_model.load_model, load_model):
        with pytest.raises((ValueError, DataError), match=r"model\.json is not JSON"):
            load(folder)


def test_other_settings_than_the_tensors_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    export(folder, MODELS["mlp"])
    path = folder / "model.json"
    data = json.loads(path.read_text())
    for other in (
        {"common_hidden": [12]},
        {"common_hidden": [12, 10, 10]},
        {"public_hidden": [12]},
    ):
        changed = data | {"settings": data["settings"] | other}
        changed["fingerprint"] = description_fingerprint(changed)
        path.write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=r"fit each other|unknown tensor"):
            exported_model.load_model(folder)
        with pytest.raises(DataError, match=r"parameter .*; copy the whole folder again"):
            load_model(folder)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is no exported model: model\.json: No such file"):
        load_model(tmp_path)
    export(tmp_path / "model", MODELS["lr"])
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"is no exported model: model\.safetensors: No such file"):
        load_model(tmp_path / "model")


def test_an_existing_folder_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "precious").write_text("x")
    with pytest.raises(RunStateError, match="model exists already"):
        export(folder, MODELS["lr"])
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "precious"]


@pytest.mark.parametrize("broken", ["fsync", "rename"])
def test_a_failed_export_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, broken, full)
    with pytest.raises(RunStateError, match="model cannot be written: No space left"):
        export(tmp_path / "model", MODELS["lr"])
    assert list(tmp_path.iterdir()) == []


def test_nothing_has_the_name_of_the_folder_before_all_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, seen = os.rename, []

    def watched(source: Path, target: Path) -> None:
        seen.append((target.exists(), sorted(path.name for path in Path(source).iterdir())))
        rename(source, target)

    monkeypatch.setattr(os, "rename", watched)
    export(tmp_path / "model", MODELS["lr"])
    assert seen == [(False, ["load_model.py", "model.json", "model.safetensors"])]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    modes = {path.stat().st_mode for path in (tmp_path / "model").iterdir()}
    assert len(modes) == 1


def test_a_model_with_nan_is_not_exported(tmp_path: Path) -> None:
    model = filled(MODELS["lr"], SEPARATE)
    model.parameters["common.bias"][0] = float("nan")
    with pytest.raises(DataError, match=r"parameter 'common\.bias' has NaN"):
        export_model(tmp_path / "model", model, MODELS["lr"], SEPARATE, truncated=False, facts={})
    assert list(tmp_path.iterdir()) == []


def test_features_of_another_model_and_facts_that_are_no_data_are_refused(tmp_path: Path) -> None:
    model = filled(MODELS["lr"], SEPARATE)
    folder = tmp_path / "model"
    for features in (SHARED, SEPARATE[1:]):
        with pytest.raises(ConfigError, match="are not those of its settings and features"):
            export_model(folder, model, MODELS["lr"], features, truncated=False, facts={})
    for facts in ({"x": {1, 2}}, {"x": float("nan")}):
        with pytest.raises(ConfigError, match="facts must be plain data"):
            export_model(folder, model, MODELS["lr"], SEPARATE, truncated=False, facts=facts)
    assert list(tmp_path.iterdir()) == []
