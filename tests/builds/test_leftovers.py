"""Which files of a link or an archive an earlier build has left."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from mlgo_corpus.builds.compiles import CompileStore
from mlgo_corpus.builds.leftovers import Link, find_uncompiled

BEGAN = 10**18
OLD, NEW = BEGAN - 1, BEGAN
ELF = b"\x7fELF\2\1\1" + bytes(9)


def write(path: Path, content: bytes = ELF, *, mtime_ns: int = OLD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def archive(*names: str, magic: bytes = b"!<arch>\n") -> bytes:
    contents = b"" if b"thin" in magic else ELF
    table = "".join(f"{name}/\n" for name in names).encode()
    table += b"\n" * (len(table) % 2)
    data = magic + b"%-48s%-10d`\n" % (b"//", len(table)) + table
    at = 0
    for name in names:
        data += b"%-16s%-12d%-6d%-6d%-8d%-10d`\n" % (f"/{at}".encode(), 0, 0, 0, 644, len(ELF)) + contents
        at += len(name) + 2
    return data


def left(folder: Path, *commands: str, objects: dict[str, bytes] | None = None, where: str = "") -> list[str]:
    links = [Link(os.path.normpath(folder / where), tuple(command.split())) for command in commands]
    known = [(str(folder / path), sha256(content).hexdigest()) for path, content in (objects or {}).items()]
    found = find_uncompiled(links, known, str(folder), BEGAN).left_over
    return [os.path.relpath(one, folder) for one in found]


def test_what_is_older_and_was_not_compiled_is_left_over(tmp_path: Path) -> None:
    for name in ("a.o", "b.o", "lib/libs.so.1", "copied.o"):
        write(tmp_path / name, ELF + name.encode())
    write(tmp_path / "nasm.o", mtime_ns=NEW)
    write(tmp_path / "text.o", b"# text.o - a libtool object file")
    words = "c a.o b.o copied.o nasm.o text.o missing.o lib/libs.so.1 -o prog"
    assert left(tmp_path, words) == ["a.o", "b.o", "copied.o", "lib/libs.so.1"]
    known = {"a.o": b"stripped since", "where it was made.o": ELF + b"copied.o"}
    assert left(tmp_path, words, words, objects=known) == ["b.o", "lib/libs.so.1"]
    assert left(tmp_path, "c ../b.o -Wl,--start-group,../a.o -Wl,-o,b.o", where="lib") == ["b.o", "a.o"]


def test_files_are_found_as_a_link_run_again_finds_them(tmp_path: Path) -> None:
    for name in ("old.o", "plain", "sub/libsub.a"):
        write(tmp_path / name)
    assert left(tmp_path, "c -o p -Lsub -l:libsub.a") == ["sub/libsub.a"]
    assert left(tmp_path, "c -o p -Wl,-Lsub -Wl,-lsub") == ["sub/libsub.a"]
    assert left(tmp_path, "c -o p plain") == ["plain"]
    assert left(tmp_path, "c -e old.o -o p") == []


def test_what_is_not_of_the_build_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "system/crt.o")
    write(tmp_path / "build/a.o")
    assert left(tmp_path / "build", "c ../system/crt.o a.o") == ["a.o"]
    # Where a link runs is the build's as well.
    assert left(tmp_path / "build", "c crt.o", where="../system") == ["../system/crt.o"]


@pytest.mark.parametrize("magic", [b"!<arch>\n", b"!<thin>\n"])
def test_an_old_archive_is_looked_into(tmp_path: Path, magic: bytes) -> None:
    write(tmp_path / "sub/libx.a", archive("a.o", "b.o", "seen.o", magic=magic))
    known = {"elsewhere/a.o": b"", "main.o": b""}
    write(tmp_path / "seen.o", mtime_ns=NEW)
    expected = ["sub/libx.a(b.o)"]
    for words in ("c main.o seen.o sub/libx.a", "c main.o seen.o -Lsub -lx", "c -l x main.o -L sub -Lnone seen.o"):
        assert left(tmp_path, words, objects=known) == expected
    (tmp_path / "sub/libx.so").write_bytes(b"")  # the linker prefers it, and it is new
    assert left(tmp_path, "c main.o -Lsub -lx", objects=known) == []


def test_a_new_archive_is_looked_into_where_it_was_seen_to_grow(tmp_path: Path) -> None:
    write(tmp_path / "libx.a", archive("a.o", "b.o", "nasm.o"), mtime_ns=NEW)
    write(tmp_path / "nasm.o", mtime_ns=NEW)
    assert left(tmp_path, "c libx.a", objects={"a.o": b""}) == []  # rustc's, such as an rlib
    assert left(tmp_path, "ar rcs libx.a a.o nasm.o", "c libx.a", objects={"a.o": b""}) == ["libx.a(b.o)"]


def test_a_damaged_archive_is_no_failure(tmp_path: Path) -> None:
    write(tmp_path / "libx.a", archive("a.o", "b.o")[:-30])
    assert left(tmp_path, "c libx.a") == ["libx.a(a.o)"]


def test_links_wait_until_they_are_recorded(tmp_path: Path) -> None:
    """Whoever is interrupted after the records of a build are read still knows its links."""
    for number, words in ((1, ("main.o", "-o", "pro\udc80g")), (2, ("a.o", "-shared"))):
        store = CompileStore(tmp_path)
        store.open_run()
        fields = ("mlgo-compile-1", "c", "program", "0", str(tmp_path), str(len(words)), *words, "end")
        (store.run / str(number)).write_bytes(b"".join(os.fsencode(field) + b"\0" for field in fields))
        store.close_run()
        _, links, _ = store.update(lambda _: ("clang",))
        assert [link.words for link in links] == [("c", *words)]
    pending = CompileStore(tmp_path).pending_links()
    assert [link.words for link in pending] == [("c", "main.o", "-o", "pro\udc80g"), ("c", "a.o", "-shared")]
    assert pending[1] == links[0]
    store.forget_links()
    assert store.pending_links() == ()
