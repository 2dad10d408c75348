"""functions.parquet: what is written comes back, damaged files are told, and other readers read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from mlgo_corpus.corpus import functions as functiontable
from mlgo_corpus.corpus.functions import (
    FunctionTableWriter,
    ModuleFunctions,
    iter_known,
    read_function_columns,
    read_function_metadata,
)
from mlgo_corpus.errors import CorpusError


def functions(module: str, *rows: tuple[str, str, int, int]) -> ModuleFunctions:
    names, linkages, instructions, hashes = zip(*rows, strict=True) if rows else ((), (), (), ())
    return ModuleFunctions(
        module,
        f"{module} digest",
        tuple(names),
        tuple(linkages),
        np.array(instructions, np.int32),
        np.array(hashes, np.uint64),
    )


MADE = (
    functions("a.o", ("main", "external", 12, 2**64 - 1), ("helper", "internal", 3, 7)),
    functions("empty.o"),
    functions("b/c.o", ("\u00fcber %FF", "linkonce_odr", 0, 7)),
    functions("d.o", *((f"f{number}", "external", number, number) for number in range(50))),
)


def write(path: Path, made: tuple[ModuleFunctions, ...] = MADE) -> Path:
    table = FunctionTableWriter(path)
    for one in made:
        table.append(one)
    table.commit({"rules": 1, "corpus": "digest"})
    return path


@pytest.mark.parametrize("rows_per_group", [1, 2, 10, 1 << 17])
def test_what_is_written_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_per_group: int) -> None:
    monkeypatch.setattr(functiontable, "_ROWS_PER_GROUP", rows_per_group)
    path = write(tmp_path / "functions.parquet")
    known = list(iter_known(path))
    assert [one[:4] for one in known] == [one[:4] for one in MADE if one.names]
    for one, made in zip(known, (made for made in MADE if made.names), strict=True):
        assert one.instructions.tolist() == made.instructions.tolist()
        assert one.hashes.tolist() == made.hashes.tolist()
    assert read_function_metadata(path) == {"rules": 1, "corpus": "digest"}
    assert not list(tmp_path.glob(".*"))


def test_other_readers_read_it(tmp_path: Path) -> None:
    rows = pq.read_table(write(tmp_path / "functions.parquet")).to_pylist()
    assert rows[0] == {
        "module": "a.o",
        "bitcode_sha256": "a.o digest",
        "function": "main",
        "linkage": "external",
        "instructions": 12,
        "body_hash": 2**64 - 1,
    }
    assert len(rows) == 53


def test_columns_are_numbered_in_the_order_of_the_names(tmp_path: Path) -> None:
    path = write(tmp_path / "functions.parquet")
    columns = read_function_columns(path, ["b/c.o", "nothing.o", "a.o"])
    assert columns.modules.tolist() == [0, 2, 2]
    assert columns.hashes.tolist() == [7, 2**64 - 1, 7]
    assert columns.instructions.tolist() == [0, 12, 3]
    assert columns.of_at_least(3).modules.tolist() == [2, 2]


def test_an_empty_table_has_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "functions.parquet", ())
    assert list(iter_known(path)) == []
    assert len(read_function_columns(path, ["a"]).modules) == 0


def test_every_truncation_is_told_or_is_no_table(tmp_path: Path) -> None:
    data = write(tmp_path / "functions.parquet").read_bytes()
    short = tmp_path / "short.parquet"
    for length in range(0, len(data), 37):
        short.write_bytes(data[:length])
        assert read_function_metadata(short) == {}
        with pytest.raises(CorpusError, match=r"short\.parquet: cannot be read"):
            read_function_columns(short, ["a.o"])
        with pytest.raises(CorpusError, match=r"short\.parquet: cannot be read"):
            list(iter_known(short))


def test_abandoning_leaves_nothing(tmp_path: Path) -> None:
    table = FunctionTableWriter(tmp_path / "functions.parquet")
    table.append(MADE[0])
    table.abandon()
    assert list(tmp_path.iterdir()) == []
