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
# To be raised when older code would read a file wrongly: each version refuses all others.
VERSION = 1
TENSORS_FILE = "model.safetensors"
DESCRIPTION_FILE = "model.json"
REPORT_PROBS = "report_probs"
"""Key in the facts of a model that predicts reports: the probabilities of a report of 1 for a label
of 0 and of 1."""

_DTYPES = {"F32": torch.float32, "F64": torch.float64}
# The limit of the safetensors format itself: a damaged length must not make this file ask for all
# memory.
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
        model = ExportedTowers(description, tensors)
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
        """The probability of label 1 for each row.

        If the model was trained on randomized labels as they were, its log odds are those of
        a report, and this turns them into the probability of a label, kept within [0.001, 1].
        """
        chances = torch.sigmoid(self(public_ids, sensitive_ids))
        if REPORT_PROBS not in self.facts:
            return chances
        if_negative, if_positive = self.facts[REPORT_PROBS]
        labels: Tensor = (chances - if_negative) / (if_positive - if_negative)
        return labels.clamp(0.001, 1.0)


class ExportedTowers(ExportedModel):
    """Embeddings of the ids of each role, and above them the formula of one kind of model."""

    def __init__(self, description: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().__init__(description)
        settings = description["settings"]
        self.public = _Tower("public", description, tensors)
        self.sensitive = None if self.truncated else _Tower("sensitive", description, tensors)
        self._logits = _LOGITS[settings["kind"]]
        has_layers = "common_hidden" in settings
        self.common: _Stack | _Bias = (
            _Stack("common", len(settings["common_hidden"]) + 1, tensors)
            if has_layers
            else _Bias(tensors)
        )

    def forward(self, public_ids: Tensor, sensitive_ids: Tensor | None = None) -> Tensor:
        """Log odds of label 1, one a row."""
        ids = self.checked_ids(public_ids, sensitive_ids)
        values: list[Tensor] = self.public(ids["public"])
        if self.sensitive is not None:
            values = values + self.sensitive(ids["sensitive"])
        return self._logits(self.common, values, len(public_ids))


# What a model computes is said here, once: tulle trains with the same functions.


def run_layers(layers: "list[Any] | tuple[Any, ...]", inputs: Tensor) -> list[Tensor]:
    """The inputs of every layer, and last the output of the stack before any ReLU.

    Args:
      layers: Each has a `weight` [out, in] and a `bias` [out]; between each two is a ReLU.
      inputs: [rows, in]; numbers that are cut off at the end count as zeros.
    """
    values = [inputs]
    for index, layer in enumerate(layers):
        if index:
            # In place: training needs what comes out of a ReLU, and never what goes in.
            values[-1].relu_()
        weight = layer.weight[:, : values[-1].shape[1]]
        values.append(torch.addmm(layer.bias, values[-1], weight.t()))
    return values


def factor_squares(values: Tensor) -> Tensor:
    """[rows]: sums of the squares of factors, from values [rows, reads, 1 + factors]."""
    norms: Tensor = torch.linalg.vector_norm(values[:, :, 1:], dim=(1, 2))
    return norms.square()


def factor_logits(bias: Tensor, sums: Tensor, squares: list[Tensor]) -> Tensor:
    """[rows]: log odds of a factorization machine.

    The products of all pairs of factors are half of |sum|^2 - sum of |factors|^2.

    Args:
      bias: [1]: what is added to every logit.
      sums: [rows, 1 + factors]: sums over all reads; column 0 has the linear terms.
      squares: Tensors of [rows], each for some of the reads: sums of the squares of their factors.
    """
    logits: Tensor = torch.linalg.vector_norm(sums[:, 1:], dim=1).square()
    for some in squares:
        logits -= some
    return logits.div_(2).add_(sums[:, 0]).add_(bias)


def linear_logits(bias: Tensor, values: list[Tensor], num_rows: int) -> Tensor:
    """[rows]: log odds of a logistic regression.

    Args:
      bias: [1]: what is added to every logit.
      values: Weights that were read, as [rows, reads, 1] for each table.
      num_rows: Number of rows; there may be no table.
    """
    logits = bias.repeat(num_rows)
    for value in values:
        logits += value.sum((1, 2))
    return logits


def _mlp_logits(common: Any, values: list[Tensor], num_rows: int) -> Tensor:
    """[rows]: log odds of ReLU layers over the outputs of both towers, side by side."""
    empty = common.layer[0].weight.new_empty(num_rows, 0)
    inputs = torch.cat([empty, *(value.flatten(1) for value in values)], dim=1)
    return run_layers(list(common.layer), inputs)[-1].squeeze(1)


def _factor_logits(common: Any, values: list[Tensor], num_rows: int) -> Tensor:
    """[rows]: log odds of a factorization machine over the values of its tables."""
    if not values:
        return common.bias.repeat(num_rows)  # type: ignore[no-any-return]
    sums = torch.cat(values, dim=1).sum(1)
    return factor_logits(common.bias, sums, [factor_squares(value) for value in values])


def _linear_logits(common: Any, values: list[Tensor], num_rows: int) -> Tensor:
    return linear_logits(common.bias, values, num_rows)


_LOGITS = {
    "mlp": _mlp_logits,
    "factorization machine": _factor_logits,
    "logistic regression": _linear_logits,
}
"""What a model of towers computes from the values of its tables, by its kind."""


def read_description(path: Path) -> dict[str, Any]:
    """What model.json says about the tensors."""
    try:
        description = json.loads(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{path.name} is not JSON; it is cut or damaged.") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{path.name} does not describe a model of tulle.")
    if description.get("version") != VERSION:
        raise ValueError(
            f"{path.name} has version={description.get('version')!r}, this file reads {VERSION}; "
            "use the load_model.py that came with it."
        )
    return description


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
    return name, _DTYPES[entry["dtype"]], shape, begin, end


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
        inputs = torch.cat([value.flatten(1) for value in values], dim=1)
        return [run_layers(list(self.layer), inputs)[-1].relu()]


class _Stack(nn.Module):
    """The parameters of linear layers with a ReLU between each two."""

    def __init__(self, name: str, num_layers: int, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.layer = nn.ModuleList(
            [
                _Linear(tensors[f"{name}.layer.{i}.weight"], tensors[f"{name}.layer.{i}.bias"])
                for i in range(num_layers)
            ]
        )


class _Linear(nn.Module):
    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)


class _Bias(nn.Module):
    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.bias = nn.Parameter(tensors["common.bias"])
