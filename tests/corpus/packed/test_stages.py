"""``trace`` and ``ir2native`` on a packed corpus: what they make is what they make of the folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mlgo_corpus import Corpus, ir2native_table, pack_corpus, trace_corpus
from mlgo_corpus.corpus.folder import write_manifest
from mlgo_corpus.corpus.packed import convert as packing
from mlgo_corpus.dataset.folder import DatasetFolder
from tests.conftest import DATA, Llvm
from tests.runs.trace.test_trace import files, lua_corpus

FIFTEEN = r"/l([b-d]\w*|api|auxlib|func|gc|init|iolib|lex)\.o$"
SEVEN = r"/(lapi|lctype|linit|ltable|lvm|lzio|lua)\.o$"
TIMES = ("wall_s", "cpu_s", "max_rss_bytes", "baseline_wall_s", "baseline_cpu_s", "baseline_max_rss_bytes")
SIZE_TIMES = ("cpu_s", "replay_cpu_s")


@pytest.fixture(scope="module")
def lua22(llvm22: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lua_corpus(22, tmp_path_factory.mktemp("lua22"))


@pytest.fixture(scope="module")
def packed(lua22: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, in row groups of a few modules."""
    patch = pytest.MonkeyPatch()
    patch.setattr(packing, "ROW_GROUP_BYTES", 100_000)
    folder = tmp_path_factory.mktemp("packed") / "corpus"
    pack_corpus(lua22, folder, jobs=1)
    patch.undo()
    assert pq.read_metadata(folder / "data/part-00000.parquet").num_row_groups > 5
    return folder


@pytest.fixture
def cache(known: Callable[..., Path], tmp_path: Path, llvm22: Llvm) -> Path:
    """What is known of the compiler, and nothing of plain compiles."""
    return known(tmp_path / "cache", llvm22.clang)


@pytest.fixture(autouse=True)
def usual_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLGO_CORPUS_COMPILER", raising=False)


def rows_of(dataset: Path, times: tuple[str, ...], corpus: Path) -> list[dict[str, Any]]:
    """Give the table of modules but for the times, with paths in the corpus as if that had no place."""
    rows = pq.read_table(dataset / "modules.parquet").drop_columns(list(times)).to_pylist()
    for row in rows:
        if row.get("argv"):
            row["argv"] = [word.replace(f"{corpus}/", "CORPUS/") for word in row["argv"]]
    return rows


def test_a_trace_is_the_folders(
    llvm22: Llvm, lua22: Path, packed: Path, tmp_path: Path, known: Callable[..., Path]
) -> None:
    for name, corpus in (("folder", lua22), ("packed", packed)):
        report = trace_corpus(
            corpus,
            tmp_path / name,
            compiler=llvm22.clang,
            via="interactive",
            module_filter=FIFTEEN,
            cache=known(tmp_path / f"{name}-cache", llvm22.clang),
        )
        assert (report.modules, report.traced, report.faithful) == (15, 15, 15)
    folder_rows, packed_rows = (
        rows_of(tmp_path / name, TIMES, corpus) for name, corpus in (("folder", lua22), ("packed", packed))
    )
    assert packed_rows == folder_rows
    assert all(f"CORPUS/{row['module']}.bc" in row["argv"] for row in packed_rows)
    ours, theirs = files(tmp_path / "packed"), files(tmp_path / "folder")
    for found in (ours, theirs):
        del found["modules.parquet"]
    assert ours == theirs  # the observations, what tells of them, and the card


def test_a_table_of_sizes_is_the_folders(llvm22: Llvm, lua22: Path, packed: Path, tmp_path: Path, cache: Path) -> None:
    for name, corpus in (("folder", lua22), ("packed", packed)):
        ir2native_table(corpus, tmp_path / name, compiler=llvm22.clang, module_filter=SEVEN, cache=cache)
    assert rows_of(tmp_path / "packed", SIZE_TIMES, packed) == rows_of(tmp_path / "folder", SIZE_TIMES, lua22)
    ours, theirs = files(tmp_path / "packed"), files(tmp_path / "folder")
    for found in (ours, theirs):
        del found["modules.parquet"]
    assert ours == theirs
    assert len(pq.read_table(tmp_path / "packed/functions")) > 100


def test_a_trace_goes_on_with_the_other_form(
    llvm22: Llvm, lua22: Path, packed: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trace(corpus: Path) -> Any:
        return trace_corpus(
            corpus, tmp_path / "d", compiler=llvm22.clang, via="interactive", module_filter=SEVEN,
            cache=cache,
        )  # fmt: skip

    with monkeypatch.context() as patch:
        patch.setattr(DatasetFolder, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            trace(lua22)
    assert trace(packed).resumed == 7
    assert trace(lua22).unchanged


def test_a_module_without_its_files_is_a_row(llvm22: Llvm, lua22: Path, tmp_path: Path, cache: Path) -> None:
    corpus = tmp_path / "corpus"
    names = [name for name in Corpus.open(lua22).names if name.endswith(("/lctype.o", "/linit.o", "/lzio.o"))]
    shutil.copytree(lua22, corpus)
    write_manifest(corpus / "corpus_description.json", names, has_thinlto=False, override=None)
    (corpus / f"{names[0]}.bc").unlink()
    (corpus / f"{names[1]}.cmd").unlink()
    assert pack_corpus(corpus, tmp_path / "packed").lacking == 1
    for name in ("corpus", "packed"):
        report = trace_corpus(
            tmp_path / name, tmp_path / f"{name}-d", compiler=llvm22.clang, via="interactive", cache=cache
        )
        assert report.counts == {"missing_file": 1, "no_command": 1, "ok": 1}
    found = rows_of(tmp_path / "packed-d", TIMES, tmp_path / "packed")
    assert found == rows_of(tmp_path / "corpus-d", TIMES, corpus)
    assert found[0]["detail"] == f"cannot read {names[0].rpartition('/')[2]}.bc: No such file or directory"


def test_what_a_compiler_says_names_the_corpus(llvm22: Llvm, lua22: Path, tmp_path: Path, cache: Path) -> None:
    """Not the folder where the module was for a moment."""
    corpus = tmp_path / "corpus"
    shutil.copytree(lua22, corpus)
    names = list(Corpus.open(lua22).names[:2])
    write_manifest(corpus / "corpus_description.json", names, has_thinlto=False, override=None)
    (corpus / f"{names[0]}.bc").write_bytes((corpus / f"{names[0]}.bc").read_bytes()[:1000])
    pack_corpus(corpus, tmp_path / "packed")
    texts = []
    for name in ("corpus", "packed"):
        output = tmp_path / f"{name}-d"
        trace_corpus(tmp_path / name, output, compiler=llvm22.clang, via="interactive", cache=cache)
        rows = rows_of(output, TIMES, tmp_path / name)
        assert rows[0]["status"] == "failed"
        texts.append(str(rows).replace(str(tmp_path / name), "CORPUS"))
    assert texts[0] == texts[1]
    assert "tmp-0000000" not in texts[1]


def test_a_sample_reads_what_it_needs(packed: Path, lua22: Path, llvm22: Llvm, tmp_path: Path, cache: Path) -> None:
    for name, corpus in (("folder", lua22), ("packed", packed)):
        trace_corpus(corpus, tmp_path / name, compiler=llvm22.clang, via="interactive", sample="3", cache=cache)
    assert rows_of(tmp_path / "packed", TIMES, packed) == rows_of(tmp_path / "folder", TIMES, lua22)
    assert DATA.is_dir()
