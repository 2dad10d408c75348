from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError
from mlgo_corpus.formats.objects.archive import MAGIC, THIN_MAGIC, Member, is_archive, iter_members
from tests.conftest import Llvm, run_checked

File = tuple[str, bytes]


def header(name: bytes | str, size: int | str, end: bytes = b"`\n") -> bytes:
    field = name.encode() if isinstance(name, str) else name
    assert len(field) <= 16
    made = field.ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"644".ljust(8) + str(size).encode().ljust(10) + end
    assert len(made) == 60
    return made


def item(name: bytes | str, contents: bytes) -> bytes:
    return header(name, len(contents)) + contents + b"\n" * (len(contents) % 2)


def write_gnu(files: list[File], magic: bytes = MAGIC, terminator: bytes = b"/\n") -> bytes:
    """Write an archive whose names are all in a name table, as those of a thin archive are."""
    table = b""
    body = b""
    for name, contents in files:
        member = item(f"/{len(table)}", contents)
        body += member[:60] if magic == THIN_MAGIC else member
        table += os.fsencode(name) + terminator
    return magic + item("/", b"\0\0\0\0") + item("//", table) + body


def write_bsd(files: list[File], pad: int = 4) -> bytes:
    body = item("#1/20", b"__.SYMDEF".ljust(20, b"\0") + bytes(8))
    for name, contents in files:
        inline = os.fsencode(name)
        inline += bytes(-len(inline) % pad)
        body += item(f"#1/{len(inline)}", inline + contents)
    return MAGIC + body


def read(data: bytes) -> list[File]:
    return [
        (member.name, data[member.offset : member.offset + member.size])
        for member in iter_members(data)
        if member.offset is not None
    ]


def fails(data: bytes, kind: type[FormatError], offset: int, message: str) -> list[Member]:
    """Check that a walk over data fails, with exactly this kind of error; return what came before it."""
    found: list[Member] = []
    with pytest.raises(FormatError, match=message) as caught:
        found.extend(iter_members(data))
    assert type(caught.value) is kind
    assert caught.value.offset == offset
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return found


def collect(data: bytes) -> tuple[list[Member], FormatError | None]:
    """Return the members, and the error that came after them."""
    members = []
    try:
        for member in iter_members(data):
            members.append(member)
    except FormatError as error:
        return members, error
    return members, None


def test_is_archive() -> None:
    assert is_archive(b"!<arch>\n")
    assert is_archive(memoryview(b"!<thin>\nmore"))
    assert not is_archive(b"!<arch>")
    assert not is_archive(b"")
    assert not is_archive(b"<bigaf>\n")


@pytest.mark.parametrize("magic", [MAGIC, THIN_MAGIC])
def test_an_empty_archive_has_no_members(magic: bytes) -> None:
    assert list(iter_members(magic)) == []
    assert list(iter_members(magic + item("/", bytes(4)))) == []


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_members_and_their_places(kind: Callable[[bytes], bytes | memoryview]) -> None:
    data = MAGIC + item("odd.o/", b"12345") + item("a b.o/", b"1234") + item("bsd_name_of_16.o", b"")
    assert list(iter_members(kind(data))) == [
        Member("odd.o", 68, 5),
        Member("a b.o", 134, 4),
        Member("bsd_name_of_16.o", 198, 0),
    ]


def test_the_last_member_may_lack_its_padding() -> None:
    data = MAGIC + item("a/", b"1") + item("b/", b"123")
    assert read(data[:-1]) == read(data) == [("a", b"1"), ("b", b"123")]


def test_padding_may_be_any_byte() -> None:
    data = MAGIC + header("a/", 1) + b"1\xff" + item("b/", b"22")
    assert read(data) == [("a", b"1"), ("b", b"22")]


@pytest.mark.parametrize(
    "name",
    ["/", "//", "/SYM64/", "/<ECSYMBOLS>/", "/<XFGHASHMAP>/", "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64"],
)
def test_tables_are_not_members(name: str) -> None:
    data = MAGIC + item(name, b"\1\2\3") + item("a.o/", b"a") + item(name, b"\4") + item("b.o/", b"b")
    assert read(data) == [("a.o", b"a"), ("b.o", b"b")]


@pytest.mark.parametrize("name", ["__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64", "__.SYMDEF_64 SORTED"])
def test_tables_with_inline_names_are_not_members(name: str) -> None:
    inline = name.encode().ljust(24, b"\0")
    assert read(MAGIC + item("#1/24", inline + b"\1\2\3") + item("a.o", b"a")) == [("a.o", b"a")]


def test_files_that_are_called_like_tables() -> None:
    data = MAGIC + item("//", b"__.SYMDEF/\n") + item("__.SYMDEF/", b"a") + item("/0", b"b")
    assert read(data) == [("__.SYMDEF", b"a"), ("__.SYMDEF", b"b")]


def test_names_of_import_libraries() -> None:
    table = b"some_long_dll_name.dll\0C:\\dir/\\x.obj\0"
    data = MAGIC + item("/", b"\0" * 4) + item("/", b"\0" * 8) + item("//", table) + item("/0", b"1")
    assert read(data + item("/0", b"2") + item("/23", b"3") + item("short.dll/", b"4")) == [
        ("some_long_dll_name.dll", b"1"),
        ("some_long_dll_name.dll", b"2"),
        ("C:\\dir/\\x.obj", b"3"),
        ("short.dll", b"4"),
    ]


def test_a_later_name_table_replaces_an_earlier_one() -> None:
    data = item("//", b"one.o/\n") + item("/0", b"1") + item("//", b"two.o/\n") + item("/0", b"2")
    assert read(MAGIC + data) == [("one.o", b"1"), ("two.o", b"2")]


def test_names_that_are_not_utf8() -> None:
    [member] = iter_members(MAGIC + item(b"caf\xe9.o/", b""))
    assert member.name == "caf\udce9.o"
    assert os.fsencode(member.name) == b"caf\xe9.o"
    [member] = iter_members(MAGIC + item("ü.o/", b""))
    assert member.name == "ü.o"


def test_a_thin_archive_holds_headers_only() -> None:
    data = write_gnu([("../dir/a.o", b"12345"), ("/abs/b.o", b"1" * 7000)], THIN_MAGIC)
    assert list(iter_members(data)) == [
        Member("../dir/a.o", None, 5),
        Member("/abs/b.o", None, 7000),
    ]


def test_what_is_not_an_archive() -> None:
    fails(b"\x7fELF\2\1\1\0\0", FormatError, 0, r"expected the archive magic '!<arch>\\n', found '\\x7fELF")
    fails(b"", TruncatedError, 0, "^byte 0: reading an archive's magic, expected 8 bytes, got 0$")
    fails(b"!<th", TruncatedError, 0, "expected 8 bytes, got 4")
    fails(b"<bigaf>\n", UnsupportedError, 0, "AIX")


def test_bad_headers() -> None:
    good = item("a.o/", b"abc")
    start = 8 + len(good)
    for size in ("", "x", "-1", "+1", "1_0", "0x10", "1 2", "\n1", "²"):
        data = MAGIC + good + header("b.o/", "")[:48] + size.encode("latin-1").ljust(10) + b"`\n" + b"x" * 99
        [member] = fails(data, FormatError, start + 48, "^byte 120: reading an archive member, expected its size in")
        assert member.name == "a.o"
    [member] = fails(
        MAGIC + good + header("b.o/", 0, b"\n`"),
        FormatError,
        start + 58,
        r"^byte 130: an archive member's header ends in '\\n`', expected '`\\n'$",
    )
    assert member.name == "a.o"


def test_bad_names() -> None:
    fails(MAGIC + item("", b""), FormatError, 8, "an archive member without a name")
    fails(MAGIC + item("#1/2", b"\0\0rest"), FormatError, 8, "an archive member without a name")
    fails(MAGIC + item("#1/0", b"rest"), FormatError, 8, "an archive member without a name")
    fails(MAGIC + item("#1/5", b"1234"), FormatError, 8, "member of 4 bytes says 5 of them are its name")
    fails(MAGIC + item("#1/x", b"1234"), FormatError, 8, "expected the length of its name in decimal, found 'x'")
    fails(THIN_MAGIC + header("#1/5", 40), FormatError, 8, "member of 0 bytes says 5 of them are its name")
    fails(MAGIC + item("/0", b""), FormatError, 8, "name is at 0 of a name table of 0 bytes")
    fails(MAGIC + item("/x", b""), FormatError, 8, "expected the offset of its name in decimal, found 'x'")
    fails(MAGIC + item("/-1", b""), FormatError, 8, "expected the offset of its name in decimal, found '-1'")
    table = item("//", b"a.o/\nb.o\n")
    second = 8 + len(table)
    fails(MAGIC + table + item("/9", b""), FormatError, second, "name is at 9 of a name table of 9 bytes")
    fails(MAGIC + table + item("/5", b""), FormatError, second, "name at 5 of the name table does not end")
    fails(MAGIC + table + item("/3", b""), FormatError, second, "an archive member without a name")
    endless = item("//", b"a" * 100_000 + b"/\n")
    fails(MAGIC + endless + item("/0", b""), FormatError, 8 + len(endless), "does not end")


def test_members_of_other_archives_are_unsupported() -> None:
    table = item("//", b"inner.a/\nb.o/\n")
    data = THIN_MAGIC + table + header("/9", 3) + header("/0:220", 3)
    [member] = fails(data, UnsupportedError, 8 + len(table) + 60, r"member of another archive \('/0:220'\)")
    assert member.name == "b.o"


def test_messages_of_truncation() -> None:
    data = MAGIC + item("a.o/", b"abcd")
    fails(data[:40], TruncatedError, 8, "^byte 8: reading an archive member's header, expected 60 bytes, got 32$")
    fails(data[:-1], TruncatedError, 68, "^byte 68: reading archive member 'a.o/', expected 4 bytes, got 3$")
    fails(THIN_MAGIC + item("//", b"abc")[:-2], TruncatedError, 68, "member '//', expected 3 bytes, got 2")


FILES = [("a.o", b"1"), ("dir/a long name indeed.o", b"22"), ("a.o", b""), ("ü.o", b"\n`\n!<arch>\n")]


@pytest.mark.parametrize(
    ("data", "thin"),
    [
        (write_gnu(FILES), False),
        (write_gnu(FILES, terminator=b"\0"), False),
        (write_bsd(FILES), False),
        (write_gnu(FILES, THIN_MAGIC), True),
    ],
    ids=["gnu", "coff", "bsd", "thin"],
)
def test_truncation_at_every_byte(data: bytes, thin: bool) -> None:
    members, error = collect(data)
    assert error is None
    assert [(member.name, member.size) for member in members] == [(n, len(contents)) for n, contents in FILES]
    if not thin:
        assert read(data) == FILES
    headers = {match.start() - 40 for match in re.finditer(rb"644 {5}.{10}`\n", data)}
    unnoticed = set()
    for size in range(len(data)):
        found, error = collect(data[:size])
        assert found == members[: len(found)]
        if error is None:
            unnoticed.add(size)
        else:
            assert type(error) is TruncatedError
            assert error.offset is not None
            assert error.offset <= size
    # A cut exactly in front of a header, or of the padding in front of one, leaves a whole archive.
    assert headers <= unnoticed
    assert unnoticed <= headers | {start - 1 for start in headers} | {len(data) - 1}


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(blacklist_characters="\0\n", codec="utf-8"), min_size=1, max_size=40).filter(
                lambda name: not name.startswith("__.SYMDEF")
            ),
            st.binary(max_size=50),
        ),
        max_size=6,
    ),
    st.integers(1, 8),
)
def test_round_trip(files: list[File], pad: int) -> None:
    assert read(write_bsd(files, pad)) == files
    assert read(write_gnu(files)) == files
    assert read(write_gnu(files, terminator=b"\0")) == files
    thin = [(member.name, member.size) for member in iter_members(write_gnu(files, THIN_MAGIC))]
    assert thin == [(name, len(contents)) for name, contents in files]


def check_hostile(data: bytes) -> None:
    members, error = collect(data)
    for member in members:
        assert member.offset is None or member.offset + member.size <= len(data)
    assert error is None or (error.offset is not None and 0 <= error.offset <= len(data))


@settings(max_examples=500)
@given(
    st.sampled_from([write_gnu(FILES), write_bsd(FILES), write_gnu(FILES, THIN_MAGIC)]),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_flipped_bytes(data: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(data)
    for position, value in changes:
        changed[position % len(changed)] = value
    check_hostile(bytes(changed))


@settings(max_examples=500)
@given(
    st.sampled_from([b"", MAGIC, THIN_MAGIC, MAGIC + header("/1", 5), MAGIC + item("//", b"a.o/\n")]),
    st.binary(max_size=200) | st.text("0123456789/#:. `\n", max_size=200).map(str.encode),
)
def test_random_bytes(prefix: bytes, data: bytes) -> None:
    check_hostile(prefix + data)


@given(st.lists(st.tuples(st.text("0123456789/#:_", max_size=16), st.text("0123456789 ", max_size=3))))
def test_random_headers(headers: list[tuple[str, str]]) -> None:
    for magic in (MAGIC, THIN_MAGIC):
        check_hostile(magic + item("//", b"a.o/\nb/\n") + b"".join(header(*made) for made in headers) + bytes(99))


# Against llvm-ar and GNU ar

LONG = "a_member_name_of_more_than_sixteen_bytes.o"


@pytest.fixture
def objects(llvm: Llvm, compile_c: Callable[..., Path], tmp_path: Path) -> list[Path]:
    """Object files, one of them with an odd size; two have the same name."""
    paths = [
        compile_c(llvm, "int a(void) { return 1; }", name="a.c"),
        compile_c(llvm, "int b(void) { return 2; }", name="dir/a.c"),
        compile_c(llvm, "int c(void) { return 3; }", name=LONG.replace(".o", ".c")),
        compile_c(llvm, "int d(void) { return 4; }", "-flto", name="sp ace ü.c"),
    ]
    (tmp_path / "odd.o").write_bytes(paths[0].read_bytes() + b"!")
    return [*paths, tmp_path / "odd.o"]


def print_members(ar: str, archive: Path) -> bytes:
    return subprocess.run([ar, "p", archive], check=True, capture_output=True, timeout=300).stdout


def check_against(ar: str, archive: Path, objects: list[Path], slack: int = 0) -> list[Member]:
    """Check the members against an ``ar`` and the files they were made from."""
    data = archive.read_bytes()
    members = list(iter_members(data))
    names = [member.name for member in members]
    assert names == run_checked(ar, "t", archive).splitlines()
    files = read(data)
    assert b"".join(contents for _, contents in files) == print_members(ar, archive)
    for (name, contents), path in zip(files, objects, strict=True):
        assert name == path.name
        original = path.read_bytes()
        assert contents[: len(original)] == original
        assert len(contents) - len(original) <= slack
        assert set(contents[len(original) :]) <= {ord("\n")}
    return members


@pytest.mark.llvm
@pytest.mark.parametrize("symbols", ["s", "S"])
@pytest.mark.parametrize("style", ["gnu", "bsd", "darwin", "coff"])
def test_archives_of_llvm_ar(llvm: Llvm, objects: list[Path], tmp_path: Path, style: str, symbols: str) -> None:
    archive = tmp_path / "lib.a"
    run_checked(llvm.ar, f"--format={style}", f"qc{symbols}", archive, *objects)
    check_against(llvm.ar, archive, objects, slack=7 if style == "darwin" else 0)


@pytest.mark.llvm
def test_thin_archives_of_llvm_ar(llvm: Llvm, objects: list[Path], tmp_path: Path) -> None:
    paths = [str(path.relative_to(tmp_path)) for path in objects]
    run_checked(llvm.ar, "--thin", "rcs", "thin.a", *paths, cwd=tmp_path)
    members = list(iter_members((tmp_path / "thin.a").read_bytes()))
    assert [member.name for member in members] == paths
    assert [member.size for member in members] == [path.stat().st_size for path in objects]
    assert {member.offset for member in members} == {None}
    assert b"".join((tmp_path / member.name).read_bytes() for member in members) == print_members(
        llvm.ar, tmp_path / "thin.a"
    )


@pytest.mark.llvm
def test_archives_in_thin_archives_of_llvm_ar(llvm: Llvm, objects: list[Path], tmp_path: Path) -> None:
    run_checked(llvm.ar, "rcs", "ordinary.a", "a.o", cwd=tmp_path)
    run_checked(llvm.ar, "--thin", "rcs", "inner.a", "a.o", "dir/a.o", cwd=tmp_path)
    run_checked(llvm.ar, "--thin", "rcs", "outer.a", "inner.a", "ordinary.a", cwd=tmp_path)
    members = list(iter_members((tmp_path / "outer.a").read_bytes()))
    assert [member.name for member in members] == ["a.o", "dir/a.o", "ordinary.a"]


@pytest.mark.llvm
def test_archives_of_aix(llvm: Llvm, objects: list[Path], tmp_path: Path) -> None:
    run_checked(llvm.ar, "--format=bigarchive", "rc", tmp_path / "lib.a", *objects)
    fails((tmp_path / "lib.a").read_bytes(), UnsupportedError, 0, "AIX")


@pytest.mark.llvm
def test_import_libraries(llvm: Llvm, tmp_path: Path) -> None:
    dlltool = llvm.tool("llvm-dlltool")
    if not dlltool:
        pytest.skip(f"llvm-dlltool-{llvm.version} is not installed")
    name = "a_library_name_of_more_than_sixteen_bytes.dll"
    (tmp_path / "lib.def").write_text(f"LIBRARY {name}\nEXPORTS\n  one\n  two\n")
    run_checked(dlltool, "-m", "i386:x86-64", "-d", "lib.def", "-l", "lib.lib", cwd=tmp_path)
    members = list(iter_members((tmp_path / "lib.lib").read_bytes()))
    assert {member.name for member in members} == {name}
    assert [m.name for m in members] == run_checked(llvm.ar, "t", tmp_path / "lib.lib").splitlines()


def gnu_ar() -> str:
    ar = shutil.which("ar")
    if ar is None or "GNU" not in run_checked(ar, "--version"):
        pytest.skip("GNU ar is not installed")
    return ar


@pytest.mark.llvm
def test_archives_of_gnu_ar(llvm: Llvm, objects: list[Path], tmp_path: Path) -> None:
    run_checked(gnu_ar(), "qc", tmp_path / "lib.a", *objects)
    check_against(gnu_ar(), tmp_path / "lib.a", objects)


@pytest.mark.llvm
def test_thin_archives_of_gnu_ar(llvm: Llvm, objects: list[Path], tmp_path: Path) -> None:
    ar = gnu_ar()
    run_checked(ar, "rcT", "inner.a", "a.o", "dir/a.o", cwd=tmp_path)
    run_checked(ar, "rcT", "outer.a", "inner.a", LONG, cwd=tmp_path)
    assert [m.name for m in iter_members((tmp_path / "outer.a").read_bytes())] == ["a.o", "dir/a.o", LONG]
    run_checked(ar, "rc", "ordinary.a", "a.o", cwd=tmp_path)
    run_checked(ar, "rcT", "mixed.a", LONG, "ordinary.a", cwd=tmp_path)
    members, error = collect((tmp_path / "mixed.a").read_bytes())
    assert [member.name for member in members] == [LONG]
    assert isinstance(error, UnsupportedError)
