"""The words of links: what they name, and which of them are refused."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.formats.commands.driverline import TAKES_NEXT
from mlgo_corpus.formats.commands.linkwords import Role, read_archive, read_link, read_linker


def roles(line: str) -> list[tuple[str, str]]:
    return [(word.role.value, word.name or " ".join(word.words)) for word in read_link(shlex.split(line))]


def rendered(line: str) -> list[str]:
    return [each for word in read_link(shlex.split(line)) for each in word.rendered()]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a.o sub/b.o -o prog", [("input", "a.o"), ("input", "sub/b.o"), ("output", "prog")]),
        ("-oprog a.o -L. -Llib -lfoo -l bar", [
            ("output", "prog"), ("input", "a.o"), ("folder", "."), ("folder", "lib"), ("library", "-lfoo"),
            ("library", "-lbar"),
        ]),
        ("-shared -Wl,-soname,libx.so.1 x.o", [("flag", "-shared"), ("flag", "libx.so.1"), ("input", "x.o")]),
        ("-Wl,--whole-archive,libx.a,--no-whole-archive", [
            ("flag", "--whole-archive"), ("input", "libx.a"), ("flag", "--no-whole-archive"),
        ]),
        ("-Wl,--version-script=x.map -Wl,-T -Wl,x.ld -T y.ld", [("file", "x.map"), ("file", "x.ld"), ("file", "y.ld")]),
        ("-Xlinker --dynamic-list -Xlinker x.list", [("file", "x.list")]),
        ("-x c text -x none a.o b.c -- -c.o", [
            ("dropped", "-x c"), ("source", "text"), ("dropped", "-x none"), ("input", "a.o"), ("source", "b.c"),
            ("input", "-c.o"),
        ]),
        ("-O2 -DX=1 -Iinclude -I include -std=c11 -MD -MF a.d -g a.o", [
            ("flag", "-O2"), ("dropped", "-DX=1"), ("dropped", "-Iinclude"), ("dropped", "-I include"),
            ("dropped", "-std=c11"), ("dropped", "-MD"), ("dropped", "-MF a.d"), ("dropped", "-g"), ("input", "a.o"),
        ]),
        ("-mthread-model single -include-pch x.pch -framework Cocoa a.o", [
            ("dropped", "-mthread-model single"), ("dropped", "-include-pch x.pch"), ("refused", "-framework Cocoa"),
            ("input", "a.o"),
        ]),
        ("-Wl,-Map=x.map -Wl,--cref -Wl,-Map -Wl,y.map", [
            ("dropped", "x.map"), ("dropped", "--cref"), ("dropped", "y.map"),
        ]),
        ("-Wl,-rpath,/a,-z,now -Wl,-O1,--as-needed,-zrelro", [
            ("flag", "/a"), ("flag", "now"), ("flag", "-O1"), ("flag", "--as-needed"), ("flag", "relro"),
        ]),
    ],
)  # fmt: skip
def test_roles(line: str, found: list[tuple[str, str]]) -> None:
    assert roles(line) == found


@pytest.mark.parametrize("option", sorted(TAKES_NEXT - {"-Xlinker", "-x", "--language"}))
def test_the_value_of_an_option_is_not_taken_for_an_input(option: str) -> None:
    found = read_link([option, "value", "a.o"])
    assert [(word.role, word.path) for word in found[1:]] == [(Role.INPUT, "a.o")]
    assert found[0].role not in (Role.INPUT, Role.SOURCE)
    assert "value" in (*found[0].words, found[0].path, found[0].words[-1].partition("=")[2])


def test_words_come_back_with_other_files() -> None:
    assert rendered("-Wl,--version-script=a,b.map -lz -L lib -Wl,-z,now a.o") == [
        "-Xlinker", "--version-script=a", "-Xlinker", "b.map", "-lz", "-L", "lib", "-Xlinker", "-z", "-Xlinker", "now",
        "a.o",
    ]  # fmt: skip
    (script,) = read_link(["-Wl,--version-script=x.map"])
    assert script.rendered("/tree/x.map") == ("-Xlinker", "--version-script=/tree/x.map")
    (folder,) = read_link(["-Llib"])
    assert folder.rendered("/tree/lib") == ("-L/tree/lib",)


@pytest.mark.parametrize(
    "line",
    [
        "-fplugin=x.so", "-Wl,-plugin,x.so", "-B/tmp", "-B /tmp", "-fuse-ld=/tmp/ld", "-fuse-ld=./ld", "--ld-path=ld",
        "-specs=x", "--specs=x", "--config x", "@words", "-Wl,@words", "-Wl,", "--sysroot=/x", "--sysroot /x",
        "-isysroot /x", "-wrapper gdb", "-Wl,--no-such", "-no-such", "-", "-o", "-l", "-Wl,-soname", "-Xlinker",
        "-Wl,--plugin-opt=-load=x.so", "-Wl,-mllvm,-load=x.so", "-Wl,-mllvm,-load,x.so", "--gcc-toolchain=x",
        "-###", "-cc1", "-Xclang-x", "-fpass-plugin=x", "-Wl,--remap-inputs=a=b", "-Wl,--chroot=/",
        "-Wl,-format,binary", "-Wl,--target1-abs,-plugin,x.so",
        "-Wl,-library,-plugin,x.so", "-Wl,-error-limit -Wl,-plugin -Wl,x.so", "-u -plugin", "-Wl,-h,@x", "-e @x",
        "-target", "-target -x", "-Wl,-Map",
    ],
)  # fmt: skip
def test_what_is_refused(line: str) -> None:
    found = [word for word in read_link(shlex.split(line)) if word.role is Role.REFUSED]
    assert found
    assert all(word.why for word in found)


@given(st.lists(st.text(st.sampled_from("-WloXxLTBzcu=,@./ ap:\n\0\udc80")) | st.sampled_from(["-Xlinker", "-Wl,-z"])))
def test_every_word_has_one_role(words: list[str]) -> None:
    found = read_link(words)
    for word in found:
        assert (word.role is Role.REFUSED) == bool(word.why)
        if word.role in (Role.INPUT, Role.FILE, Role.LIBRARY, Role.FOLDER, Role.SOURCE, Role.OUTPUT):
            assert word.path is not None
    for word in words:
        if word.startswith("@"):
            assert any(word in " ".join((*one.words, one.path or "")) for one in found)


def test_links_by_a_linker_itself() -> None:
    def files(line: str) -> list[str]:
        return [f"{word.role}:{word.path}" for word in read_linker(line.split()) if word.path is not None]

    assert files("-m elf_x86_64 -r -o a.o b.o -Tx.lds") == ["flag:elf_x86_64", "output:a.o", "input:b.o", "file:x.lds"]
    assert files("-shared --output=l.so -L. -lx") == ["output:l.so", "folder:.", "library:x"]
    assert files("-oprog a.o --output other") == ["output:prog", "input:a.o", "output:other"]
    for line in ("-v", "--help", "-r -o a.o", "-plugin x.so a.o", "a.o -plugin-opt=x", ""):
        assert read_linker(line.split()) == ()


@pytest.mark.parametrize(
    ("line", "roles"),
    [
        ("-melf_x86_64 -v -V -Ur a.o", ["flag", "dropped", "dropped", "flag", "input"]),
        ("-emain -u_start -hlibx.so -I/lib/x a.o", ["flag", "flag", "flag", "flag", "input"]),
        ("-r -b binary -o a.o data", ["flag", "refused", "input", "output", "input"]),
        ("--sysroot= --oformat=binary -nopie @words a.o", ["refused", "refused", "refused", "refused", "input"]),
        # A short form of --entry takes the next word.
        ("-ent -h a.o", ["refused", "flag"]),
    ],
)
def test_a_link_by_a_linker_itself_is_one_with_options_that_are_refused(line: str, roles: list[str]) -> None:
    found = read_linker([*line.split(), "b.o"])
    assert [word.role for word in found] == [*roles, "input"]
    assert [each for word in read_linker(["-i", "-emain", "b.o"]) for each in word.rendered()] == [
        "-Xlinker", "-r", "-Xlinker", "-emain", "-Xlinker", "b.o",
    ]  # fmt: skip


def test_archives() -> None:
    def files(line: str) -> list[str]:
        return [f"{word.role}:{word.path}" for word in read_archive(line.split()) if word.path is not None]

    assert files("rcs libx.a a.o b.o") == ["output:libx.a", "input:a.o", "input:b.o"]
    assert files("-qc libx.a a.o") == files("--thin rc libx.a a.o") == files("cru libx.a a.o") == [
        "output:libx.a", "input:a.o",
    ]  # fmt: skip
    assert files("rb other.o libx.a a.o") == ["output:libx.a", "input:a.o"]
    for line in ("x libx.a", "t libx.a", "d libx.a a.o", "s libx.a", "--version", "rcs", ""):
        assert files(line) == [], line
