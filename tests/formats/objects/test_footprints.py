"""The bytes of each function, against LLVM's own tools."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.bitcode.functions import function_names, read_functions
from mlgo_corpus.formats.objects.folding import folding_classes
from mlgo_corpus.formats.objects.footprints import Exports, function_footprints, linked_footprints, names_by_symbol
from tests.conftest import Llvm, run_checked

CODE = """
struct Guard { int *p; ~Guard() { delete p; } };
extern "C" void touch(int *);
template <class T> T first(T a) { Guard g{new int(int(a))}; touch(g.p); return a + T(*g.p); }
int one(int a) { return first(a) + first(long(a)); }
int two(int a) { try { return one(a * 3); } catch (...) { return -1; } }
static int quiet(int a) { Guard g{new int(a)}; touch(g.p); Guard h{new int(a + 1)}; touch(h.p); return *h.p; }
int three(int a) { return quiet(a) - quiet(a * a) * 7; }
int four(int a) noexcept { return a * 11; }
"""


@pytest.fixture(
    scope="module", params=[(), ("-ffunction-sections",), ("-fno-pic",)], ids=["plain", "sections", "no-pic"]
)
def compiled(llvm22: Llvm, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("footprints")
    (folder / "a.cpp").write_text(CODE)
    run_checked(llvm22.clangxx, "-Oz", "-fno-inline", *request.param, "-c", "a.cpp", "-o", "a.o", cwd=folder)
    return folder / "a.o"


def test_code_and_what_goes_with_it(llvm22: Llvm, compiled: Path) -> None:
    found = function_footprints(compiled.read_bytes())
    names = run_checked(llvm22.nm, "--print-size", "--defined-only", compiled)
    code = {line.split()[3]: int(line.split()[1], 16) for line in names.splitlines() if len(line.split()) == 4}
    code = {name: size for name, size in code.items() if name in found}
    assert len(found) == len(code) >= 8

    frames = run_checked(llvm22.tool("llvm-dwarfdump"), "--eh-frame", compiled)
    entries = re.findall(r"^[0-9a-f]{8} ([0-9a-f]{8}) [0-9a-f]{8} FDE .* pc=([0-9a-f]+)\.\.\.([0-9a-f]+)", frames, re.M)
    lengths: dict[int, set[int]] = {}
    for length, first, after in entries:
        lengths.setdefault(int(after, 16) - int(first, 16), set()).add(int(length, 16) + 4)
    sections = run_checked(llvm22.size, "-A", compiled)
    pads = {name: int(size) for name, size in re.findall(r"^(\.gcc_except_table\S*) +(\d+)", sections, re.M)}
    checked = 0
    for name, size in found.items():
        if list(code.values()).count(code[name]) == 1 and f".gcc_except_table.{name}" in pads:
            (length,) = lengths[code[name]]
            assert size == code[name] + length + pads[f".gcc_except_table.{name}"]
            checked += 1
    assert checked >= 1
    all_frames = sum(int(length, 16) + 4 for length, _, _ in entries)
    # Tables that share a section may have up to three bytes between them.
    assert 0 <= sum(code.values()) + all_frames + sum(pads.values()) - sum(found.values()) <= 3


ALIASED = """
int touch(int);
template <class T> struct Both { int a; __attribute__((noinline)) Both(int x) : a(touch(x)) {} ~Both() { touch(a); } };
struct One { int a; One(int); ~One(); };
One::One(int x) { a = touch(x) * 3; }
One::~One() { touch(a - 1); }
template struct Both<int>;
extern "C" int plainly(int a) { return touch(a) + 1; }
#ifndef __APPLE__
extern "C" int also(int) __attribute__((alias("plainly")));
#endif
int raw(int a) __asm__("raw name");
int raw(int a) { return a * 7; }
"""


@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "arm64-apple-macosx12", "i686-windows-gnu"])
def test_functions_have_the_names_that_the_compiler_has_for_them(llvm22: Llvm, target: str, tmp_path: Path) -> None:
    """A constructor that is not inline has two symbols at one place, and Mach-O puts a ``_`` before each."""
    (tmp_path / "a.cpp").write_text(ALIASED)
    options = (llvm22.clangxx, f"--target={target}", "-Oz", "-c", "a.cpp")
    run_checked(*options, "-o", "a.o", cwd=tmp_path)
    run_checked(*options, "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-o", "a.bc", cwd=tmp_path)
    bitcode, data = (tmp_path / "a.bc").read_bytes(), (tmp_path / "a.o").read_bytes()
    functions = function_names(bitcode)
    assert functions == tuple(one.name for one in read_functions(bitcode))

    named = function_footprints(data, names_by_symbol(data, functions))
    symbols = function_footprints(data)
    assert sum(named.values()) == sum(symbols.values()) > 0
    assert {"_ZN3OneC2Ei", "_ZN3OneD2Ev", "_ZN4BothIiEC2Ei", "plainly", "raw name"} <= named.keys()
    outlined = {name for name in named if name.startswith("_OUTLINED_FUNCTION_")}  # by the backend of AArch64
    assert named.keys() - outlined <= {name.removeprefix("\1") for name in functions}
    if target == "x86_64-linux-gnu":
        assert "_ZN3OneC2Ei" not in symbols
        assert named["_ZN3OneC2Ei"] == symbols["_ZN3OneC1Ei"]


def function(name: str, code: str) -> str:
    return f"""
.section .text.{name},"ax",@progbits
.globl {name}
.type {name},@function
{name}:
.cfi_startproc
{code}
.cfi_endproc
.size {name},.-{name}
"""


def test_functions_in_sections_whose_numbers_have_more_than_16_bits(
    llvm22: Llvm, compile_c: Callable[..., Path]
) -> None:
    empty = "".join(f'.section .empty,"a",@progbits,unique,{number}\n' for number in range(65_300))
    functions = function("f", "call g\nret") + function("g", "nop\nret") + function("h", "call g\nret")
    data = compile_c(llvm22, empty + functions, "--target=x86_64-linux-gnu", name="a.s").read_bytes()
    # The last of the FDEs is filled up to 24 bytes.
    assert function_footprints(data) == {"f": 6 + 20, "g": 2 + 20, "h": 6 + 24}
    classes = folding_classes(data)
    assert classes["f"] == classes["h"] != classes["g"]


def test_damage_is_an_error_or_another_answer(compiled: Path) -> None:
    data = compiled.read_bytes()
    for size in range(0, len(data), 23):
        try:
            linked_footprints(data[:size], exports=Exports.CALLS)
        except FormatError:
            continue
    generator = random.Random(1)
    for _ in range(400):
        broken = bytearray(data)
        for _ in range(3):
            broken[generator.randrange(16, len(data))] = generator.randrange(256)
        try:
            found, entries = linked_footprints(bytes(broken), exports=Exports.CALLS)
        except FormatError:
            continue
        assert found == function_footprints(bytes(broken))
        assert all(size >= 0 for size in (*found.values(), *entries.values()))


EXPORTED = """
struct Both { int a; KEPT Both(int x) : a(x * 3) {} KEPT ~Both() { a = 0; } };
template <class T> struct Stack {
  T items[8]; int top = 0;
  KEPT void push(T x) { items[top++] = x; }
  KEPT T pop() { return items[--top]; }
};
template <class T> KEPT T through(T x) { Stack<T> s; s.push(x); s.push(x + 1); return s.pop() * s.pop(); }
__attribute__((visibility("hidden"))) KEPT inline int hidden(int x) { return x * x + 5; }
__attribute__((visibility("protected"))) KEPT inline int guarded(int x) { return x * 9; }
KEPT static int quiet(int x) { return x % 7; }
int first(int x) { Both b(x); return through(b.a) + hidden(x) + guarded(x); }
int second(int x) { return int(through(long(x))) - int(through(short(x))) + quiet(x) * quiet(x + 1); }
"""


@pytest.mark.parametrize(
    ("exports", "options", "flag", "stubs", "addresses"),
    [
        (Exports.CALLS, ("-shared",), "-fplt", 11, 0),  # one is protected, and so is called without a stub
        (Exports.CALLS, ("-shared",), "-fno-plt", 8, 3),  # at -Oz most are called by stubs still, which is shorter
        (Exports.NAMES, ("-shared", "-Bsymbolic-functions"), "-fplt", 0, 0),
        (Exports.NAMES, ("-shared", "--dynamic-list=some.list"), "-fplt", 0, 0),
        (Exports.NAMES, ("-pie", "--export-dynamic", "--no-dynamic-linker"), "-fplt", 0, 0),
    ],
)
def test_what_a_linker_adds_of_each_function(
    llvm22: Llvm, tmp_path: Path, exports: Exports, options: tuple[str, ...], flag: str, stubs: int, addresses: int
) -> None:
    """Two libraries or programs of the same code, with many functions and with few: sections, and what is expected."""
    (tmp_path / "some.list").write_text("{ other; };")
    (tmp_path / "a.cpp").write_text(EXPORTED)
    entries, sizes = [], []
    for kept in ("noinline", "always_inline"):
        flags = ("-Oz", "-fPIC", flag, "-fno-exceptions", f"-DKEPT=__attribute__(({kept}))", "-c", "a.cpp", "-o", "a.o")
        run_checked(llvm22.clangxx, *flags, cwd=tmp_path)
        data = (tmp_path / "a.o").read_bytes()
        entries.append(linked_footprints(data, exports=exports)[1])
        footprints = function_footprints(data)
        assert linked_footprints(data, exports=Exports.NOTHING) == (footprints, dict.fromkeys(footprints, 8))
        run_checked(llvm22.ld_lld, *options, "--eh-frame-hdr", "--hash-style=gnu", "a.o", "-o", "a.so", cwd=tmp_path)
        listed = run_checked(llvm22.size, "-A", "a.so", cwd=tmp_path)
        sizes.append(Counter({name: int(size) for name, size in re.findall(r"^(\.\S+) +(\d+)", listed, re.M)}))
    more = entries[0].keys() - entries[1].keys()
    assert len(more) == 14
    assert {entries[0][name] for name in more if "hidden" in name or "quiet" in name} == {8}
    added = sizes[0] - sizes[1]
    assert added[".dynsym"] == 24 * 12
    assert added[".eh_frame_hdr"] == 8 * 14
    head = 16 if stubs else 0
    assert (added[".plt"], added[".rela.plt"], added[".rela.dyn"]) == (head + 16 * stubs, 24 * stubs, 24 * addresses)
    tables = sum(added[f".{name}"] for name in ("dynsym", "dynstr", "plt", "rela.plt", "rela.dyn", "eh_frame_hdr"))
    assert sum(entries[0].values()) - sum(entries[1].values()) == tables - head + 8 * 12
