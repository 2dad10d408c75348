"""Folders that appear when they are whole: what is replaced, what is left, and who may."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.files.folder import (
    check_file,
    check_folder,
    find_stranger,
    finish_moves,
    recover,
    whole_files,
    whole_folder,
    work_folder,
    write_folder,
)
from mlgo_corpus.files.lock import locked
from tests.conftest import run_checked
from tests.handmade import files, put


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def make(output: Path, content: bytes, *, replace: bool = False) -> None:
    with whole_folder(output, replace=lambda: replace) as folder:
        put(folder / "file", content)


def test_it_is_there_when_it_is_whole(tmp_path: Path) -> None:
    output = tmp_path / "a/b/made"
    with whole_folder(output) as folder:
        put(folder / "deep/file", b"1")
        assert listing(output.parent) == [".made.lock", ".made.making"]
    assert files(output) == {"deep/file": b"1"}
    assert listing(output.parent) == ["made"]
    with pytest.raises(MlgoCorpusError, match=r"^cannot write .*/made: Directory not empty$"):
        make(output, b"2")
    assert files(output) == {"deep/file": b"1"}
    make(output, b"3", replace=True)
    assert files(output) == {"file": b"3"}
    assert listing(output.parent) == ["made"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_an_error_leaves_nothing_and_no_folder_above(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "a").mkdir()

    def work() -> None:
        with whole_folder(tmp_path / "a/b/c/made") as folder:
            put(folder / "file", b"")
            raise error

    with pytest.raises(type(error)):
        work()
    assert listing(tmp_path / "a") == []


def test_a_full_disk_is_no_wrong_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(MlgoCorpusError, match=r"/made: cannot write there: No space left on device$") as caught:
        write_folder(tmp_path / "made", {"known": b"1"}, known=["known"], force=False)
    assert type(caught.value) is MlgoCorpusError
    assert listing(tmp_path) == []


def test_what_may_be_replaced_is_asked_under_the_lock(tmp_path: Path) -> None:
    output = tmp_path / "made"
    make(output, b"1")

    def asked() -> bool:
        with pytest.raises(UsageError, match=r"/made: another mlgo-corpus is making it; wait for it$"):
            make(output, b"2", replace=True)
        raise UsageError("not this one")

    with pytest.raises(UsageError, match=r"^not this one$"), whole_folder(output, replace=asked):
        pass
    assert files(output) == {"file": b"1"}
    assert listing(tmp_path) == ["made"]


def test_what_a_killed_run_left_is_put_right(tmp_path: Path) -> None:
    output = tmp_path / "made"

    def left(*, was_there: bool) -> None:
        """Leave things as between the two renames, or just after them."""
        make(output, b"new" if was_there else b"old", replace=True)
        if not was_there:
            output.rename(tmp_path / ".made.old")
        else:
            put(tmp_path / ".made.old/file", b"old")
        put(tmp_path / ".made.making/half", b"")
        put(tmp_path / ".made.lock", b"")

    for was_there, content in ((False, b"old"), (True, b"new")):
        left(was_there=was_there)
        recover(output)
        assert files(output) == {"file": content}
        assert listing(tmp_path) == ["made"]
        left(was_there=was_there)
        with pytest.raises(MlgoCorpusError, match="Directory not empty"):  # what comes back is not replaced unasked
            make(output, b"other")
        assert files(output) == {"file": content}
        assert listing(tmp_path) == ["made"]


def test_a_run_under_way_is_left_alone(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "made") as folder:
        put(folder / "file", b"1")
        recover(tmp_path / "made")
    assert files(tmp_path / "made") == {"file": b"1"}


def test_a_rename_that_fails_gives_the_old_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "made"
    make(output, b"1")
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name == ".made.making":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    message = rf"^cannot write {output}: Device or resource busy; is it a mount point\? name a folder in it$"
    with pytest.raises(MlgoCorpusError, match=message):
        make(output, b"2", replace=True)
    with pytest.raises(MlgoCorpusError, match=message):
        write_folder(output, {"file": b"2"}, known=["file"], force=True)
    assert files(output) == {"file": b"1"}
    assert listing(tmp_path) == ["made"]


def test_a_folder_of_files_is_replaced_only_by_its_like(tmp_path: Path) -> None:
    output = tmp_path / "made"
    write_folder(output, {"known": b"1", "else": b"2"}, known=["known", "e*"], force=False)
    for write in (check_folder, partial(write_folder, files={"known": b"3"})):
        with pytest.raises(UsageError, match=r"/made: is there already; `force` replaces it$"):
            write(output, known=["known", "e*"], force=False)
        with pytest.raises(UsageError, match=r"/made: is not empty, and has no other; name another folder$"):
            write(output, known=["other"], force=True)
    assert files(output) == {"known": b"1", "else": b"2"}
    output.rename(tmp_path / ".made.old")  # as after a kill between two renames
    with pytest.raises(UsageError, match="is there already"):
        check_folder(output, known=["known", "e*"], force=False)
    write_folder(output, {"known": b"3"}, known=["known", "e*"], force=True)
    assert files(output) == {"known": b"3"}
    put(output / "notes/mine.txt", b"4")
    for write in (check_folder, partial(write_folder, files={"known": b"5"})):
        with pytest.raises(UsageError, match=r"/made: notes/mine.txt is not part of it, and would be lost; name anoth"):
            write(output, known=["known", "e*"], force=True)
    assert files(output) == {"known": b"3", "notes/mine.txt": b"4"}
    assert listing(tmp_path) == ["made"]


def test_places_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UsageError, match=r"^\.: is the current folder; name another$"):
        make(Path("."), b"")
    with pytest.raises(UsageError, match=r"^/: cannot be made as a folder; name another$"):
        make(Path("/"), b"")
    put(tmp_path / "file", b"")
    with pytest.raises(UsageError, match=r"file: cannot write there: (File exists|Not a directory)$"):
        make(tmp_path / "file/made", b"")
    with pytest.raises(MlgoCorpusError, match=r"^cannot write .*/file: Not a directory$"):
        make(tmp_path / "file", b"", replace=True)
    assert listing(tmp_path) == ["file", "here"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which only root may")
def test_a_mount_point(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    try:
        run_checked("mount", "-t", "tmpfs", "none", tmp_path / "made")
    except (AssertionError, FileNotFoundError):
        pytest.skip("this machine lets nobody mount")
    try:
        put(tmp_path / "made/file", b"1")
        with pytest.raises(MlgoCorpusError, match="Device or resource busy; is it a mount point"):
            make(tmp_path / "made", b"2", replace=True)
        assert files(tmp_path / "made") == {"file": b"1"}
    finally:
        run_checked("umount", tmp_path / "made")
    assert listing(tmp_path) == ["made"]


def test_strangers(tmp_path: Path) -> None:
    for name in ("a", "b/c", "state/x", "b/state/y"):
        put(tmp_path / name, b"")
    (tmp_path / "b/link").symlink_to("../state")
    known = frozenset({"a", "b/c", "b/state/y"})
    assert find_stranger(tmp_path, known) == "b/link"
    assert find_stranger(tmp_path, known | {"b/link"}) == "state/x"
    assert find_stranger(tmp_path, known | {"b/link"}, below=frozenset({"state"})) is None
    assert find_stranger(tmp_path, {"a", "b/c", "b/link"}, below=frozenset({"state"})) == "b/state/y"


def test_where_a_file_may_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it cannot be is told before the work, not after it."""
    put(tmp_path / "file", b"x")
    check_file(tmp_path / "a/b/new", [], "", force=False)
    assert not (tmp_path / "a").exists()
    for force in (False, True):
        with pytest.raises(UsageError, match=r"/file: expected a folder, found a file$"):
            check_file(tmp_path / "file/new", [], "", force=force)
        with pytest.raises(UsageError, match=r": is a folder; name a file$"):
            check_file(tmp_path, [], "name a file", force=force)
    with pytest.raises(UsageError, match=r"/file: is there already; `force` replaces it$"):
        check_file(tmp_path / "file", [], "", force=False)
    check_file(tmp_path / "file", [], "", force=True)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match=r": cannot write there: Permission denied$"):
        check_file(tmp_path / "new", [], "", force=False)


def test_moves_that_a_killed_run_listed(tmp_path: Path) -> None:
    """What was moved stays, what was not is moved, and what contradicts it is gone before; nothing is done twice."""
    for moved in range(4):
        folder = tmp_path / str(moved)
        for name in ("table", "one", "two"):
            put(folder / name, b"old")
        for number, name in enumerate(("table", "one", "two")):
            put(folder / name if number < moved else folder / f".table.making/{number}", b"new")
        moves = [[None, "one"], [None, "two"], ["0", "table"], ["1", "one"], ["2", "two"]]
        put(folder / ".table.lock", json.dumps(moves).encode())
        assert finish_moves(folder / "table") == {folder / name for name in ("table", "one", "two")}
        assert files(folder) == dict.fromkeys(("table", "one", "two"), b"new")
        assert finish_moves(folder / "table") == frozenset()
        assert listing(folder) == ["one", "table", "two"]


def test_files_that_are_not_whole_are_taken_away(tmp_path: Path) -> None:
    put(tmp_path / "file", b"old")
    for listed in (b"", b'[["0", "fi', b"5", b"[]", b'[["0", "../stolen"]]', b'[["../file", "x"]]', b'[["0", null]]'):
        put(tmp_path / ".file.lock", listed)
        put(tmp_path / ".file.making/0", b"half")
        assert finish_moves(tmp_path / "file") == frozenset()
        assert files(tmp_path) == {"file": b"old"}
        assert listing(tmp_path) == ["file"]


def test_moves_do_not_follow_links(tmp_path: Path) -> None:
    """A corpus from elsewhere may hold a list; nothing comes in by it, or goes out."""
    put(tmp_path / "elsewhere/0", b"secret")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/.file.making").symlink_to("../elsewhere")
    put(tmp_path / "in/.file.lock", b'[["0", "file"]]')
    finish_moves(tmp_path / "in/file")
    put(tmp_path / "in/.file.making/0", b"planted")
    (tmp_path / "in/out").symlink_to("../elsewhere")
    put(tmp_path / "in/.file.lock", b'[["0", "out/1"]]')
    finish_moves(tmp_path / "in/file")
    refused = pytest.raises(UsageError, match=r"/in/out: cannot write there: a symbolic link, expected a folder$")
    with refused, whole_files(tmp_path / "in/file"):
        pass
    assert files(tmp_path / "elsewhere") == {"0": b"secret"}
    assert not (tmp_path / "in/file").exists()


def test_a_link_in_place_of_a_work_folder_is_refused(tmp_path: Path) -> None:
    """What is not of the same key is removed from a work folder, but not what a link leads to."""
    put(tmp_path / "elsewhere/precious", b"kept")
    (tmp_path / "work").symlink_to("elsewhere")
    refused = pytest.raises(UsageError, match=r"/work: cannot write there: a symbolic link, expected a folder$")
    with refused, work_folder(tmp_path / "work", {"of": 1}, "busy"):
        pass
    assert files(tmp_path / "elsewhere") == {"precious": b"kept"}
    (tmp_path / "work").unlink()
    for key, found in (((1,), []), ([1], ["made"]), ([2], [])):
        with work_folder(tmp_path / "work", key, "busy"):
            assert [path.name for path in (tmp_path / "work").glob("made")] == found
            with pytest.raises(UsageError, match=r"^busy; wait for it$"), work_folder(tmp_path / "work", key, "busy"):
                pass
            put(tmp_path / "work/made", b"")


@pytest.mark.parametrize("waiting", [None, lambda: None])
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: Callable[[], None] | None
) -> None:
    def flock(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", flock)
    refused = pytest.raises(UsageError, match=r"^made: cannot be locked: No locks available$")
    with refused, locked(tmp_path / "lock", "made: busy", waiting=waiting):
        pass


def test_threads_may_write_one_file_at_once(tmp_path: Path) -> None:
    written = [bytes([number]) * 20_000 for number in range(8)]
    with ThreadPoolExecutor(len(written)) as threads:
        for _ in range(20):
            list(threads.map(lambda data: write_atomically(tmp_path / "one", data), written))
            assert (tmp_path / "one").read_bytes() in written
    assert listing(tmp_path) == ["one"]
