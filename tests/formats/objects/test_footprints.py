"""The bytes of each function, against LLVM's own tools."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.objects.footprints import function_footprints
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


def test_damage_is_an_error_or_another_answer(compiled: Path) -> None:
    data = compiled.read_bytes()
    for size in range(0, len(data), 23):
        try:
            function_footprints(data[:size])
        except FormatError:
            continue
    generator = random.Random(1)
    for _ in range(400):
        broken = bytearray(data)
        for _ in range(3):
            broken[generator.randrange(16, len(data))] = generator.randrange(256)
        try:
            found = function_footprints(bytes(broken))
        except FormatError:
            continue
        assert all(size >= 0 for size in found.values())
