"""A trained model that needs PyTorch and nothing else.

This file lies as load_model.py beside model.safetensors and model.json in the
folder of every exported model:

    from load_model import load_model
    model = load_model()
    probabilities = model.predict_proba(public_ids, sensitive_ids)

Ids are whole numbers [rows, features of the role], in the order of "features" in
model.json, as the encoder of the data gives them. The parameters are ordinary
ones of a torch.nn.Module: train on, quantise or convert it as you like. What is
trained on with private data has no longer the privacy guarantee it came with.
"""

import json
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FORMAT = "tulle model"
VERSION = 1
CELLS = "cells"
CELLS_VERSION = 2
"""Of models of cells, which hold whole numbers too; all other kinds have `VERSION`."""
TENSORS_FILE = "model.safetensors"
DESCRIPTION_FILE = "model.json"
REPORT_PROBS = "report_probs"
"""In the facts of a model that predicts reports: their chances for a label of 0 and of 1."""

LOOKUP = "lookup."
"""What the names of tensors of whole numbers begin with; all others hold fractions."""

_FRACTIONS = {"F32": torch.float32, "F64": torch.float64}
_WHOLE_NUMBERS = {"I32": torch.int32}
_LONGEST_HEADER = 100_000_000
_Entry = tuple[str, torch.dtype, list[int], int, int]


def load_model(folder: str | Path | None = None) -> "ExportedModel":
    """Reads the model of a folder; by default of the one that this file is in.

    Raises:
      ValueError: A file is cut, damaged, or does not fit the other.
    """
    place = Path(__file__).parent if folder is None else Path(folder)
    return build_model(
        read_description(place / DESCRIPTION_FILE), read_tensors(place / TENSORS_FILE)
    )


def build_model(description: dict[str, Any], tensors: dict[str, Tensor]) -> "ExportedModel":
    """The model that a description gives a meaning to.

    Raises:
      ValueError: The tensors are not those that the description is of.
    """
    try:
        model = _KINDS[description["settings"]["kind"]](description, tensors)
        model(*(torch.empty(0, width, dtype=torch.int64) for width in model.num_columns))
    except (KeyError, TypeError, IndexError, AttributeError, RuntimeError) as error:
        raise _unfit(f"{type(error).__name__}: {error}") from None
    if unknown := tensors.keys() - model.state_dict().keys():
        raise _unfit(f"{TENSORS_FILE} has the unknown tensor {min(unknown)!r}")
    return model


class ExportedModel(nn.Module):
    """Gives log odds of label 1. Names in `state_dict` are those of the file."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.features: list[dict[str, Any]] = description["features"]
        self.truncated: bool = description["truncated"]
        self.facts: dict[str, Any] = description["facts"]
        roles = ("public",) if self.truncated else ("public", "sensitive")
        self._ids = nn.ModuleDict({role: _RoleIds(role, self.features) for role in roles})

    @property
    def num_columns(self) -> list[int]:
        """How many ids a row has, public and then, if the model takes them, sensitive ones."""
        roles = [feature["role"] for feature in self.features]
        return [roles.count("public")] + [roles.count("sensitive")] * (not self.truncated)

    def checked_ids(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> dict[str, Tensor]:
        """The ids of each role that the model looks at, all of them within their features.

        Args:
          public_ids: [rows, public features], whole numbers.
          sensitive_ids: [rows, sensitive features]; None for a truncated model, and for
            one without sensitive features.
        """
        if self.truncated and sensitive_ids is not None:
            raise ValueError("the model is truncated: it never saw a sensitive column; pass None.")
        ids = {"public": self._ids["public"](public_ids)}
        if not self.truncated:
            if sensitive_ids is None and self.num_columns[1]:
                raise ValueError("the model needs the ids of its sensitive features; pass them.")
            if sensitive_ids is None:
                sensitive_ids = public_ids.new_empty(len(public_ids), 0)
            ids["sensitive"] = self._ids["sensitive"](sensitive_ids)
        return ids

    @torch.no_grad()
    def predict_proba(self, public_ids: Tensor, sensitive_ids: Tensor | None = None) -> Tensor:
        """The chance of label 1, one a row.

        If the model was trained on randomized labels as they were, its log odds are those of
        a report, and this turns them into the chance of a label, kept within [0.001, 1].
        """
        chances = torch.sigmoid(self(public_ids, sensitive_ids))
        if REPORT_PROBS not in self.facts:
            return chances
        if_negative, if_positive = self.facts[REPORT_PROBS]
        labels: Tensor = (chances - if_negative) / (if_positive - if_negative)
        return labels.clamp(0.001, 1.0)


class TowerModel(ExportedModel):
    """Embeddings of the ids of each role, and what is above them."""

    def __init__(self, description: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().__init__(description)
        self.public = _Tower("public", description, tensors)
        self.sensitive = None if self.truncated else _Tower("sensitive", description, tensors)

    def tower_values(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> list[Tensor]:
        """What the towers give for each row; ids are as in `checked_ids`."""
        ids = self.checked_ids(public_ids, sensitive_ids)
        values: list[Tensor] = self.public(ids["public"])
        return values if self.sensitive is None else values + self.sensitive(ids["sensitive"])


class MLP(TowerModel):
    """ReLU layers over the outputs of both towers, side by side."""

    def __init__(self, description: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().__init__(description, tensors)
        num_hidden = len(description["settings"]["common_hidden"])
        self.common = _Stack("common", num_hidden + 1, tensors)
        self._num_inputs = tensors["common.layer.0.weight"].shape[1]

    def forward(self, public_ids: Tensor, sensitive_ids: Tensor | None = None) -> Tensor:
        """Log odds of label 1, one a row."""
        values, num_rows = self.tower_values(public_ids, sensitive_ids), len(public_ids)
        empty = next(self.common.parameters()).new_empty(num_rows, 0)
        inputs = torch.cat([empty, *(value.flatten(1) for value in values)], dim=1)
        if self.truncated:
            inputs = nn.functional.pad(inputs, (0, self._num_inputs - inputs.shape[1]))
        outputs: Tensor = self.common(inputs)
        return outputs.squeeze(1)


class FactorizationMachine(TowerModel):
    """Linear terms (column 0 of the tables) and the products of all pairs of factors."""

    def __init__(self, description: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().__init__(description, tensors)
        self.common = _Bias(tensors)

    def forward(self, public_ids: Tensor, sensitive_ids: Tensor | None = None) -> Tensor:
        """Log odds of label 1, one a row."""
        values, num_rows = self.tower_values(public_ids, sensitive_ids), len(public_ids)
        if not values:
            return self.common.bias.expand(num_rows)
        # The products of all pairs are half of |sum|^2 - sum of |factors|^2.
        terms = torch.cat(values, dim=1)
        sums = terms.sum(1)
        pairs = sums[:, 1:].square().sum(1) - terms[:, :, 1:].square().sum((1, 2))
        return self.common.bias + sums[:, 0] + pairs / 2


class LogisticRegression(TowerModel):
    """A bias and one weight for every id."""

    def __init__(self, description: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().__init__(description, tensors)
        self.common = _Bias(tensors)

    def forward(self, public_ids: Tensor, sensitive_ids: Tensor | None = None) -> Tensor:
        """Log odds of label 1, one a row."""
        values, num_rows = self.tower_values(public_ids, sensitive_ids), len(public_ids)
        logits = self.common.bias.expand(num_rows)
        for value in values:
            logits = logits + value.sum((1, 2))
        return logits


class Cells(ExportedModel):
    """A bias, and for each table the weight of the row's cell.

    A cell is a combination of values of the columns of a table, its parts; the lookup of
    a part gives the value of each id.
    """

    def __init__(self, description: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().__init__(description)
        self.parts: list[list[dict[str, Any]]] = description["lookups"]
        """Of each table: role, column among those of the role, lookup, number of values."""
        used = {part["lookup"] for parts in self.parts for part in parts}
        self.common = _Bias(tensors)
        self.lookup = _Lookups(sorted(used), tensors)
        self.table = nn.ParameterList([tensors[f"table.{i}"] for i in range(len(self.parts))])
        self._check()

    def forward(self, public_ids: Tensor, sensitive_ids: Tensor | None = None) -> Tensor:
        """Log odds of label 1, one a row."""
        ids = self.checked_ids(public_ids, sensitive_ids)
        logits = self.common.bias.expand(len(public_ids))
        for parts, weights in zip(self.parts, self.table, strict=True):
            cells = ids["public"].new_zeros(len(public_ids))
            for part in parts:
                values = self.lookup.of(part)[ids[part["role"]][:, part["column"]]]
                cells = cells * part["size"] + values
            logits = logits + weights[cells]
        return logits

    def _check(self) -> None:
        is_public = all(part["role"] == "public" for parts in self.parts for part in parts)
        if self.truncated is not is_public:
            raise _unfit(f"truncated={self.truncated!r} must be {is_public}")
        bias = self.common.bias
        if bias.dtype != torch.float64 or bias.shape != (1,):
            raise _unfit("tensor 'common.bias' must be one float64")
        num_ids = {role: _num_ids(role, self.features) for role in ("public", "sensitive")}
        for index, (parts, weights) in enumerate(zip(self.parts, self.table, strict=True)):
            if not parts:
                raise _unfit(f"table {index} must have a column")
            for part in parts:
                self._check_part(part, num_ids[part["role"]])
            num_cells = _product([part["size"] for part in parts])
            if weights.dtype != torch.float32 or weights.shape != (num_cells,):
                raise _unfit(f"tensor 'table.{index}' must be float32 of {num_cells} cells")

    def _check_part(self, part: dict[str, Any], num_ids: list[int]) -> None:
        column, size, lookup = part["column"], part["size"], self.lookup.of(part)
        name = f"{LOOKUP}{part['lookup']}"
        if type(column) is not int or not 0 <= column < len(num_ids):
            raise _unfit(f"column={column!r} must be one of {len(num_ids)} {part['role']} features")
        if type(size) is not int or size < 1:
            raise _unfit(f"size={size!r} must be a whole number >= 1")
        if lookup.shape != (num_ids[column],):
            raise _unfit(f"tensor {name!r} must have one number for each id of its feature")
        if bool(((lookup < 0) | (lookup >= size)).any()):
            raise _unfit(f"tensor {name!r} goes beyond the {size} values of its column")


_KINDS: dict[str, type[TowerModel | Cells]] = {
    "mlp": MLP,
    "factorization machine": FactorizationMachine,
    "logistic regression": LogisticRegression,
    CELLS: Cells,
}


def read_description(path: Path) -> dict[str, Any]:
    """What model.json says about the tensors."""
    try:
        description = json.loads(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{path.name} is not JSON; it is cut or damaged.") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{path.name} does not describe a model of tulle.")
    version = CELLS_VERSION if is_of_cells(description) else VERSION
    if description.get("version") != version:
        raise ValueError(
            f"{path.name} has version={description.get('version')!r}, this file reads {version}; "
            "use the load_model.py that came with it."
        )
    return description


def is_of_cells(description: dict[str, Any]) -> bool:
    """Whether model.json is of a model of cells."""
    settings = description.get("settings")
    return isinstance(settings, dict) and settings.get("kind") == CELLS


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file: 8 bytes length, a JSON header, then raw numbers.

    Raises:
      ValueError: The file is cut, too long or otherwise not in order, or holds NaN.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if not 2 <= length <= min(size - 8, _LONGEST_HEADER):
            raise ValueError(f"{path.name} is cut short or no safetensors file.")
        entries = _parse_header(path.name, file.read(length), size - 8 - length)
        tensors = {}
        for name, dtype, shape, begin, end in entries:
            numbers = bytearray(end - begin)
            file.seek(8 + length + begin)
            if file.readinto(numbers) != len(numbers):
                raise ValueError(f"{path.name} became shorter while it was read.")
            flat = torch.frombuffer(numbers, dtype=dtype) if numbers else torch.empty(0)
            tensors[name] = flat.to(dtype).reshape(shape)
            if not tensors[name].isfinite().all():
                raise ValueError(f"tensor {name!r} of {path.name} has NaN or infinite numbers.")
    return tensors


def _parse_header(file_name: str, header: bytes, num_bytes: int) -> list[_Entry]:
    """The tensors in the order of their bytes, which they fill without gap or overlap."""
    try:
        entries = json.loads(header, object_pairs_hook=_without_repeated_names)
        entries.pop("__metadata__", None)
        found = [_entry(name, entry) for name, entry in entries.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"the header of {file_name} is damaged.") from None
    position = 0
    found.sort(key=lambda entry: entry[3:])
    for name, dtype, shape, begin, end in found:
        if begin != position or end - begin != _product(shape) * dtype.itemsize:
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


def _num_ids(role: str, features: list[dict[str, Any]]) -> list[int]:
    return [feature["num_ids"] for feature in features if feature["role"] == role]


def _product(numbers: list[int]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product


def _unfit(reason: str) -> ValueError:
    return ValueError(
        f"{DESCRIPTION_FILE} and {TENSORS_FILE} do not fit each other, or one is damaged: "
        f"{reason}; copy the folder again."
    )


class _RoleIds(nn.Module):
    """Refuses ids that the features of one role do not have."""

    def __init__(self, role: str, features: list[dict[str, Any]]) -> None:
        super().__init__()
        self._role = role
        self._num_ids: Tensor
        sizes = torch.tensor(_num_ids(role, features), dtype=torch.int64)
        self.register_buffer("_num_ids", sizes, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        ids = ids.long()
        if ids.ndim != 2 or ids.shape[1] != len(self._num_ids):
            raise ValueError(
                f"{self._role} ids have the shape {list(ids.shape)}, must be [rows, "
                f"{len(self._num_ids)}]: one column for each {self._role} feature of the model."
            )
        if bool(((ids < 0) | (ids >= self._num_ids)).any()):
            raise ValueError(
                f"{self._role} ids must be from 0 to num_ids - 1 of their feature; encode the rows "
                "with the encoder that the model was trained with."
            )
        return ids


class _Tower(nn.Module):
    """The embeddings of the features of one role, and the layers above them."""

    def __init__(self, role: str, description: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().__init__()
        sizes = _num_ids(role, description["features"])
        self._lookups = description["lookups"][role]
        self.table = nn.ParameterList([tensors[entry["tensor"]] for entry in self._lookups])
        for entry, table in zip(self._lookups, self.table, strict=True):
            columns, first_rows = entry["columns"], entry["first_rows"]
            for column, first_row in zip(columns, first_rows, strict=True):
                if not 0 <= first_row <= len(table) - sizes[column]:
                    raise ValueError(f"tensor {entry['tensor']!r} has too few rows; it is damaged.")
        hidden = description["settings"].get(f"{role}_hidden", ()) if self._lookups else ()
        self.layer = _Stack(role, len(hidden), tensors).layer

    def forward(self, ids: Tensor) -> list[Tensor]:
        """[rows, features, dim] for each table; with layers, one output for all."""
        values = []
        for entry, table in zip(self._lookups, self.table, strict=True):
            rows = ids[:, entry["columns"]] + ids.new_tensor(entry["first_rows"])
            values.append(nn.functional.embedding(rows, table))
        if not len(self.layer):
            return values
        outputs = torch.cat([value.flatten(1) for value in values], dim=1)
        for layer in self.layer:
            outputs = layer(outputs).relu()
        return [outputs]


class _Stack(nn.Module):
    """Linear layers with a ReLU between each two."""

    def __init__(self, name: str, num_layers: int, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.layer = nn.ModuleList(
            [
                _Linear(tensors[f"{name}.layer.{i}.weight"], tensors[f"{name}.layer.{i}.bias"])
                for i in range(num_layers)
            ]
        )

    def forward(self, inputs: Tensor) -> Tensor:
        for index, layer in enumerate(self.layer):
            inputs = layer(inputs.relu() if index else inputs)
        return inputs


class _Linear(nn.Module):
    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.linear(inputs, self.weight, self.bias)


class _Bias(nn.Module):
    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.bias = nn.Parameter(tensors["common.bias"])


class _Lookups(nn.Module):
    def __init__(self, numbers: list[int], tensors: dict[str, Tensor]) -> None:
        super().__init__()
        for number in numbers:
            self.register_buffer(str(number), tensors[f"{LOOKUP}{number}"])

    def of(self, part: dict[str, Any]) -> Tensor:
        return self.get_buffer(str(part["lookup"]))
