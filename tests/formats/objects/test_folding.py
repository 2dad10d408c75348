"""Functions that are alike, against those that lld folds."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.objects.folding import folding_classes
from tests.conftest import Llvm, run_checked

SHARED = """
struct Guard { int *p; ~Guard() { delete p; } };
extern "C" int touch(const char *, const void *);
template <class T> struct Box { T *at; int n; Box(T *t); int size() const; T &get(int i); int call(); int said(); };
template <class T> Box<T>::Box(T *t) : at(t), n(0) {}
template <class T> int Box<T>::size() const { return n; }
template <class T> T &Box<T>::get(int i) { return at[i + n]; }
template <class T> int Box<T>::call() { return touch("same", &get(3)) + size(); }
template <class T> int Box<T>::said() { return touch(sizeof(T) == 4 ? "four" : "eight", at); }
template <class T> int guarded(T a) { Guard g{new int(1)}; return touch("g", g.p) + (a != 0); }
"""
FIRST = """
int a(Box<int> &b, Box<unsigned> &c, Box<long> &d) {
  Box<float> e((float *)&b); touch("first", &e);
  return b.call() + c.call() * 2 + d.call() + b.said() + c.said() + d.said() + guarded(1) + guarded(1u) + e.size();
}
"""
SECOND = """
int b(Box<float> &b, Box<long> &c, Box<unsigned long> &d) {
  Box<double> e((double *)&b); touch("second", &e);
  return b.call() + c.call() * 3 - d.call() + b.said() - c.said() + d.said() + guarded(2u) + e.size();
}
extern "C" int touch(const char *a, const void *b) { return a == b; }
int a(Box<int> &, Box<unsigned> &, Box<long> &);
int main() { return !&a + !&b; }
"""


@pytest.fixture(scope="module", params=[("-fPIC",), ("-fno-pic",)], ids=["pic", "no-pic"])
def objects(llvm22: Llvm, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("folding")
    made = []
    for name, code in (("first", FIRST), ("second", SECOND)):
        (folder / f"{name}.cpp").write_text(SHARED + code)
        made.append(folder / f"{name}.o")
        flags = ("-Oz", "-fno-inline", *request.param, "-c", "-o", made[-1].name)
        run_checked(llvm22.clangxx, *flags, f"{name}.cpp", cwd=folder)
    return made


def test_what_is_alike_is_what_a_linker_folds(llvm22: Llvm, objects: list[Path]) -> None:
    classes: dict[str, int] = {}
    for path in objects:
        classes |= folding_classes(path.read_bytes())
    alike = defaultdict(set)
    for name, number in classes.items():
        alike[number].add(name)
    found = {frozenset(names) for names in alike.values() if len(names) > 1}

    options = ("--icf=all", "--print-icf-sections", "-o", "linked", "--unresolved-symbols=ignore-all", "-no-pie")
    said = run_checked(llvm22.tool("ld.lld"), *options, *(path.name for path in objects), cwd=objects[0].parent)
    folded = set()
    for block in re.split(r"^selected section ", said, flags=re.MULTILINE)[1:]:
        names = frozenset(re.findall(r":\(\.text\.(\S+)\)", block))
        if len(names) > 1:
            folded.add(names)
    assert found == folded
    assert len(found) >= 3
    # What has landing pads is not folded; where what it calls cannot throw, it has none.
    first, second = (folding_classes(path.read_bytes()) for path in objects)
    assert not {"_Z7guardedIiEiT_", "_Z7guardedIjEiT_"} & first.keys()
    assert "_Z7guardedIjEiT_" in second


def test_machine_that_stores_relocations_in_its_own_way(llvm22: Llvm, compile_c: Callable[..., Path]) -> None:
    code = (
        "int a(void); int f(void) { return a() + 1; } int g(void) { return a() + 2; } int h(void) { return a() + 1; }"
    )
    data = compile_c(llvm22, code, "--target=mips64el-linux-gnu", "-O1", "-ffunction-sections").read_bytes()
    classes = folding_classes(data)
    assert classes.keys() == {"f", "g", "h"}
    assert classes["f"] == classes["h"] != classes["g"]


def test_damage_is_an_error_or_another_answer(objects: list[Path]) -> None:
    data = objects[0].read_bytes()
    for size in range(0, len(data), 37):
        try:
            folding_classes(data[:size])
        except FormatError:
            continue
    generator = random.Random(1)
    for _ in range(400):
        broken = bytearray(data)
        for _ in range(3):
            broken[generator.randrange(16, len(data))] = generator.randrange(256)
        try:
            folding_classes(bytes(broken))
        except FormatError:
            continue
