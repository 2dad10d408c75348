"""Objects, archives and bitcode, damaged: each is read, or refused on one line; extraction accounts for every byte."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlgo_corpus import extract_corpus
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.explain import explain_file
from mlgo_corpus.formats.bitcode.functions import count_functions, read_functions
from mlgo_corpus.formats.bitcode.headers import iter_extents, read_module_header, read_producer
from mlgo_corpus.formats.objects.archive import iter_members
from mlgo_corpus.formats.objects.compare import compare_objects
from mlgo_corpus.formats.objects.objfile import measure_object, parse_objfile
from mlgo_corpus.formats.objects.symbols import parse_symbols
from tests.conftest import EMBED, Llvm
from tests.formats.objects.test_archive import write_bsd, write_gnu
from tests.runs.extract.test_hostile import fat, thin
from tests.runs.extract.test_incremental import ar, real_objects, sections

from .mutations import check_one_line, mutate

SOURCE = """
__attribute__((weak)) int shared;
static int helper(int x) { return x * 3; }
__attribute__((section("__TEXT,__a_long_name"))) int f(int x) { return helper(x) + shared; }
"""
TARGETS = ("x86_64-apple-macos11", "arm64-apple-macos11", "x86_64-pc-windows-msvc", "i686-pc-windows-msvc")
# Extraction takes longer than all else together.
OBJECTS_PER_INPUT = 6

READERS: dict[str, Callable[[bytes], Any]] = {
    "parse_objfile": parse_objfile,
    "measure_object": measure_object,
    "parse_symbols": parse_symbols,
    "read_functions": read_functions,
    "count_functions": count_functions,
    "read_module_header": read_module_header,
    "read_producer": read_producer,
    "iter_extents": lambda data: list(iter_extents(data)),
    "iter_members": lambda data: list(iter_members(data)),
}


def prepare(folder: Path) -> None:
    objects = real_objects(number=4)
    bitcode, _ = sections(objects[0])
    made = dict(enumerate(objects))
    compiled = list(_compiled(folder))
    size = len(compiled[0]) if compiled else 0
    seeds = [
        *made.values(),
        *compiled,
        bitcode,
        bitcode + bitcode,
        struct.pack("<5I", 0x0B17C0DE, 0, 20, len(bitcode), 7) + bitcode,
        ar({"a.o": objects[0], "b.o": objects[1]}),
        write_gnu([("a_name_longer_than_fifteen.o", objects[0]), ("b.o", bitcode)]),
        write_bsd([("a_name_longer_than_fifteen.o", objects[1])]),
        thin([b"0/", b"b.o/"], b"a_name_longer_than_fifteen.o/\n"),
        *([ar({"c.obj": compiled[-1]}), fat([(48, size)], bytes(20) + compiled[0])] if compiled else []),
    ]
    for number, data in enumerate(seeds):
        (folder / f"{number:02}").write_bytes(data)


def _compiled(folder: Path) -> list[bytes]:
    """Give Mach-O, COFF and PE files, where there is a compiler and a linker for them."""
    llvm = Llvm(22)
    if not llvm.clang:
        return []
    source = folder / "a.c"
    output = folder / "a.o"
    found = []
    for target in TARGETS:
        text = SOURCE if "apple" in target else SOURCE.replace("__TEXT,__a_long_name", "a_long_name")
        source.write_text(text)
        subprocess.run((llvm.clang, f"--target={target}", "-O2", *EMBED, "-c", source, "-o", output), check=True)
        found.append(output.read_bytes())
    if linker := llvm.tool("lld-link"):
        linked = folder / "a.exe"
        subprocess.run((linker, "/noentry", "/dll", "/safeseh:no", f"/out:{linked}", output), check=True)
        found.append(linked.read_bytes())
    for path in folder.iterdir():
        path.unlink()
    return found


@functools.cache
def _seeds(prepared: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(prepared.iterdir())]


def check(prepared: Path, rng: random.Random, folder: Path) -> None:
    seeds = _seeds(prepared)
    (folder / "in").mkdir()
    for number in range(OBJECTS_PER_INPUT):
        whole = rng.choice(seeds)
        data = mutate(whole, seeds, rng)
        path = folder / "in" / f"{number}.o"
        path.write_bytes(data)
        for reader in READERS.values():
            _read(reader, data)
        _read(compare_objects, data, whole)
        _read(compare_objects, whole, data)
        _read(explain_file, path)
    before = sorted(os.listdir(folder / "in"))
    try:
        report = extract_corpus([folder / "in"], folder / "corpus", jobs=1)
    except UsageError as error:
        check_one_line(error)
        assert not (folder / "corpus").exists()
    else:
        assert report.bitcode_found == report.bitcode_explained, report
    assert sorted(os.listdir(folder / "in")) == before
    assert set(os.listdir(folder)) <= {"in", "corpus"}


def _read(reader: Callable[..., Any], *arguments: Any) -> None:
    with contextlib.suppress(MlgoCorpusError):
        try:
            reader(*arguments)
        except MlgoCorpusError as error:
            check_one_line(error)
            raise
