"""A packed corpus where a corpus is asked for: what a verb makes of it, and says, is what it makes of the folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import (
    Corpus,
    combine_corpora,
    corpus_stats,
    dedup_corpus,
    extract_corpus,
    pack_corpus,
    split_corpus,
    unpack_corpus,
    verify_corpus,
)
from mlgo_corpus.corpus.assemble import check_apart
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.packed import convert as packing
from mlgo_corpus.corpus.scan import iter_rows
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.remote import RemotePath
from mlgo_corpus.runs.functions import run as functionindex
from tests.cli.test_cli import mlgo
from tests.conftest import Llvm, run_checked, unpack
from tests.handmade import bitcode, files, put, rows
from tests.handmade import corpus as handmade_corpus

pytestmark = pytest.mark.whole

Pair = tuple[Path, Path]
# Of a report, what may differ: where things are, and the time it took.
PLACES = ("corpus", "output", "seconds")


@pytest.fixture(autouse=True, scope="module")
def cache(known: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = known(tmp_path_factory.mktemp("cache"), Llvm(22).clang)
        patch.setenv("MLGO_CORPUS_CACHE", str(folder))
        yield folder


def pack_small(corpus: Path, packed: Path) -> Path:
    """Pack a corpus in row groups of a few modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "ROW_GROUP_BYTES", 100_000)
        pack_corpus(corpus, packed, jobs=1)
    return packed


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lua by clang 22, and some of it twice."""
    folder = tmp_path_factory.mktemp("build")
    unpack("lua-clang22", folder)
    shutil.copytree(folder / "lua", folder / "again", ignore=shutil.ignore_patterns("lua.o", "l[a-n]*.o"))
    (folder / "plain.o").write_bytes(b"no object")
    return folder


@pytest.fixture(scope="module", params=["with a table", "without a table"])
def lua(request: pytest.FixtureRequest, build: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The folder, and what is packed of it."""
    folder = tmp_path_factory.mktemp("lua")
    extract_corpus([build], folder / "lua", jobs=1)
    shutil.rmtree(folder / "lua/.mlgo-corpus")
    if request.param == "without a table":
        (folder / "lua/modules.parquet").unlink()
    packed = pack_small(folder / "lua", folder / "packed/lua")
    assert pq.read_metadata(packed / "data/part-00000.parquet").num_row_groups > 3
    return folder / "lua", packed


@pytest.fixture
def pair(lua: Pair, tmp_path: Path) -> Pair:
    """Copies, of which one keeps its files' times, by which a corpus without a table is known."""
    return shutil.copytree(lua[0], tmp_path / "folder/lua"), shutil.copytree(lua[1], tmp_path / "packed/lua")


def said(folder: Path) -> dict[str, Any]:
    """What a corpus's table says of its making, but for what tells the request from another."""
    made: dict[str, Any] = json.loads(pq.read_schema(folder / "modules.parquet").metadata[b"mlgo_corpus"])
    del made["request"]
    return made


def same_corpus(one: Path, other: Path) -> bool:
    """Tell whether two corpora have the same files, rows and facts."""
    assert files(one) == files(other)
    assert rows(one) == rows(other)
    assert said(one) == said(other)
    return True


def same_report(one: Any, other: Any, *more: str) -> bool:
    values = [
        {key: value for key, value in asdict(report).items() if key not in (*PLACES, *more)} for report in (one, other)
    ]
    assert values[0] == values[1]
    return True


@pytest.mark.parametrize("placing", ["link", "copy"])
def test_combine(pair: Pair, tmp_path: Path, placing: str) -> None:
    other = handmade_corpus(tmp_path / "other", ["a.o"])
    before = files(pair[1])
    reports = [
        combine_corpora([f"x={corpus}", other], tmp_path / "out" / corpus.parent.name, placing=placing)
        for corpus in pair
    ]
    assert same_report(*reports)
    assert same_corpus(tmp_path / "out/folder", tmp_path / "out/packed")
    assert reports[1].modules == len(Corpus.open(pair[0])) + 1
    assert (tmp_path / "out/packed/x/lua/lvm.o.bc").read_bytes() == (pair[0] / "lua/lvm.o.bc").read_bytes()
    assert files(pair[1]) == before
    again = combine_corpora([f"x={pair[1]}", other], tmp_path / "out/packed", placing=placing)
    assert again.unchanged


def test_combine_names_them_by_their_places(pair: Pair, tmp_path: Path) -> None:
    report = combine_corpora(pair, tmp_path / "out")
    assert [name for name, _ in report.corpora] == ["folder", "packed"]
    made = files(tmp_path / "out/folder")
    assert made == files(tmp_path / "out/packed")
    assert made.items() <= files(pair[0]).items()
    assert len(made) == 2 * len(Corpus.open(pair[0]))


@pytest.mark.parametrize("near", [None, 0.5])
def test_dedup(pair: Pair, tmp_path: Path, near: float | None) -> None:
    before = files(pair[1])
    dry = [dedup_corpus(corpus, near=near, jobs=1) for corpus in pair]
    assert same_report(*dry)
    assert len(dry[1].dropped) > 5
    reports = [dedup_corpus(corpus, tmp_path / corpus.parent.name / "out", near=near, jobs=1) for corpus in pair]
    assert same_report(*reports)
    assert same_corpus(tmp_path / "folder/out", tmp_path / "packed/out")
    assert files(pair[1]) == before
    # The same modules by the same request, wherever they are from.
    assert dedup_corpus(pair[1], tmp_path / "folder/out", near=near, jobs=1).unchanged


def test_split(pair: Pair, tmp_path: Path) -> None:
    before = files(pair[1])
    reports = [
        split_corpus(corpus, fractions=(0.5, 0.3, 0.2), output=tmp_path / corpus.parent.name / "out", jobs=1)
        for corpus in pair
    ]
    assert same_report(*reports)
    for side in ("train", "validation", "test"):
        assert same_corpus(tmp_path / "folder/out" / side, tmp_path / "packed/out" / side)
    assert files(pair[1]) == before
    again = split_corpus(pair[1], fractions=(0.5, 0.3, 0.2), output=tmp_path / "folder/out", jobs=1)
    assert again.unchanged


def test_stats(pair: Pair) -> None:
    for by in (None, "folder", "language", "producer"):
        reports = [corpus_stats(corpus, by=by) for corpus in pair]
        assert same_report(*reports, "from_table")
        assert reports[1].corpus == pair[1]
        assert reports[1].from_table
    assert list(iter_rows(Corpus.open(pair[0]))) == list(iter_rows(Corpus.open(pair[1])))


def test_stats_reads_no_bitcode(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = corpus_stats(pair[0])

    def refuse(*_: Any) -> None:
        raise AssertionError("read")

    monkeypatch.setattr("mlgo_corpus.corpus.packed.corpus.read_content", refuse)
    assert same_report(corpus_stats(pair[1]), expected, "from_table")


def test_verify(pair: Pair, tmp_path: Path) -> None:
    reports = [verify_corpus(corpus, output=tmp_path / f"{corpus.parent.name}.parquet", jobs=1) for corpus in pair]
    assert same_report(*reports)
    assert reports[1].failed == 0
    assert reports[1].modules == len(Corpus.open(pair[0]))
    assert pq.read_table(tmp_path / "packed.parquet").equals(pq.read_table(tmp_path / "folder.parquet"))


# --- what is wrong with a corpus is wrong with what is packed of it


@pytest.fixture
def wrong(tmp_path: Path) -> Pair:
    """Modules that lack each of their files, or have something else there, and a side that names another one."""
    names = ["good", "no-bitcode", "no-command", "no-index", "a/folder", "index/folder", "cmd/folder", "junk", "cut",
             "../out", "good"]  # fmt: skip
    contents = dict.fromkeys(names, bitcode(b"x" * 40)) | {"../out": None, "no-bitcode": None, "junk": b"junk"}
    contents["cut"] = bitcode(b"x" * 40)[:-8]
    folder = handmade_corpus(tmp_path / "folder/c", contents, has_thinlto=True)
    shutil.rmtree(tmp_path / "folder/out.cmd", ignore_errors=True)
    (folder / "no-command.cmd").unlink()
    (folder / "no-index.thinlto.bc").unlink()
    for place in ("a/folder.bc", "index/folder.thinlto.bc", "cmd/folder.cmd"):
        (folder / place).unlink()
        (folder / place).mkdir()
    manifest = json.loads((folder / "corpus_description.json").read_text())
    put(folder / "corpus_description.json", json.dumps({**manifest, "modules": names}).encode())
    put(folder / "corpus_description.train.json", json.dumps({**manifest, "modules": ["good", "lost"]}).encode())
    pack_corpus(folder, tmp_path / "packed/c", jobs=1)
    return folder, tmp_path / "packed/c"


def test_verify_finds_what_is_wrong(wrong: Pair, tmp_path: Path) -> None:
    tables = []
    for corpus in wrong:
        verify_corpus(corpus, output=tmp_path / "rows.parquet", force=True, jobs=1)
        tables.append(
            {(row["module"], row["reason"]): row for row in pq.read_table(tmp_path / "rows.parquet").to_pylist()}
        )
    assert tables[0] == tables[1]
    assert {("no-bitcode", "missing_bitcode"), ("no-index", "missing_thinlto_index"), ("a/folder", "unreadable"),
            ("index/folder", "unreadable"), ("no-command", "missing_command"), ("junk", "not_bitcode"),
            ("cut", "truncated"), ("good", "listed_twice"), ("lost", "unknown_module")} <= set(tables[1])  # fmt: skip


def test_combine_leaves_out_what_cannot_be_had(wrong: Pair, tmp_path: Path) -> None:
    reports = [combine_corpora([corpus], tmp_path / corpus.parent.name / "out", placing="copy") for corpus in wrong]
    # Of a folder a command that is no file is none; what is packed says that it could not be read.
    known = ("c/cmd/folder", "cannot read folder.cmd: Is a directory")
    assert set(reports[1].failed) - set(reports[0].failed) >= {known}
    reasons = [{row["module"]: row["reason"] for row in rows(tmp_path / name / "out")} for name in ("folder", "packed")]
    del reasons[0]["c/cmd/folder"], reasons[1]["c/cmd/folder"]
    assert reasons[0] == reasons[1]
    ours, theirs = files(tmp_path / "packed/out"), files(tmp_path / "folder/out")
    for found in (ours, theirs):
        for name in ("c/cmd/folder.bc", "c/cmd/folder.thinlto.bc", "corpus_description.json"):
            found.pop(name, None)
    assert ours == theirs
    assert {name for name in ours if "no-command" in name} == {"c/no-command.bc", "c/no-command.thinlto.bc"}


def test_a_module_that_is_not_what_the_table_says(pair: Pair) -> None:
    """A row's bitcode is compared with the digest beside it, or with the table's."""
    path = pair[1] / "data/part-00000.parquet"
    table = pq.read_table(path)
    values = table["bitcode"].to_pylist()
    values[1] = values[1][:-1] + bytes([values[1][-1] ^ 1])
    index = table.schema.get_field_index("bitcode")
    changed = table.set_column(index, table.schema.field(index), pa.array(values, pa.large_binary()))
    groups = json.loads((pair[1] / "corpus.json").read_text())["files"][0]["row_groups"]
    with pq.ParquetWriter(path, changed.schema) as writer:
        first = 0
        for count in groups:
            writer.write_table(changed.slice(first, count), row_group_size=count)
            first += count
    report = verify_corpus(pair[1], jobs=1)
    assert [problem[:2] for problem in report.problems] == [(Corpus.open(pair[0]).names[1], "wrong_hash")]


# --- what is refused


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        work()
    return str(caught.value)


def test_nothing_is_to_refer_to(pair: Pair, tmp_path: Path) -> None:
    out = tmp_path / "new/out"
    for work in (
        lambda: combine_corpora([pair[0], pair[1]], out, placing="reference"),
        lambda: dedup_corpus(pair[1], out, placing="reference"),
        lambda: split_corpus(pair[1], output=out, placing="reference"),
    ):
        assert refused(work) == f"{pair[1]}: is packed, with no files to refer to; `copy` or `link` writes them"
    assert not out.parent.exists()


def test_a_packed_corpus_stays_as_it_is(pair: Pair, tmp_path: Path) -> None:
    packed = pair[1]
    before = files(packed)
    message = (
        f"{packed}: is packed and cannot be changed: `output` makes a corpus of each side; "
        "or divide the corpus before it is packed"
    )
    assert refused(lambda: split_corpus(packed)) == message
    message = f"{packed}: is packed, and stays as it is; name another file with `output`"
    assert refused(lambda: verify_corpus(packed, rebuild=True, compiler="true")) == message
    message = f"output {packed}/x.parquet: is in {packed}, which is packed and stays as it is; name another place"
    assert refused(lambda: verify_corpus(packed, output=packed / "x.parquet")) == message
    assert refused(lambda: combine_corpora([packed], packed / "x")).startswith(f"output {packed}/x: overlaps")
    for verb in (
        ("split", packed),
        ("combine", packed, "--reference", "--output", "new"),
        ("verify", packed, "--rebuild"),
    ):
        done = mlgo(*verb, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert files(packed) == before


def test_no_corpus_is_made_behind_a_url(pair: Pair) -> None:
    message = "s3://bucket/x: a corpus of many files is not made behind a URL; name a folder"
    assert refused(lambda: combine_corpora([pair[0]], "s3://bucket/x")) == message
    assert refused(lambda: dedup_corpus(pair[0], "s3://bucket/x")) == message
    assert refused(lambda: split_corpus(pair[0], output="s3://bucket/x")) == message


def test_what_is_behind_a_url_is_apart(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Corpus.open(pair[1])
    monkeypatch.chdir(tmp_path)
    opened.place = RemotePath("s3", "bucket/lua")
    opened.location, opened.path = "s3://bucket/lua", Path("lua")
    check_apart(tmp_path / "lua", [opened])
    assert opened.shown == "s3://bucket/lua"


# --- the table of functions


def test_functions_are_read_once(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path / "cache"))
    corpus = Corpus.open(pair[1])
    before = files(pair[1])
    for expected in (len(corpus), 0):
        with functionindex.function_index(corpus, jobs=1) as index:
            assert index.read == expected
            assert index.path.parent == cache_folder() / "functions"
    assert files(pair[1]) == before
    with functionindex.function_index(Corpus.open(pair[0]), jobs=1) as theirs:
        assert pq.read_table(str(theirs.path)).equals(pq.read_table(str(index.path)))
    # What the corpus had when it was packed is taken as it is.
    pack_corpus(pair[0], tmp_path / "more/lua", jobs=1)
    with functionindex.function_index(Corpus.open(tmp_path / "more/lua"), jobs=1) as packed:
        assert (packed.read, packed.path) == (0, tmp_path / "more/lua/functions.parquet")
    unpack_corpus(tmp_path / "more/lua", tmp_path / "back", jobs=1)


def test_without_a_cache_it_is_a_temporary_file(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "file", b"")
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path / "file/cache"))
    with functionindex.function_index(Corpus.open(pair[1]), jobs=1) as index:
        assert isinstance(index.path, Path)
        assert index.path.is_file()
    assert not index.path.parent.exists()


# --- compiled again


def test_rebuild(lua: Pair, build: Path, llvm22: Llvm, tmp_path: Path) -> None:
    tables = []
    for corpus in lua:
        report = verify_corpus(
            corpus, rebuild=True, build_dirs=[build], compiler=llvm22.clang, jobs=2,
            module_filter=r"lua/(lctype|linit|lzio)\.o$", output=tmp_path / f"{corpus.parent.name}.parquet",
        )  # fmt: skip
        assert report.rebuild is not None
        assert report.rebuild.outcomes == {"identical": 3}
        tables.append(pq.read_table(report.rebuild.output).drop_columns(["wall_s", "cpu_s"]).to_pylist())
    assert tables[0] == tables[1]


def test_rebuild_with_a_thinlto_index(llvm22: Llvm, tmp_path: Path) -> None:
    """The index is a file for the compiler, which the certificate names as the corpus would."""
    (tmp_path / "a.c").write_text("int g(int); int f(int x) { return g(x); }\n")
    (tmp_path / "b.c").write_text("int g(int x) { return x + 1; }\n")
    for name in ("a", "b"):
        run_checked(llvm22.clang, "-O2", "-flto=thin", "-c", f"{name}.c", "-o", f"{name}.o", cwd=tmp_path)
    run_checked(
        llvm22.ld_lld, "-shared", "--save-temps=import", "--thinlto-emit-index-files", "a.o", "b.o", "-o", "x.so",
        cwd=tmp_path,
    )  # fmt: skip
    override = ["-cc1", "-O2", "-emit-obj"]
    extract_corpus([tmp_path], tmp_path / "corpus", thinlto="local", command_override=override, jobs=1)
    pack_corpus(tmp_path / "corpus", tmp_path / "packed", jobs=1)
    assert verify_corpus(tmp_path / "packed", jobs=1).counts == {"ok": 2}
    tables = []
    for name in ("corpus", "packed"):
        verify_corpus(
            tmp_path / name, rebuild=True, build_dirs=[tmp_path], compiler=llvm22.clang, jobs=1,
            output=tmp_path / f"{name}.parquet",
        )  # fmt: skip
        found = pq.read_table(tmp_path / f"{name}.parquet").drop_columns(["wall_s", "cpu_s"]).to_pylist()
        for row in found:
            assert f"-fthinlto-index={tmp_path / name}/{row['module']}.thinlto.bc" in row["argv"]
            row["argv"] = [word.replace(f"{tmp_path / name}/", "") for word in row["argv"]]
        tables.append(found)
    assert tables[0] == tables[1]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
