"""Section tables against lief and LLVM's own tools, and against every kind of damage."""

from __future__ import annotations

import contextlib
import re
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import lief
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError
from mlgo_corpus.formats.objects.objfile import (
    Container,
    FatSlice,
    ObjectSizes,
    ObjFile,
    Section,
    identify_container,
    load_lief,
    measure_object,
    parse_fat,
    parse_objfile,
)
from tests.conftest import EMBED, Llvm, run_checked

SOURCE = "int square(int x) { return x * x; }\nint table[3] = {1, 2, 3};\nint zeros[9];\n"
ELF_NAMES = frozenset({".llvmbc", ".llvmcmd"})
MACHO_NAMES = frozenset({"__LLVM,__bitcode", "__LLVM,__cmdline"})

Compile = Callable[..., Path]


def elf_file(
    sections: list[tuple[str, bytes]], *, wide: bool = True, order: str = "<", extended: bool = False
) -> bytes:
    """Write a small ELF object by the book, with the name table last, sharing tails where it can."""
    table = b"\0" + b"".join(name.encode() + b"\0" for name, _ in sections) + b".shstrtab\0"
    header_size, entry = (64, 64) if wide else (52, 40)
    entry_form = order + ("IIQQQQIIQQ" if wide else "10I")
    body = b""
    headers = [struct.pack(entry_form, *([0] * 10))]
    for name, content in [*sections, (".shstrtab", table)]:
        at = header_size + len(body)
        headers.append(
            struct.pack(entry_form, table.index(name.encode() + b"\0"), 1, 0, 0, at, len(content), 0, 0, 1, 0)
        )
        body += content
    count, strings = len(headers), len(headers) - 1
    if extended:
        headers[0] = struct.pack(entry_form, 0, 0, 0, 0, 0, count, strings, 0, 0, 0)
        count, strings = 0, 0xFFFF
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    form = order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH")
    header = struct.pack(form, 1, 62, 1, 0, 0, header_size + len(body), 0, header_size, 0, 0, entry, count, strings)
    return ident + header + body + b"".join(headers)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("extended", [True, False])
def test_elf_by_the_book(wide: bool, order: str, extended: bool) -> None:
    data = elf_file(
        [(".text", b"code"), (".llvmbc", b"BC"), (".llvmcmd", b"-cc1\0")],
        wide=wide,
        order=order,
        extended=extended,
    )
    found = parse_objfile(data, ELF_NAMES)
    assert [(item.name, data[item.offset : item.offset + item.size]) for item in found.sections] == [
        (".llvmbc", b"BC"),
        (".llvmcmd", b"-cc1\0"),
    ]
    assert [item.name for item in parse_objfile(data).sections] == [
        "",
        ".text",
        ".llvmbc",
        ".llvmcmd",
        ".shstrtab",
    ]


def test_a_name_that_is_the_tail_of_another() -> None:
    # The table holds ".rela.llvmbc" only; ".llvmbc" is its tail, as linkers and assemblers share names.
    data = bytearray(elf_file([(".rela.llvmbc", b"relocations"), (".llvmXX", b"bitcode")]))
    own = data.rindex(b".llvmXX")
    names_at = data.rindex(b"\0.rela.llvmbc")
    (e_shoff,) = struct.unpack_from("<Q", data, 40)
    tail = own - names_at - len(".llvmbc") - 1
    struct.pack_into("<I", data, e_shoff + 2 * 64, tail)
    (section,) = parse_objfile(bytes(data), {".llvmbc"}).sections
    assert data[section.offset : section.offset + section.size] == b"bitcode"


def test_two_sections_of_one_name_are_both_found() -> None:
    data = elf_file([(".llvmbc", b"one"), (".text", b""), (".llvmbc", b"two")])
    found = parse_objfile(data, ELF_NAMES).sections
    assert [data[item.offset : item.offset + item.size] for item in found] == [b"one", b"two"]


def test_elf_without_sections() -> None:
    data = bytearray(elf_file([]))
    struct.pack_into("<Q", data, 40, 0)
    assert parse_objfile(bytes(data)) == ObjFile(Container.ELF, False, ())


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (4, "B", 3, r"^byte 4: ELF class 3 and data encoding 1 do not exist$"),
        (58, "<H", 40, r"^byte 0: e_shentsize is 40, expected 64$"),
        (40, "<Q", 1 << 60, r"reading the section header table at 1152921504606846976, but the file ends at"),
        (60, "<H", 60000, r"reading 60000 section headers at \d+, expected 3840000 bytes, got 320$"),
        (62, "<H", 99, r"e_shstrndx is 99, but there are 5 sections$"),
    ],
)
def test_elf_headers_that_lie(at: int, form: str, value: int, message: str) -> None:
    data = bytearray(elf_file([(".text", b"code"), (".llvmbc", b"BC"), (".llvmcmd", b"-cc1\0")]))
    struct.pack_into(form, data, at, value)
    with pytest.raises(FormatError, match=message):
        parse_objfile(bytes(data), ELF_NAMES)


def test_a_section_past_the_end_matters_only_if_it_is_asked_for() -> None:
    data = bytearray(elf_file([(".text", b"code"), (".llvmbc", b"BC")]))
    (e_shoff,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<Q", data, e_shoff + 2 * 64 + 32, 1 << 40)
    with pytest.raises(TruncatedError, match=r"section '.llvmbc' is 1099511627776 bytes at 68, but the file ends at"):
        parse_objfile(bytes(data), ELF_NAMES)
    assert parse_objfile(bytes(data), {".text"}).sections == (Section(".text", 64, 4),)


def test_long_names_that_many_sections_share_are_refused() -> None:
    data = bytearray(elf_file([("n" * 10_000, b""), *[("x", b"")] * 5]))
    (e_shoff,) = struct.unpack_from("<Q", data, 40)
    for index in range(2, 5):
        struct.pack_into("<I", data, e_shoff + 64 * index, 1)
    assert [len(section.name) for section in parse_objfile(bytes(data)).sections] == [0, *[10_000] * 4, 1, 1, 9]
    struct.pack_into("<I", data, e_shoff + 64 * 5, 1)
    with pytest.raises(FormatError, match=r"too many sections share long names: section 5 one of 10000 bytes$"):
        parse_objfile(bytes(data))


def test_a_compressed_section_is_not_taken_for_its_content() -> None:
    data = bytearray(elf_file([(".llvmbc", b"compressed")]))
    (e_shoff,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<Q", data, e_shoff + 64 + 8, 0x800)
    with pytest.raises(UnsupportedError, match=r"section '.llvmbc' is compressed \(SHF_COMPRESSED\)"):
        parse_objfile(bytes(data), ELF_NAMES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"^byte 0: expected an ELF, Mach-O or COFF file, found 0 bytes$"),
        (b"#include <x>\n", r"found text that begins '#include <x>\\n'$"),
        (b"\0\1\2\3\4\5\6\7\x08", r"found bytes 00 01 02 03 04 05 06 07$"),
        (b"\0asm\1\0\0\0", r"found a WebAssembly file$"),
    ],
)
def test_other_files_are_named(data: bytes, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        parse_objfile(data)


def test_a_java_class_is_no_fat_file() -> None:
    assert identify_container(b"\xca\xfe\xba\xbe\0\0\0\x37" + bytes(60)) is None
    assert identify_container(b"\xca\xfe\xba\xbe\0\0\0\x02" + bytes(60)) is Container.FAT_MACHO


@pytest.mark.parametrize(
    "target",
    [
        "x86_64-linux-gnu",
        "aarch64-linux-gnu",
        "i686-linux-gnu",
        "mips-linux-gnu",
        "powerpc64-linux-gnu",
        "riscv32",
    ],
)
def test_elf_sections_equal_liefs(llvm22: Llvm, compile_c: Compile, target: str) -> None:
    path = compile_c(llvm22, SOURCE, "-Oz", "-g", "-ffunction-sections", *EMBED, "-target", target)
    found = parse_objfile(path.read_bytes())
    expected = lief.ELF.parse(str(path))
    assert expected is not None
    nobits = lief.ELF.Section.TYPE.NOBITS
    assert list(found.sections) == [
        Section(item.name, item.file_offset, 0 if item.type == nobits else item.size) for item in expected.sections
    ]
    assert not found.linked
    wanted = parse_objfile(path.read_bytes(), ELF_NAMES)
    assert list(wanted.sections) == [item for item in found.sections if item.name in ELF_NAMES]
    assert len(wanted.sections) == 2


def test_more_sections_than_the_header_can_count(llvm22: Llvm, tmp_path: Path) -> None:
    lines = [f'.section .text.f{number},"ax",@progbits\nf{number}: ret\n' for number in range(70_000)]
    (tmp_path / "many.s").write_text("".join(lines) + '.section .llvmbc,"",@progbits\n.ascii "bits"\n')
    run_checked(llvm22.clang, "-c", "many.s", "-o", "many.o", cwd=tmp_path)
    data = (tmp_path / "many.o").read_bytes()
    (section,) = parse_objfile(data, ELF_NAMES).sections
    assert data[section.offset : section.offset + section.size] == b"bits"
    assert len(parse_objfile(data).sections) > 70_000


@pytest.mark.parametrize("target", ["x86_64-apple-macos11", "arm64-apple-macos11"])
def test_macho(llvm22: Llvm, compile_c: Compile, target: str) -> None:
    path = compile_c(llvm22, SOURCE, "-Oz", *EMBED, "-target", target)
    data = path.read_bytes()
    found = parse_objfile(data, MACHO_NAMES)
    assert found.container is Container.MACHO
    assert not found.linked
    for name in MACHO_NAMES:
        (section,) = [item for item in found.sections if item.name == name]
        dump = path.with_suffix(".dump")
        run_checked(llvm22.objcopy, f"--dump-section={name}={dump}", str(path), str(path.with_suffix(".copy")))
        assert data[section.offset : section.offset + section.size] == dump.read_bytes()


def test_coff(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(llvm22, SOURCE, "-Oz", *EMBED, "-target", "x86_64-pc-windows-msvc")
    data = path.read_bytes()
    found = parse_objfile(data, ELF_NAMES)
    assert found.container is Container.COFF
    assert not found.linked
    assert [item.name for item in found.sections] == [".llvmbc", ".llvmcmd"]
    for section in found.sections:
        dump = tmp_path / "dump"
        run_checked(llvm22.objcopy, f"--dump-section={section.name}={dump}", str(path), str(tmp_path / "copy"))
        assert data[section.offset : section.offset + section.size] == dump.read_bytes()
    assert ".llvm_addrsig" in {item.name for item in parse_objfile(data).sections}


def test_bigobj(llvm22: Llvm, tmp_path: Path) -> None:
    lines = [f'.section .text$f{number},"xr"\nf{number}: ret\n' for number in range(66_000)]
    (tmp_path / "big.s").write_text("".join(lines) + '.section .llvmbc,"n"\n.ascii "bits"\n')
    run_checked(llvm22.clang, "-target", "x86_64-pc-windows-msvc", "-c", "big.s", "-o", "big.obj", cwd=tmp_path)
    data = (tmp_path / "big.obj").read_bytes()
    assert data.startswith(b"\0\0\xff\xff")
    found = parse_objfile(data, ELF_NAMES)
    assert found.container is Container.COFF
    (section,) = found.sections
    assert data[section.offset : section.offset + section.size] == b"bits"
    for size in (30, 40, 56, 1000, len(data) - 1):
        with pytest.raises(TruncatedError):
            parse_objfile(data[:size], ELF_NAMES)


def test_pe(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    target = ("-Oz", *EMBED, "-target", "x86_64-pc-windows-msvc")
    one = compile_c(llvm22, "int main(void) { return 0; }", *target, name="one.c", output="one.obj")
    two = compile_c(llvm22, "int two(void) { return 2; }", *target, name="two.c", output="two.obj")
    out = tmp_path / "app.exe"
    options = ("/entry:main", "/subsystem:console", "/nodefaultlib", f"/out:{out}")
    run_checked(llvm22.tool("lld-link"), str(one), str(two), *options)
    data = out.read_bytes()
    found = parse_objfile(data, ELF_NAMES)
    assert found.container is Container.PE
    assert found.linked
    objects = [item.read_bytes() for item in (one, two)]
    for name in (".llvmbc", ".llvmcmd"):
        parts = []
        for content in objects:
            (section,) = parse_objfile(content, {name}).sections
            parts.append(content[section.offset : section.offset + section.size])
        (section,) = [item for item in found.sections if item.name == name]
        assert data[section.offset : section.offset + section.size] == b"".join(parts)
    assert parse_objfile(b"MZ" + data[2:], {".nothing"}).sections == ()
    with pytest.raises(UnsupportedError, match="an MZ file without a PE header"):
        parse_objfile(b"MZ" + bytes(200))


def test_fat_macho(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    intel = compile_c(llvm22, SOURCE, "-target", "x86_64-apple-macos11", output="intel.o")
    arm = compile_c(llvm22, SOURCE, "-target", "arm64-apple-macos11", output="arm.o")
    run_checked(llvm22.lipo, "-create", str(intel), str(arm), "-output", str(tmp_path / "fat.o"))
    data = (tmp_path / "fat.o").read_bytes()
    slices = parse_fat(data)
    assert [item.arch for item in slices] == ["x86_64", "arm64"]
    assert [data[item.offset : item.offset + item.size] for item in slices] == [
        intel.read_bytes(),
        arm.read_bytes(),
    ]
    for size in range(8, 48):
        with pytest.raises(TruncatedError):
            parse_fat(data[:size])


def test_fat_64_and_unknown_cpus() -> None:
    data = struct.pack(">II", 0xCAFEBABF, 1) + struct.pack(">IIQQII", 99, 0x80000005, 40, 4, 0, 0) + b"data"
    assert parse_fat(data) == (FatSlice("cpu63.5", 40, 4),)


@pytest.mark.parametrize(
    "target", ["x86_64-linux-gnu", "mips-linux-gnu", "x86_64-apple-macos11", "x86_64-pc-windows-msvc"]
)
def test_truncation_at_every_byte(llvm22: Llvm, compile_c: Compile, target: str) -> None:
    data = compile_c(llvm22, "int f(void) { return 1; }", "-Oz", *EMBED, "-target", target).read_bytes()
    names = ELF_NAMES | MACHO_NAMES
    assert len(parse_objfile(data, names).sections) == 2
    for size in range(len(data)):
        with pytest.raises(FormatError) as caught:
            parse_objfile(data[:size], names)
        assert isinstance(caught.value, TruncatedError | UnsupportedError), f"{size}: {caught.value!r}"


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=8))
def test_flipped_bytes_give_sections_inside_the_file_or_an_error(flips: list[tuple[int, int]]) -> None:
    data = bytearray(elf_file([(".text", b"code"), (".llvmbc", b"BC" * 20), (".llvmcmd", b"-cc1\0")]))
    for at, value in flips:
        data[at % len(data)] = value
    for names in (None, ELF_NAMES):
        try:
            found = parse_objfile(bytes(data), names)
        except FormatError:
            continue
        if names is not None:
            assert all(item.offset + item.size <= len(data) for item in found.sections)


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from([b"\x7fELF\2\1\1", b"\xcf\xfa\xed\xfe", b"d\x86", b"MZ", b"\0\0\xff\xff"]),
    st.binary(max_size=300),
)
def test_noise_behind_a_magic_is_an_error_or_harmless(magic: bytes, noise: bytes) -> None:
    with contextlib.suppress(FormatError):
        parse_objfile(magic + noise, ELF_NAMES)


# --- sizes

MEASURED = """
int square(int x) { return x * x; }
int table[3] = {1, 2, 3};
int zeros[9];
static const int constants[4] = {1, 2, 3, 4};
const char *const names[] = {"one", "two"};
_Thread_local int own = 4;
_Thread_local int owned;
int get(int i) { return constants[i] + zeros[i] + own; }
const char *hello(int i) { return i ? names[i] : "hello world"; }
double third(double x) { return x * 3.25; }
"""
TARGETS = (
    "x86_64-linux-gnu",
    "i686-linux-gnu",
    "aarch64-linux-gnu",
    "aarch64_be-linux-gnu",
    "mips-linux-gnu",
    "mipsel-linux-gnu",
    "powerpc64-linux-gnu",
    "riscv32",
    "riscv64",
    "x86_64-apple-macos11",
    "arm64-apple-macos11",
    "x86_64-pc-windows-msvc",
    "aarch64-pc-windows-msvc",
    "i686-pc-windows-gnu",
)


def executable_bytes(llvm: Llvm, path: Path) -> int:
    """Sum up the executable sections, as llvm-readobj tells them."""
    told = run_checked(llvm.tool("llvm-readobj"), "-S", str(path))
    total = 0
    for section in told.split("Section {")[1:]:
        flags = ("SHF_EXECINSTR", "PureInstructions", "IMAGE_SCN_CNT_CODE")
        size = re.search(r"^ +(?:Size|RawDataSize): (\w+)$", section, re.MULTILINE)
        if size is not None and any(f" {flag} (" in section for flag in flags):
            total += int(size[1], 0)
    return total


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_equal_llvm_sizes(llvm: Llvm, compile_c: Compile, target: str) -> None:
    for flags in (("-Oz",), ("-O2", "-g", "-ffunction-sections", "-fdata-sections"), ("-O0", *EMBED)):
        path = compile_c(llvm, MEASURED, "-target", target, *flags)
        printed = run_checked(llvm.size, str(path)).splitlines()[1]
        found = measure_object(path.read_bytes())
        assert found == ObjectSizes(int(printed.split()[0]), executable_bytes(llvm, path))
        assert found.code_size > 0


def test_sizes_of_many_sections_and_of_none(llvm22: Llvm, tmp_path: Path) -> None:
    lines = [f'.section .text.f{number},"ax",@progbits\nf{number}: ret\n' for number in range(70_000)]
    (tmp_path / "many.s").write_text("".join(lines) + '.section .x,"axw",@nobits\n.zero 5\n.data\n.zero 9\n')
    run_checked(llvm22.clang, "-c", "many.s", "-o", "many.o", cwd=tmp_path)
    printed = run_checked(llvm22.size, str(tmp_path / "many.o")).splitlines()[1]
    assert measure_object((tmp_path / "many.o").read_bytes()) == ObjectSizes(70_005, 70_005)
    assert int(printed.split()[0]) == 70_005
    assert measure_object(elf_file([])) == ObjectSizes(0, 0)


@pytest.mark.parametrize(
    "data", [b"", b"BC\xc0\xde", b"MZ" + bytes(200), b"!<arch>\n", b"\xca\xfe\xba\xbe\0\0\0\1" + bytes(40)]
)
def test_what_has_no_size(data: bytes) -> None:
    with pytest.raises(UnsupportedError, match=r"^byte 0: expected an ELF, Mach-O or COFF object, found "):
        measure_object(data)


@pytest.mark.parametrize(
    "target",
    ["x86_64-linux-gnu", "mips-linux-gnu", "x86_64-apple-macos11", "arm64-apple-macos11", "x86_64-pc-windows-msvc"],
)
def test_sizes_of_what_is_cut_off_at_any_byte(llvm22: Llvm, compile_c: Compile, target: str) -> None:
    data = compile_c(llvm22, "int f(void) { return 1; }", "-Oz", "-target", target).read_bytes()
    whole = measure_object(data)
    for size in range(len(data)):
        try:
            found = measure_object(data[:size])
        except FormatError:
            continue
        assert found == whole  # only what no size is in is missing


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([b"\x7fELF\2\1\1", b"\xcf\xfa\xed\xfe", b"d\x86", b"\0\0\xff\xff"]), st.binary(max_size=300))
def test_sizes_of_noise(magic: bytes, noise: bytes) -> None:
    with contextlib.suppress(FormatError):
        sizes = measure_object(magic + noise)
        assert sizes.code_size <= sizes.text_size


@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "x86_64-apple-macos11", "x86_64-pc-windows-msvc"])
def test_sizes_of_damaged_objects(llvm22: Llvm, compile_c: Compile, target: str) -> None:
    whole = compile_c(llvm22, MEASURED, "-Oz", "-target", target).read_bytes()

    @settings(deadline=None, max_examples=100)
    @given(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), min_size=1, max_size=4))
    def measure(flips: list[tuple[int, int]]) -> None:
        data = bytearray(whole)
        for at, value in flips:
            data[at] = value
        with contextlib.suppress(FormatError):
            measure_object(bytes(data))

    measure()


def test_a_section_with_a_flag_that_nobody_knows(llvm22: Llvm, compile_c: Compile) -> None:
    data = bytearray(compile_c(llvm22, MEASURED, "-Oz", "-target", "x86_64-apple-macos11").read_bytes())
    before = measure_object(bytes(data))
    at = data.index(b"__text")
    data[at + 65] |= 8
    assert measure_object(bytes(data)) == before
    data[at + 16] = 0xFF
    for read in (measure_object, parse_objfile):
        with pytest.raises(FormatError, match=r"a section's name is not text: b'\\xff_TEXT'"):
            read(bytes(data))


def test_no_signal_interrupts_lief_while_it_is_initialised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lief.py").write_text("import signal; signal.raise_signal(signal.SIGINT); whole = True")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lief")
    with pytest.raises(KeyboardInterrupt):
        load_lief()
    assert sys.modules["lief"].whole
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
