"""Rows of a corpus's modules: from its table, from its files where it has none, and from both where they differ."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus import Corpus, extract_corpus
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.corpus.modules import ModuleRow, iter_module_rows
from mlgo_corpus.corpus.scan import iter_rows, iter_tables, scan_module
from mlgo_corpus.errors import CorpusError
from tests.conftest import unpack
from tests.handmade import COMMAND, bitcode, corpus, row, table

COLUMNS = ModuleRow._fields


def read_rows_as_columns(corpus: Corpus, columns: Sequence[str]) -> pa.Table:
    return pa.concat_tables(iter_tables(corpus, columns))


@pytest.mark.parametrize("name", ["lua-clang19", "zlib-clang19"])
def test_a_scan_says_what_the_extraction_said(name: str, tmp_path: Path) -> None:
    unpack(name, tmp_path / "build")
    extract_corpus([tmp_path / "build"], tmp_path / "corpus")
    said = {one.module: one for one in iter_module_rows(tmp_path / "corpus/modules.parquet")}
    (tmp_path / "corpus/modules.parquet").unlink()
    found = {one.module: one for one in iter_rows(Corpus.open(tmp_path / "corpus"))}
    assert found == {module: one for module, one in said.items() if one.status == "ok"}
    assert len(found) > 10
    assert {one.producer for one in found.values()} == {"LLVM19.1.7"}


def test_a_scan_reads_every_fact(tmp_path: Path) -> None:
    corpus(tmp_path, {"a/f.o": bitcode(b"12345")})
    assert scan_module(Module(tmp_path, "a/f.o")) == ModuleRow(
        module="a/f.o",
        source="a/f.o",
        member=None,
        status="ok",
        reason="ok",
        detail="",
        bitcode_bytes=24,
        cmd_bytes=len(COMMAND),
        bitcode_sha256=sha256(bitcode(b"12345")).hexdigest(),
        cmd_sha256=sha256(COMMAND).hexdigest(),
        cmd_origin="embedded",
        target_triple="x86_64-pc-linux-gnu",
        ir_stage="pre-opt",
        opt_level="2",
        main_file_name="a.c",
    )


def test_commands_that_are_not_there_and_those_of_all(tmp_path: Path) -> None:
    corpus(tmp_path, ["f"], commands={"f": None})
    bare = scan_module(Module(tmp_path, "f"))
    assert (bare.status, bare.reason, bare.cmd_origin) == ("ok", "no_command", "none")
    assert (bare.cmd_bytes, bare.cmd_sha256, bare.opt_level) == (None, None, None)
    covered = scan_module(Module(tmp_path, "f", override=("-cc1",)))
    assert (covered.status, covered.reason, covered.cmd_origin) == ("ok", "ok", "override")


@pytest.mark.parametrize(
    ("data", "reason", "detail"),
    [
        (b"", "malformed", "expected bitcode, found an empty file"),
        (b"#!/bin/sh\n", "malformed", "expected bitcode, found other data"),
        (b"BC\xc0", "malformed", "expected bitcode, found other data"),
        (b"BC\xc0\xde", "truncated", "byte 4: reading bitcode, expected a module block, found the end"),
        (bitcode(b"x" * 8)[:-4], "truncated", "byte 12: reading bitcode block 8, expected 12 bytes, got 8"),
        (b"BC\xc0\xde\0\0\0\0", "malformed", "byte 4: reading bitcode, expected a module block, found 00 00 00 00"),
    ],
)
def test_what_is_no_module(tmp_path: Path, data: bytes, reason: str, detail: str) -> None:
    corpus(tmp_path, {"f.o": data})
    found = scan_module(Module(tmp_path, "f.o"))
    assert (found.status, found.reason, found.detail) == ("failed", reason, detail)
    assert (found.bitcode_bytes, found.bitcode_sha256) == (len(data), sha256(data).hexdigest())


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    whole = bitcode(b"abcdefgh")
    for length in range(len(whole) + 1):
        corpus(tmp_path, {"f.o": whole[:length]})
        assert scan_module(Module(tmp_path, "f.o")).status == ("ok" if length == len(whole) else "failed"), length


def test_files_that_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.bc")
    (tmp_path / "folder.bc").mkdir()
    (tmp_path / "loop.bc").symlink_to("loop.bc")
    (tmp_path / "lost.bc").symlink_to("nowhere")
    (tmp_path / "zero.bc").symlink_to("/dev/zero")

    def told(name: str) -> tuple[str, str, str]:
        found = scan_module(Module(tmp_path, name))
        return found.status, found.reason, found.detail

    assert told("pipe") == ("failed", "unreadable", "cannot read pipe.bc: not a file")
    assert told("zero") == ("failed", "unreadable", "cannot read zero.bc: a link leads out of the corpus")
    assert told("folder") == ("failed", "unreadable", "cannot read folder.bc: Is a directory")
    assert told("loop") == ("failed", "missing", "cannot read loop.bc: Too many levels of symbolic links")
    assert told("lost") == ("failed", "missing", "cannot read lost.bc: No such file or directory")
    assert told("none") == ("failed", "missing", "cannot read none.bc: No such file or directory")
    for name in ("../x", "/etc/passwd", "", "a\0b"):
        assert told(name) == ("failed", "missing", "this module name leaves the corpus folder")


def names_of(folder: Path) -> list[tuple[str, str]]:
    return [(one.module, one.status) for one in iter_rows(Corpus.open(folder))]


def test_the_manifest_decides_what_is_there(tmp_path: Path) -> None:
    """Rows of modules that it does not name are none; what it names and the table does not is read."""
    corpus(tmp_path, {"a": bitcode(b"a"), "b": bitcode(b"b"), "c": b"no bitcode"})
    left_out = row("x", status="skipped", reason="no_bitcode")
    table(tmp_path, [row("b", bitcode(b"b")), row("gone"), left_out, row("b", b"twice")])
    assert names_of(tmp_path) == [("b", "ok"), ("x", "skipped"), ("a", "ok"), ("c", "failed")]


def test_a_module_that_is_named_twice_comes_once(tmp_path: Path) -> None:
    corpus(tmp_path, ["a", "b"])
    (tmp_path / "corpus_description.json").write_text('{"has_thinlto": false, "modules": ["b", "a", "b"]}')
    assert names_of(tmp_path) == [("b", "ok"), ("a", "ok")]
    assert read_rows_as_columns(Corpus.open(tmp_path), ["reason"]).to_pylist() == [
        {"module": "b", "status": "ok", "reason": "ok"},
        {"module": "a", "status": "ok", "reason": "ok"},
    ]


def test_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"gr\xfc\xdf.o")
    corpus(tmp_path, [name])
    assert names_of(tmp_path) == [("gr%FC%DF.o", "ok")]
    table(tmp_path, [row("gr%FC%DF.o", b"of the table")])
    (found,) = iter_rows(Corpus.open(tmp_path))
    assert found.bitcode_bytes == len(b"of the table")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "modules.parquet: cannot be read: "),
        (b"PAR1 and then nothing", "modules.parquet: cannot be read: "),
    ],
)
def test_a_damaged_table(tmp_path: Path, data: bytes, message: str) -> None:
    corpus(tmp_path, ["a"])
    (tmp_path / "modules.parquet").write_bytes(data)
    for read in (lambda opened: list(iter_rows(opened)), lambda opened: read_rows_as_columns(opened, ["reason"])):
        with pytest.raises(CorpusError) as caught:
            read(Corpus.open(tmp_path))
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_table_of_something_else(tmp_path: Path) -> None:
    corpus(tmp_path, ["a"])
    table(tmp_path, [{"source": "x"}])
    with pytest.raises(CorpusError, match="expected a table of modules, found none: it has no column 'module'"):
        list(iter_rows(Corpus.open(tmp_path)))


def test_no_modules_at_all(tmp_path: Path) -> None:
    corpus(tmp_path, [])
    assert list(iter_rows(Corpus.open(tmp_path))) == []
    assert len(read_rows_as_columns(Corpus.open(tmp_path), COLUMNS)) == 0
    table(tmp_path, [])
    assert list(iter_rows(Corpus.open(tmp_path))) == []
    assert sorted(read_rows_as_columns(Corpus.open(tmp_path), COLUMNS).schema.names) == sorted(COLUMNS)


NAMES = st.sampled_from(["a", "b", "c", "d/e", None])
ROWS = st.lists(st.tuples(NAMES, st.sampled_from(["ok", "ok", "skipped", "failed", None])), max_size=8)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(["a", "b", "c", "d/e", "lost"]), max_size=6), ROWS, st.booleans(), st.integers(0, 1 << 20)
)
def test_columns_and_rows_say_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    named: list[str],
    said: list[tuple[str | None, str | None]],
    has_table: bool,
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    sizes = random.Random(seed)
    corpus(folder, {name: None if name == "lost" else bitcode(name.encode()) for name in named})
    (folder / "corpus_description.json").write_text(f'{{"has_thinlto": false, "modules": {named!r}}}'.replace("'", '"'))
    if has_table:
        table(folder, [row(name, b"x" * sizes.randrange(9), status=status) for name, status in said])
    opened = Corpus.open(folder)
    by_rows: list[dict[str, Any]] = [one._asdict() for one in iter_rows(opened)]
    assert read_rows_as_columns(opened, COLUMNS).to_pylist() == by_rows
    there = [one["module"] for one in by_rows if one["status"] == "ok"]
    assert len(there) == len(set(there))
    assert set(there) | {"lost"} >= set(named) >= set(there)
