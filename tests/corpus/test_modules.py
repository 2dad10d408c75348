"""``modules.parquet``: rows and columns out of it and into it, whole or not at all; old, foreign and damaged ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.corpus.modules import (
    ModuleRow,
    iter_module_rows,
    read_module_columns,
    rewrite_split,
    write_module_rows,
)
from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files.tables import read_metadata
from mlgo_corpus.files.text import printable
from tests.handmade import rows, table

FIELDS = ModuleRow._fields
TEXTS = st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=8))
NUMBERS = st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1))
ROWS = st.builds(
    ModuleRow,
    *[st.text(st.characters(codec="utf-8"), max_size=8) if name != "member" else TEXTS for name in FIELDS[:6]],
    *[NUMBERS if name in ("bitcode_bytes", "cmd_bytes", "functions") else TEXTS for name in FIELDS[6:]],
)


def first(**other: Any) -> ModuleRow:
    return ModuleRow("a.o", "b/a.o", None, "ok", "ok", "", **other)


@pytest.mark.whole
@settings(deadline=None, max_examples=50)
@given(st.lists(ROWS, max_size=10))
def test_rows_come_back(tmp_path_factory: pytest.TempPathFactory, given_rows: list[ModuleRow]) -> None:
    folder = tmp_path_factory.mktemp("table")
    path = folder / "modules.parquet"
    write_module_rows(path, folder / "tmp", given_rows, {"tool": "x"})
    assert list(iter_module_rows(path)) == given_rows
    assert rows(folder) == [one._asdict() for one in given_rows]
    assert read_module_columns(path).to_pylist() == rows(folder)
    some = ("split", "module")
    assert read_module_columns(path, some).to_pylist() == [{name: one[name] for name in some} for one in rows(folder)]
    assert read_metadata(path) == {"tool": "x"}
    assert os.listdir(folder) == ["modules.parquet"]


def meanings(path: Path) -> dict[str, str]:
    return {field.name: (field.metadata or {}).get(b"meaning", b"").decode() for field in pq.read_schema(path)}


def test_columns_tell_what_they_mean_also_when_one_is_rewritten(tmp_path: Path) -> None:
    path, split = tmp_path / "modules.parquet", tmp_path / "split.parquet"
    write_module_rows(path, tmp_path / "tmp", [first()], {"tool": "x"})
    assert list(meanings(path)) == list(FIELDS)
    assert all(meanings(path).values())
    assert meanings(path)["split"] == "train, validation or test; null until mlgo-corpus split says so"
    rewrite_split(path, split, lambda group: ["train"] * len(group), {"tool": "y"})
    assert (meanings(split), read_metadata(split)) == (meanings(path), {"tool": "y"})


def test_many_rows_are_several_groups(tmp_path: Path) -> None:
    path = tmp_path / "modules.parquet"
    write_module_rows(path, tmp_path / "tmp", (first(functions=number) for number in range(10_000)), {})
    assert pq.ParquetFile(path).num_row_groups == 5
    assert [one.functions for one in iter_module_rows(path)] == list(range(10_000))
    assert read_module_columns(path, ["functions"])["functions"].to_pylist() == list(range(10_000))


def test_an_old_table_has_null_in_new_columns(tmp_path: Path) -> None:
    table(tmp_path, [{"module": "a", "status": "ok", "bitcode_bytes": 3}])
    (found,) = iter_module_rows(tmp_path / "modules.parquet")
    assert found._asdict() == {**dict.fromkeys(FIELDS), "module": "a", "status": "ok", "bitcode_bytes": 3}
    columns = read_module_columns(tmp_path / "modules.parquet", ["split", "functions"])
    assert columns.schema.types == [pa.string(), pa.int64()]
    assert columns.to_pylist() == [{"split": None, "functions": None}]


def test_no_rows_and_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "modules.parquet"
    write_module_rows(path, tmp_path / "tmp", [], {})
    assert list(iter_module_rows(path)) == []
    assert len(read_module_columns(path)) == 0
    assert read_module_columns(path).schema.names == list(FIELDS)
    assert read_module_columns(path, []).num_columns == 0


def test_columns_of_other_types(tmp_path: Path) -> None:
    """Text as a dictionary and small integers are what others may write; text for a number is a damaged table."""
    path = tmp_path / "modules.parquet"
    labels = pa.array(["ok", "ok"]).dictionary_encode()
    sizes = pa.array([1, None], pa.int8())
    pq.write_table(pa.table({"module": ["a", "b"], "status": labels, "bitcode_bytes": sizes}), path)
    assert [(one.status, one.bitcode_bytes) for one in iter_module_rows(path)] == [("ok", 1), ("ok", None)]
    pq.write_table(pa.table({"module": ["a"], "status": ["ok"], "bitcode_bytes": ["many"]}), path)
    with pytest.raises(CorpusError, match=r"modules\.parquet: cannot be read: .*'many'"):
        list(iter_module_rows(path))
    pq.write_table(pa.table({"module": [["a"]], "status": ["ok"]}), path)
    with pytest.raises(CorpusError, match=r"modules\.parquet: cannot be read: "):
        read_module_columns(path)


def test_what_is_no_table_of_modules(tmp_path: Path) -> None:
    path = tmp_path / "modules.parquet"
    with pytest.raises(CorpusError, match=r"modules\.parquet: there is no such table$"):
        read_module_columns(path)
    pq.write_table(pa.table({"status": ["ok"], "x": [1]}), path)
    with pytest.raises(CorpusError, match=r"expected a table of modules, found none: it has no column 'module'$"):
        list(iter_module_rows(path))
    assert read_module_columns(path, ["status"]).to_pylist() == [{"status": "ok"}]
    assert read_metadata(path) == {}


@pytest.mark.parametrize("said", [b"{", b"[1]", b"\xff", b"null"])
def test_metadata_that_says_nothing(tmp_path: Path, said: bytes) -> None:
    path = tmp_path / "modules.parquet"
    made = pa.table({"module": ["a"], "status": ["ok"]}).replace_schema_metadata({b"mlgo_corpus": said})
    with path.open("wb") as file, pq.ParquetWriter(file, made.schema, store_schema=False) as writer:
        writer.write_table(made)
    try:
        assert read_metadata(path) == {}
    except CorpusError as error:
        assert str(error).startswith(f"{path}: cannot be read: ")  # noqa: PT017 - either is right


@pytest.mark.whole
def test_truncation_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "modules.parquet"
    write_module_rows(path, tmp_path / "tmp", [first()], {})
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        for read in (read_module_columns, read_metadata, lambda path: list(iter_module_rows(path))):
            with pytest.raises(CorpusError, match=r"modules\.parquet: cannot be read: [^\n]+$"):
                read(path)


def test_a_pipe_is_no_table(tmp_path: Path) -> None:
    """Opening it would wait for its other side for ever."""
    os.mkfifo(tmp_path / "modules.parquet")
    for read in (read_module_columns, read_metadata):
        with pytest.raises(CorpusError, match=r"modules\.parquet: cannot be read: .*not a file"):
            read(tmp_path / "modules.parquet")


def test_an_error_among_the_rows_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "modules.parquet"
    write_module_rows(path, tmp_path / "tmp", [first()], {"first": 1})

    def broken() -> Any:
        for _ in range(5000):
            yield first()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_module_rows(path, tmp_path / "tmp", broken(), {"second": 2})
    assert os.listdir(tmp_path) == ["modules.parquet"]
    assert list(iter_module_rows(path)) == [first()]
    assert read_metadata(path) == {"first": 1}


def test_the_metadata_is_json_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "modules.parquet"
    write_module_rows(path, tmp_path / "tmp", [], {"b": "ü", "a": [1]})
    assert json.loads(pq.read_metadata(path).metadata[b"mlgo_corpus"]) == {"a": [1], "b": "ü"}


@pytest.mark.parametrize(
    ("text", "shown"), [("a.o", "a.o"), ("größe", "größe"), ("a\udcffb", "a%FFb"), ("\udce4\udcb8", "%E4%B8")]
)
def test_what_is_no_utf8_is_storable(text: str, shown: str) -> None:
    assert printable(text) == shown
