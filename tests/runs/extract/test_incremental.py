"""A corpus after any history is the corpus that a fresh extraction of the same inputs makes, and nothing more."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import tarfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mlgo_corpus import ExtractReport, extract_corpus
from mlgo_corpus.builds.objects import Embedded
from mlgo_corpus.formats.objects.objfile import parse_objfile
from mlgo_corpus.runs.extract import module as extraction
from mlgo_corpus.runs.extract.journal import Journal
from mlgo_corpus.runs.extract.run import ExtractionRun
from tests.conftest import DATA, run_checked
from tests.formats.objects.test_objfile import elf_file
from tests.runs.extract.test_bad_input import as_nobody
from tests.runs.extract.test_extract import files, reasons, rows

pytestmark = pytest.mark.whole

# Each file that a test writes is younger than the one before, whatever the clock's grain.
_TICKS = count(1_700_000_000_000_000_000, 1_000_000_000)


def put(path: Path, data: bytes) -> Path:
    """Write an input file with a time of change of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    tick = next(_TICKS)
    os.utime(path, ns=(tick, tick))
    return path


def real_objects(archive: str = "lua-clang22", number: int = 12) -> list[bytes]:
    """Give the smallest objects of a real build."""
    with tarfile.open(DATA / f"{archive}.tar.gz") as tar:
        members = sorted((item for item in tar if item.isfile()), key=lambda item: item.size)[:number]
        return [file.read() for item in members if (file := tar.extractfile(item)) is not None]


def sections(data: bytes) -> tuple[bytes, bytes]:
    """Give an object's bitcode and command."""
    found = {item.name: data[item.offset : item.offset + item.size] for item in parse_objfile(data).sections}
    return found[".llvmbc"], found[".llvmcmd"]


def ar(members: dict[str, bytes]) -> bytes:
    """Write an ordinary archive; names of up to 15 bytes."""
    archive = b"!<arch>\n"
    for name, content in members.items():
        archive += f"{name + '/':<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode()
        archive += content + b"\n" * (len(content) % 2)
    return archive


def database(path: Path, outputs: list[Path]) -> Path:
    """Write a compilation database in which each object was made in its own folder, so that names may clash."""
    entries = [
        {"directory": str(item.parent), "file": "f.c", "arguments": ["clang", "-c", "f.c", "-o", item.name]}
        for item in outputs
    ]
    path.write_text(json.dumps(entries))
    return path


def tree(corpus: Path) -> dict[str, bytes | None]:
    """Give a corpus's files, and its folders, so that an empty one left behind shows."""
    folders = {
        str(path.relative_to(corpus)): None
        for path in corpus.rglob("*")
        if path.is_dir() and ".mlgo-corpus" not in path.parts
    }
    return {**folders, **files(corpus)}


def check(inputs: list[Path], corpus: Path, **options: Any) -> ExtractReport:
    """Bring a corpus up to date and compare it with a fresh one."""
    report = extract_corpus(inputs, corpus, **options)
    fresh = corpus.with_name("fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    expected = extract_corpus(inputs, fresh, **options)
    found, wanted = tree(corpus), tree(fresh)
    assert sorted(found) == sorted(wanted)
    assert [name for name in found if found[name] != wanted[name]] == []
    for name in ("modules", "counts", "bitcode_bytes", "cmd_bytes", "bitcode_found", "bitcode_explained", "duplicates"):
        assert getattr(report, name) == getattr(expected, name), name
    assert report.bitcode_found == report.bitcode_explained
    return report


def in_child(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child and give its exit code, negative for the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(where: Any, method: str, call: int, inputs: list[Path], corpus: Path, **options: Any) -> int:
    """Extract in a child that dies, like by ``kill -9``, when ``where.method`` is called for the given time."""

    def work() -> None:
        calls = count(1)
        real = getattr(where, method)

        def dying(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        setattr(where, method, dying)
        extract_corpus(inputs, corpus, **options)

    return in_child(work)


@pytest.fixture(scope="module")
def small() -> list[bytes]:
    return real_objects()


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make workers share what a test has patched."""
    monkeypatch.setattr("mlgo_corpus.engine.pool._may_fork", lambda: True)


@pytest.mark.parametrize(
    "reason", ["no_bitcode", "missing", "truncated", "filtered", "unsupported_format", "malformed"]
)
def test_a_module_that_went_bad_leaves(small: list[bytes], tmp_path: Path, reason: str) -> None:
    """Defect 1: its .bc and .cmd stayed."""
    a, b = put(tmp_path / "b/a.o", small[0]), put(tmp_path / "b/s/b.o", small[1])
    inputs = [database(tmp_path / "b/compile_commands.json", [a, b])]
    corpus = tmp_path / "corpus"
    check(inputs, corpus, cmd_filters=["^-Oz$"])
    assert {"b.o.bc", "b.o.cmd"} < set(files(corpus))
    bitcode, command = sections(small[1])
    if reason == "missing":
        b.unlink()
    else:
        worse = {
            "no_bitcode": elf_file([(".text", b"\xc3")]),
            "truncated": small[1][:2000],
            "filtered": elf_file([(".llvmbc", bitcode), (".llvmcmd", command.replace(b"-Oz\0", b"-O2\0"))]),
            "unsupported_format": b"int main;",
            "malformed": elf_file([(".llvmbc", b"BC\xc0\xde" + bytes(96)), (".llvmcmd", command)]),
        }
        put(b, worse[reason])
    report = check(inputs, corpus, cmd_filters=["^-Oz$"])
    assert reasons(corpus) == {"a.o": "ok", "b.o": reason}
    assert (report.removed, report.unchanged) == (1, 1)
    assert not {"b.o.bc", "b.o.cmd"} & set(files(corpus))


def test_a_module_rebuilt_without_a_command_loses_the_old_one(small: list[bytes], tmp_path: Path) -> None:
    """Defect 2: after a rebuild with -flto the .cmd of the build before stayed."""
    bitcode, _ = sections(small[0])
    path = put(tmp_path / "b/a.o", small[0])
    corpus = tmp_path / "corpus"
    for rebuilt, reason in ((bitcode, "raw_lto"), (small[0], "ok"), (elf_file([(".llvmbc", bitcode)]), "no_command")):
        put(path, rebuilt)
        check([tmp_path / "b"], corpus)
        assert reasons(corpus) == {"a.o": reason}
        assert ("a.o.cmd" in files(corpus)) == (reason == "ok")


def test_an_object_replaced_by_a_dangling_link_leaves(small: list[bytes], tmp_path: Path) -> None:
    """Defect 3."""
    path = put(tmp_path / "b/a.o", small[0])
    put(tmp_path / "b/b.o", small[1])
    check([tmp_path / "b"], tmp_path / "corpus")
    path.unlink()
    path.symlink_to("nowhere/a.o")
    assert check([tmp_path / "b"], tmp_path / "corpus").removed == 1
    assert reasons(tmp_path / "corpus") == {"a.o": "missing", "b.o": "ok"}


def test_another_object_of_the_same_size_and_time_is_read(small: list[bytes], tmp_path: Path) -> None:
    """As cp -p leaves it, and a build that gives all its files one time."""
    bitcode, command = sections(small[0])
    path, corpus = tmp_path / "b/a.o", tmp_path / "corpus"
    for define in (b"-DX\0", b"-DY\0"):
        put(path, elf_file([(".llvmbc", bitcode), (".llvmcmd", command + define)]))
        os.utime(path, ns=(0, 0))
        assert check([tmp_path / "b"], corpus).unchanged == 0
        assert (corpus / "a.o.cmd").read_bytes().endswith(define)
    journal = corpus / ".mlgo-corpus/extract.jsonl"
    journal.write_text(re.sub(r'("stamp":\[\d+,\d+),\d+]', r"\1]", journal.read_text()))  # as older versions wrote it
    assert check([tmp_path / "b"], corpus).unchanged == 0
    assert check([tmp_path / "b"], corpus).unchanged == 1


def test_an_entry_of_the_same_stamp_is_not_another_object(small: list[bytes], tmp_path: Path) -> None:
    """Defect 4: f.o of y was taken for f.o of x, whose name it inherits, size and time being equal."""
    bitcode, command = sections(small[0])
    x, y = (
        put(tmp_path / name / "f.o", elf_file([(".llvmbc", bitcode), (".llvmcmd", command + define)]))
        for name, define in (("x", b"-DX\0"), ("y", b"-DY\0"))
    )
    os.utime(y, ns=(x.stat().st_mtime_ns, x.stat().st_mtime_ns))
    assert x.stat().st_size == y.stat().st_size
    inputs = [database(tmp_path / "compile_commands.json", [x, y])]
    corpus = tmp_path / "corpus"
    check(inputs, corpus)
    assert reasons(corpus) == {"f.o": "ok", "f~2.o": "renamed"}
    database(inputs[0], [y])
    assert check(inputs, corpus).unchanged == 0
    assert (corpus / "f.o.cmd").read_bytes().endswith(b"-DY\0")
    assert not (corpus / "f~2.o.cmd").exists()
    database(inputs[0], [y, x])  # and in the other order
    check(inputs, corpus)
    database(inputs[0], [x, y])
    check(inputs, corpus)
    assert (corpus / "f.o.cmd").read_bytes().endswith(b"-DX\0")


@pytest.mark.parametrize(
    ("where", "method", "call"),
    [
        (ExtractionRun, "finish", 1),
        (Journal, "commit", 1),
        (Journal, "sync", 1),
        (Journal, "add", 1),
        (Journal, "add", 2),
    ],
)
def test_killed_after_an_archive_lost_a_member(
    small: list[bytes], tmp_path: Path, where: Any, method: str, call: int
) -> None:
    """Defect 6: the killed run's record no longer had the member, and nobody removed its files."""
    library = put(tmp_path / "b/lib.a", ar({"a.o": small[0], "b.o": small[1], "c.o": small[2]}))
    other = put(tmp_path / "b/z.o", small[3])
    corpus = tmp_path / "corpus"
    check([tmp_path / "b"], corpus)
    put(library, ar({"a.o": small[0], "c.o": small[2]}))
    assert killed_at(where, method, call, [tmp_path / "b"], corpus) == -signal.SIGKILL
    put(library, ar({"a.o": small[0]}))
    other.unlink()
    assert killed_at(where, method, call, [tmp_path / "b"], corpus) == -signal.SIGKILL or call == 2
    check([tmp_path / "b"], corpus)
    assert sorted(name for name in files(corpus) if name.endswith(".bc")) == ["lib.a/a.o.bc"]


@pytest.mark.parametrize(("where", "method"), [(ExtractionRun, "finish"), (Journal, "add")])
def test_a_new_object_extracted_by_a_killed_run_and_gone_since(
    small: list[bytes], tmp_path: Path, where: Any, method: str
) -> None:
    """A worker writes files before its parent records them."""
    put(tmp_path / "b/a.o", small[0])
    corpus = tmp_path / "corpus"
    check([tmp_path / "b"], corpus)
    new = put(tmp_path / "b/new.o", small[1])
    assert killed_at(where, method, 2 if method == "add" else 1, [tmp_path / "b"], corpus) == -signal.SIGKILL
    new.unlink()
    check([tmp_path / "b"], corpus)


def test_a_duplicate_written_by_a_killed_run_and_gone_since(small: list[bytes], tmp_path: Path) -> None:
    """A duplicate's files are there until the end of the run that found it out."""
    put(tmp_path / "b/a.o", small[0])
    corpus = tmp_path / "corpus"
    check([tmp_path / "b"], corpus, dedup=True)
    twin = put(tmp_path / "b/twin.o", small[0])
    assert killed_at(ExtractionRun, "finish", 1, [tmp_path / "b"], corpus, dedup=True) == -signal.SIGKILL
    twin.unlink()
    check([tmp_path / "b"], corpus, dedup=True)


def test_an_object_rebuilt_for_a_killed_run_and_put_back(small: list[bytes], tmp_path: Path) -> None:
    """What the killed run wrote has the size that the record says, and not the content."""
    bitcode, command = sections(small[0])
    versions = [
        elf_file([(".llvmbc", bitcode), (".llvmcmd", command.replace(b"-Oz\0", level))])
        for level in (b"-O2\0", b"-O3\0")
    ]
    path = put(tmp_path / "b/a.o", versions[0])
    stamp = path.stat().st_mtime_ns
    corpus = tmp_path / "corpus"
    check([tmp_path / "b"], corpus)
    put(path, versions[1])
    assert killed_at(Journal, "add", 1, [tmp_path / "b"], corpus) == -signal.SIGKILL
    put(path, versions[0])
    os.utime(path, ns=(stamp, stamp))
    check([tmp_path / "b"], corpus)
    assert b"-O2\0" in (corpus / "a.o.cmd").read_bytes()


@pytest.mark.parametrize("how", ["dies", "raises"])
@pytest.mark.parametrize("after", ["", "killed"])
def test_a_worker_lost_within_an_archive_leaves_none_of_its_files(
    small: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forking: None, how: str, after: str
) -> None:
    """Defect 7: the members before the one that killed the worker stayed as files that no row names."""
    good = ar({"a.o": small[0], "b.o": small[1], "c.o": small[2]})
    bad = ar({"new.o": small[3], "poison.o": small[4], "c.o": small[2]})
    library = put(tmp_path / "b/s/lib.a", good)
    put(tmp_path / "b/z.o", small[5])
    corpus = tmp_path / "corpus"
    real = extraction.read_object

    def poisoned(data: Any, *args: Any, **kwargs: Any) -> Iterator[Embedded]:
        for item in real(data, *args, **kwargs):
            if item.member == "poison.o":
                if how == "dies":
                    os.kill(os.getpid(), signal.SIGSEGV)
                raise RuntimeError("poison")
            yield item

    monkeypatch.setattr(extraction, "read_object", poisoned)
    check([tmp_path / "b"], corpus)
    put(library, bad)
    if after:
        assert killed_at(ExtractionRun, "finish", 1, [tmp_path / "b"], corpus) == -signal.SIGKILL
        put(library, good)
        check([tmp_path / "b"], corpus)
        put(library, bad)
    check([tmp_path / "b"], corpus)
    assert reasons(corpus) == {"s/lib.a": "worker_died" if how == "dies" else "malformed", "z.o": "ok"}
    assert sorted(tree(corpus)) == ["corpus_description.json", "modules.parquet", "z.o.bc", "z.o.cmd"]
    put(library, good)
    check([tmp_path / "b"], corpus)
    assert len(rows(corpus)) == 4


def test_another_versions_record_is_never_trusted(
    small: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forking: None
) -> None:
    """Defect 8: an interrupted run of a version with other rules left lines that the next run believed."""
    for number, data in enumerate(small[:4]):
        put(tmp_path / f"b/{number}.o", data)
    corpus = tmp_path / "corpus"
    check([tmp_path / "b"], corpus)
    real = extraction.read_object

    def without_commands(data: Any, *args: Any, **kwargs: Any) -> Iterator[Embedded]:
        for item in real(data, *args, **kwargs):
            yield Embedded(item.member, item.reason, item.bitcode, None, detail="other rules")

    for where, method, call in ((ExtractionRun, "finish", 1), (Journal, "add", 3), (Journal, "commit", 2)):
        with monkeypatch.context() as other:
            other.setattr(extraction, "read_object", without_commands)
            other.setattr("mlgo_corpus.extract.__version__", "0.0.other")
            killed_at(where, method, call, [tmp_path / "b"], corpus)
        check([tmp_path / "b"], corpus)
        assert sorted(name for name in files(corpus) if name.endswith(".cmd")) == [f"{n}.o.cmd" for n in range(4)]
        assert {row["detail"] for row in rows(corpus)} == {""}


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root may")
@pytest.mark.parametrize("thinlto", [None, "local"])
def test_unreadable_and_readable_again(small: list[bytes], forking: None, tmp_path: Path, thinlto: str | None) -> None:
    """Defect 9: chmod leaves size and time as they were, and the object stayed unreadable for ever."""
    bitcode, _ = sections(small[1])
    put(tmp_path / "warm/a.o", small[0])
    extract_corpus([tmp_path / "warm"], tmp_path / "imports-all-there-is-to-import")
    root = Path(run_checked("mktemp", "-d").strip())  # pytest's own folders are closed to other users
    try:
        root.chmod(0o777)
        if thinlto is None:
            put(root / "b/a.o", small[0])
            closed = put(root / "b/b.o", small[1])
        else:
            put(root / "b/a.o.3.import.bc", bitcode)
            closed = put(root / "b/a.o.thinlto.bc", bitcode)
        closed.chmod(0)
        stamp = closed.stat().st_mtime_ns

        def extract() -> object:
            return extract_corpus([root / "b"], root / "corpus", thinlto=thinlto).counts

        bad = "unreadable" if thinlto is None else "missing_thinlto_index"
        assert as_nobody(extract) == ({"ok": 1, bad: 1} if thinlto is None else {bad: 1})
        closed.chmod(0o644)
        assert closed.stat().st_mtime_ns == stamp
        assert as_nobody(extract) == {"ok": 2 if thinlto is None else 1}
        extract_corpus([root / "b"], root / "fresh", thinlto=thinlto)
        assert tree(root / "corpus") == tree(root / "fresh")
        closed.chmod(0)  # and back
        put(closed, closed.read_bytes()).chmod(0)
        assert as_nobody(extract) == ({"ok": 1, bad: 1} if thinlto is None else {bad: 1})
        assert "b.o.bc" not in files(root / "corpus")
    finally:
        shutil.rmtree(root)


def test_after_a_kill_a_new_run_starts_at_once_and_the_orphans_write_nothing(
    small: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forking: None
) -> None:
    """The lock died with the parent; a worker it left behind must not put old content into the new corpus."""
    bitcode, command = sections(small[0])
    old, new = (elf_file([(".llvmbc", bitcode), (".llvmcmd", command + define)]) for define in (b"-DOLD\0", b"-DNEW\0"))
    path = put(tmp_path / "b/a.o", old)
    put(tmp_path / "b/b.o", old)
    corpus = tmp_path / "corpus"
    real = extraction.read_object

    def slow(data: Any, *args: Any, **kwargs: Any) -> Iterator[Embedded]:
        (tmp_path / "orphan").write_text(str(os.getpid()))
        time.sleep(1.0)
        yield from real(data, *args, **kwargs)

    child = os.fork()
    if child == 0:
        try:
            extraction.read_object = slow
            extract_corpus([tmp_path / "b"], corpus, jobs=1)
        finally:
            os._exit(1)
    while not (tmp_path / "orphan").exists() or not (tmp_path / "orphan").read_text():
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    orphan = Path("/proc") / (tmp_path / "orphan").read_text()
    assert orphan.exists()
    put(path, new)
    waited = iter([2.5])
    extract_corpus([tmp_path / "b"], corpus, jobs=1, progress=lambda *_: time.sleep(next(waited, 0)))
    assert not orphan.exists() or orphan.joinpath("stat").read_text().split()[2] == "Z"
    assert (corpus / "a.o.cmd").read_bytes().endswith(b"-DNEW\0")
    check([tmp_path / "b"], corpus)


class History:
    """A build that changes at random: objects of two folders, archives beside them, a database of them all."""

    def __init__(self, folder: Path, small: list[bytes], seed: int) -> None:
        self._rng = random.Random(seed)
        self._small = small
        self._database = folder / "compile_commands.json"
        self._libraries = folder / "libs"
        self._libraries.mkdir(parents=True)
        self._objects = [folder / f"{side}/{name}.o" for side in "pq" for name in ("f", "g", "h", "f~2", "lib")]
        self._objects.append(folder / "p/lib.a")  # an archive's name, so that lib.a of libs must give way to it
        self.inputs = [self._database, self._libraries]
        put(self._libraries / "keep.o", small[0])
        self._listed: list[Path] = []
        for _ in range(6):
            self._add()
        self._shuffle()

    def step(self) -> None:
        changes = (self._add, self._add, self._remove, self._forget, self._damage, self._archive, self._archive,
                   self._shuffle, self._swap)  # fmt: skip
        for _ in range(self._rng.randint(1, 3)):
            self._rng.choice(changes)()
        database(self._database, self._listed)

    def _content(self) -> bytes:
        data = self._rng.choice(self._small)
        bitcode, _ = sections(data)
        return self._rng.choice([data, data, data, bitcode, elf_file([(".llvmbc", bitcode)]), ar({"in.o": data})])

    def _add(self) -> None:
        path = put(self._rng.choice(self._objects), self._content())
        if path not in self._listed:
            self._listed.append(path)

    def _remove(self) -> None:
        self._rng.choice(self._objects).unlink(missing_ok=True)

    def _forget(self) -> None:
        if len(self._listed) > 1:
            self._listed.pop(self._rng.randrange(len(self._listed)))

    def _damage(self) -> None:
        data = self._rng.choice(self._small)
        put(self._rng.choice(self._objects), data[: self._rng.randrange(len(data))])

    def _archive(self) -> None:
        names = self._rng.sample(["a.o", "b.o", "c.o", "d.o"], self._rng.randint(0, 4))
        members = {name: self._content() for name in names}
        put(self._libraries / self._rng.choice(["lib.a", "s/lib.a", "s/two.a"]), ar(members))

    def _shuffle(self) -> None:
        self._rng.shuffle(self._listed)

    def _swap(self) -> None:
        one, two = self._rng.sample(self._objects, 2)
        if one.exists() and two.exists():  # with their times: what was one name's content is now another's
            spare = one.with_suffix(".spare")
            one.rename(spare)
            two.rename(one)
            spare.rename(two)


@pytest.mark.parametrize("kills", [False, True], ids=["undisturbed", "killed"])
def test_any_history_ends_like_a_fresh_extraction(small: list[bytes], tmp_path: Path, kills: bool) -> None:
    rng = random.Random(11)
    history = History(tmp_path / "b", small, seed=2)
    corpora = {dedup: tmp_path / f"corpus-{dedup}" for dedup in (False, True)}
    points = [(ExtractionRun, "finish", 1), (Journal, "commit", 1), (Journal, "sync", 1), (Journal, "add", 4)]
    reached: set[str] = set()
    for _ in range(20):
        history.step()
        for dedup, corpus in corpora.items():
            if kills and rng.random() < 0.6:
                killed_at(*rng.choice(points), history.inputs, corpus, dedup=dedup, jobs=rng.choice([1, 2]))
                history.step()
            reached.update(check(history.inputs, corpus, dedup=dedup, jobs=rng.choice([1, 2])).counts)
    assert reached >= {"ok", "renamed", "raw_lto", "no_command", "missing", "truncated", "duplicate", "no_bitcode"}
