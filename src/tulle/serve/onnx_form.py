"""A model of tables as an ONNX graph, in double precision.

Each column that the model looks at is an input of [rows]: texts for categories, with "" for a
missing one; doubles for numbers and times, with NaN. Where the values of a hashed column are not
known, its ids are the input in place of texts, as the encoder gives them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from tulle.data.features.id_rules import CycleRule, IntervalRule, RuledFeature
from tulle.errors import ConfigError
from tulle.serve.scoring_tables import ScoringFeature, ScoringTables

UNMAPPED = "num_unmapped"
"""Output with the number of values of a row that the graph does not know."""
_OPSETS = {"": 17, "ai.onnx.ml": 2}
"""Versions of the operators: old enough for every runtime of the last years."""
_IR_VERSION = 8
"""Version of the file format that came with these operators."""
_UNKNOWN = -1
"""What a text becomes that is not known."""


def onnx_form(tables: ScoringTables) -> bytes:
    """The bytes of the file.

    Privacy:
      Holds the model, which was released, and the values that were given for it.

    Raises:
      ConfigError: The model looks at no column.
    """
    if not tables.features:
        raise ConfigError(
            "the model looks at no column, so that a graph of it has no input: it predicts the "
            "same for every row; export form='json'."
        )
    graph = _Graph()
    terms = [[graph.constant(np.array([bias]))] for bias in tables.biases]
    cells: list[list[str]] = [[] for _ in tables.crossed]
    for one in tables.features:
        ids = _ids(graph, one)
        if one is tables.features[0]:
            # A head without a table is one number, which has to become one for each row.
            none = graph.node("Cast", ids, to=TensorProto.DOUBLE)
            none = graph.node("Mul", none, graph.constant(np.array([0.0])))
            terms = [[graph.node("Add", *parts, none)] for parts in terms]
        for head, effects in one.effects.items():
            terms[head].append(graph.node("Gather", graph.constant(effects), ids))
        for table, steps in one.steps.items():
            numbers = graph.constant(steps.astype(np.int64))
            cells[table].append(graph.node("Gather", numbers, ids))
    for number, (head, weights) in enumerate(tables.crossed):
        terms[head].append(graph.node("Gather", graph.constant(weights), graph.sum(cells[number])))
    _write_outputs(graph, tables, [graph.sum(parts) for parts in terms])
    model = helper.make_model(
        graph.finished(),
        opset_imports=[helper.make_opsetid(name, one) for name, one in _OPSETS.items()],
        producer_name="tulle",
    )
    model.ir_version = _IR_VERSION
    content: bytes = model.SerializeToString()
    return content


class _Graph:
    """Nodes, constants, inputs and outputs, each under a name that nothing else has."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._inputs: dict[str, ValueInfoProto] = {}
        self._outputs: list[ValueInfoProto] = []
        self.unmapped: list[str] = []
        """Names of arrays that are 1 where a value is not known."""

    def node(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Adds a node and returns the name of what it gives."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(
            helper.make_node(kind, list(inputs), [name], domain=domain, **attributes)
        )
        return name

    def constant(self, values: NDArray[np.generic]) -> str:
        """Adds a constant and returns its name."""
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def input(self, name: str, kind: str) -> str:
        """Adds an input of [rows], unless it is there, and returns its name."""
        type_of = getattr(TensorProto, kind)
        self._inputs.setdefault(name, helper.make_tensor_value_info(name, type_of, ["rows"]))
        return name

    def output(self, name: str, source: str, kind: str, *, width: int | None = None) -> None:
        """Gives an array as an output.

        Args:
          name: Name of the output.
          source: Name of the array.
          kind: Type of its numbers.
          width: Number of columns; None: it is [rows].
        """
        shape: list[str | int] = ["rows"] if width is None else ["rows", width]
        self._nodes.append(helper.make_node("Identity", [source], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape))

    def sum(self, names: list[str]) -> str:
        """Adds up arrays, one after the other."""
        total = names[0]
        for name in names[1:]:
            total = self.node("Add", total, name)
        return total

    def finished(self) -> GraphProto:
        """The graph."""
        inputs = list(self._inputs.values())
        return helper.make_graph(
            self._nodes, "tulle", inputs, self._outputs, initializer=self._constants
        )


def _ids(graph: _Graph, one: ScoringFeature) -> str:
    feature, rule = one.feature, one.feature.rule
    if isinstance(rule, IntervalRule):
        return _interval_ids(graph, feature, rule)
    if isinstance(rule, CycleRule):
        return _cycle_ids(graph, feature, rule)
    if one.ids_by_text is None:
        return graph.input(f"{feature.name} id", "INT64")
    found = graph.node(
        "LabelEncoder",
        graph.input(feature.column, "STRING"),
        domain="ai.onnx.ml",
        keys_strings=list(one.ids_by_text),
        values_int64s=list(one.ids_by_text.values()),
        default_int64=_UNKNOWN,
    )
    is_unknown = graph.node("Equal", found, graph.constant(np.array([_UNKNOWN])))
    graph.unmapped.append(graph.node("Cast", is_unknown, to=TensorProto.INT64))
    return graph.node("Where", is_unknown, graph.constant(np.array([one.rest_id])), found)


def _interval_ids(graph: _Graph, feature: RuledFeature, rule: IntervalRule) -> str:
    numbers = graph.input(feature.column, "DOUBLE")
    column = graph.node("Unsqueeze", numbers, graph.constant(np.array([1])))
    edges = graph.constant(np.array([rule.edges]))
    passed = graph.node("Cast", graph.node("GreaterOrEqual", column, edges), to=TensorProto.INT64)
    places = graph.node("ReduceSum", passed, graph.constant(np.array([1])), keepdims=0)
    found = graph.node("Gather", graph.constant(np.array(rule.ids)), places)
    missing = graph.constant(np.array([rule.missing_id]))
    return graph.node("Where", graph.node("IsNaN", numbers), missing, found)


def _cycle_ids(graph: _Graph, feature: RuledFeature, rule: CycleRule) -> str:
    given = graph.input(feature.column, "DOUBLE")
    is_missing = graph.node("IsNaN", given)
    seconds = graph.node("Where", is_missing, graph.constant(np.array([0.0])), given)
    step = graph.constant(np.array([float(rule.step)]))
    steps = graph.node("Floor", graph.node("Div", seconds, step))
    steps = graph.node("Add", steps, graph.constant(np.array([float(rule.offset)])))
    length = graph.constant(np.array([float(rule.length)]))
    turns = graph.node("Mul", length, graph.node("Floor", graph.node("Div", steps, length)))
    place = graph.node("Cast", graph.node("Sub", steps, turns), to=TensorProto.INT64)
    found = graph.node("Add", place, graph.constant(np.array([rule.first_id])))
    return graph.node("Where", is_missing, graph.constant(np.array([rule.missing_id])), found)


def _write_outputs(graph: _Graph, tables: ScoringTables, log_odds: list[str]) -> None:
    model = tables.cells.model
    rates = [graph.node("Sigmoid", one) for one in log_odds]
    if model.output == "classes":
        axis = graph.constant(np.array([1]))
        columns = graph.node("Concat", *(graph.node("Unsqueeze", r, axis) for r in rates), axis=1)
        whole = graph.node("ReduceSum", columns, axis, keepdims=1)
        graph.output("probabilities", graph.node("Div", columns, whole), "DOUBLE", width=len(rates))
    else:
        found = rates[0]
        for rate in rates[1:]:
            found = graph.node("Mul", found, rate)
        if model.output == "value":
            found = graph.node("Mul", found, graph.constant(np.array([model.scale])))
        graph.output(model.output, found, "DOUBLE")
    if graph.unmapped:
        graph.output(UNMAPPED, graph.sum(graph.unmapped), "INT64")
