"""A corpus packed and unpacked: every byte comes back, and what is damaged or foreign is refused on one line."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mlgo_corpus import Corpus, combine_corpora, extract_corpus, pack_corpus, unpack_corpus
from mlgo_corpus.compilers.probe import PROBE_DATA
from mlgo_corpus.corpus.folder import write_manifest
from mlgo_corpus.corpus.packed import convert as packing
from mlgo_corpus.corpus.packed import rows as packedrows
from mlgo_corpus.corpus.packed.corpus import PackedCorpus
from mlgo_corpus.corpus.packed.rows import METADATA_COLUMNS, cut_command, join_command
from mlgo_corpus.corpus.scan import scan_module
from mlgo_corpus.corpus.select import ModuleChoice, corpus_digest, newest_producer
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.files import folder as wholefolder
from mlgo_corpus.files.names import safe_module_name
from mlgo_corpus.files.text import printable
from tests.cli.test_cli import mlgo
from tests.conftest import unpack
from tests.runs.extract.test_incremental import in_child

pytestmark = pytest.mark.whole

Files = dict[str, bytes]
MANIFEST = "corpus_description.json"


def files(folder: Path) -> Files:
    """All files of a folder but the next extraction's."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".mlgo-corpus" not in path.parts
    }


def make(folder: Path, content: Files, *, thinlto: bool = False, override: list[str] | None = None) -> Path:
    """Make a corpus of files; its modules are those that have any."""
    names = []
    for name, data in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if name.endswith(".bc") and not name.endswith(".thinlto.bc"):
            names.append(name.removesuffix(".bc"))
    write_manifest(folder / MANIFEST, names, has_thinlto=thinlto, override=override)
    return folder


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lua")
    unpack("lua-clang22", folder / "objects")
    (folder / "objects" / "plain.o").write_bytes(b"no object")
    extract_corpus([folder / "objects"], folder / "corpus", jobs=1)
    return folder / "corpus"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A corpus of five modules, two of which share a row group when these are cut small."""
    content: Files = {}
    for number in range(5):
        content[f"d{number % 2}/m{number}.o.bc"] = b"BC\xc0\xde" + bytes([number]) * 400
        content[f"d{number % 2}/m{number}.o.cmd"] = b"-cc1\0-DN=%d\0" % number
    return make(tmp_path / "corpus", content)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "ROW_GROUP_BYTES", 1000)


# --- every byte comes back


def test_lua_comes_back(lua: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = pack_corpus(lua, tmp_path / "packed", progress=lambda *at: seen.append(at))
    corpus = Corpus.open(lua)
    sizes = [module.bitcode_path.stat().st_size for module in corpus]
    commands = [module.command_path.stat().st_size for module in corpus]
    assert (report.modules, report.lacking, report.exit_code, report.files) == (34, 0, 0, 1)
    assert (report.bitcode_bytes, report.command_bytes, report.index_bytes) == (sum(sizes), sum(commands), 0)
    assert report.parquet_bytes == (tmp_path / "packed/data/part-00000.parquet").stat().st_size
    assert seen == [(34, 34)]
    back = unpack_corpus(tmp_path / "packed", tmp_path / "again")
    assert (back.modules, back.bitcode_bytes, back.unchanged) == (34, sum(sizes), False)
    assert files(tmp_path / "again") == files(lua)
    names = {"README.md", "corpus.json", MANIFEST, "modules.parquet", "data/part-00000.parquet"}
    assert set(files(tmp_path / "packed")) == names
    assert sorted(os.listdir(tmp_path)) == ["again", "packed"]


def test_the_rows_are_the_modules(lua: Path, tmp_path: Path) -> None:
    pack_corpus(lua, tmp_path / "packed")
    rows = pq.read_table(tmp_path / "packed/data").to_pylist()
    known = {row["module"]: row for row in pq.read_table(lua / "modules.parquet").to_pylist()}
    assert [row["module"] for row in rows] == list(Corpus.open(lua).names)
    for row, module in zip(rows, Corpus.open(lua), strict=True):
        assert row["bitcode"] == module.bitcode_path.read_bytes()
        assert sha256(row["bitcode"]).hexdigest() == row["bitcode_sha256"]
        assert row["command"] == list(module.command())
        assert (row["command_bytes"], row["thinlto_index"], row["problem"]) == (None, None, None)
        for name in (*METADATA_COLUMNS, "bitcode_bytes", "cmd_bytes"):
            assert row[name] == known[module.name][name], name


def test_a_corpus_without_a_table_gets_its_columns_from_the_modules(lua: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(lua, bare, ignore=shutil.ignore_patterns("modules.parquet", ".mlgo-corpus"))
    pack_corpus(bare, tmp_path / "packed")
    rows = pq.read_table(tmp_path / "packed/data").to_pylist()
    for row, module in zip(rows, Corpus.open(bare), strict=True):
        scanned = scan_module(module)
        assert {name: row[name] for name in METADATA_COLUMNS} == {
            name: getattr(scanned, name) for name in METADATA_COLUMNS
        }
        status = module.bitcode_path.stat(), module.command_path.stat()
        assert (row["bitcode_mtime_ns"], row["command_mtime_ns"]) == tuple(item.st_mtime_ns for item in status)
    unpack_corpus(tmp_path / "packed", tmp_path / "again")
    assert files(tmp_path / "again") == files(bare)
    for module in Corpus.open(tmp_path / "again"):
        assert module.bitcode_path.stat().st_mtime_ns == (bare / f"{module.name}.bc").stat().st_mtime_ns


names_of_modules = st.text(st.characters(), min_size=1, max_size=12).map(safe_module_name)
undecodable = st.binary(min_size=1, max_size=4).map(lambda data: safe_module_name("x") + os.fsdecode(data))
contents = st.dictionaries(
    names_of_modules | undecodable.filter(lambda name: "/" not in name and "\0" not in name),
    st.tuples(*[st.none() | st.binary(max_size=40)] * 2, st.none() | st.binary(max_size=10)),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents, st.booleans(), st.none() | st.just(["-cc1", "-O2"]))
@example({"a": (b"BC", b"-cc1\0-DX=\xff\0", None)}, False, None)
@example({"a": (b"BC", b"-cc1\0-O2", None), "a%80": (b"", b"", b""), "a\udc80": (b"x", b"\0", None)}, True, None)
@example({"a.thinlto": (b"1", None, None), "a": (b"2", None, b"1")}, True, ["<UNSPECIFIED>"])
def test_any_corpus_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    content: dict[str, tuple[bytes | None, bytes | None, bytes | None]],
    thinlto: bool,
    override: list[str] | None,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    corpus = folder / "corpus"
    corpus.mkdir()
    names = []
    for name, datas in content.items():
        try:
            for suffix, data in zip((".bc", ".cmd", ".thinlto.bc"), datas, strict=True):
                if data is not None and (thinlto or suffix != ".thinlto.bc"):
                    path = corpus / (name + suffix)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
        except OSError:  # one name is another's folder
            continue
        names.append(name)
    if not names:
        return
    write_manifest(corpus / MANIFEST, names, has_thinlto=thinlto, override=override)
    report = pack_corpus(corpus, folder / "packed", jobs=1)
    lacking = [name for name in names if not os.path.isfile(corpus / f"{name}.bc")]
    lacking_index = [name for name in names if thinlto and not os.path.isfile(corpus / f"{name}.thinlto.bc")]
    assert report.lacking == len({*lacking, *lacking_index})
    assert report.exit_code == bool(report.lacking)
    assert unpack_corpus(folder / "packed", folder / "again", jobs=1).lacking == report.lacking
    assert files(folder / "again") == files(corpus)
    for module, original in zip(Corpus.open(folder / "packed"), Corpus.open(corpus), strict=True):
        assert told(module.bitcode) == told(original.bitcode)
        assert told(module.own_command) == told(original.own_command)
        assert told(module.command) == told(original.command)
    packed = Corpus.open(folder / "packed")
    assert corpus_digest(packed, packed.names) == corpus_digest(Corpus.open(corpus), packed.names)
    shutil.rmtree(folder)


def told(read: Callable[[], Any]) -> Any:
    """Give what is read, or what is said when it cannot be."""
    try:
        return read()
    except CorpusError as error:
        return printable(str(error))  # a row holds text


@given(st.lists(st.binary(max_size=6).map(lambda data: data.replace(b"\0", b"")), max_size=5), st.booleans())
@example([b""], True)
@example([b"", b""], False)
def test_commands_come_back(options: list[bytes], ends: bool) -> None:
    data = b"\0".join(options) + (b"\0" if ends else b"")
    texts, raw = cut_command(data)
    assert join_command(texts, raw) == data
    assert texts is not None
    assert (raw is None) == (join_command(texts, None) == data)


def test_no_command_is_not_an_empty_one() -> None:
    assert cut_command(None) == (None, None)
    assert cut_command(b"") == ([], None)
    assert (join_command(None, None), join_command([], None)) == (None, b"")


def test_other_files_of_the_corpus_come_along(small: Path, tmp_path: Path) -> None:
    (small / MANIFEST).write_text(json.dumps({"has_thinlto": False, "modules": ["d0/m0.o", "d1/m1.o"], "x": 1.5}))
    sides = {"train": ["d0/m0.o"], "validation": [], "test": ["d1/m1.o"]}
    for side, names in sides.items():
        write_manifest(small / f"corpus_description.{side}.json", names, has_thinlto=False, override=None)
    pq.write_table(pa.table({"module": ["d0/m0.o"], "function": ["f"]}), small / "functions.parquet")
    for number in (2, 3, 4):
        for suffix in ("bc", "cmd"):
            (small / f"d{number % 2}/m{number}.o.{suffix}").unlink()
    pack_corpus(small, tmp_path / "packed")
    unpack_corpus(tmp_path / "packed", tmp_path / "again")
    assert files(tmp_path / "again") == files(small)
    for side, names in sides.items():
        opened = Corpus.open(tmp_path / "packed" / f"corpus_description.{side}.json")
        assert opened.names == tuple(names)
        assert [module.bitcode() for module in opened] == [(small / f"{name}.bc").read_bytes() for name in names]


def test_one_side_of_a_split_is_packed_alone(small: Path, tmp_path: Path) -> None:
    write_manifest(small / "corpus_description.test.json", ["d0/m2.o", "d1/m1.o"], has_thinlto=False, override=None)
    report = pack_corpus(small / "corpus_description.test.json", tmp_path / "packed")
    assert report.modules == 2
    unpack_corpus(tmp_path / "packed", tmp_path / "again")
    names = {f"{name}.{suffix}" for name in ("d0/m2.o", "d1/m1.o") for suffix in ("bc", "cmd")}
    assert set(files(tmp_path / "again")) == {MANIFEST, *names}


def test_a_module_that_is_named_twice_is_one_row(small: Path, tmp_path: Path) -> None:
    manifest = small / MANIFEST
    manifest.write_text(json.dumps({"has_thinlto": False, "modules": ["d0/m0.o", "d1/m1.o", "d0/m0.o"]}))
    assert pack_corpus(small, tmp_path / "packed").modules == 2
    assert Corpus.open(tmp_path / "packed").names == ("d0/m0.o", "d1/m1.o", "d0/m0.o")
    unpack_corpus(tmp_path / "packed", tmp_path / "again")
    assert (tmp_path / "again" / MANIFEST).read_bytes() == manifest.read_bytes()


# --- how it is cut


def test_files_and_row_groups_are_bounded(
    small: Path, small_groups: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (small / "d0/m2.o.bc").write_bytes(bytes(5000))  # larger than a row group may be
    monkeypatch.setattr("mlgo_corpus.pack.PART_BYTES", 1500)
    report = pack_corpus(small, tmp_path / "packed", jobs=2)
    about = json.loads((tmp_path / "packed/corpus.json").read_text())
    assert [file["row_groups"] for file in about["files"]] == [[2, 1], [2]]
    assert report.files == 2
    for file in about["files"]:
        metadata = pq.read_metadata(tmp_path / "packed" / file["name"])
        assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == file["row_groups"]
        assert (tmp_path / "packed" / file["name"]).stat().st_size == file["bytes"]
    unpack_corpus(tmp_path / "packed", tmp_path / "again", jobs=2)
    assert files(tmp_path / "again") == files(small)
    opened = Corpus.open(tmp_path / "packed")
    assert [module.bitcode() for module in opened] == [module.bitcode() for module in Corpus.open(small)]
    assert opened["d1/m3.o"].bitcode() == (small / "d1/m3.o.bc").read_bytes()


def test_the_result_does_not_depend_on_the_workers(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlgo_corpus.pack.PART_BYTES", 500)
    pack_corpus(small, tmp_path / "one", jobs=1)
    pack_corpus(small, tmp_path / "four", jobs=4)
    assert files(tmp_path / "one") == files(tmp_path / "four")
    assert len(files(tmp_path / "one")) == 3 + 3


def test_a_file_that_is_too_large_is_a_row_with_a_reason(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_FILE_BYTES", 404)
    (small / "d1/m1.o.bc").write_bytes(bytes(405))
    report = pack_corpus(small, tmp_path / "packed", jobs=1)
    problem = "cannot read m1.o.bc: 405 bytes are more than a Parquet file holds in one value"
    assert (report.lacking, report.exit_code, report.problems) == (1, 1, (("d1/m1.o", problem),))
    with pytest.raises(CorpusError, match=r"^d1/m1\.o: cannot read m1\.o\.bc: 405 bytes are more"):
        Corpus.open(tmp_path / "packed")["d1/m1.o"].bitcode()


def test_what_is_missing_is_told(small: Path, tmp_path: Path) -> None:
    (small / "d0/m0.o.bc").unlink()
    (small / "d1/m1.o.cmd").unlink()
    (small / "d0/m2.o.bc").unlink()
    os.mkfifo(small / "d0/m2.o.bc")
    (small / "d1/m3.o.cmd").unlink()
    (small / "d1/m3.o.cmd").mkdir()
    manifest = json.loads((small / MANIFEST).read_text())
    (small / MANIFEST).write_text(json.dumps({**manifest, "modules": [*manifest["modules"], "../up.o"]}))
    report = pack_corpus(small, tmp_path / "packed")
    assert report.problems == (
        ("d0/m0.o", "cannot read m0.o.bc: No such file or directory"),
        ("d0/m2.o", "cannot read m2.o.bc: not a file"),
        ("d1/m3.o", "cannot read m3.o.cmd: Is a directory"),
        ("../up.o", "this module name leaves the corpus folder"),
    )
    rows = {row["module"]: row for row in pq.read_table(tmp_path / "packed/data").to_pylist()}
    assert [row["problem"] for row in rows.values() if row["problem"]] == [text for _, text in report.problems]
    assert rows["d1/m1.o"]["command"] is None  # bitcode of an LTO build has none
    assert (rows["d0/m0.o"]["bitcode"], rows["d0/m0.o"]["command"]) == (None, ["-cc1", "-DN=0"])
    again = unpack_corpus(tmp_path / "packed", tmp_path / "again")
    assert (again.exit_code, again.problems) == (1, report.problems)
    assert not (tmp_path / "up.o.bc").exists()
    assert set(files(tmp_path / "again")) == {name for name in files(small) if not name.startswith("d1/m3.o.cmd/")}


# --- a packed corpus is a corpus


def test_a_packed_corpus_is_a_corpus(lua: Path, tmp_path: Path) -> None:
    pack_corpus(lua, tmp_path / "packed")
    opened, corpus = Corpus.open(tmp_path / "packed"), Corpus.open(lua)
    assert isinstance(opened, PackedCorpus)
    assert (opened.names, opened.has_thinlto) == (corpus.names, corpus.has_thinlto)
    assert opened.global_command_override is None
    assert len(opened) == len(corpus)
    for module, original in zip(opened, corpus, strict=True):
        copy = pickle.loads(pickle.dumps(module))
        assert copy.bitcode() == original.bitcode()
        assert copy.own_command() == original.own_command()
        assert copy.command() == original.command()
        assert len(pickle.dumps(module)) < 1000
    with pytest.raises(KeyError):
        opened["nothing"]
    for names in (corpus.names, corpus.names[3:7]):
        assert opened.sizes(names) == corpus.sizes(names)
        assert corpus_digest(opened, names) == corpus_digest(corpus, names)
        assert newest_producer(opened, names) == newest_producer(corpus, names) == 22
        assert list(opened.iter_producers(names)) == list(corpus.iter_producers(names))
    assert ModuleChoice(sample="7", seed=3).select(opened) == ModuleChoice(sample="7", seed=3).select(corpus)


def test_a_module_is_written_where_a_compiler_finds_it(small: Path, tmp_path: Path) -> None:
    pack_corpus(small, tmp_path / "packed")
    module = Corpus.open(tmp_path / "packed")["d1/m3.o"]
    on_disk = module.on_disk(tmp_path / "work")
    assert files(tmp_path / "work") == {name: data for name, data in files(small).items() if "m3" in name}
    assert on_disk.bitcode_path == tmp_path / "work/d1/m3.o.bc"
    assert on_disk.command() == module.command() == ("-cc1", "-DN=3")
    assert module.location == str(tmp_path / "packed")
    original = Corpus.open(small)["d1/m3.o"]
    assert original.on_disk(tmp_path / "other") is original
    assert not (tmp_path / "other").exists()


def test_rows_are_found_from_another_working_directory(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_corpus(small, tmp_path / "packed")
    monkeypatch.chdir(tmp_path)
    corpus = Corpus.open("packed")
    monkeypatch.chdir("/")
    assert corpus["d1/m3.o"].command() == ("-cc1", "-DN=3")
    assert corpus.location == "packed"


def test_the_times_of_files_tell_a_corpus_without_a_digest_from_others(small: Path, tmp_path: Path) -> None:
    shutil.copy(PROBE_DATA / "llvm-19.bc", small / "d0/m0.o.bc")
    (small / "d1/m1.o.cmd").unlink()
    (small / "d0/m2.o.bc").unlink()
    pack_corpus(small, tmp_path / "packed")
    corpus, opened = Corpus.open(small), Corpus.open(tmp_path / "packed")
    before = corpus_digest(corpus, corpus.names)
    assert corpus_digest(opened, opened.names) == before
    assert newest_producer(opened, opened.names) == newest_producer(corpus, corpus.names) == 19
    unpack_corpus(tmp_path / "packed", tmp_path / "again")
    assert corpus_digest(Corpus.open(tmp_path / "again"), corpus.names) == before
    os.utime(small / "d1/m3.o.bc", ns=(1, 1))
    assert corpus_digest(corpus, corpus.names) != before


LOADING = """
import json, sys
from hashlib import sha256
import datasets
folder, cache = sys.argv[1:]
rows = datasets.load_dataset(folder, split="train", cache_dir=cache)
digests = [sha256(row["bitcode"]).hexdigest() for row in rows]
objects = datasets.load_dataset(folder, "objects", split="train", cache_dir=cache)
streamed = sum(1 for _ in datasets.load_dataset(folder, split="train", streaming=True))
json.dump([rows["module"][:], digests, rows["command"][:], len(objects), streamed], sys.stdout)
"""


def test_hugging_face_loads_it(lua: Path, tmp_path: Path) -> None:
    """In a process of its own: the library reads its settings when it is imported, and starts threads."""
    pack_corpus(lua, tmp_path / "packed")
    env = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    argv = (sys.executable, "-c", LOADING, str(tmp_path / "packed"), str(tmp_path / "cache"))
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    names, digests, commands, objects, streamed = json.loads(done.stdout)
    corpus = Corpus.open(lua)
    assert names == list(corpus.names)
    assert digests == [sha256(module.bitcode()).hexdigest() for module in corpus]
    assert commands == [list(module.command()) for module in corpus]
    assert (objects, streamed) == (35, 34)  # of the objects, one is none


def test_duckdb_reads_it(lua: Path, tmp_path: Path) -> None:
    pack_corpus(lua, tmp_path / "packed")
    query = f"SELECT count(*), sum(octet_length(bitcode)), sum(bitcode_bytes) FROM '{tmp_path}/packed/data/*.parquet'"  # noqa: S608
    modules, found, told_bytes = duckdb.sql(query).fetchall()[0]
    assert modules == 34
    assert found == told_bytes == sum(module.bitcode_path.stat().st_size for module in Corpus.open(lua))


# --- again, and over something else


def test_again_it_is_there_already(small: Path, tmp_path: Path) -> None:
    first = pack_corpus(small, tmp_path / "packed")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "packed").rglob("*")}
    again = pack_corpus(small, tmp_path / "packed")
    assert (first.unchanged, again.unchanged) == (False, True)
    assert again.parquet_bytes == first.parquet_bytes
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "packed").rglob("*")} == before
    assert not unpack_corpus(tmp_path / "packed", tmp_path / "again").unchanged
    assert unpack_corpus(tmp_path / "packed", tmp_path / "again").unchanged
    (tmp_path / "packed/data/part-00000.parquet").write_bytes(b"")
    with pytest.raises(UsageError, match=r"/packed: holds another packed corpus, or an incomplete one; `force` "):
        pack_corpus(small, tmp_path / "packed")
    assert not pack_corpus(small, tmp_path / "packed", force=True).unchanged
    assert pack_corpus(small, tmp_path / "packed").unchanged


def test_another_corpus_is_replaced_only_by_force(small: Path, tmp_path: Path) -> None:
    pack_corpus(small, tmp_path / "packed")
    unpack_corpus(tmp_path / "packed", tmp_path / "again")
    other = make(tmp_path / "other", {"x.bc": b"BC"})
    before = files(tmp_path / "packed")
    with pytest.raises(UsageError, match="holds another packed corpus"):
        pack_corpus(other, tmp_path / "packed")
    assert files(tmp_path / "packed") == before
    pack_corpus(other, tmp_path / "packed", force=True)
    with pytest.raises(UsageError, match=r"/again: a corpus of other inputs or options is there; `force` replaces it$"):
        unpack_corpus(tmp_path / "packed", tmp_path / "again")
    (tmp_path / "again/.mlgo-corpus").mkdir()
    (tmp_path / "again/.mlgo-corpus/journal").write_bytes(b"of an extraction")
    unpack_corpus(tmp_path / "packed", tmp_path / "again", force=True)
    assert files(tmp_path / "again") == files(other)
    assert not (tmp_path / "again/.mlgo-corpus").exists()
    assert sorted(os.listdir(tmp_path)) == ["again", "corpus", "other", "packed"]


def test_unpacking_replaces_what_combining_may_replace(small: Path, tmp_path: Path) -> None:
    pack_corpus(small, tmp_path / "packed")
    combine_corpora([small], tmp_path / "referred", placing="reference")
    unpack_corpus(tmp_path / "packed", tmp_path / "referred", force=True)
    assert files(tmp_path / "referred") == files(small)
    kept = make(tmp_path / "kept", {"x.bc": b"BC", ".mlgo-corpus/lock": b""})
    before = files(kept)
    with pytest.raises(UsageError, match=r"/kept: is a corpus that extract keeps up to date; name another folder$"):
        unpack_corpus(tmp_path / "packed", kept, force=True)
    assert files(kept) == before
    assert (kept / ".mlgo-corpus/lock").exists()


@pytest.mark.parametrize("force", [False, True])
def test_nobodys_files_are_touched(small: Path, tmp_path: Path, force: bool) -> None:
    pack_corpus(small, tmp_path / "packed")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match=r"is not empty, and not a packed corpus: it holds thesis\.tex; name another"):
        pack_corpus(small, mine, force=force)
    with pytest.raises(UsageError, match=r"is not empty, and not a corpus: it holds thesis\.tex; name another"):
        unpack_corpus(tmp_path / "packed", mine, force=force)
    for action, source in ((pack_corpus, small), (unpack_corpus, tmp_path / "packed")):
        with pytest.raises(UsageError, match=r"/file: expected a folder, found a file$"):
            action(source, tmp_path / "file", force=force)
        for output, said in (
            (source, "is the input itself; name another folder"),
            (source / "inside", f"overlaps {source}; name a folder apart from it"),
            (source.parent, f"overlaps {source}; name a folder apart from it"),
        ):
            with pytest.raises(UsageError) as caught:
                action(source, output, force=force)
            assert str(caught.value) == f"output {output}: {said}"
    unpack_corpus(tmp_path / "packed", tmp_path / "again")
    other = make(tmp_path / "other", {"x.bc": b"BC"})
    for folder in ("packed", "again"):
        (tmp_path / folder / "notes").mkdir()
        (tmp_path / folder / "notes/thesis.tex").write_text("mine")
    if force:
        with pytest.raises(UsageError, match=r"notes/thesis\.tex is not part of the packed corpus"):
            pack_corpus(other, tmp_path / "packed", force=True)
        pack_corpus(other, tmp_path / "third")
        with pytest.raises(UsageError, match=r"notes/thesis\.tex is not part of the corpus"):
            unpack_corpus(tmp_path / "third", tmp_path / "again", force=True)
    assert (tmp_path / "again/notes/thesis.tex").read_text() == "mine"


def test_what_is_none(small: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"/nowhere: not a corpus: there is no such folder$"):
        pack_corpus(tmp_path / "nowhere", tmp_path / "packed")
    with pytest.raises(UsageError, match=r"/corpus: not a packed corpus: it has no corpus\.json of one$"):
        unpack_corpus(small, tmp_path / "again")
    pack_corpus(small, tmp_path / "packed")
    with pytest.raises(UsageError, match=r"/packed: is packed already$"):
        pack_corpus(tmp_path / "packed", tmp_path / "twice")
    write_manifest(small / MANIFEST, [], has_thinlto=False, override=None)
    with pytest.raises(UsageError, match=r"/corpus: has no modules$"):
        pack_corpus(small, tmp_path / "none")
    with pytest.raises(UsageError, match=r"^jobs 0: expected at least 1$"):
        pack_corpus(small, tmp_path / "none", jobs=0)
    assert sorted(os.listdir(tmp_path)) == ["corpus", "packed"]


def test_the_command_line(small: Path, tmp_path: Path) -> None:
    (small / "d0/m0.o.bc").unlink()
    done = mlgo("pack", small, "--output", "packed", cwd=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(
        r"packed: 5 modules, 1\.6 kB of bitcode in \d+\.\d\d s\n\d+\.\d kB of Parquet in 1 file\n", done.stdout
    )
    assert done.stderr == "d0/m0.o: cannot read m0.o.bc: No such file or directory\n"
    done = mlgo("pack", small, "--output", "packed", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert (done.returncode, report["exit_code"], report["unchanged"], report["output"]) == (1, 1, True, "packed")
    done = mlgo("unpack", "packed", "--output", "again", "--jobs", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(r"again: 5 modules, 1\.6 kB of bitcode in \d+\.\d\d s\n", done.stdout)
    packed, folder = (json.loads(mlgo("stats", name, "--json", cwd=tmp_path).stdout) for name in ("packed", "corpus"))
    assert packed.keys() == folder.keys()
    assert (packed["from_table"], folder["from_table"]) == (True, False)
    for name in packed.keys() - {"corpus", "seconds", "from_table"}:
        assert packed[name] == folder[name], name
    for argv in (("pack", "nowhere"), ("unpack", small)):
        done = mlgo(*argv, "--output", "none", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


# --- interrupted


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make workers share what a test has patched, and die with it."""
    monkeypatch.setattr("mlgo_corpus.engine.pool._may_fork", lambda: True)


def killed_at(where: Any, name: str, call: int, work: Callable[[], object]) -> int:
    """Do some work in a child that dies, like by ``kill -9``, when a function is called for the given time."""

    def dying_work() -> None:
        calls = count(1)
        real = getattr(where, name)

        def dying(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        setattr(where, name, dying)
        work()

    return in_child(dying_work)


def test_killed_at_any_moment(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlgo_corpus.pack as stage

    monkeypatch.setattr("mlgo_corpus.pack.PART_BYTES", 500)
    pack_corpus(small, tmp_path / "fresh")
    packed, again = tmp_path / "packed", tmp_path / "again"
    moments: list[tuple[Any, str, int]] = [(stage, "write_atomically", call) for call in (1, 2)]
    moments += [(shutil, "copyfile", 1), (stage, "packed_card", 1), (Path, "rename", 1)]
    for where, name, call in moments:
        assert killed_at(where, name, call, lambda: pack_corpus(small, packed)) == -signal.SIGKILL, name
        assert not packed.exists()
    assert not pack_corpus(small, packed).unchanged
    assert files(packed) == files(tmp_path / "fresh")
    for where, name, call in [(stage, "copy_others", 1), (stage, "_write_all", 1), (Path, "rename", 1)]:
        assert killed_at(where, name, call, lambda: unpack_corpus(packed, again)) == -signal.SIGKILL, name
        assert not again.exists()
    unpack_corpus(packed, again)
    assert files(again) == files(small)
    assert sorted(os.listdir(tmp_path)) == ["again", "corpus", "fresh", "packed"]


@pytest.mark.parametrize("call", [1, 2])
def test_killed_while_it_replaces(small: Path, tmp_path: Path, call: int) -> None:
    """What was there before is there again, or what replaces it."""
    packed = tmp_path / "packed"
    other = make(tmp_path / "other", {"x.bc": b"BC"})
    pack_corpus(other, packed)
    before = files(packed)
    work = lambda: pack_corpus(small, packed, force=True)  # noqa: E731
    assert killed_at(Path, "rename", call, work) == -signal.SIGKILL
    if call == 1:
        assert files(packed) == before
    pack_corpus(other, packed, force=True)
    assert files(packed) == before
    pack_corpus(small, packed, force=True)
    assert Corpus.open(packed).names == Corpus.open(small).names
    assert sorted(os.listdir(tmp_path)) == ["corpus", "other", "packed"]


def test_a_worker_that_dies_leaves_nothing(small: Path, forking: None, tmp_path: Path) -> None:
    def work() -> None:
        with pytest.raises(MlgoCorpusError, match=r"^cannot write part-00000\.parquet: the worker process ended by"):
            pack_corpus(small, tmp_path / "packed", jobs=1)

    def dying_worker() -> None:
        packing._PartWriter.write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign,assign]
        work()

    assert in_child(dying_worker) == 0
    assert sorted(os.listdir(tmp_path)) == ["corpus"]


def test_two_at_once(small: Path, tmp_path: Path) -> None:
    with (
        wholefolder.whole_folder(tmp_path / "packed"),
        pytest.raises(UsageError, match=r"/packed: another mlgo-corpus is making it; wait for it$"),
    ):
        pack_corpus(small, tmp_path / "packed")
    pack_corpus(small, tmp_path / "packed")


@pytest.mark.parametrize("force", [False, True])
def test_another_run_was_faster(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool) -> None:
    """What was looked at before the lock was had is looked at again."""
    import mlgo_corpus.pack as stage

    packed, other = tmp_path / "packed", make(tmp_path / "other", {"x.bc": b"BC"})
    if force:
        pack_corpus(make(tmp_path / "before", {"y.bc": b"BC"}), packed)
    check = stage.check_place

    def meanwhile(output: Path, there: dict[str, Any] | None) -> None:
        check(output, there)
        monkeypatch.setattr(stage, "check_place", check)
        pack_corpus(other, output, force=force)

    monkeypatch.setattr(stage, "check_place", meanwhile)
    with pytest.raises(UsageError, match=r"/packed: another mlgo-corpus has just made it$"):
        pack_corpus(small, packed, force=force)
    assert Corpus.open(packed).names == ("x",)


def test_a_folder_that_cannot_be_written(small: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        place = Path("/proc/packed")
    else:
        (tmp_path / "closed").mkdir(mode=0o500)
        place = tmp_path / "closed/packed"
    with pytest.raises(UsageError, match="cannot write there: "):
        pack_corpus(small, place)


# --- damaged, or made by somebody else


@pytest.fixture
def packed(small: Path, small_groups: None, tmp_path: Path) -> Path:
    pack_corpus(small, tmp_path / "packed", jobs=1)
    packedrows.read_content.cache_clear()
    return tmp_path / "packed"


def read_all(folder: Path) -> Files:
    packedrows.read_content.cache_clear()
    return {module.name: module.bitcode() + module.own_command() for module in Corpus.open(folder)}


def test_truncated_anywhere(packed: Path, small: Path, tmp_path: Path) -> None:
    path = packed / "data/part-00000.parquet"
    data, good = path.read_bytes(), read_all(packed)
    step = max(1, len(data) // 150)
    for size in (*range(0, len(data), step), *range(len(data) - 12, len(data))):
        path.write_bytes(data[:size])
        with pytest.raises(CorpusError) as caught:
            read_all(packed)
        assert str(caught.value).count("\n") == 0
        assert str(path) in str(caught.value)
    with pytest.raises(CorpusError, match="cannot be read"):
        unpack_corpus(packed, tmp_path / "again", jobs=1)
    assert not (tmp_path / "again").exists()
    path.unlink()
    with pytest.raises(CorpusError, match=r"part-00000\.parquet: is missing; the packed corpus is not whole$"):
        read_all(packed)
    path.write_bytes(data)
    assert (
        read_all(packed)
        == good
        == {name: (small / f"{name}.bc").read_bytes() + (small / f"{name}.cmd").read_bytes() for name in good}
    )


def test_flipped_bits_are_noticed(packed: Path) -> None:
    path = packed / "data/part-00000.parquet"
    data, good = path.read_bytes(), read_all(packed)
    for offset in range(4, len(data), max(1, len(data) // 150)):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 0x40]) + data[offset + 1 :])
        found = told(lambda: read_all(packed))
        assert found == good or (isinstance(found, str) and "\n" not in found)


def test_a_column_with_fewer_values_than_rows_is_noticed(packed: Path) -> None:
    """The footer says how many values a column has, and how many rows its group has."""
    path = packed / "data/part-00000.parquet"
    data = path.read_bytes()
    one, none = (b"module\x15\x0c\x16" + bytes([2 * count]) for count in (1, 0))  # numbers are zigzag-encoded
    assert one in data
    path.write_bytes(data.replace(one, none))
    assert str(told(lambda: read_all(packed))).endswith("row group 2 has 0 rows, its footer says 1")


def change(packed: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    about = json.loads((packed / "corpus.json").read_text())
    edit(about)
    (packed / "corpus.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda about: about.update(format=2), r"corpus\.json: expected format 1, found 2$"),
        (lambda about: about.update(files={}), "expected files, their rows and a digest, found something else$"),
        (lambda about: about["files"][0].update(name="../x.parquet"), "expected files"),
        (lambda about: about["files"][0].update(name="data/../../part-00000.parquet"), "expected files"),
        (lambda about: about["files"][0].update(row_groups=[-1, 6]), "expected files"),
        (lambda about: about["files"][0].update(row_groups=[1e3]), "expected files"),
        (lambda about: about["files"][0].update(bytes=None), "expected files"),
        (lambda about: about.pop("stamped"), "expected files"),
        (lambda about: about.update(corpus_digest=3), "expected files"),
        (lambda about: about["others"][0].update(name="../x"), "expected files"),
        (lambda about: about["others"][0].update(name=".envrc"), "expected files"),
        (lambda about: about["others"][0].update(name="corpus_description./x.json"), "expected files"),
        (
            lambda about: about["files"][0].update(row_groups=[2, 2]),
            "has 4 modules, corpus_description.json has 5$",
        ),
        (lambda about: about["files"][0].update(row_groups=[1 << 60]), "has 1152921504606846976 modules"),
    ],
)
def test_a_description_that_is_wrong(packed: Path, edit: Callable[[dict[str, Any]], object], message: str) -> None:
    change(packed, edit)
    with pytest.raises(CorpusError, match=message):
        Corpus.open(packed)


def test_rows_that_are_not_where_they_should_be(packed: Path, tmp_path: Path) -> None:
    change(packed, lambda about: about["files"][0].update(row_groups=[3, 2]))
    with pytest.raises(CorpusError, match=r"row group 0 has 2 rows, corpus\.json says 3$"):
        read_all(packed)
    change(packed, lambda about: about["files"][0].update(row_groups=[2, 2, 0, 1]))
    with pytest.raises(CorpusError, match=r"has no row group 3; it is not the file that corpus\.json describes$"):
        read_all(packed)
    change(packed, lambda about: about["files"][0].update(row_groups=[2, 2, 1]))
    read_all(packed)
    names = json.loads((packed / MANIFEST).read_text())["modules"]
    write_manifest(packed / MANIFEST, names[::-1], has_thinlto=False, override=None)
    with pytest.raises(CorpusError, match=r"part-00000\.parquet: its row has another module$"):
        read_all(packed)
    with pytest.raises(CorpusError, match=r"corpus_description\.json: is not what was packed: its SHA-256 is another$"):
        unpack_corpus(packed, tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("column", "array", "message"),
    [
        ("bitcode", pa.array(range(5)), "bitcode is int64, expected large_binary$"),
        ("command", pa.array(["-cc1"] * 5), "command is string, expected list<element: string>$"),
        ("bitcode", None, "expected one column 'bitcode', found none or several$"),
        ("module", pa.array(["x"] * 5), "its row has another module$"),
    ],
)
def test_another_schema(packed: Path, column: str, array: pa.Array | None, message: str) -> None:
    path = packed / "data/part-00000.parquet"
    table = pq.read_table(path)
    index = table.schema.get_field_index(column)
    table = table.remove_column(index) if array is None else table.set_column(index, column, array)
    pq.write_table(table, path)
    change(packed, lambda about: about["files"][0].update(row_groups=[5]))
    with pytest.raises(CorpusError, match=message):
        read_all(packed)


def test_other_programs_may_write_it_again(packed: Path) -> None:
    """Text and bytes may be wider, compressed otherwise, and have more columns."""
    good = read_all(packed)
    path = packed / "data/part-00000.parquet"
    table = pq.read_table(path).append_column("more", pa.array(range(5)))
    for name, kind in (("module", pa.large_string()), ("bitcode", pa.binary()), ("command_bytes", pa.large_binary())):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kind))
    pq.write_table(table, path, compression="gzip")
    change(packed, lambda about: about["files"][0].update(row_groups=[5]))
    assert read_all(packed) == good


def test_a_row_group_that_claims_too_much(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packedrows, "_MOST_GROUP_BYTES", 100)
    with pytest.raises(CorpusError, match=r"row group 0 claims \d+ bytes, expected at most 100$"):
        read_all(packed)


def test_names_that_leave_the_folder(packed: Path, tmp_path: Path) -> None:
    """The manifest and the rows agree, but the name is none."""
    path = packed / "data/part-00000.parquet"
    table = pq.read_table(path)
    names = ["../../evil", *table["module"].to_pylist()[1:]]
    pq.write_table(table.set_column(0, "module", pa.array(names)), path)
    write_manifest(packed / MANIFEST, names, has_thinlto=False, override=None)
    digest = sha256((packed / MANIFEST).read_bytes()).hexdigest()
    change(packed, lambda about: about["files"][0].update(row_groups=[5]))
    change(packed, lambda about: about["others"][0].update(sha256=digest))
    packedrows.read_content.cache_clear()
    module = next(iter(Corpus.open(packed)))
    for action in (module.bitcode, lambda: module.on_disk(tmp_path / "work")):
        with pytest.raises(CorpusError, match=r"^\.\./\.\./evil: this module name leaves the corpus folder$"):
            action()
    with pytest.raises(CorpusError, match="leaves the corpus folder"):
        unpack_corpus(packed, tmp_path / "a/again")
    assert not list(tmp_path.rglob("evil*"))


def test_a_copy_that_cannot_be_written_is_named(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: Path, target: Path) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(source), None, str(target))

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(MlgoCorpusError, match=rf"^cannot write (?!{packed}/).*/{MANIFEST}: File too large$"):
        unpack_corpus(packed, tmp_path / "again")


def test_names_in_each_others_way(tmp_path: Path) -> None:
    """Somebody's rows say that a file is a folder."""
    corpus = make(tmp_path / "corpus", {"a.bc": b"1", "b.bc": b"2"})
    pack_corpus(corpus, tmp_path / "packed")
    path = tmp_path / "packed/data/part-00000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, "module", pa.array(["a", "a.bc/b"])), path)
    write_manifest(tmp_path / "packed" / MANIFEST, ["a", "a.bc/b"], has_thinlto=False, override=None)
    digest = sha256((tmp_path / "packed" / MANIFEST).read_bytes()).hexdigest()
    change(tmp_path / "packed", lambda about: about["others"][0].update(sha256=digest))
    with pytest.raises(MlgoCorpusError, match=r"^cannot write .*a\.bc: (File exists|Not a directory)$"):
        unpack_corpus(tmp_path / "packed", tmp_path / "again")
    assert not (tmp_path / "again").exists()
