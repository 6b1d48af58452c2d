"""A trained model of Mosaic, which needs numpy and nothing else.

A copy of this file is load_model.py, beside model.safetensors and model.json, in the folder of
every model that Mosaic has trained:

    from load_model import load_model
    model = load_model()
    probabilities = model.predict_proba(public_ids, sensitive_ids)

The log odds of a row are a bias plus, for each table, the weight of the cell that the row is in. A
cell is one combination of values of one to three columns, and a table has all cells of its columns;
rare values of a column are merged into one. A bias and its tables are a head. A label of 0 or 1
needs one head, a value one or two, and classes one each. Ids are whole numbers of the shape [rows,
features of the role], in the order of "features" in model.json, as the encoder of the data gives
them.

The reader trusts no file: whatever is cut, damaged or inconsistent is refused with a ValueError,
so that a wrong file cannot give wrong predictions in silence.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = "tulle model"
KIND = "cells"
# 1 is the version of models of towers, which have the same files: readers of either refuse the
# other. Models of version 2 have one head, and say nothing of deviations and shares.
VERSION = 3
READ_VERSIONS = (2, 3)
TENSORS_FILE = "model.safetensors"
DESCRIPTION_FILE = "model.json"
BIAS = "common.bias"
TABLE = "table."
STDDEVS = "stddevs."
LOOKUP = "lookup."
"""Beginning of the names of arrays of whole numbers; all other arrays hold floats."""

_FRACTIONS: dict[str, np.dtype[Any]] = {"F32": np.dtype(np.float32), "F64": np.dtype(np.float64)}
_WHOLE_NUMBERS: dict[str, np.dtype[Any]] = {"I32": np.dtype(np.int32)}
_NUM_HEADS = {"probability": (1, 1), "value": (1, 2), "classes": (2, 1_000_000)}
"""Fewest and most heads of a model that predicts this."""
OUTPUTS = tuple(_NUM_HEADS)
_LONGEST_HEADER = 100_000_000
"""Longest JSON header that is read, in bytes: the limit of the safetensors format itself."""
_Entry = tuple[str, np.dtype[Any], list[int], int, int]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellPart:
    """One column of a table, with the value that each of its ids is counted as."""

    role: str
    """'public' or 'sensitive'."""
    column: int
    """Place of the column among the features of that role."""
    lookup: NDArray[np.int32]
    """Number of the value of each id of the feature, from 0 to size - 1."""
    size: int
    """Number of values of the column that the table tells apart."""

    def __post_init__(self) -> None:
        if self.role not in ("public", "sensitive"):
            raise ValueError(f"role={self.role!r} must be 'public' or 'sensitive'.")
        if len(self.lookup) and not 0 <= self.lookup.min() <= self.lookup.max() < self.size:
            raise ValueError(
                f"a lookup of column {self.column} goes beyond the {self.size} values of its column"
            )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellTable:
    """The weights of all cells of a table, in row-major order of the values of its columns."""

    parts: tuple[CellPart, ...]
    """The columns of the table; the first one is the most significant in a cell's place."""
    weights: NDArray[np.float32]
    """[cells]: change of log odds of each cell."""
    stddevs: NDArray[np.float32] | None = None
    """[cells]: posterior standard deviation of each weight, which follows from noisy sums alone;
    None for models of version 2."""
    share: float = 0.0
    """Share of the run's noise budget that the table was given over all rounds; 0 if unknown."""
    importance: float = 0.0
    """Mean absolute weight over rows, by public or noisy numbers of rows; 0 if unknown."""

    def __post_init__(self) -> None:
        num_cells = math.prod(part.size for part in self.parts)
        for numbers in (self.weights, self.weights if self.stddevs is None else self.stddevs):
            if not self.parts or numbers.shape != (num_cells,):
                raise ValueError(f"a table of {num_cells} cells has numbers of {numbers.shape}.")
        if not (0 <= self.share <= 1 and 0 <= self.importance < math.inf):
            raise ValueError(f"share={self.share} must be 0..1, importance={self.importance} >= 0.")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellHead:
    """A bias and tables of cells, which together give log odds."""

    bias: float
    """Log odds of a row before any table is added."""
    tables: tuple[CellTable, ...]
    """Tables whose weights are added up, one cell of each for every row."""

    def log_odds(
        self, public_ids: NDArray[Any], sensitive_ids: NDArray[Any] | None
    ) -> NDArray[np.float64]:
        """Log odds of each row; see `CellModel.log_odds`."""
        ids = {"public": public_ids, "sensitive": sensitive_ids}
        found = np.full(len(public_ids), self.bias)
        for table in self.tables:
            columns = [_column(ids[part.role], part) for part in table.parts]
            found += table.weights[cells_of_rows(table.parts, columns)]
        return found


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellModel:
    """One or more heads, and what is made of their log odds."""

    heads: tuple[CellHead, ...]
    """One for a label of 0 or 1."""
    output: str = "probability"
    """"probability" of label 1, expected "value", or probabilities of "classes"."""
    scale: float = 1.0
    """An expected value is the scale times the product of the probabilities of the heads."""
    classes: tuple[str, ...] = ()
    """Names of the classes; there is one head for each."""

    def __post_init__(self) -> None:
        if self.output not in OUTPUTS:
            raise ValueError(f"output={self.output!r} must be one of {', '.join(OUTPUTS)}.")
        least, most = _NUM_HEADS[self.output]
        num_classes = len(self.heads) if self.output == "classes" else 0
        if not least <= len(self.heads) <= most or len(self.classes) != num_classes:
            raise ValueError(
                f"a model of {self.output} cannot have {len(self.heads)} heads and "
                f"{len(self.classes)} classes."
            )
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale={self.scale} must be a finite number above 0.")

    @property
    def tables(self) -> tuple[CellTable, ...]:
        """The tables of all heads, one head after the other."""
        return tuple(table for head in self.heads for table in head.tables)

    @property
    def reads_sensitive(self) -> bool:
        """True if a table has a sensitive column."""
        return any(part.role == "sensitive" for table in self.tables for part in table.parts)

    def log_odds(
        self, public_ids: NDArray[Any], sensitive_ids: NDArray[Any] | None
    ) -> NDArray[np.float64]:
        """Log odds of each row, as [rows], or as [rows, heads] if there are more heads than one.

        Args:
          public_ids: [rows, public features], whole numbers. Ids are not checked here.
          sensitive_ids: [rows, sensitive features]; None if no table needs them.

        Privacy:
          Log odds depend on the row's own columns: they are for whoever may see the row.
        """
        found = [head.log_odds(public_ids, sensitive_ids) for head in self.heads]
        return found[0] if len(found) == 1 else np.stack(found, axis=1)

    def predicted(
        self, public_ids: NDArray[Any], sensitive_ids: NDArray[Any] | None
    ) -> NDArray[np.float64]:
        """What the model predicts for each row: [rows], or [rows, classes]; see `log_odds`."""
        return self.predicted_by(self.log_odds(public_ids, sensitive_ids))

    def predicted_by(self, log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the model makes of the log odds of its heads."""
        rates = sigmoid(log_odds)
        if self.output == "classes":
            # A head was learnt against all other classes: a softmax would add up odds p / (1 - p).
            return rates / rates.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]
        rates = rates if rates.ndim == 1 else rates.prod(axis=1)
        return rates if self.output == "probability" else self.scale * rates


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellPredictor:
    """A model from its folder, which checks the ids that it is given."""

    model: CellModel
    features: list[dict[str, Any]]
    """Name, role and number of ids of each feature, as model.json has them."""
    truncated: bool
    """True if the model never looks at a sensitive column."""
    facts: dict[str, Any]
    """Whatever else the run has noted about the model."""

    def predict_proba(
        self, public_ids: NDArray[Any], sensitive_ids: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """The probability of label 1, or of each class, for each row; see `log_odds`."""
        if self.model.output == "value":
            raise ValueError("the model predicts values and no probabilities; call predict().")
        return self.predict(public_ids, sensitive_ids)

    def predict(
        self, public_ids: NDArray[Any], sensitive_ids: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """What the model predicts: probabilities, expected values or classes; see `log_odds`."""
        return self.model.predicted_by(self.log_odds(public_ids, sensitive_ids))

    def log_odds(
        self, public_ids: NDArray[Any], sensitive_ids: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """Log odds of each row, as [rows], or as [rows, heads] if there are more heads than one.

        Args:
          public_ids: [rows, public features], whole numbers.
          sensitive_ids: [rows, sensitive features]; None for a truncated model.

        Raises:
          ValueError: An id is not one of its feature, or ids are missing or too many.
        """
        if self.truncated and sensitive_ids is not None:
            raise ValueError("the model is truncated: it never saw a sensitive column; pass None.")
        if not self.truncated and sensitive_ids is None:
            raise ValueError("the model needs the ids of its sensitive features; pass them.")
        self._check_ids("public", public_ids)
        if sensitive_ids is not None:
            self._check_ids("sensitive", sensitive_ids)
        return self.model.log_odds(public_ids, sensitive_ids)

    def _check_ids(self, role: str, ids: NDArray[Any]) -> None:
        limits = np.array(num_ids_of(role, self.features), np.int64)
        if ids.ndim != 2 or ids.shape[1] != len(limits):
            raise ValueError(
                f"{role} ids have the shape {list(ids.shape)}, must be [rows, {len(limits)}]: one "
                f"column for each {role} feature of the model."
            )
        if ((ids < 0) | (ids >= limits)).any():
            raise ValueError(
                f"{role} ids must be from 0 to num_ids - 1 of their feature; encode the rows with "
                "the encoder that the model was trained with."
            )


def load_model(folder: str | Path | None = None) -> CellPredictor:
    """Reads the model of a folder.

    Args:
      folder: Folder with model.safetensors and model.json; None for the one that this file is in.

    Raises:
      ValueError: A file is cut, damaged, or does not fit the other.
    """
    place = Path(__file__).parent if folder is None else Path(folder)
    description = read_description(place / DESCRIPTION_FILE)
    model = build_cells(description, read_arrays(place / TENSORS_FILE))
    if hashlib.sha256((place / TENSORS_FILE).read_bytes()).hexdigest() != description["sha256"]:
        raise ValueError(f"{TENSORS_FILE} was cut or changed, or is of another model.")
    return CellPredictor(
        model=model,
        features=description["features"],
        truncated=description["truncated"],
        facts=description["facts"],
    )


def build_cells(description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> CellModel:
    """Makes a model of what model.safetensors holds, and model.json says about it.

    Raises:
      ValueError: The arrays are not those that the description is of.
    """
    try:
        lookups, features = description["lookups"], description["features"]
        words = _words(description["settings"], len(lookups))
        tables = [
            _table(index, parts, words, features, arrays) for index, parts in enumerate(lookups)
        ]
        used = {f"{LOOKUP}{part['lookup']}" for parts in lookups for part in parts}
        biases, numbers = arrays[BIAS], words["num_tables"]
        is_right = all(type(number) is int and number >= 0 for number in numbers)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise _unfit(f"{type(error).__name__}: {error}") from None
    places = range(len(tables))
    known = {BIAS, *used, *(f"{name}{index}" for name in (TABLE, STDDEVS) for index in places)}
    if unknown := arrays.keys() - known:
        raise _unfit(f"{TENSORS_FILE} has the unknown tensor {min(unknown)!r}")
    if biases.dtype != np.float64 or biases.shape != (len(numbers),):
        raise _unfit(f"tensor {BIAS!r} must be one float64 for each head")
    lengths = {sum(numbers) if is_right else -1, len(words["shares"]), len(words["importances"])}
    if lengths != {len(tables)}:
        raise _unfit(f"heads, shares or importances are not those of {len(tables)} tables")
    rest = iter(tables)
    heads = tuple(
        CellHead(bias=float(bias), tables=tuple(itertools.islice(rest, number)))
        for bias, number in zip(biases, numbers, strict=True)
    )
    try:
        made = {name: words[name] for name in ("output", "scale")}
        model = CellModel(heads=heads, classes=tuple(words["classes"]), **made)
    except (TypeError, ValueError) as error:
        raise _unfit(str(error).removesuffix(".")) from None
    if description["truncated"] is model.reads_sensitive or not isinstance(
        description["truncated"], bool
    ):
        raise _unfit(f"truncated={description['truncated']!r} must be {not model.reads_sensitive}")
    return model


def cells_of_rows(
    parts: Sequence[CellPart], columns: Sequence[NDArray[np.int32]]
) -> NDArray[np.int64]:
    """The place of each row's cell in the table; `columns` are the ids of each part, [rows]."""
    cells = np.zeros(len(columns[0]), np.int64)
    for part, ids in zip(parts, columns, strict=True):
        cells *= part.size
        cells += part.lookup[ids]
    return cells


def sigmoid(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities that belong to log odds, without an overflow on either side."""
    small = np.exp(-np.abs(log_odds))
    probabilities: NDArray[np.float64] = np.where(log_odds >= 0, 1.0, small) / (1.0 + small)
    return probabilities


def num_ids_of(role: str, features: Sequence[Mapping[str, Any]]) -> list[int]:
    """Number of ids of each feature of a role."""
    return [feature["num_ids"] for feature in features if feature["role"] == role]


def read_description(path: Path) -> dict[str, Any]:
    """Reads what model.json says about the arrays.

    Raises:
      ValueError: The file does not describe a model of cells, or one of another version.
    """
    try:
        description = json.loads(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{path.name} is not JSON; it is cut or damaged.") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{path.name} does not describe a model of tulle.")
    check_kind(description)
    if description["version"] > READ_VERSIONS[0] and (
        description.get("fingerprint") != description_fingerprint(description)
    ):
        raise ValueError(f"{path.name} was cut or changed; copy the folder again.")
    return description


def description_fingerprint(description: Mapping[str, Any]) -> str:
    """SHA-256 over everything that model.json says but this."""
    told = {name: value for name, value in description.items() if name != "fingerprint"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def check_kind(description: Mapping[str, Any]) -> None:
    """Refuses the description of another kind of model, or of another version.

    Raises:
      ValueError: It is one.
    """
    settings, version = description.get("settings"), description.get("version")
    is_known = type(version) is int and version in READ_VERSIONS
    if not isinstance(settings, dict) or settings.get("kind") != KIND or not is_known:
        known = " and ".join(map(str, READ_VERSIONS))
        raise ValueError(
            f"{DESCRIPTION_FILE} has version={version!r}, this file reads {known} of models of "
            f"{KIND}; use the load_model.py that came with it."
        )


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Reads all arrays of a safetensors file: 8 bytes length, a JSON header, then raw numbers.

    Raises:
      ValueError: The file is cut, too long or otherwise not in order, or holds NaN.
    """
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else len(content)
    if not 2 <= length <= min(len(content) - 8, _LONGEST_HEADER):
        raise ValueError(f"{path.name} is cut short or no safetensors file.")
    numbers = memoryview(content)[8 + length :]
    arrays = {}
    for name, dtype, shape, begin, end in _parse_header(
        path.name, content[8 : 8 + length], len(numbers)
    ):
        arrays[name] = np.frombuffer(numbers[begin:end], dtype).reshape(shape)
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"tensor {name!r} of {path.name} has NaN or infinite numbers.")
    return arrays


def _table(
    index: int,
    parts: Sequence[Mapping[str, Any]],
    words: Mapping[str, Any],
    features: Sequence[Mapping[str, Any]],
    arrays: Mapping[str, NDArray[Any]],
) -> CellTable:
    """One table of a description, after everything that it refers to was checked."""
    if not parts:
        raise _unfit(f"table {index} must have a column")
    found = tuple(_part(part, num_ids_of(part["role"], features), arrays) for part in parts)
    weights, stddevs = arrays[f"{TABLE}{index}"], arrays.get(f"{STDDEVS}{index}")
    num_cells = math.prod(part.size for part in found)
    for name, numbers in ((TABLE, weights), (STDDEVS, weights if stddevs is None else stddevs)):
        if numbers.dtype != np.float32 or numbers.shape != (num_cells,):
            raise _unfit(f"tensor '{name}{index}' must be float32 of {num_cells} cells")
    told = {name[:-1]: float(words[name][index]) for name in ("shares", "importances")}
    return CellTable(parts=found, weights=weights, stddevs=stddevs, **told)


def _words(settings: Mapping[str, Any], num_tables: int) -> dict[str, Any]:
    """What model.json says about heads; what version 2 leaves out has one value there."""
    old = {"num_tables": [num_tables], "shares": (none := [0.0] * num_tables), "importances": none}
    return {**old, "output": "probability", "scale": 1.0, "classes": (), **settings}


def _part(
    part: Mapping[str, Any], num_ids: Sequence[int], arrays: Mapping[str, NDArray[Any]]
) -> CellPart:
    role, column, size = part["role"], part["column"], part["size"]
    name = f"{LOOKUP}{part['lookup']}"
    if role not in ("public", "sensitive"):
        raise _unfit(f"role={role!r} must be 'public' or 'sensitive'")
    if type(column) is not int or not 0 <= column < len(num_ids):
        raise _unfit(f"column={column!r} must be one of {len(num_ids)} {role} features")
    if type(size) is not int or size < 1:
        raise _unfit(f"size={size!r} must be a whole number >= 1")
    lookup = arrays[name]
    if lookup.dtype != np.int32:
        raise _unfit(f"tensor {name!r} must be int32")
    if lookup.shape != (num_ids[column],):
        raise _unfit(f"tensor {name!r} must have one number for each id of its feature")
    if ((lookup < 0) | (lookup >= size)).any():
        raise _unfit(f"tensor {name!r} goes beyond the {size} values of its column")
    return CellPart(role=role, column=column, lookup=lookup, size=size)


def _column(ids: NDArray[Any] | None, part: CellPart) -> NDArray[np.int32]:
    if ids is None:
        raise ValueError("the model needs the ids of its sensitive features; pass them.")
    column: NDArray[np.int32] = ids[:, part.column]
    return column


def _parse_header(file_name: str, header: bytes, num_bytes: int) -> list[_Entry]:
    """The arrays in the order of their bytes, which they fill without gap or overlap."""
    try:
        entries = json.loads(header, object_pairs_hook=_without_repeated_names)
        entries.pop("__metadata__", None)
        found = [_entry(name, entry) for name, entry in entries.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"the header of {file_name} is damaged.") from None
    position = 0
    found.sort(key=lambda entry: entry[3:])
    for name, dtype, shape, begin, end in found:
        if begin != position or end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"tensor {name!r} of {file_name} is not where its header says.")
        position = end
    if position != num_bytes:
        fault = "is cut short" if position > num_bytes else "has bytes too many"
        raise ValueError(f"{file_name} {fault}: {num_bytes} bytes of tensors, not {position}.")
    return found


def _entry(name: str, entry: dict[str, Any]) -> _Entry:
    begin, end = entry["data_offsets"]
    shape = entry["shape"]
    if not isinstance(shape, list) or any(
        type(number) is not int or number < 0 for number in (*shape, begin, end)
    ):
        raise TypeError
    dtypes = _WHOLE_NUMBERS if name.startswith(LOOKUP) else _FRACTIONS
    return name, dtypes[entry["dtype"]], shape, begin, end


def _without_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def _unfit(reason: str) -> ValueError:
    return ValueError(
        f"{DESCRIPTION_FILE} and {TENSORS_FILE} do not fit each other, or one is damaged: "
        f"{reason}; copy the folder again."
    )
