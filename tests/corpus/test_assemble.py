"""New corpora appear whole or not at all: kills at every step, other processes, what stands in the place."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mlgo_corpus import combine_corpora, make_corpus
from mlgo_corpus.corpus import assemble as newcorpus
from mlgo_corpus.corpus.assemble import NewCorpus, Placing, check_apart, is_whole, new_corpus
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.corpus.open import Corpus
from mlgo_corpus.corpus.scan import scan_module
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.files import folder as wholefolder
from mlgo_corpus.files.lock import locked
from tests.conftest import PACKAGE_ROOT, run_checked
from tests.forked import run_cli, start
from tests.handmade import bitcode, corpus, files, manifest, put, rows
from tests.runs.extract.test_bad_input import as_nobody
from tests.runs.extract.test_incremental import in_child

pytestmark = pytest.mark.whole


def make(output: Path, modules: Path, named: str = "r", **options: Any) -> NewCorpus:
    """Put a corpus's modules in a new one."""
    opened = Corpus.open(modules)
    with new_corpus(output, **{"placing": Placing.LINK, "request": "other", "force": False, **options}) as made:
        for module in opened:
            made.add(scan_module(module), module.name, module)
        made.finish(has_thinlto=opened.has_thinlto, override=None, about={"request": named})
    return made


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_is_made(tmp_path: Path) -> None:
    source = corpus(tmp_path / "source", ["a/x.o", "b.o"])
    for placing in Placing:
        made = make(tmp_path / placing, source, placing=placing)
        assert made.modules == ["a/x.o", "b.o"]
        found = files(tmp_path / placing)
        assert (found.pop(".mlgo-corpus/reference", None) is not None) == (placing is Placing.REFERENCE)
        assert found == files(source)
        assert manifest(tmp_path / placing) == manifest(source)
        assert [row["module"] for row in rows(tmp_path / placing)] == ["a/x.o", "b.o"]
    path = Path("a/x.o.bc")
    assert (tmp_path / "link" / path).samefile(source / path)
    assert not (tmp_path / "copy" / path).samefile(source / path)
    assert not (tmp_path / "copy" / path).is_symlink()
    assert os.readlink(tmp_path / "reference" / path) == str(source / path)
    assert listing(tmp_path) == ["copy", "link", "reference", "source"]


def test_links_are_made_to_what_a_link_leads_to(tmp_path: Path) -> None:
    """A relative link would lead nowhere in another folder."""
    source = corpus(tmp_path / "source", {"d/a.o": None})
    put(source / ".store/1234", bitcode(b"a"))
    (source / "d/a.o.bc").symlink_to("../.store/1234")
    for placing in Placing:
        make(tmp_path / "deep/er" / placing, source, placing=placing)
        assert (tmp_path / "deep/er" / placing / "d/a.o.bc").read_bytes() == bitcode(b"a")
    assert (tmp_path / "deep/er/link/d/a.o.bc").samefile(source / ".store/1234")
    assert not (tmp_path / "deep/er/link/d/a.o.bc").is_symlink()


def other_device(tmp_path: Path) -> Path | None:
    for place in (Path("/dev/shm"), Path("/run"), Path.home()):  # noqa: S108 - another file system is what is needed
        if place.is_dir() and os.access(place, os.W_OK) and place.stat().st_dev != tmp_path.stat().st_dev:
            return place
    return None


def test_another_file_system_has_copies(tmp_path: Path) -> None:
    if (place := other_device(tmp_path)) is None:
        pytest.skip("there is no second file system to write to")
    folder = Path(run_checked("mktemp", "-d", "-p", place).strip())
    try:
        source = corpus(folder / "source", ["a.o", "b.o"])
        made = make(tmp_path / "made", source)
        assert made.copied == 4
        assert made.failed == []
        assert files(tmp_path / "made") == files(source)
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["EPERM", "EMLINK", "EOPNOTSUPP"])
def test_a_file_system_without_links_has_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(getattr(errno, name), "no links here")

    source = corpus(tmp_path / "source", ["a.o"])
    monkeypatch.setattr(os, "link", refuse)
    assert make(tmp_path / "made", source).copied == 2
    assert files(tmp_path / "made") == files(source)


def test_the_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))

    source = corpus(tmp_path / "source", ["a.o"])
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(MlgoCorpusError) as caught:
        combine_corpora([source], tmp_path / "made")
    assert str(caught.value) == f"cannot write {tmp_path}/.made.making/source/a.o.bc: No space left on device"


def test_a_module_comes_with_all_its_files_or_none(tmp_path: Path) -> None:
    source = corpus(tmp_path / "source", ["a.o", "b.o", "c.o"], has_thinlto=True)
    (source / "b.o.thinlto.bc").unlink()
    (source / "c.o.bc").unlink()
    os.mkfifo(source / "c.o.bc")
    rows_of = [scan_module(Module(source, name)) for name in ("a.o", "b.o", "c.o")]
    with new_corpus(tmp_path / "made", Placing.LINK, request="r", force=False) as made:
        for row, module in zip(rows_of, Corpus.open(source), strict=True):
            made.add(row, module.name, module)
        made.finish(has_thinlto=True, override=None, about={})
    assert made.modules == ["a.o"]
    assert made.failed == [
        ("b.o", "cannot read b.o.thinlto.bc: No such file or directory"),
        ("c.o", "cannot read c.o.bc: not a file"),
    ]
    assert listing(tmp_path / "made") == [
        "a.o.bc", "a.o.cmd", "a.o.thinlto.bc", "corpus_description.json", "modules.parquet",
    ]  # fmt: skip
    found = [(row["module"], row["status"], row["reason"]) for row in rows(tmp_path / "made")]
    assert found == [("a.o", "ok", "ok"), ("b.o", "failed", "missing"), ("c.o", "failed", "unreadable")]


def test_names_that_stand_in_each_others_way(tmp_path: Path) -> None:
    source = corpus(tmp_path / "source", ["a", "a.thinlto", "b"], has_thinlto=True)
    with new_corpus(tmp_path / "made", Placing.COPY, request="r", force=False) as made:
        for name, wanted in (("a", "a"), ("b", "a"), ("b", "a.bc/b"), ("a.thinlto", "a.thinlto"), ("b", "../b")):
            module = Module(source, name, has_thinlto=True)
            made.add(scan_module(module), wanted, module)
        made.finish(has_thinlto=True, override=None, about={})
    assert made.failed == [
        ("a", "a.bc is a file of another module"),
        ("a.bc/b", "a file is in the place of its folder"),
        ("a.thinlto", "a.thinlto.bc is a file of another module"),
        ("../b", "this module name leaves the corpus folder"),
    ]
    assert (tmp_path / "made/a.bc").read_bytes() == bitcode(b"a")
    assert (tmp_path / "made/a.thinlto.bc").read_bytes() == (source / "a.thinlto.bc").read_bytes()
    assert manifest(tmp_path / "made")["modules"] == ["a"]
    assert listing(tmp_path) == ["made", "source"]


def test_what_stands_in_the_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "lost").symlink_to("nowhere")
    put(tmp_path / "full/x", b"")
    corpus(tmp_path / "other", ["a"])
    put(corpus(tmp_path / "kept", ["a"]) / ".mlgo-corpus/lock", b"")
    put(corpus(tmp_path / "mixed", ["a"]) / "notes/todo.txt", b"")
    corpus(corpus(tmp_path / "root", ["one/a"]) / "one", ["a"])
    (tmp_path / "empty").mkdir()
    assert not is_whole(tmp_path / "none", "r", force=False)
    assert not is_whole(tmp_path / "empty", "r", force=False)
    assert not is_whole(tmp_path / "other", "r", force=True)
    for name, force, message in (
        ("file", True, "expected a folder, found a file"),
        ("lost", True, "expected a folder, found a link to nothing"),
        ("full", True, "is not a corpus, and not empty; name another folder"),
        ("other", False, "a corpus of other inputs or options is there; `force` replaces it"),
        ("kept", True, "is a corpus that extract keeps up to date; name another folder"),
        ("mixed", True, "notes/todo.txt is not part of the corpus, and would be lost; name another folder"),
        ("root", True, "one/corpus_description.json is not part of the corpus, and would be lost; name another folder"),
    ):
        with pytest.raises(UsageError) as caught:
            is_whole(tmp_path / name, "r", force=force)
        assert str(caught.value) == f"{tmp_path / name}: {message}"


def test_the_same_again(tmp_path: Path) -> None:
    source = corpus(tmp_path / "source", ["a"])
    make(tmp_path / "made", source, "one")
    assert is_whole(tmp_path / "made", "one", force=False)
    assert not is_whole(tmp_path / "made", "one", force=True)
    with pytest.raises(UsageError, match="a corpus of other inputs"):
        is_whole(tmp_path / "made", "two", force=False)
    with pytest.raises(UsageError, match=r"made: another mlgo-corpus has just made it$"):
        make(tmp_path / "made", source, "one", request="one")
    with pytest.raises(UsageError, match="a corpus of other inputs"):
        make(tmp_path / "made", source, "two", request="two")
    (tmp_path / "made/modules.parquet").unlink()
    os.mkfifo(tmp_path / "made/modules.parquet")
    with pytest.raises(UsageError, match="a corpus of other inputs"):
        is_whole(tmp_path / "made", "one", force=False)


def test_one_that_lacks_modules_is_made_again(tmp_path: Path) -> None:
    source = corpus(tmp_path / "source", {"a": bitcode(), "b": None})
    make(tmp_path / "made", source)
    assert not is_whole(tmp_path / "made", "r", force=False)
    put(source / "b.bc", bitcode())
    make(tmp_path / "made", source, request="r")
    assert is_whole(tmp_path / "made", "r", force=False)
    assert manifest(tmp_path / "made")["modules"] == ["a", "b"]


def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    source = corpus(tmp_path / "source", ["a"])
    (tmp_path / "big/disk").mkdir(parents=True)
    (tmp_path / "made").symlink_to("big/disk")
    make(tmp_path / "made", source)
    make(tmp_path / "made", source, force=True)
    assert os.readlink(tmp_path / "made") == "big/disk"
    assert files(tmp_path / "big/disk") == files(source)
    assert listing(tmp_path / "big") == ["disk"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def fail(error: BaseException) -> None:
        with new_corpus(tmp_path / "made", Placing.LINK, request="r", force=False) as made:
            made.add_row(scan_module(Module(tmp_path, "a")), "a")
            raise error

    for error in (CorpusError("boom"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail(error)
    assert listing(tmp_path) == []


@contextmanager
def a_table_of_rows(number: int) -> Iterator[None]:
    """Let a table be written in groups of so many rows, so that there is something half-written."""
    from mlgo_corpus.files import tables

    before = tables._ROWS_PER_GROUP
    tables._ROWS_PER_GROUP = number
    try:
        yield
    finally:
        tables._ROWS_PER_GROUP = before


def dies_at(call: int, where: Any, name: str, work: Callable[[], object]) -> int:
    """Run ``work`` in a child that is killed when ``where.name`` is called for the given time."""

    def dying() -> None:
        calls = count(1)
        real = getattr(where, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        setattr(where, name, wrapped)
        work()

    return in_child(dying)


@pytest.mark.parametrize(
    ("where", "name", "calls"),
    [
        (os, "link", range(1, 13, 3)),
        (NewCorpus, "finish", [1]),
        (newcorpus, "write_manifest", [1]),
        (wholefolder, "_publish", [1]),
        (wholefolder, "remove", range(1, 7)),
        (Path, "rename", range(1, 4)),
        (Path, "replace", range(1, 6)),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_killed_at_every_step(tmp_path: Path, where: Any, name: str, calls: list[int], force: bool) -> None:
    old, new = corpus(tmp_path / "in/old", ["a", "b"]), corpus(tmp_path / "in/new", ["b", "c", "d/e", "f", "g", "h"])
    output = tmp_path / "out/made"
    combine_corpora([new], tmp_path / "expected")
    died = 0
    for call in calls:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        if force:
            combine_corpora([old], output)
            before = files(output)

        def work() -> None:
            with a_table_of_rows(2):
                combine_corpora([new], output, force=force)

        code = dies_at(call, where, name, work)
        assert code in (0, -signal.SIGKILL)
        died += code != 0
        if code and output.exists():  # one of the two, and whole
            assert files(output) in (
                [before, files(tmp_path / "expected")] if force else [files(tmp_path / "expected")]
            )
        elif code and force:  # between the two renames: nothing is lost, and nothing is replaced unasked
            with pytest.raises(UsageError, match="a corpus of other inputs or options is there; `force` replaces it"):
                combine_corpora([new], output)
            assert files(output) == before
            assert listing(output.parent) == ["made"]
        combine_corpora([new], output, force=force)
        assert files(output) == files(tmp_path / "expected")
        assert rows(output) == rows(tmp_path / "expected")
        assert listing(output.parent) == ["made"]
    assert died or where is Path


def test_killed_at_random_moments(tmp_path: Path) -> None:
    source = corpus(tmp_path / "in", [f"{number % 7}/{number}.o" for number in range(1500)])
    output = tmp_path / "out/made"
    expected = tmp_path / "expected"
    argv = ["combine", str(source), "--output", str(output)]
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    combine_corpora([source], expected)
    started = time.monotonic()
    assert run_cli(*argv, "--output", str(tmp_path / "once"), env=env).returncode == 0
    longest = time.monotonic() - started
    moments = random.Random(7)
    for round_ in range(6):
        with start(*argv, "--copy", "--force", env=env) as child:
            time.sleep(longest * moments.uniform(0, 1))
            child.kill()
        if output.exists():
            assert files(output) == files(expected), round_
            assert len(rows(output)) == 1500
        if output.parent.exists():
            assert set(listing(output.parent)) <= {"made", ".made.making", ".made.lock", ".made.old"}
    assert run_cli(*argv, "--force", env=env).returncode == 0
    assert files(output) == files(expected)
    assert listing(output.parent) == ["made"]


def test_two_at_a_time(tmp_path: Path) -> None:
    source = corpus(tmp_path / "source", ["a"])
    with new_corpus(tmp_path / "made", Placing.LINK, request="r", force=False) as made:
        with pytest.raises(UsageError, match=r"made: another mlgo-corpus is making it; wait for it$"):
            combine_corpora([source], tmp_path / "made")
        made.finish(has_thinlto=False, override=None, about={})
    assert listing(tmp_path) == ["made", "source"]


def test_a_lock_that_was_taken_away_is_none(tmp_path: Path) -> None:
    """One process opens the file, another that is done takes it away, the first one locks what has no name."""
    real, path = fcntl.flock, tmp_path / "lock"
    taken = []

    def slow(descriptor: int, how: int) -> None:
        if not taken:
            path.unlink()
            taken.append(descriptor)
        real(descriptor, how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", slow)
        with locked(path, f"{tmp_path}: another mlgo-corpus is there"):
            patch.undo()
            assert path.exists()
            with (
                pytest.raises(UsageError, match="another mlgo-corpus"),
                locked(path, f"{tmp_path}: another mlgo-corpus is there"),
            ):
                pass
    assert not path.exists()


def test_many_at_a_time(tmp_path: Path) -> None:
    source = corpus(tmp_path / "source", [f"{number}.o" for number in range(300)])
    argv = ("combine", source, "--output", tmp_path / "made")
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    with ExitStack() as stack:
        children = [stack.enter_context(start(*argv, env=env, stderr=True)) for _ in range(4)]
        ends = [(child.communicate()[1], child.wait()) for child in children]
    assert {code for _, code in ends} <= {0, 2}
    assert 0 in {code for _, code in ends}
    for told, code in ends:
        assert code == 0 or "another mlgo-corpus " in told
    assert len(manifest(tmp_path / "made")["modules"]) == 300
    assert listing(tmp_path) == ["made", "source"]


def test_overlaps(tmp_path: Path) -> None:
    one = Corpus.open(corpus(tmp_path / "one", ["a"]))
    (tmp_path / "link").symlink_to("one")
    for output in ("one", "one/below", "", "link", "link/x", "two/../one"):
        with pytest.raises(UsageError) as caught:
            check_apart(tmp_path / output, [one])
        said = f"overlaps {tmp_path / 'one'}; name a folder apart from it"
        if output in ("one", "link", "two/../one"):
            said = "is the input itself; name another folder"
        assert str(caught.value) == f"output {tmp_path / output}: {said}"
    check_apart(tmp_path / "one-more", [one])
    check_apart(tmp_path / "one-more", [tmp_path / "on"])


def test_references_into_what_is_replaced(tmp_path: Path) -> None:
    """The files would be gone with the corpus that they lie in."""
    make_corpus(corpus(tmp_path / "one", ["a"]), tmp_path / "real")
    combine_corpora([tmp_path / "real"], tmp_path / "far", placing="reference")
    before = files(tmp_path / "real")
    with pytest.raises(UsageError) as caught:
        combine_corpora([tmp_path / "far"], tmp_path / "real", placing="reference", force=True)
    path = tmp_path / "far/real/a.bc"
    assert str(caught.value) == f"{tmp_path / 'real'}: {path} is in it, and would be gone; `link` or `copy` keeps it"
    assert files(tmp_path / "real") == before
    combine_corpora([tmp_path / "far"], tmp_path / "real", force=True)
    assert (tmp_path / "real/far/real/a.bc").read_bytes() == bitcode(b"a")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root may")
def test_without_permission(tmp_path: Path) -> None:
    root = Path(run_checked("mktemp", "-d").strip())  # pytest's own folders are closed to other users
    try:
        root.chmod(0o755)
        source = corpus(root / "source", ["a", "b", "c"])
        (source / "b.bc").chmod(0o600)
        (root / "out").mkdir()
        (root / "out").chmod(0o777)
        combine_corpora([source], root / "warm")  # imports all there is to import

        def work() -> object:
            told: list[object] = []
            for output in (root / "new", root / "out/new"):
                try:
                    report = combine_corpora([source], output, placing="copy")
                    told.append([report.modules, report.failed])
                except MlgoCorpusError as error:
                    told.append(f"{type(error).__name__}: {error}")
            return told

        refused, made = as_nobody(work)  # type: ignore[misc]
        assert refused == f"UsageError: {root}/new: cannot write there: Permission denied"
        assert made == [2, [["source/b", "cannot read b.bc: Permission denied"]]]
        found = [(row["module"], row["reason"]) for row in rows(root / "out/new")]
        assert ("source/b", "unreadable") in found
        assert listing(root / "out") == ["new"]
    finally:
        shutil.rmtree(root)


def test_a_full_disk(tmp_path: Path) -> None:
    """The error says what could not be written, and nothing is left."""
    source = corpus(tmp_path / "source", {"a": bitcode(b"x" * 4096)})

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newcorpus, "create_file", full)
        with pytest.raises(MlgoCorpusError, match=r"^cannot write .*/made: No space left on device$"):
            combine_corpora([source], tmp_path / "made", placing="copy")
    assert listing(tmp_path) == ["source"]


def test_what_is_said_of_the_making(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    make(tmp_path / "made", corpus(tmp_path / "source", {"a": bitcode(), "b": None}))
    said = json.loads(pq.read_schema(tmp_path / "made/modules.parquet").metadata[b"mlgo_corpus"])
    assert sorted(said) == ["corpus_digest", "failed", "request", "tool", "version"]
    assert (said["tool"], said["request"], said["failed"]) == ("mlgo-corpus", "r", 1)
