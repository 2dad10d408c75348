"""Observations as arrays of doubles, against the numbers that they were made of."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.flat import FlatFeatures
from mlgo_corpus.formats.logs.tensors import TensorSpec

MIXED = LogHeader(
    (TensorSpec("mask", shape=(1, 3)), TensorSpec("kind"), TensorSpec("weight", "float", (3,)), TensorSpec("size")),
    advice=TensorSpec("index"),
)
TENSORS = struct.pack("=4q3fq", 1, 0, 1, 1 << 40, 0.5, float("nan"), float("-inf"), -7)
LARGEST = float(np.finfo(np.float32).max)


def test_all_features_in_their_order() -> None:
    flat = FlatFeatures(MIXED, None)
    assert flat.places == {"mask": slice(0, 3), "kind": slice(3, 4), "weight": slice(4, 7), "size": slice(7, 8)}
    assert flat.read(TENSORS).tolist() == [1, 0, 1, float(1 << 40), 0.5, 0, -LARGEST, -7]
    assert flat.nothing().tolist() == [0] * 8
    assert flat.low.tolist() == [-(2.0**63)] * 4 + [-LARGEST] * 3 + [-(2.0**63)]
    assert flat.high.tolist() == [2.0**63] * 4 + [LARGEST] * 3 + [2.0**63]


def test_chosen_features_in_theirs() -> None:
    flat = FlatFeatures(MIXED, ("size", "weight"))
    assert flat.places == {"size": slice(0, 1), "weight": slice(1, 4)}
    assert [spec.name for spec in flat.features] == ["size", "weight"]
    assert flat.read(TENSORS).tolist() == [-7, 0.5, 0, -LARGEST]


@pytest.mark.parametrize("count", [1, 3])
def test_whole_numbers_alone(count: int) -> None:
    header = LogHeader(tuple(TensorSpec(f"x{number}") for number in range(count)), advice=TensorSpec("y"))
    values = [-(1 << 53), 5, (1 << 53)][:count]
    tensors = struct.pack(f"={count}q", *values)
    read = FlatFeatures(header, None).read(tensors)
    assert (read.tolist(), read.dtype) == (values, np.float64)
    read[:] = 0  # it is the caller's own
    last = FlatFeatures(header, [f"x{count - 1}"]).read(tensors)
    assert last.tolist() == values[-1:]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cost"], "features: this compiler sends no 'cost', but mask, kind, weight, size"),
        (["size", "size"], "features: expected one or more, each once"),
        ([], "features: expected one or more, each once"),
    ],
)
def test_features_that_cannot_be(names: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        FlatFeatures(MIXED, names)
    assert str(caught.value) == message
