"""Where a module's object is said to be is not trusted: only the build's own files are read, and nothing is quoted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlgo_corpus.builds.objects import SectionNames
from mlgo_corpus.builds.originals import NoOriginal, find_original
from tests.handmade import bitcode

OUTSIDE = "its path leads out of the build's folders; `build_dirs` names another one"


def problem(source: str, *build_dirs: Path, member: str | None = None) -> tuple[str, str]:
    folders = [str(folder) for folder in build_dirs]
    with pytest.raises(NoOriginal) as error:
        find_original(folders, source, member, module=bitcode(b"m"), command=None, names=SectionNames())
    return error.value.reason.value, error.value.detail


def test_files_outside_of_the_build_are_not_read(tmp_path: Path) -> None:
    build, other = tmp_path / "build", tmp_path / "build-of-others"
    for folder in (build, other):
        folder.mkdir()
    (other / "secret").write_bytes(b"quoted: " * 9)
    (build / "link.o").symlink_to("../build-of-others/secret")
    (build / "linked").symlink_to(other)
    sources = ("/etc/passwd", str(other / "secret"), "../build-of-others/secret", "link.o", "linked/secret")
    for source in (*sources, "/etc/not-there", "../not-there"):
        assert problem(source, build) == ("object_missing", OUTSIDE), source
    for source in sources[1:]:
        assert (
            problem(source, build, other)[1]
            == f"{Path(source).name}: not an object or an archive, or damaged from byte 0 on"
        )


def test_a_name_that_is_not_utf_8_is_found(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xe9.o")).write_bytes(b"text")
    assert problem("a%E9.o", tmp_path)[0] == "object_unreadable"
    (tmp_path / "a%E9.o").write_bytes(bitcode(b"m"))
    assert problem("a%E9.o", tmp_path)[0] == "bitcode_only"
    assert problem("b%E9.o", tmp_path) == ("object_missing", f"no b%E9.o in {tmp_path}")


def test_a_thin_archive_does_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "secret").write_bytes(b"quoted")
    names = b"../secret/\n"
    header = b"%-16s%-12d%-6d%-6d%-8o%-10d`\n"
    thin = b"!<thin>\n" + header % (b"//", 0, 0, 0, 0, len(names)) + names + b"\n" * (len(names) % 2)
    (tmp_path / "build/a.a").write_bytes(thin + header % (b"/0", 0, 0, 0, 0o644, 6))
    assert problem("a.a", tmp_path / "build", member="../secret") == ("object_missing", OUTSIDE)


def test_what_is_no_object_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "env").write_bytes(b"KEY=quoted")
    assert problem("env", tmp_path) == (
        "object_unreadable",
        "env: not an object or an archive, or damaged from byte 0 on",
    )
