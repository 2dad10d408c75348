"""What a folder provides in place of its files: FIFOs, devices, sockets, folders, and files that are too large."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgo_corpus.dataset.folder import DatasetPaths, is_dataset
from mlgo_corpus.files.regular import MAX_LIST_BYTES, read_file, read_regular
from tests.files.test_parquet import VERBS, run
from tests.handmade import bitcode, corpus, row, table

pytestmark = pytest.mark.whole

KINDS = {
    "fifo": "not a file",
    "device": "a link leads out of the corpus",
    "folder": "Is a directory",
    "too large": "expected at most",
}


@pytest.fixture(autouse=True)
def _nothing_waits() -> Iterator[None]:
    """End a test that waits for the other side of a FIFO."""

    def ended(*_: object) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 1 << 40)


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_that_is_no_file(kind: str, tmp_path: Path) -> None:
    folder = corpus(tmp_path / "corpus", {"a": bitcode(b"one")})
    put(folder / "corpus_description.json", kind)
    for verb in VERBS if kind == "fifo" else ("stats", "pack"):
        result = run(verb, folder, tmp_path)
        assert result.exit_code == 2, verb
        assert KINDS[kind] in result.output.replace("\n", " "), (verb, result.output)


@pytest.mark.parametrize("name", ["corpus.json", "dataset.json", "a.bc", "a.cmd", "corpus_description.train.json"])
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_other_files_that_are_none(name: str, kind: str, tmp_path: Path) -> None:
    data = bitcode(b"one")
    folder = corpus(tmp_path / "corpus", {"a": data, "b": data})
    table(folder, [row("a", data), row("b", data)])
    put(folder / name, kind)
    found = run("verify", folder, tmp_path)
    reasons = {"a.bc": "unreadable", "a.cmd": "unreadable", "corpus_description.train.json": "damaged_manifest"}
    # What the corpus is, is not told by a link that leads out of it.
    codes = {2} if (name, kind) == ("corpus.json", "device") else {0, 1}
    assert found.exit_code in codes
    assert reasons.get(name, "") in found.output
    for verb in ("stats", "combine"):
        assert run(verb, folder, tmp_path).exit_code in codes, verb


def test_a_dataset_that_says_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dataset.json")
    assert not is_dataset(DatasetPaths.of(tmp_path))
    result = run("report", tmp_path, tmp_path)
    assert result.exit_code == 2
    assert "dataset.json: not a file" in result.output.replace("\n", " ")


def test_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 10) == b"0123456789"
    with pytest.raises(OSError, match="10 bytes, expected at most 9"):
        read_regular(tmp_path / "file", 9)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", MAX_LIST_BYTES)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.fspath(tmp_path / "socket"))
        with pytest.raises(OSError, match="No such device"):
            read_regular(tmp_path / "socket", 10)


def test_what_is_no_file_is_closed_again(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    for path, said in ((tmp_path, "Is a directory"), (tmp_path / "fifo", "not a file")):
        with pytest.raises(OSError, match=said):
            read_file(str(path))
    assert len(os.listdir("/proc/self/fd")) == before
