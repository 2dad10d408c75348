"""Models of ml-compiler-opt's shape, made here as TFLite files: they decide as a TFLite runtime does."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, UnsupportedError
from mlgo_corpus.formats.records.tflite import parse_tflite
from mlgo_corpus.policies.pretrained import policy_of_tflite

FLOAT, INT32, INT64 = 0, 2, 4
CODES = {
    "CONCATENATION": 2, "FULLY_CONNECTED": 9, "MUL": 18, "RESHAPE": 22, "CAST": 53, "MAXIMUM": 55, "ARG_MAX": 56,
    "MINIMUM": 57, "LOGISTIC": 14, "BUCKETIZE": 147,
}  # fmt: skip
# The number of each operator's options in the union BuiltinOptions.
OPTIONS = {
    "FULLY_CONNECTED": 8, "CONCATENATION": 10, "MUL": 21, "RESHAPE": 17, "CAST": 37, "ARG_MAX": 40,
    "MAXIMUM": 39, "MINIMUM": 39, "BUCKETIZE": 115,
}  # fmt: skip

# A table of a FlatBuffer: (kind, value) by slot. Scalars are struct's letters; the others are places elsewhere.
Table = dict[int, tuple[str, Any]]


class FlatBuffer:
    """Writes tables one after the other: what a table leads to comes after it."""

    def __init__(self, root: Table) -> None:
        self.data = bytearray(b"\0\0\0\0TFL3")
        self._lead(0, lambda: self._table(root))

    def _align(self, size: int, ahead: int = 0) -> None:
        while (len(self.data) + ahead) % size:
            self.data.append(0)

    def _lead(self, place: int, write: Callable[[], int]) -> None:
        struct.pack_into("<I", self.data, place, write() - place)

    def _table(self, fields: Table) -> int:
        count = max(fields, default=-1) + 1
        cells = {slot: 4 + 4 * number for number, slot in enumerate(sorted(fields))}
        self._align(4, 4 + 2 * count)
        slots = len(self.data)
        self.data += struct.pack(
            f"<HH{count}H", 4 + 2 * count, 4 + 4 * len(fields), *(cells.get(slot, 0) for slot in range(count))
        )
        table = len(self.data)
        self.data += struct.pack("<i", table - slots) + bytes(4 * len(fields))
        for slot, (kind, value) in sorted(fields.items()):
            place = table + cells[slot]
            if len(kind) == 1:
                struct.pack_into(f"<{kind}", self.data, place, value)
            else:
                self._lead(place, lambda kind=kind, value=value: self._elsewhere(kind, value))  # type: ignore[misc]
        return table

    def _elsewhere(self, kind: str, value: Any) -> int:
        if kind == "table":
            return self._table(value)
        self._align(16, 4)
        begin = len(self.data)
        if kind == "tables":
            self.data += struct.pack("<I", len(value)) + bytes(4 * len(value))
            for number, item in enumerate(value):
                self._lead(begin + 4 + 4 * number, lambda item=item: self._table(item))  # type: ignore[misc]
        else:
            made = value.encode() if kind == "text" else np.asarray(value, kind).tobytes()
            self.data += struct.pack("<I", len(value)) + made + b"\0"
        return begin


class Graph:
    """A model in the making."""

    def __init__(self) -> None:
        self.tensors: list[Table] = []
        self.buffers: list[Table] = [{}]
        self.operators: list[Table] = []
        self.codes: list[str] = []

    def tensor(self, name: str, kind: int, shape: tuple[int, ...], values: Any = None) -> int:
        buffer = 0
        if values is not None:
            buffer = len(self.buffers)
            dtype = {FLOAT: "<f4", INT32: "<i4", INT64: "<i8"}[kind]
            self.buffers.append({0: ("u1", np.frombuffer(np.asarray(values, dtype).tobytes(), "u1"))})
        self.tensors.append({0: ("<i4", shape), 1: ("b", kind), 2: ("I", buffer), 3: ("text", name)})
        return len(self.tensors) - 1

    def operator(
        self,
        name: str,
        inputs: tuple[int, ...],
        shape: tuple[int, ...],
        kind: int = FLOAT,
        more: Table | None = None,
    ) -> int:
        if name not in self.codes:
            self.codes.append(name)
        made = self.tensor(f"{name}{len(self.tensors)}", kind, shape)
        table: Table = {0: ("I", self.codes.index(name)), 1: ("<i4", inputs), 2: ("<i4", (made,))}
        if name in OPTIONS:
            table |= {3: ("B", OPTIONS[name]), 4: ("table", more or {})}
        self.operators.append(table)
        return made

    def write(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> bytes:
        graph: Table = {
            0: ("tables", self.tensors), 1: ("<i4", inputs), 2: ("<i4", outputs), 3: ("tables", self.operators)
        }  # fmt: skip
        codes: list[Table] = [
            {0: ("b", min(CODES[name], 127)), 2: ("i", 1), 3: ("i", CODES[name])} for name in self.codes
        ]
        for code in codes:
            if code[3] == ("i", 32):
                code[1] = ("text", "Bucketize")
        root: Table = {
            0: ("I", 3), 1: ("tables", codes), 2: ("tables", [graph]), 3: ("text", "made"),
            4: ("tables", self.buffers),
        }  # fmt: skip
        return bytes(FlatBuffer(root).data)


NAMES = ("callee_users", "cost_estimate", "node_count")
EDGES = 99


def numbers(seed: int) -> tuple[list[Any], list[tuple[Any, Any]]]:
    draw = np.random.default_rng(seed)
    edges = [np.sort(draw.integers(-20, 200, EDGES)).astype(np.float32) for _ in NAMES]
    sizes = (2 * len(NAMES), 7, 5, 2)
    layers = [
        (draw.normal(size=(after, before)).astype(np.float32), draw.normal(size=after).astype(np.float32))
        for before, after in pairwise(sizes)
    ]
    return edges, layers


def model(seed: int = 0, *, last: str = "ARG_MAX", names: tuple[str, ...] = NAMES) -> bytes:
    """Return a model such as ml-compiler-opt's, of three features."""
    edges, layers = numbers(seed)
    graph = Graph()
    unused = graph.tensor("action_discount:0", FLOAT, (1,))
    inputs = [graph.tensor(f"action_{name}:0", INT64, (1,)) for name in names]
    scale = graph.tensor("scale", FLOAT, (), np.float32(1 / EDGES))
    row = graph.tensor("row", INT32, (2,), [1, 1])
    columns = []
    for number, values in zip(inputs, edges, strict=True):
        flat = graph.operator("RESHAPE", (number, row), (1, 1), INT64)
        count = graph.operator("BUCKETIZE", (flat,), (1, 1), INT32, {0: ("<f4", values)})
        share = graph.operator("MUL", (graph.operator("CAST", (count,), (1, 1)), scale), (1, 1))
        columns += [share, graph.operator("MUL", (share, share), (1, 1))]
    value = graph.operator("CONCATENATION", tuple(columns), (1, len(columns)), more={0: ("i", 1)})
    for place, (weights, bias) in enumerate(layers):
        constants = (
            graph.tensor(f"weights{place}", FLOAT, weights.shape, weights),
            graph.tensor(f"bias{place}", FLOAT, bias.shape, bias),
        )
        relu: Table = {0: ("b", 1)} if place + 1 < len(layers) else {}
        value = graph.operator("FULLY_CONNECTED", (value, *constants), (1, len(bias)), more=relu)
    if last == "ARG_MAX":
        axis = graph.tensor("axis", INT32, (), 1)
        value = graph.operator("ARG_MAX", (value, axis), (1,), INT64, {0: ("b", INT64)})
        most, least = (graph.tensor(name, INT64, (), number) for name, number in (("most", 1), ("least", 0)))
        value = graph.operator("MAXIMUM", (graph.operator("MINIMUM", (value, most), (1,), INT64), least), (1,), INT64)
    else:
        value = graph.operator(last, (value,), (1, 2))
    return graph.write((unused, *inputs), (value,))


def single_precision(seed: int, rows: Any) -> Any:
    """Return the two outputs, computed as a TFLite runtime does."""
    edges, layers = numbers(seed)
    columns: list[Any] = []
    for number, values in enumerate(edges):
        share = np.searchsorted(values, rows[:, number], side="right").astype(np.float32) * np.float32(1 / EDGES)
        columns += [share, share * share]
    values = np.column_stack(columns)
    for place, (weights, bias) in enumerate(layers):
        values = values @ weights.T + bias
        if place + 1 < len(layers):
            values = np.maximum(values, 0)
    return values


@pytest.mark.parametrize("seed", [6, 9, 31])
def test_a_model_decides_as_in_single_precision(seed: int) -> None:
    policy = policy_of_tflite(model(seed), "inlining-1.0")
    assert tuple(spec.name for spec in policy.features) == NAMES
    assert policy.model.described() == "layers of 6, 7, 5, 1"
    rows = np.random.default_rng(9).integers(-50, 250, (10_000, len(NAMES)))
    outputs = single_precision(seed, rows)
    near = np.abs(outputs[:, 1] - outputs[:, 0]) < 1e-5
    found = policy.decide({name: rows[:, number] for number, name in enumerate(NAMES)})
    assert near.mean() < 0.001
    assert 0 < found.mean() < 1
    np.testing.assert_array_equal(found[~near], (outputs[:, 1] > outputs[:, 0])[~near])


def test_a_model_decides_as_the_runtime_does() -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    runtime = interpreter.Interpreter(model_content=model(6))
    runtime.allocate_tensors()
    places = {item["name"]: item["index"] for item in runtime.get_input_details()}
    (output,) = (item["index"] for item in runtime.get_output_details())
    rows = np.random.default_rng(9).integers(-50, 250, (10_000, len(NAMES)))
    expected = []
    for row in rows:
        for name, value in zip(NAMES, row, strict=True):
            runtime.set_tensor(places[f"action_{name}:0"], np.array([value], np.int64))
        runtime.invoke()
        expected.append(int(runtime.get_tensor(output)[0]))
    found = policy_of_tflite(model(6), "inlining-1.0").decide(dict(zip(NAMES, rows.T, strict=True)))
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "expected a TFLite model, which has TFL3 at byte 4"),
        (b"PK\x03\x04" * 9, "expected a TFLite model"),
        (model(last="LOGISTIC"), "an operator that is not read here: code 14"),
        (model(last="RESHAPE"), "expected a model with one output, a decision by ARG_MAX"),
        (model(names=("a b", *NAMES[1:])), "features: expected a name of letters, digits and _, found 'a b'"),
    ],
)
def test_what_is_no_such_model_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(FormatError) as caught:
        policy_of_tflite(data, "inlining-1.0")
    assert said in str(caught.value)


def dense_model(kind: str = "") -> bytes:
    """Return a model of one feature and one layer, in which one thing is not as it usually is."""
    graph = Graph()
    feature = graph.tensor("cost_estimate", INT64, (1,))
    half, scale = (graph.tensor(f"{number}", FLOAT, (), np.float32(number)) for number in (0.5, 0.25))
    value = graph.operator("CAST", (feature,), (1, 1))
    if "of a product" in kind:
        value = graph.operator("MUL", (value, half), (1, 1))
    if "of a square" in kind:
        value = graph.operator("MUL", (value, value), (1, 1))
    count = graph.operator("BUCKETIZE", (value,), (1, 1), INT32, {0: ("<f4", [1, 2, 3, 4])})
    share = graph.operator("MUL", (graph.operator("CAST", (count,), (1, 1)), scale), (1, 1))
    if "CAST" in kind:
        share = graph.operator("CAST", (share,), (1, 1), INT32)
    square = graph.operator("MUL", (share, share), (1, 1))
    if "square times" in kind:
        square = graph.operator("MUL", (square, half), (1, 1))
    inputs = graph.operator("CONCATENATION", (share, square), (1, 2), more={0: ("i", 1)})
    weights = graph.tensor("weights", FLOAT, (2, 2), [[0.5, 0], [0, 1]])
    bias = {"computed": inputs, "unknown": graph.tensor("unknown", FLOAT, (2,)), "no bias": -1}.get(kind)
    bias = graph.tensor("bias", FLOAT, (2,), [0, 0]) if bias is None else bias
    if kind == "no dimensions":
        weights = scale
    value = graph.operator("FULLY_CONNECTED", (inputs, weights, bias), (1, 2))
    return graph.write((feature,), (graph.operator("ARG_MAX", (value, half), (1,), INT64),))


@pytest.mark.parametrize("kind", ["", "no bias"])
def test_a_bias_of_zeros_may_be_left_out(kind: str) -> None:
    policy = policy_of_tflite(dense_model(kind), "inlining-1.0")
    assert policy.decide({"cost_estimate": [0, 1, 2, 3, 4]}).tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("square times a constant", "MUL: expected a square as it is, found it times a constant"),
        ("BUCKETIZE of a product", "'cost_estimate': BUCKETIZE of what is no feature"),
        ("BUCKETIZE of a square", "'cost_estimate': BUCKETIZE of what is no feature"),
        ("CAST", "CAST: expected float numbers, or whole ones of whole ones"),
        ("computed", "FULLY_CONNECTED: expected float weights in two dimensions and a constant bias"),
        ("unknown", "FULLY_CONNECTED: expected float weights in two dimensions and a constant bias"),
        ("no dimensions", "FULLY_CONNECTED: expected float weights in two dimensions and a constant bias"),
    ],
)
def test_a_model_that_computes_something_else_is_refused(kind: str, said: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        policy_of_tflite(dense_model(kind), "inlining-1.0")
    assert str(caught.value) == said


def test_a_model_cut_anywhere_is_refused() -> None:
    whole = model()
    for size in range(0, len(whole) - 8, 3):  # the last bytes pad it
        with pytest.raises(FormatError):
            policy_of_tflite(whole[:size], "inlining-1.0")


@given(st.data())
@settings(max_examples=200)
def test_a_damaged_model_is_refused_or_another_model(data: st.DataObject) -> None:
    damaged = bytearray(model())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(8, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        policy_of_tflite(bytes(damaged), "inlining-1.0")
    except UnsupportedError:
        return
    except FormatError as error:
        said = str(error)
        assert "\n" not in said


def flexbuffer(boundaries: Any) -> bytes:
    """Return {"T": 9, "boundaries": [...]} as TensorFlow's converter writes it: all of four bytes."""
    data = bytearray(b"T\0boundaries\0\0\0")
    floats = len(data) + 4
    data += struct.pack("<I", len(boundaries)) + np.asarray(boundaries, "<f4").tobytes()
    keys = len(data) + 4
    data += struct.pack("<III", 2, keys, keys + 4 - 2)
    begin = len(data) + 12
    data += struct.pack("<III", len(data) - keys, 4, 2)
    data += struct.pack("<II", 9, begin + 4 - floats) + bytes([1 << 2 | 2, 13 << 2 | 2])
    data += struct.pack("<H", len(data) - begin) + bytes([9 << 2 | 2, 2])
    return bytes(data)


def test_an_older_model_has_an_operator_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    edges, _ = numbers(6)
    lists = iter([np.frombuffer(flexbuffer(values), "u1") for values in edges])
    plain = Graph.operator

    def custom(self: Graph, name: str, *rest: Any, **more: Any) -> int:
        made = plain(self, name, *rest, **more)
        if name == "BUCKETIZE":
            table = self.operators[-1]
            self.operators[-1] = {0: table[0], 1: table[1], 2: table[2], 5: ("u1", next(lists))}
        return made

    expected = policy_of_tflite(model(6), "inlining-1.0")
    monkeypatch.setattr(Graph, "operator", custom)
    monkeypatch.setitem(CODES, "BUCKETIZE", 32)
    whole = model(6)
    assert b"Bucketize" in whole
    assert policy_of_tflite(whole, "inlining-1.0").digest == expected.digest


def test_tensors_and_operators_are_read() -> None:
    found = parse_tflite(model())
    assert [found.tensors[number].name for number in found.inputs][:2] == ["action_discount:0", "action_callee_users:0"]
    assert [operator.name for operator in found.operators[:4]] == ["RESHAPE", "BUCKETIZE", "CAST", "MUL"]
    edges, layers = numbers(0)
    (bucketize, *_) = (operator for operator in found.operators if operator.name == "BUCKETIZE")
    assert bucketize.boundaries is not None
    assert bucketize.boundaries.tolist() == edges[0].tolist()
    (dense, *_) = (operator for operator in found.operators if operator.name == "FULLY_CONNECTED")
    weights = found.tensors[dense.inputs[1]].constant
    assert dense.activation == "RELU"
    assert weights is not None
    assert weights.tolist() == layers[0][0].tolist()
