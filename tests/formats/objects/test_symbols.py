"""Symbols of objects, with llvm-nm as the oracle, and what is made of them: sizes of functions."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError
from mlgo_corpus.explain import explain_file
from mlgo_corpus.formats.objects.compare import compare_objects
from mlgo_corpus.formats.objects.objfile import measure_object, parse_objfile
from mlgo_corpus.formats.objects.symbols import (
    GLOBAL,
    LOCAL,
    WEAK,
    LabelStatus,
    Symbol,
    label_functions,
    linked_names,
    object_name,
    parse_symbols,
)
from tests.conftest import Llvm, run_checked

CODE = """
int data = 3; static int hidden(int x) { return x * 3 + data; }
__attribute__((noinline)) int one(int x) { return hidden(x) / 7; }
__attribute__((weak)) int two(int x) { return one(x) + 1; }
__attribute__((noinline)) static int three(int x) { return one(x) - two(x); }
int four(int x) { return three(x) * 5; }
int five(int) __attribute__((alias("four")));
"""
ELF_TARGETS = ("x86_64-linux-gnu", "i386-linux-gnu", "aarch64-linux-gnu", "s390x-linux-gnu", "mips-linux-gnu")


@pytest.mark.parametrize("target", ELF_TARGETS)
@pytest.mark.parametrize("flags", [(), ("-ffunction-sections", "-fdata-sections")])
def test_elf_symbols_are_those_of_llvm_nm(
    llvm: Llvm, compile_c: Callable[..., Path], target: str, flags: tuple[str, ...]
) -> None:
    path = compile_c(llvm, CODE, "-O2", f"--target={target}", *flags)
    printed = run_checked(llvm.nm, "--print-size", path)
    expected = {
        name: (int(value, 16), int(size, 16), {"t": LOCAL, "T": GLOBAL, "W": WEAK, "D": GLOBAL}[kind])
        for value, size, kind, name in re.findall(r"^([0-9a-f]+) ([0-9a-f]+) ([tTWD]) (\S+)$", printed, re.MULTILINE)
    }
    symbols = {symbol.name: symbol for symbol in parse_symbols(path.read_bytes()) if symbol.size}
    assert {name: (s.value, s.size, s.binding) for name, s in symbols.items()} == expected
    assert {"one", "two", "three", "four", "five"} <= expected.keys()
    assert [name for name, symbol in symbols.items() if not symbol.is_code] == ["data"]
    assert symbols["four"][1:4] == symbols["five"][1:4]


@pytest.mark.parametrize("target", ELF_TARGETS)
def test_what_a_linker_resolves_is_what_llvm_nm_prints(llvm: Llvm, compile_c: Callable[..., Path], target: str) -> None:
    code = f"{CODE} int away(void); __attribute__((weak)) int maybe(void); int six; extern int there; " + (
        "int seven(void) { return away() + (maybe ? maybe() : 0) + six + there; }"
    )
    path = compile_c(llvm, code, "-O2", "-fcommon", f"--target={target}")
    printed = run_checked(llvm.nm, "--no-sort", "--extern-only", path)
    rows = re.findall(r"^[0-9a-f ]* (\w) (\S+)$", printed, re.MULTILINE)
    found = linked_names(path.read_bytes())
    assert found.defined == tuple(name for kind, name in rows if kind not in "Uwv")
    assert found.needed == tuple(name for kind, name in rows if kind == "U")
    assert {"two", "six", "seven", "data"} <= set(found.defined)
    assert {"away", "there"} <= set(found.needed)
    assert "maybe" not in {*found.needed, *found.defined}


@pytest.mark.parametrize("target", ["x86_64-apple-macosx11", "arm64-apple-macosx11", "x86_64-pc-windows-msvc"])
@pytest.mark.parametrize("flags", [(), ("-ffunction-sections",)])
def test_sizes_without_size_fields_reach_to_the_next_symbol(
    llvm: Llvm, compile_c: Callable[..., Path], target: str, flags: tuple[str, ...]
) -> None:
    code = CODE.replace('int five(int) __attribute__((alias("four")));', "")
    path = compile_c(llvm, code, "-O2", f"--target={target}", *flags)
    prefix = "_" if "apple" in target else ""
    symbols = {symbol.name: symbol for symbol in parse_symbols(path.read_bytes())}
    lines = re.findall(r"^([0-9a-f]+) ([tTW]) (\S+)$", run_checked(llvm.nm, path), re.MULTILINE)
    names = {name: int(value, 16) for value, _, name in lines if name.startswith(prefix) and not name.startswith("l")}
    assert {f"{prefix}{name}" for name in ("one", "three", "four")} <= names.keys()
    # Where the disassembler finds the functions' last instructions.
    listing = run_checked(llvm.tool("llvm-objdump"), "-d", "--no-show-raw-insn", path)
    for name, value in names.items():
        if name not in symbols or symbols[name].size == 0 or name.startswith("."):
            continue
        body = re.search(rf"<{re.escape(name)}>:\n((?:.+\n)+)", listing)
        if body is None:  # there the disassembler names the section's own symbol instead
            assert "arm64" in target
            assert value in {int(at, 16) for at in re.findall(r"^([0-9a-f]+) <ltmp\d+>:$", listing, re.MULTILINE)}
            continue
        last = [int(at, 16) for at in re.findall(r"^ *([0-9a-f]+):", body[1], re.MULTILINE)][-1]
        assert symbols[name].value == value
        assert last < value + symbols[name].size <= last + 16
        assert symbols[name].is_code


def test_a_truncated_elf_table_is_told(llvm19: Llvm, compile_c: Callable[..., Path]) -> None:
    data = compile_c(llvm19, CODE, "-O2").read_bytes()
    whole = parse_symbols(data)
    for length in range(len(data)):
        with pytest.raises((TruncatedError, UnsupportedError)):
            parse_symbols(data[:length])
        with pytest.raises((TruncatedError, UnsupportedError)):
            linked_names(data[:length])
    assert parse_symbols(memoryview(data)) == whole


def test_contradictions_are_told(llvm19: Llvm, compile_c: Callable[..., Path]) -> None:
    data = bytearray(compile_c(llvm19, CODE, "-O2").read_bytes())
    (at,) = struct.unpack_from("<Q", data, 40)
    count = struct.unpack_from("<H", data, 60)[0]
    symtab = next(at + 64 * n for n in range(count) if struct.unpack_from("<I", data, at + 64 * n + 4)[0] == 2)
    for offset, message in ((56, "in entries of 255, expected 24"), (40, "a reference to section 255, but there are")):
        changed = bytearray(data)
        struct.pack_into("<I", changed, symtab + offset, 255)
        with pytest.raises(FormatError, match=message):
            parse_symbols(bytes(changed))
    with pytest.raises(UnsupportedError, match="found text"):
        parse_symbols(b"int main() {}")


def symbol(name: str, value: int, size: int, *, is_code: bool = True) -> Symbol:
    return Symbol(name, 2, value, size, GLOBAL, is_code)


def test_functions_and_their_fragments() -> None:
    names = ["f", "g", "g.cold", "h", "gone", "away", "inline"]
    linkages = ["external", "internal", "external", "external", "internal", "private", "available_externally"]
    symbols = [
        symbol("f", 0, 10), symbol("f.cold", 100, 3), symbol("f.cold.1", 110, 4), symbol("f.__part.2", 120, 5),
        symbol("g", 20, 7), symbol("g.cold", 30, 8), symbol("g.cold.1", 40, 9), symbol("f.table", 200, 64),
        symbol("f.cold.data", 300, 1, is_code=False), symbol("h", 20, 7), symbol("OUTLINED_FUNCTION_0", 400, 6),
    ]  # fmt: skip
    labels = label_functions(names, linkages, symbols)
    assert [(label.status, label.size, label.fragments) for label in labels] == [
        (LabelStatus.OK, 22, 3),
        (LabelStatus.MERGED, 7 + 9, 1),
        (LabelStatus.OK, 8, 0),
        (LabelStatus.MERGED, 7, 0),
        (LabelStatus.ELIMINATED, None, 0),
        (LabelStatus.NO_SYMBOL, None, 0),
        (LabelStatus.NOT_EMITTED, None, 0),
    ]
    assert [label.again for label in labels] == [False, False, False, True, False, False, False]


def test_parts_of_basic_block_sections_are_fragments(llvm22: Llvm, compile_c: Callable[..., Path]) -> None:
    code = "int g(int); int f(int x) { if (x > 3) return g(x); if (x < -2) return g(x + 1) * 2; return 1; }"
    data = compile_c(llvm22, code, "-O2", "-fbasic-block-sections=all", "--target=x86_64-linux-gnu").read_bytes()
    symbols = parse_symbols(data)
    assert sorted((symbol.name, symbol.size) for symbol in symbols if symbol.is_code) == [
        ("f", 14), ("f.__part.1", 19), ("f.__part.2", 19), ("f.__part.3", 1),
    ]  # fmt: skip
    (label,) = label_functions(["f"], ["external"], symbols)
    assert (label.status, label.size, label.fragments) == (LabelStatus.OK, 53, 3)


def test_names_as_objects_write_them() -> None:
    assert object_name("f", "e-m:e-i64:64") == "f"
    assert object_name("f", "e-m:o-i64:64") == "_f"
    assert object_name("f", "e-m:x-p:32:32") == "_f"
    assert object_name("\1f", "e-m:o-i64:64") == "f"
    assert label_functions(["f"], ["external"], [symbol("_f", 0, 3)], "e-m:o")[0].size == 3


@pytest.mark.parametrize("target", ["arm64-apple-macosx11", "x86_64-pc-windows-msvc"])
def test_what_lief_has_no_name_for(
    llvm19: Llvm, compile_c: Callable[..., Path], target: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code = CODE.replace('int five(int) __attribute__((alias("four")));', "")
    data = compile_c(llvm19, code, "-O2", f"--target={target}").read_bytes()
    for width in (1, 4):
        for at in range(0, len(data), width):
            damaged = data[:at] + b"\xff" * width + data[at + width :]
            for read in (parse_objfile, parse_symbols, measure_object, partial(compare_objects, data)):
                with suppress(FormatError):
                    read(damaged)
    assert capfd.readouterr() == ("", "")


def test_unknown_flags_of_a_macho_section(llvm19: Llvm, compile_c: Callable[..., Path]) -> None:
    code = CODE.replace('int five(int) __attribute__((alias("four")));', "")
    data = bytearray(compile_c(llvm19, code, "-O2", "--target=arm64-apple-macosx11").read_bytes())
    expected = parse_symbols(bytes(data))
    flags = data.index(b"__text") + 64  # section_64: two names of 16 bytes, then 8, 8, 4, 4, 4, 4
    assert struct.unpack_from("<I", data, flags)[0] & 0x8000_0000
    data[flags + 1] |= 0x80
    assert parse_symbols(bytes(data)) == expected


def test_a_long_coff_name_that_is_not_utf8(llvm19: Llvm, compile_c: Callable[..., Path], tmp_path: Path) -> None:
    code = '__attribute__((section("a_very_long_section"))) int f(void) { return 1; }'
    data = compile_c(llvm19, code, "-O2", "--target=x86_64-pc-windows-msvc").read_bytes()
    assert b"a_very_long_section" in data
    data = data.replace(b"a_very_long_section", b"a_very_\xff\xfeng_section")
    assert "a_very_\\xff\\xfeng_section" in {section.name for section in parse_objfile(data).sections}
    assert "f" in {symbol.name for symbol in parse_symbols(data)}
    member = b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (b"a.obj/", 0, 0, 0, 0o644, len(data)) + data + b"\n" * (len(data) % 2)
    (tmp_path / "a.lib").write_bytes(b"!<arch>\n" + member)
    (found,) = explain_file(tmp_path / "a.lib").modules
    assert (found.member, found.reason) == ("a.obj", "no_bitcode")
