"""Two objects are compared: what is the same, and the first place that is not. llvm-objcopy makes the differences."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from mlgo_corpus.errors import FormatError, UnsupportedError
from mlgo_corpus.formats.objects.compare import Comparison, Difference, compare_objects
from mlgo_corpus.formats.objects.objfile import parse_objfile
from tests.conftest import EMBED, Llvm, run_checked

SOURCE = """
static int counter; extern int other(int);
static const char *const names[] = {"one", "two"};
int first(int x) { counter += x; return other(counter) + names[x & 1][0]; }
int second(double d) { return d * 3.25 > 1.0 ? 7 : first(2); }
"""
EQUAL = Comparison(None, None)

Compile = Callable[..., Path]


@pytest.fixture
def embedded(llvm: Llvm, compile_c: Compile) -> Path:
    return compile_c(llvm, SOURCE, "-O2", "-g", *EMBED, output="embedded.o")


def section_at(data: bytes, name: str) -> tuple[int, int]:
    (section,) = [item for item in parse_objfile(data).sections if item.name == name]
    return section.offset, section.size


def test_equal_but_for_the_embedded_sections(llvm: Llvm, embedded: Path, compile_c: Compile) -> None:
    """The oracle: llvm-objcopy takes the two sections out, and all that objcopy leaves is compared by it."""
    plain = compile_c(llvm, SOURCE, "-O2", "-g", output="plain.o")
    removed = embedded.with_name("removed.o")
    run_checked(llvm.objcopy, "--remove-section=.llvmbc", "--remove-section=.llvmcmd", embedded, removed)
    data = embedded.read_bytes()
    assert compare_objects(data, data) == EQUAL
    assert compare_objects(data, plain.read_bytes()) == EQUAL
    assert compare_objects(data, removed.read_bytes()) == EQUAL
    found = compare_objects(data, plain.read_bytes(), frozenset())
    assert found.anything is not None
    assert found.anything.section == ".llvmbc"
    assert found.code is None


@pytest.mark.parametrize("name", [".text", ".rodata.str1.1", ".debug_info", ".eh_frame", ".comment"])
def test_a_changed_byte_is_named(embedded: Path, name: str) -> None:
    data = embedded.read_bytes()
    offset, size = section_at(data, name)
    for at in (0, size // 2, size - 1):
        changed = bytearray(data)
        changed[offset + at] ^= 0x40
        found = compare_objects(data, bytes(changed))
        assert found.anything is not None
        assert (found.anything.section, found.anything.offset) == (name, at)
        assert found.code == (found.anything if name == ".text" else None)


def test_every_byte_of_code_counts(embedded: Path) -> None:
    data = embedded.read_bytes()
    offset, size = section_at(data, ".text")
    for at in range(size):
        changed = data[: offset + at] + bytes([data[offset + at] ^ 1]) + data[offset + at + 1 :]
        found = compare_objects(data, changed)
        assert found.code is not None
        assert (found.code.section, found.code.offset) == (".text", at)


def test_relocations_count_by_symbol(llvm: Llvm, embedded: Path) -> None:
    data = embedded.read_bytes()
    renamed = embedded.with_name("renamed.o")
    run_checked(llvm.objcopy, "--redefine-sym=other=another", embedded, renamed)
    found = compare_objects(data, renamed.read_bytes())
    assert found.code is not None
    assert found.code.section == ".rela.text"
    assert "other" in found.code.detail
    assert "another" in found.code.detail
    (offset, size) = section_at(data, ".rela.text")
    for at in range(0, size, 24):
        r_offset, r_info, r_addend = struct.unpack_from("<QQq", data, offset + at)
        changed = bytearray(data)
        struct.pack_into("<QQq", changed, offset + at, r_offset, r_info, r_addend + 1)
        found = compare_objects(data, bytes(changed))
        assert found.code is not None
        assert (found.code.section, found.code.offset) == (".rela.text", r_offset)


def test_symbols_count_but_not_for_the_code(llvm: Llvm, embedded: Path) -> None:
    renamed = embedded.with_name("renamed.o")
    run_checked(llvm.objcopy, "--redefine-sym=second=zweite", embedded, renamed)
    found = compare_objects(embedded.read_bytes(), renamed.read_bytes())
    assert found.code is None
    assert found.anything is not None
    assert "second" in found.anything.detail


def test_sections_missing_and_added(llvm: Llvm, embedded: Path) -> None:
    smaller = embedded.with_name("smaller.o")
    run_checked(llvm.objcopy, "--remove-section=.comment", embedded, smaller)
    data, other = embedded.read_bytes(), smaller.read_bytes()
    assert compare_objects(data, other) == Comparison(
        Difference(".comment", None, "the rebuilt object has no such section"), None
    )
    assert compare_objects(other, data).anything == Difference(
        ".comment", None, "this section stands where .note.GNU-stack was"
    )


def test_another_level_differs_in_its_code(llvm: Llvm, compile_c: Compile, embedded: Path) -> None:
    found = compare_objects(embedded.read_bytes(), compile_c(llvm, SOURCE, "-O0", "-g", output="o.o").read_bytes())
    assert found.code is not None
    assert found.code.section == ".text"


@pytest.mark.parametrize(
    "target",
    [
        *("i386-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu", "mips64el-linux-gnu", "powerpc64-linux-gnu"),
        *("arm64-apple-macos11", "x86_64-apple-macos11", "x86_64-pc-windows-msvc"),
    ],
)
def test_other_formats_and_machines(llvm22: Llvm, compile_c: Compile, target: str) -> None:
    flags = (f"--target={target}", "-O2", "-ffunction-sections")
    first = compile_c(llvm22, SOURCE, *flags, *EMBED, output="first.o").read_bytes()
    assert compare_objects(first, compile_c(llvm22, SOURCE, *flags, output="second.o").read_bytes()).code is None
    assert compare_objects(first, first) == EQUAL
    other = compile_c(llvm22, SOURCE.replace("7", "8"), *flags, *EMBED, output="other.o").read_bytes()
    assert compare_objects(first, other).code is not None
    renamed = compile_c(llvm22, SOURCE.replace("other", "another"), *flags, *EMBED, output="renamed.o").read_bytes()
    assert compare_objects(first, renamed).code is not None


def test_another_machine(llvm22: Llvm, compile_c: Compile) -> None:
    first = compile_c(llvm22, SOURCE, "--target=x86_64-linux-gnu", output="a.o").read_bytes()
    second = compile_c(llvm22, SOURCE, "--target=aarch64-linux-gnu", output="b.o").read_bytes()
    found = compare_objects(first, second)
    assert found.anything is not None
    assert found.anything == found.code
    assert found.code.section == "header"


def test_truncation_at_every_byte(llvm22: Llvm, compile_c: Compile) -> None:
    data = compile_c(llvm22, "int f(int x) { return x; }\n", "-O2", *EMBED).read_bytes()
    for size in range(0, len(data), 7):
        with pytest.raises(FormatError):
            compare_objects(data, data[:size])


def test_what_is_no_object() -> None:
    with pytest.raises(UnsupportedError, match="expected an ELF, Mach-O or COFF object"):
        compare_objects(b"text", b"text")


def test_damaged_headers_raise_nothing_else(llvm22: Llvm, compile_c: Compile) -> None:
    data = compile_c(llvm22, SOURCE, "-O2", *EMBED).read_bytes()
    table = struct.unpack_from("<Q", data, 40)[0]
    for at in [*range(16, 64), *range(table, len(data))]:
        for value in (0, 0xFF, data[at] ^ 0x10):
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            with suppress(FormatError):  # and nothing else
                compare_objects(data, changed)
