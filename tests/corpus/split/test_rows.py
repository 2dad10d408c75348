"""The division of rows about functions: the corpus's own, or by bodies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlgo_corpus import Corpus
from mlgo_corpus.corpus.split.rows import RowDivision
from mlgo_corpus.errors import UsageError
from tests.handmade import bitcode, corpus, row, table

DIGESTS = np.array([1 << 40, 1 << 40, 3, 1 << 50], np.uint64)
NAMES = ["a.o", "b.o", "c.o", "b.o"]


def test_without_a_split_equal_bodies_are_on_one_side(tmp_path: Path) -> None:
    made = corpus(tmp_path, ["a.o", "b.o", "c.o"])
    division = RowDivision.of(Corpus.open(made), None, 0)
    assert (division.by, division.key, division.modules) == ("body", [0.8, 0.1, 0.1], None)
    sides = division.sides(NAMES, DIGESTS)
    assert sides[0] == sides[1]
    halves = RowDivision.of(Corpus.open(made), (0, 0, 1), 0)
    assert (halves.key, halves.sides(NAMES, DIGESTS)) == ([0.0, 0.0, 1.0], ["test"] * 4)
    with pytest.raises(UsageError, match="fractions 1,1,1: expected three numbers"):
        RowDivision.of(Corpus.open(made), (1, 1, 1), 0)


def test_a_corpus_s_split_decides_by_module(tmp_path: Path) -> None:
    contents = {name: bitcode(name.encode()) for name in ("a.o", "b.o", "c.o", "d.o")}
    made = corpus(tmp_path, contents)
    sides = {"a.o": "test", "b.o": "train", "c.o": None, "d.o": "elsewhere"}
    table(made, [row(name, data, split=sides[name]) for name, data in contents.items()])
    division = RowDivision.of(Corpus.open(made), None, 0)
    assert (division.by, division.modules) == ("module", {"a.o": "test", "b.o": "train"})
    assert division.sides([*NAMES, "d.o"], DIGESTS) == ["test", "train", None, "train", None]
    assert str(division.key).startswith("of the split ")
    with pytest.raises(UsageError, match="has a split, which decides for its tables too; leave `fractions` out"):
        RowDivision.of(Corpus.open(made), (0.8, 0.1, 0.1), 0)
