"""An encoder survives its files, and damaged files are refused."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.data.features.column_features import HashedFeature, VocabularyFeature
from tulle.data.features.encoder import Encoder, build_encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.hashing import ValueHasher
from tulle.data.features.vocabulary import Vocabularies
from tulle.data.schema import Schema
from tulle.errors import ConfigError, DataError
from tulle.privacy.events import Gaussian, event_to_dict

SALT = bytes(range(16))
TABLE = pl.DataFrame({"p/q": ["a", "b", None], "s": ["x", "y", "z"]})


def made(*values: str) -> Encoder:
    plan = FeaturePlan(
        schema=Schema(label="y", public=("p/q",), sensitive=("s",)),
        features=(
            VocabularyFeature(column="p/q", min_count=2),
            HashedFeature(column="s", num_bins=9),
        ),
        salt=SALT,
    )
    hashes = np.sort(ValueHasher(column="p/q", salt=SALT).hashes(pl.Series(values)))
    event = Gaussian(noise_multiplier=2.0)
    return build_encoder(plan, Vocabularies(hashes={"p/q": hashes}, salt=SALT, event=event))


def test_an_encoder_survives_its_files(tmp_path: Path) -> None:
    made("a", "c").to_files(tmp_path / "new" / "folder")
    copy = Encoder.from_files(tmp_path / "new" / "folder")
    assert copy.fingerprint() == made("a", "c").fingerprint()
    assert copy.features == made("a", "c").features
    assert copy.vocabulary_event == Gaussian(noise_multiplier=2.0)
    assert np.array_equal(copy.encode(TABLE), made("a", "c").encode(TABLE))


def test_files_hold_hashes_and_no_values_or_pickles(tmp_path: Path) -> None:
    made("a rare value", "c").to_files(tmp_path)
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"encoder.json", "vocabularies.npz"}
    assert b"a rare value" not in content
    with np.load(tmp_path / "vocabularies.npz", allow_pickle=False) as arrays:
        assert [arrays[name].dtype for name in arrays] == [np.dtype("<u8")]


def test_writing_again_replaces_the_files(tmp_path: Path) -> None:
    made("a").to_files(tmp_path)
    made("b", "c").to_files(tmp_path)
    assert Encoder.from_files(tmp_path).vocabularies.num_kept == {"p/q": 2}


def test_files_of_two_encoders_are_not_mixed(tmp_path: Path) -> None:
    made("a").to_files(tmp_path / "one")
    made("b").to_files(tmp_path / "two")
    (tmp_path / "two" / "vocabularies.npz").replace(tmp_path / "one" / "vocabularies.npz")
    with pytest.raises(DataError, match="fingerprint"):
        Encoder.from_files(tmp_path / "one")


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 cut short", b"no archive"])
def test_a_damaged_vocabulary_is_refused(tmp_path: Path, damage: bytes) -> None:
    made("a").to_files(tmp_path)
    (tmp_path / "vocabularies.npz").write_bytes(damage)
    with pytest.raises(DataError, match=r"vocabularies\.npz"):
        Encoder.from_files(tmp_path)


def test_a_vocabulary_cut_short_is_refused(tmp_path: Path) -> None:
    made("a", "b", "c").to_files(tmp_path)
    whole = (tmp_path / "vocabularies.npz").read_bytes()
    (tmp_path / "vocabularies.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"vocabularies\.npz"):
        Encoder.from_files(tmp_path)


def test_a_folder_without_an_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no encoder can be read"):
        Encoder.from_files(tmp_path)


def test_changed_settings_are_refused(tmp_path: Path) -> None:
    made("a").to_files(tmp_path)
    path = tmp_path / "encoder.json"
    original = json.loads(path.read_text())
    changed = json.loads(path.read_text())
    changed["plan"]["features"][1]["num_bins"] = 10
    path.write_text(json.dumps(changed))
    with pytest.raises(DataError, match="fingerprint"):
        Encoder.from_files(tmp_path)
    for other in (1, 3):
        path.write_text(json.dumps(original | {"format": other}))
        with pytest.raises(DataError, match=f"format={other}"):
            Encoder.from_files(tmp_path)
    path.write_text(json.dumps(original | {"formt": 1}))
    with pytest.raises(ConfigError, match="did you mean 'format'"):
        Encoder.from_files(tmp_path)


def test_a_cost_that_was_changed_or_dropped_is_refused(tmp_path: Path) -> None:
    made("a").to_files(tmp_path)
    path = tmp_path / "encoder.json"
    original = json.loads(path.read_text())
    cheaper = event_to_dict(Gaussian(noise_multiplier=20.0))
    for changed in (None, cheaper):
        path.write_text(json.dumps(original | {"vocabulary_event": changed}))
        with pytest.raises(DataError, match="fingerprint"):
            Encoder.from_files(tmp_path)
    del original["vocabulary_event"]
    path.write_text(json.dumps(original))
    with pytest.raises(ConfigError, match="vocabulary_event"):
        Encoder.from_files(tmp_path)
